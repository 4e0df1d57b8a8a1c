/* SPDX-License-Identifier: Apache-2.0
 *
 * One run of bytes of a file that is written front to back, through a buffer, with its checksums taken on the way. */
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
	uint64_t offset; /* in the file, of the buffer's first byte */
	uint8_t *buffer;
	size_t used;
	size_t capacity;
	XXH3_state_t *whole;  /* of all bytes so far */
	struct section *sums; /* gets the checksum of each buffer that is written, or NULL */
} section;

/* Begins at offset of fd with a buffer of `capacity` bytes: a piece, where sums are wanted. On failure the section can
 * still be freed. Errors: NO_MEMORY. */
int beton_section_begin(section *self, int fd, const char *path, const char *name, uint64_t offset, size_t capacity,
			section *sums, beton_error *err);

/* Errors: NO_SPACE, IO. */
int beton_section_put(section *self, const void *data, size_t size, beton_error *err);

/* Writes what is left in the buffer. *sum: XXH3-64 of the whole section. Errors: NO_SPACE, IO. */
int beton_section_end(section *self, uint64_t *sum, beton_error *err);

/* A section of zeros may be freed. */
void beton_section_free(section *self);

#endif
