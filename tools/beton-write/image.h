/* SPDX-License-Identifier: Apache-2.0
 *
 * From the bytes of a picture file to what is stored in the dataset. */
#ifndef BETON_WRITE_IMAGE_H
#define BETON_WRITE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>

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

/* Reads and converts the picture file at path; its content decides what it is, not its name. Everything is decoded
 * once, so that a damaged file is found now: SAMPLE_CORRUPT. Further errors: NOT_FOUND, ACCESS, IO, NO_MEMORY. */
int image_load(const char *path, const image_settings *settings, stored_image *out, beton_error *err);

/* Memory for width x height pixels; checks the limits. */
int image_allocate(rgb_image *image, uint64_t width, uint64_t height, const char *path, beton_error *err);

/* Replaces image by one of width x height (neither larger than before), each pixel the mean of the area it covers. */
int image_shrink(rgb_image *image, uint32_t width, uint32_t height, const char *path, beton_error *err);

#endif
