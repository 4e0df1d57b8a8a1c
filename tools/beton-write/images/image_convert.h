/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts picture files to stored pictures.
 */
#ifndef BETON_WRITE_IMAGE_CONVERT_H
#define BETON_WRITE_IMAGE_CONVERT_H

#include "file_bytes.h"
#include "image.h"

/* A picture as it is stored; data is the owner's to free. */
typedef struct stored_image {
	uint8_t *data;
	size_t size;
	beton_image_mode mode;
	uint32_t width;
	uint32_t height;
	beton_jpeg_index *index; /* NULL: not known; in one block of memory with its data, the owner's to free */
} stored_image;

/* Converts a picture file in memory; its content determines its kind. name: of the picture, for messages. out may take
 * over file->data, which is NULL then. Decodes everything once to find damage: SAMPLE_CORRUPT. Further errors:
 * NO_MEMORY. Any thread. */
int image_convert(file_bytes *file, const char *name, const image_settings *settings, stored_image *out,
		  beton_error *err);

/* The same for decoded pixels, as if they came from a PNG; image->data may be taken or replaced. */
int image_convert_pixels(rgb_image *image, const char *name, const image_settings *settings, stored_image *out,
			 beton_error *err);

#endif
