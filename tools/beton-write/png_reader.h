/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BETON_WRITE_PNG_READER_H
#define BETON_WRITE_PNG_READER_H

#include "image.h"

/* Decodes any PNG to RGB: palettes and grey are expanded, 16 bits are cut to their upper 8, transparency is dropped
 * (not blended) and gamma ignored, as Pillow does for colour pictures. */
int png_decode(const uint8_t *data, size_t size, const char *path, rgb_image *image, beton_error *err);

#endif
