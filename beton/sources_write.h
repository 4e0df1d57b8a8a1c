/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the section of sources (sources.h).
 */
#ifndef BETON_SOURCES_WRITE_H
#define BETON_SOURCES_WRITE_H

#include "section.h"
#include "sources.h"

#define SOURCES_BLOCK UINT32_C(1024) /* names in a block */

typedef struct sources_writer {
	section out;
	uint64_t begin; /* offset in the file */
	uint64_t put;   /* names */
	uint64_t block; /* offset of the block in the section */
	uint8_t *bytes; /* of the block */
	size_t used;
	uint8_t *index;
	size_t index_size;
	size_t index_capacity;
	size_t length; /* of the last name */
	char last[BETON_SOURCE_MAX + 1];
} sources_writer;

/* Begins at offset of fd. path: borrowed. Free the writer after a failure too. Errors: NO_MEMORY, NO_SPACE, IO. */
int bt_sources_begin(sources_writer *self, int fd, const char *path, uint64_t offset, beton_error *err);

/* The next sample's name: length bytes, at most BETON_SOURCE_MAX. */
int bt_sources_put(sources_writer *self, const char *name, size_t length, beton_error *err);

/* After the last name; *size and *sum: of the section. */
int bt_sources_end(sources_writer *self, uint64_t *size, uint64_t *sum, beton_error *err);

void bt_sources_free(sources_writer *self);

#endif
