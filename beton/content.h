/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a value's content: its stored bytes and, for text, pictures and compressed bytes, their meaning.
 */
#ifndef BETON_CONTENT_H
#define BETON_CONTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

#include "jpeg/index.h"

/* Memory of one thread, which grows to the largest need. Zero-initialise, and free with bt_content_free. */
typedef struct content_buffer {
	uint8_t *stored;
	size_t stored_capacity;
	uint8_t *plain;
	size_t plain_capacity;
} content_buffer;

typedef struct checked_content {
	const uint8_t *data; /* the value's bytes, decompressed; in the buffer */
	uint64_t size;       /* for a picture whose size the table does not have: its length */
	bool decoded;        /* a JPEG was decoded */
	bool undecoded;      /* this build cannot decode the JPEG */
} checked_content;

/* Reads and checks a value that has a blob; a JPEG of more than max_pixels pixels is a fault. index: of the JPEG, made
 * meanwhile; NULL: none. Errors: SAMPLE_CORRUPT, FORMAT (a dictionary), IO, FILE_CHANGED, NO_MEMORY. */
int bt_content_check(const beton_reader *reader, const beton_value *value, uint64_t max_pixels, bt_index_request *index,
		     content_buffer *buffer, checked_content *out, beton_error *err);

void bt_content_free(content_buffer *buffer);

#endif
