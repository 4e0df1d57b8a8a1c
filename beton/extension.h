/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the extension block that libbeton's writer adds: footer, directory, and the places of sections.
 */
#ifndef BETON_EXTENSION_H
#define BETON_EXTENSION_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

#include "reader.h"

/* Reads the block, if the file has one of a known version, and sets the members of info about it. head: header and
 * field descriptors, info->metadata_offset bytes. Does not read the sections. Errors: FORMAT (the block is damaged),
 * IO, FILE_CHANGED, NO_MEMORY. */
int bt_extension_read(beton_reader *reader, const uint8_t *head, beton_error *err);

/* Whether a value of the file has bytes in the block, whose sections may stand among the pages. */
bool bt_extension_touches(const extension_block *block, uint64_t offset, uint64_t size);

/* Compares a section with its checksum. Errors: FORMAT, IO, FILE_CHANGED, NO_MEMORY. */
int bt_extension_check(const beton_reader *reader, const extension_section *section, beton_error *err);

/* "checksums of the blobs" and so on. */
const char *bt_section_name(uint32_t kind);

#endif
