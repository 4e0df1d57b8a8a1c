/* SPDX-License-Identifier: Apache-2.0
 *
 * Picture files as rasters: any number of channels, 8 or 16 bits, samples as the file has them.
 */
#ifndef BETON_WRITE_RASTER_H
#define BETON_WRITE_RASTER_H

#include "file_bytes.h"
#include "tools/beton-write/sources/source.h"

typedef struct raster_type {
	uint32_t channels;  /* 1..BETON_CHANNELS_MAX */
	uint32_t item_size; /* bytes of a sample: 1 or 2 */
} raster_type;

/* Rows of width x channels samples, little-endian, without padding; data is the owner's to free. */
typedef struct raster_image {
	raster_type type;
	uint32_t width;
	uint32_t height;
	uint8_t *data;
} raster_image;

/* How a file is read. */
typedef struct raster_request {
	const char *name;    /* of the file, for messages */
	uint64_t max_pixels; /* a file with more is not read */
	bool facts_only;     /* type and size are wanted, and no data */
} raster_request;

/* Reads a PNG, TIFF or .npy file in memory; its content determines its kind. Of a TIFF the first picture. Palettes
 * become RGB, and transparency that is stored beside the pixels alpha; nothing is turned or blended. Errors:
 * SAMPLE_CORRUPT (also: another kind of file, or of samples), NO_MEMORY, UNSUPPORTED. Any thread. */
int raster_read(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err);

/* The same from an array that is in memory: height x width, or height x width x channels. */
int raster_read_array(const array_type *type, const void *elements, const raster_request *request, raster_image *out,
		      beton_error *err);

/* For the kinds of files: checks the size, and makes room for the data unless facts_only; out has type and size. */
int raster_allocate(const raster_request *request, raster_image *out, beton_error *err);

int png_read_raster(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err);

/* Needs libtiff. */
int tiff_read_raster(const file_bytes *file, const raster_request *request, raster_image *out, beton_error *err);

#endif
