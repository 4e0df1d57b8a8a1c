/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing of JPEGs. All functions: any thread; errors: SAMPLE_CORRUPT for faults of the picture, and
 * NO_MEMORY. A warning of the decoder is an error: it means damaged data.
 */
#ifndef BETON_WRITE_JPEG_H
#define BETON_WRITE_JPEG_H

#include <stdbool.h>

#include "image.h"

typedef enum jpeg_colour {
	JPEG_GREY,
	JPEG_YCC,
	JPEG_RGB,
	JPEG_CMYK, /* or YCCK: a decoder does not make RGB of it by itself */
} jpeg_colour;

typedef struct jpeg_facts {
	uint32_t width;
	uint32_t height;
	jpeg_colour colour;
	int orientation; /* that of EXIF, 1..8; 1 where there is none */
} jpeg_facts;

/* Reads the header. The other functions are for JPEGs that were let pass: a fault is also one of more than max_pixels.
 */
int jpeg_inspect(const uint8_t *data, size_t size, uint64_t max_pixels, const char *name, jpeg_facts *facts,
		 beton_error *err);

/* Reads the whole picture without making pixels, to find damaged data. index: NULL, or gets the JPEG's, made on the
 * way, in one block of memory that is the caller's to free. partial: NULL, or gets whether coefficients are not all
 * sent. */
int jpeg_check(const uint8_t *data, size_t size, const char *name, beton_jpeg_index **index, bool *partial,
	       beton_error *err);

/* Decodes to RGB for a picture of width x height, no larger than it is: in *eighths of its size, rounded up. */
int jpeg_decode(const uint8_t *data, size_t size, uint32_t width, uint32_t height, const char *name, rgb_image *image,
		int *eighths, beton_error *err);

/* Encodes image as YCbCr, with several restart markers in each row of MCUs. *data is the caller's to free. */
int jpeg_encode(const rgb_image *image, const image_settings *settings, const char *name, uint8_t **data, size_t *size,
		beton_error *err);

/* Resizes a grey or YCbCr JPEG to width x height pixels, like decoding, image_resize and jpeg_encode, but on luma and
 * chroma planes instead of RGB; grey stays grey. *out is the caller's to free. */
int jpeg_reencode(const uint8_t *data, size_t size, uint32_t width, uint32_t height, const image_settings *settings,
		  const char *name, uint8_t **out, size_t *out_size, beton_error *err);

/* Rewrites the coefficients of a JPEG: sequential, with several restart markers in each row of MCUs, optimal Huffman
 * tables, and no metadata. Its pixels are the same. *out is the caller's to free; NULL if this JPEG cannot be written
 * so, though it can be read: coefficients are too large, or not all sent, so that decoders smooth its pixels. */
int jpeg_rewrite(const uint8_t *data, size_t size, const char *name, uint8_t **out, size_t *out_size, beton_error *err);

/* Turns a JPEG of that orientation (2..8) upright without decoding it. *out is the caller's to free; NULL if that would
 * not keep every pixel, because a side is not a multiple of the MCU's, or coefficients are not all sent. */
int jpeg_turn(const uint8_t *data, size_t size, int orientation, const char *name, uint8_t **out, size_t *out_size,
	      beton_error *err);

#endif
