/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture's orientation in EXIF: 1 is upright; 2 to 8 are mirrored and turned.
 */
#ifndef BETON_WRITE_ORIENTATION_H
#define BETON_WRITE_ORIENTATION_H

#include <stdbool.h>

#include "image.h"

/* The orientation in a block of EXIF, with or without "Exif\0\0" at its start; 0: none, or not EXIF; -1: out of
 * memory. */
int orientation_of_exif(const uint8_t *data, size_t size);

/* True if width and height change places. */
bool orientation_swaps(int orientation);

/* Turns image upright. Errors: NO_MEMORY. */
int orientation_apply(rgb_image *image, int orientation, const char *name, beton_error *err);

#endif
