/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes RGB pictures as PNG: 8 bits a channel, no metadata; the same pixels give the same bytes. */
#ifndef TOOLS_PNG_WRITER_H
#define TOOLS_PNG_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

/* Where the bytes go; the code tells whether they could. */
typedef int (*png_put)(void *context, const void *data, size_t size, beton_error *err);

typedef struct png_writer png_writer;

/* Starts a picture of width x height pixels. Errors: INVALID_ARGUMENT (more than libpng's million on a side),
 * NO_MEMORY, and put's. *out is the caller's, NULL on failure. */
int png_writer_open(png_writer **out, uint32_t width, uint32_t height, png_put put, void *context, beton_error *err);

/* The next rows, 3 * width bytes each. */
int png_writer_rows(png_writer *self, const uint8_t *rows, uint32_t count, beton_error *err);

/* After the last row. */
int png_writer_finish(png_writer *self, beton_error *err);

void png_writer_close(png_writer **self);

/* Memory that grows: zero-initialise, free data. */
typedef struct png_bytes {
	uint8_t *data;
	size_t size;
	size_t capacity;
} png_bytes;

/* A whole picture, in place of what bytes held. */
int png_encode(png_bytes *bytes, const uint8_t *pixels, uint32_t width, uint32_t height, beton_error *err);

#endif
