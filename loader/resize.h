/* SPDX-License-Identifier: Apache-2.0
 *
 * Resizing of RGB pixels, one output row at a time. */
#ifndef BT_LOADER_RESIZE_H
#define BT_LOADER_RESIZE_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#include "buffer.h"
#include "picture.h"

/* A view of RGB pixels, 3 bytes each. */
typedef struct bt_pixels {
	const uint8_t *data;
	size_t stride; /* bytes from one row to the next */
	uint32_t width;
	uint32_t height;
} bt_pixels;

/* How each output pixel of one axis is made: weights[i * taps ...] times count[i] input pixels from first[i] on. */
typedef struct bt_axis {
	uint32_t *first;
	uint32_t *count;
	float *weights;
	uint32_t taps;
	bt_buffer memory;
} bt_axis;

/* Working state of one worker; zero-initialise. */
typedef struct bt_resizer {
	bt_axis horizontal;
	bt_axis vertical;
	bt_buffer row; /* one output row at input width, float */
	bt_pixels source;
	uint32_t width; /* of the output, pixels */
} bt_resizer;

/* Prepares source -> width x height. An axis that shrinks is area-averaged (each input pixel counts by the share of it
 * that an output pixel covers, as in OpenCV's INTER_AREA); one that grows is interpolated linearly between pixel
 * centres. Errors: NO_MEMORY. */
int bt_resize_begin(bt_resizer *resizer, const bt_pixels *source, uint32_t width, uint32_t height, beton_error *err);

/* Writes output row y: 3 * width bytes, rounded half up. */
void bt_resize_row(bt_resizer *resizer, uint32_t y, uint8_t *out);

void bt_resize_free(bt_resizer *resizer);

#endif
