/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of a value's content: what is stored and, where it is one of text, picture or compressed bytes, what it
 * must be. */
#ifndef BETON_CONTENT_H
#define BETON_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

/* Memory of one thread, which grows to the largest need. Zero-initialise; beton_content_free. */
typedef struct content_buffer {
	uint8_t *stored;
	size_t stored_capacity;
	uint8_t *plain;
	size_t plain_capacity;
} content_buffer;

typedef struct checked_content {
	const uint8_t *data; /* the value's bytes, decompressed; in the buffer */
	uint64_t size;       /* of a picture whose size the table does not tell: what it takes */
	bool decoded;        /* a JPEG was decoded */
	bool undecoded;      /* a JPEG was not: this build cannot */
} checked_content;

/* Reads and checks a value that has a blob; a JPEG of more than max_pixels pixels is a fault. Errors: SAMPLE_CORRUPT,
 * FORMAT (a dictionary), IO, FILE_CHANGED, NO_MEMORY. */
int beton_content_check(const beton_reader *reader, const beton_value *value, uint64_t max_pixels,
			content_buffer *buffer, checked_content *out, beton_error *err);

void beton_content_free(content_buffer *buffer);

#endif
