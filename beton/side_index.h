/* SPDX-License-Identifier: Apache-2.0
 *
 * The side file of a dataset: the sections of JPEG indexes (jpeg_index.h) in a file of their own, NAME.index beside
 * NAME, for files that have no room for them. See docs/format.md.
 */
#ifndef BETON_SIDE_INDEX_H
#define BETON_SIDE_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

#include "reader.h"

/* The side file's path, which the caller frees; NULL: out of memory. */
char *bt_side_path(const char *path);

/* The header of a side file of reader's file with these sections. Errors: beton_reader_fingerprint's. */
int bt_side_make_header(const beton_reader *reader, const side_index *side, uint8_t *header, beton_error *err);

/* Opens the side file of reader's file, if there is one that belongs to it: by the file's size and fingerprint. No
 * fault of a side file is one of the dataset; it is then not used, and side->fault says why. folder: see side_index.
 * Errors: NO_MEMORY. */
int bt_side_open(side_index *side, const beton_reader *reader, int folder, beton_error *err);

/* Whether there is a file at path that begins as a side file. */
bool bt_side_has_magic(const char *path);

/* Removes the file at path if it begins as a side file. Errors: as for removing it and syncing its folder. */
int bt_side_remove(const char *path, bool *removed, beton_error *err);

void bt_side_close(side_index *side);

/* Reads size bytes at offset. Errors: IO, FILE_CHANGED, and errors of opening. */
int bt_side_read(const beton_reader *reader, void *destination, size_t size, uint64_t offset, beton_error *err);

/* Reads them if the system has them in memory; otherwise they are asked for. False: not read. */
bool bt_side_peek(const side_index *side, void *destination, size_t size, uint64_t offset);

/* Compares both sections with their checksums. Errors: FORMAT, IO, FILE_CHANGED, NO_MEMORY. */
int bt_side_check(const beton_reader *reader, beton_error *err);

#endif
