/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by all uses of libjpeg: error handling, and reading a header.
 */
#ifndef BETON_WRITE_JPEG_COMMON_H
#define BETON_WRITE_JPEG_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <beton/error.h>

#include "jpeg/escape.h"

/* After the longjmp: NO_MEMORY if that was the reason, else code; "NAME: what: message". */
int jpeg_fail(const bt_jpeg_escape *escape, int code, const char *name, const char *what, beton_error *err);

/* Zero-initialise. */
typedef struct jpeg_reader {
	struct jpeg_decompress_struct info;
	bt_jpeg_escape escape;
} jpeg_reader;

/* Up to the header. The escape must be set up; leaves by it on failure. EXIF markers are kept. */
void jpeg_reader_start(jpeg_reader *self, const uint8_t *data, size_t size);

/* Sets the smallest decoding scale that a result of width x height needs, and returns it in eighths: 1, 2, 4 or 8.
 * (With other numbers decoding takes longer than in full.) */
int jpeg_reader_set_scale(jpeg_reader *self, uint32_t width, uint32_t height);

/* The outcome of a failed reading: SAMPLE_CORRUPT or NO_MEMORY. Destroys self->info. */
int jpeg_reader_fail(jpeg_reader *self, const char *name, beton_error *err);

/* The restart interval, in MCUs of this many blocks, for rows of this many MCUs: the largest divisor of the row that is
 * at most a tenth of it, or 3, and has at least 6 blocks; else the smallest divisor with 6 blocks. So segments form a
 * grid, and a loader decodes only segments that its crop touches. Smaller segments cost more bytes than they save
 * time. */
unsigned int jpeg_restart_interval(unsigned int mcus_per_row, unsigned int blocks_per_mcu);

/* A JPEG in memory that is being written; zero-initialise, start with jpeg_sink_attach. */
typedef struct jpeg_sink {
	struct jpeg_destination_mgr manager;
	uint8_t *data; /* the owner's to free, also after a failure */
	size_t capacity;
	size_t size; /* bytes written, when compression is finished */
} jpeg_sink;

/* Has info write there; capacity: bytes to begin with. Leaves by the escape if out of memory. */
void jpeg_sink_attach(jpeg_sink *self, struct jpeg_compress_struct *info, size_t capacity);

/* Room for that many bytes after the bytes that info has written, which writes no more; the caller then sets
 * self->size. Leaves as jpeg_sink_attach does. */
uint8_t *jpeg_sink_reserve(jpeg_sink *self, struct jpeg_compress_struct *info, size_t bytes);

/* Gives the bytes away, without the room that was not needed. */
void jpeg_sink_take(jpeg_sink *self, uint8_t **data, size_t *size);

#endif
