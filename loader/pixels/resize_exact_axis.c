/* SPDX-License-Identifier: Apache-2.0
 *
 * The formulas follow OpenCV's modules/imgproc/src/resize.cpp (4.6) and Pillow's src/libImaging/Resample.c (13.0)
 * operation by operation, in the same precision. Another order of a sum changes bytes.
 */
#include "resize_exact_axis.h"

#include <float.h>
#include <math.h>

#include "common/error.h"

/* OpenCV's scale of an axis, input samples per output, with its roundings. */
static double opencv_scale(uint32_t in, uint32_t out)
{
	return 1.0 / ((double)out / in);
}

static bool is_whole(double scale)
{
	return fabs(scale - nearbyint(scale)) < DBL_EPSILON;
}

bt_exact_filter bt_opencv_filter(const bt_exact_key *key)
{
	double x = opencv_scale(key->in_width, key->out_width);
	double y = opencv_scale(key->in_height, key->out_height);
	if (x < 1 || y < 1)
		return BT_EXACT_LINEAR;
	return is_whole(x) && is_whole(y) ? BT_EXACT_SUM : BT_EXACT_AREA;
}

/* One output of an axis. */
typedef struct span {
	uint32_t in;
	uint32_t out;
	uint32_t i;
	bool last_once;
} span;

/* The functions below write the weights of an output, return their number, and set *first to the first sample. */
static uint32_t fill_sum(const span *s, uint32_t *first)
{
	uint32_t scale = s->in / s->out;
	*first = s->i * scale;
	return scale;
}

/* Samples covered by less than this do not count. */
static const double LEAST = 1e-3;

static uint32_t fill_area(const span *s, uint32_t *first, bt_exact_number *weights)
{
	double scale = opencv_scale(s->in, s->out);
	double begin = s->i * scale, end = begin + scale;
	double width = fmin(scale, s->in - begin);
	int64_t last = (int64_t)fmin(floor(end), s->in - 1.0);
	int64_t whole = (int64_t)fmin(ceil(begin), (double)last);
	uint32_t count = 0;
	*first = (uint32_t)whole;
	if ((double)whole - begin > LEAST) {
		--*first;
		weights[count++].real = (float)(((double)whole - begin) / width);
	}
	for (int64_t k = whole; k < last; k++)
		weights[count++].real = (float)(1.0 / width);
	if (end - (double)last > LEAST)
		weights[count++].real = (float)(fmin(fmin(end - (double)last, 1.0), width) / width);
	return count;
}

static uint32_t fill_linear(const span *s, uint32_t *first, bt_exact_number *weights)
{
	const float one = 1 << BT_OPENCV_LINEAR_BITS;
	double at = floor(s->i * opencv_scale(s->in, s->out));
	float share = (float)((s->i + 1.0) - (at + 1.0) * ((double)s->out / s->in));
	share = share <= 0 ? 0 : share - floorf(share);
	*first = (uint32_t)fmin(at, s->in - 1.0);
	if (s->last_once && *first == s->in - 1) {
		weights[0].integer = 1 << BT_OPENCV_LINEAR_BITS;
		return 1;
	}
	weights[0].integer = (int32_t)lrintf((1 - share) * one);
	weights[1].integer = (int32_t)lrintf(share * one);
	return 2;
}

static double tent(double x)
{
	return fmax(1 - fabs(x), 0);
}

static uint32_t fill_tent(const span *s, uint32_t *first, bt_exact_number *weights)
{
	double scale = (double)s->in / s->out, widened = fmax(scale, 1), narrowing = 1 / widened;
	double centre = (s->i + 0.5) * scale, total = 0;
	uint32_t low = (uint32_t)fmax(centre - widened + 0.5, 0);
	uint32_t end = (uint32_t)fmin(centre + widened + 0.5, s->in);
	for (uint32_t k = low; k < end; k++)
		total += tent((k - centre + 0.5) * narrowing);
	for (uint32_t k = low; k < end; k++) {
		double weight = tent((k - centre + 0.5) * narrowing) / total;
		weights[k - low].integer = (int32_t)(0.5 + weight * (1 << BT_PILLOW_BITS));
	}
	*first = low;
	return end - low;
}

static uint32_t most_weights(bt_exact_filter filter, uint32_t in, uint32_t out)
{
	double scale = (double)in / out;
	switch (filter) {
	case BT_EXACT_SUM:
		return 0;
	case BT_EXACT_AREA:
		return (uint32_t)scale + 3;
	case BT_EXACT_LINEAR:
		return 2;
	default:
		return (uint32_t)ceil(fmax(scale, 1)) * 2 + 1;
	}
}

int bt_exact_axis_plan(bt_exact_axis *axis, const bt_exact_axis_key *key, beton_error *err)
{
	bt_exact_filter filter = key->filter;
	uint32_t out = key->out;
	size_t stride = most_weights(filter, key->in, key->whole);
	uint32_t *memory =
		bt_buffer_reserve(&axis->memory, out * (2 * sizeof(*axis->first) + stride * sizeof(*axis->weights)));
	if (!memory)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for resizing %u to %u pixels", key->in, key->whole);
	axis->first = memory;
	axis->count = memory + out;
	axis->weights = (bt_exact_number *)(memory + 2 * (size_t)out);
	axis->stride = (uint32_t)stride;
	for (uint32_t i = 0; i < out; i++) {
		const span s = {key->in, key->whole, key->before + i, key->last_once};
		uint32_t place = key->mirrored ? out - 1 - i : i;
		uint32_t *first = &axis->first[place];
		bt_exact_number *weights = axis->weights + place * stride;
		uint32_t count = filter == BT_EXACT_SUM      ? fill_sum(&s, first)
				 : filter == BT_EXACT_AREA   ? fill_area(&s, first, weights)
				 : filter == BT_EXACT_LINEAR ? fill_linear(&s, first, weights)
							     : fill_tent(&s, first, weights);
		axis->count[place] = count;
		*first -= key->held;
	}
	return BETON_OK;
}
