/* SPDX-License-Identifier: Apache-2.0
 *
 * A contiguous part of a file that is written front to back through a buffer, with checksums.
 */
#ifndef BETON_SECTION_H
#define BETON_SECTION_H

#include <stddef.h>
#include <stdint.h>

#include <xxhash.h>

#include <beton/beton.h>

typedef struct section {
	int fd;
	const char *path; /* borrowed: for messages, as is name */
	const char *name;
	uint64_t offset; /* file offset of the buffer's first byte */
	uint8_t *buffer;
	size_t used;
	size_t capacity;
	XXH3_state_t *whole;  /* of all bytes so far */
	struct section *sums; /* gets the checksum of each buffer; NULL: none */
} section;

/* Begins at offset of fd. capacity: bytes of the buffer; with sums, of a piece. Free the section after a failure too.
 * Errors: NO_MEMORY. */
int bt_section_begin(section *self, int fd, const char *path, const char *name, uint64_t offset, size_t capacity,
		     section *sums, beton_error *err);

/* Errors: NO_SPACE, IO. */
int bt_section_put(section *self, const void *data, size_t size, beton_error *err);

/* Writes the rest of the buffer. *sum: XXH3-64 of the whole section. Errors: NO_SPACE, IO. */
int bt_section_end(section *self, uint64_t *sum, beton_error *err);

/* A zero-initialised section may be freed. */
void bt_section_free(section *self);

#endif
