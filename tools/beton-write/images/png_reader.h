/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_PNG_READER_H
#define BETON_WRITE_PNG_READER_H

#include "image.h"

/* Decodes any PNG to RGB: palettes and grey are expanded, 16 bits are cut to their upper 8 and gamma is ignored, as
 * Pillow does for colour pictures; transparency is treated as settings say. *orientation: that of EXIF, 1..8. Errors:
 * SAMPLE_CORRUPT, NO_MEMORY. */
int png_decode(const uint8_t *data, size_t size, const image_settings *settings, const char *name, rgb_image *image,
	       int *orientation, beton_error *err);

#endif
