/* SPDX-License-Identifier: Apache-2.0
 *
 * Resampling of 8-bit pixels. */
#ifndef BETON_WRITE_RESIZE_H
#define BETON_WRITE_RESIZE_H

#include "image.h"

/* Rows of width * channels bytes, stride bytes apart. */
typedef struct pixel_rows {
	uint8_t *data;
	uint32_t width;
	uint32_t height;
	size_t stride;
} pixel_rows;

/* Fills `to` from `from`, both of 1 or 3 channels. x_scale, y_scale: pixels of `from` for one of `to`; pixel i of `to`
 * stands for i * scale to (i + 1) * scale, as far as `from` goes. AREA is the mean of that, and linear between the
 * centres of pixels along a side that does not shrink; the others are stretched as wide as a pixel of `to` is.
 * Rounded to the nearest. Errors: NO_MEMORY. */
int resize_pixels(const pixel_rows *from, const pixel_rows *to, int channels, double x_scale, double y_scale,
		  resize_filter filter, const char *name, beton_error *err);

#endif
