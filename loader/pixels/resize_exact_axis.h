/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights that OpenCV and Pillow give the samples of one axis.
 *
 * There are three routines for the weights of an axis, because they differ in more than their last rounding:
 *   - resize_axis.c, for modes without a model: the box begins and ends at fractions of a sample, and weights are
 *     rounded in one of two ways: to 14 bits, running totals, so that they add up to 1 exactly; for 16-bit rasters to
 *     floats. It is run for each picture: without loops for outputs of few samples, and for 8 outputs at a time with
 *     AVX-512.
 *   - here: OpenCV leaves out shares of up to 1e-3 of a sample and does not make up for them, and its linear weights
 * are floats from a scale that it rounds twice. Each weight is rounded by itself, and not all outputs add up to 1.
 *   - tools/beton-write/images/resize.c: floats, and kernels of up to 6 samples, which only a writer has.
 * They share the tent. Pillow's sums, taken in place of resize_axis.c's, gave the same 14 bits in 17 million outputs of
 * random sizes, but it is unproved for all sizes; in floats one output in 3,000 differed, and so would the writer's
 * files. Sharing only the tent would leave three routines.
 */
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

/* `whole` outputs of `in` samples; out of them are made, from number `before` on. */
typedef struct bt_exact_axis_key {
	bt_exact_filter filter;
	uint32_t in;
	uint32_t held; /* the first sample that there is; others are counted from it */
	uint32_t whole;
	uint32_t before;
	uint32_t out;
	bool mirrored;
	/* LINEAR does not interpolate the last sample with itself. OpenCV interpolates it along columns but not along
	 * rows, which rounds differently. */
	bool last_once;
} bt_exact_axis_key;

/* Computes *axis for key. Errors: NO_MEMORY. */
int bt_exact_axis_plan(bt_exact_axis *axis, const bt_exact_axis_key *key, beton_error *err);

#endif
