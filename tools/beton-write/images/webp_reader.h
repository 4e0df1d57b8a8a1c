/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_WEBP_READER_H
#define BETON_WRITE_WEBP_READER_H

#include "image.h"

/* Decodes a still WebP, lossy or lossless, to RGB; transparency is treated as settings say. *orientation: that of EXIF,
 * 1..8. Errors: SAMPLE_CORRUPT (also for an animated one), NO_MEMORY. */
int webp_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
		int *orientation, beton_error *err);

#endif
