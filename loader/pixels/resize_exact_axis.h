/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights that OpenCV and Pillow give the samples of one axis. */
#ifndef BT_LOADER_RESIZE_EXACT_AXIS_H
#define BT_LOADER_RESIZE_EXACT_AXIS_H

#include "resize_exact.h"

enum {
	BT_OPENCV_LINEAR_BITS = 11,
	BT_PILLOW_BITS = 22, /* Pillow's PRECISION_BITS */
};

/* The filter of an axis. */
typedef enum bt_exact_filter {
	BT_EXACT_SUM,    /* a whole number of samples each: no weights */
	BT_EXACT_AREA,   /* weights are shares of the output, float */
	BT_EXACT_LINEAR, /* weights are multiples of 2^-BT_OPENCV_LINEAR_BITS */
	BT_EXACT_TENT,   /* weights are multiples of 2^-BT_PILLOW_BITS */
} bt_exact_filter;

/* The filter that OpenCV uses for a picture. */
bt_exact_filter bt_opencv_filter(const bt_exact_key *key);

/* Computes *axis from `in` samples to `out`. last_once: LINEAR does not interpolate the last sample with itself. OpenCV
 * interpolates it along columns but not along rows, which rounds differently. Errors: NO_MEMORY. */
int bt_exact_axis_plan(bt_exact_axis *axis, bt_exact_filter filter, uint32_t in, uint32_t out, bool mirrored,
		       bool last_once, beton_error *err);

#endif
