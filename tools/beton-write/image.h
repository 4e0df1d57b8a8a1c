/* SPDX-License-Identifier: Apache-2.0
 *
 * From the bytes of a picture file to what is stored in the dataset. */
#ifndef BETON_WRITE_IMAGE_H
#define BETON_WRITE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

#include "file_bytes.h"

typedef enum write_mode {
	WRITE_ORIGINAL, /* JPEG bytes as they are; other pictures as raw pixels */
	WRITE_JPG,      /* everything encoded as JPEG */
	WRITE_RAW,
} write_mode;

typedef struct image_settings {
	write_mode mode;
	uint32_t max_resolution; /* pixels of the longer side; 0: no limit */
	int quality;             /* of JPEGs encoded here, 1..100 */
} image_settings;

/* Rows of 3 bytes a pixel, without padding; data is the owner's to free. */
typedef struct rgb_image {
	uint8_t *data;
	uint32_t width;
	uint32_t height;
} rgb_image;

/* A picture as it is stored; data is the owner's to free. */
typedef struct stored_image {
	uint8_t *data;
	size_t size;
	beton_image_mode mode;
	uint32_t width;
	uint32_t height;
} stored_image;

/* Converts a picture file in memory; its content decides what it is. name: of the picture, for messages. file->data may
 * be taken into out, and is NULL then. Everything is decoded once, so that a damaged file is found now: SAMPLE_CORRUPT.
 * Further errors: NO_MEMORY. Any thread. */
int image_convert(file_bytes *file, const char *name, const image_settings *settings, stored_image *out,
		  beton_error *err);

/* The same for pixels that are decoded already, as those of a PNG would be; image->data may be taken or replaced. */
int image_convert_pixels(rgb_image *image, const char *name, const image_settings *settings, stored_image *out,
			 beton_error *err);

/* Memory for width x height pixels; checks the limits. */
int image_allocate(rgb_image *image, uint64_t width, uint64_t height, const char *path, beton_error *err);

/* Replaces image by one of width x height (neither larger than before), each pixel the mean of the area it covers. */
int image_shrink(rgb_image *image, uint32_t width, uint32_t height, const char *path, beton_error *err);

#endif
