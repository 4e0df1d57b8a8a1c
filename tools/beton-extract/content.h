/* SPDX-License-Identifier: Apache-2.0
 *
 * A value of a sample as the content of a file. */
#ifndef BETON_EXTRACT_CONTENT_H
#define BETON_EXTRACT_CONTENT_H

#include <beton/beton.h>

#include "tools/common/png_writer.h"

/* Zero-initialise; content_free. Its memory is used again for the next value. */
typedef struct content {
	const uint8_t *data; /* what the file holds */
	size_t size;
	const char *ending; /* of the file's name: jpg, png, int, float, bin, json, npy */
	uint8_t *value;
	uint64_t capacity;
	png_bytes png;
	char *text; /* of a number */
} content;

/* Pictures: the JPEG as it is stored, or the pixels as PNG. Numbers: a line of text that reads back to the same number.
 * JSON: the text. Arrays: NumPy's file. Checksums are compared. Errors: beton_reader_read_value's. */
int content_make(content *self, const beton_reader *reader, const beton_value *value, beton_error *err);
void content_free(content *self);

#endif
