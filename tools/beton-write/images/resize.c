/* SPDX-License-Identifier: Apache-2.0 */
#include "resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/elementary.h"
#include "common/error.h"
#include "common/isa.h"
#include "resize_kernels.h"

#define TARGET

#include "resize_lanes.h"

typedef struct kernel {
	double (*weight)(double distance);
	double support; /* the weight is 0 at this distance and beyond */
} kernel;

static double triangle(double distance)
{
	return distance < 1 ? 1 - distance : 0;
}

/* Keys, Cubic convolution interpolation for digital image processing (1981), with a = -1/2. */
static double cubic(double x)
{
	if (x < 1)
		return (1.5 * x - 2.5) * x * x + 1;
	return x < 2 ? ((-0.5 * x + 2.5) * x - 4) * x + 2 : 0;
}

static double lanczos(double x)
{
	if (x < 1e-8)
		return 1;
	if (x >= 3)
		return 0;
	double once, thrice, cosine;
	bt_sin_cos(x / 6, &once, &cosine);
	bt_sin_cos(x / 2, &thrice, &cosine);
	return 3 * thrice * once / (M_PI * M_PI * x * x);
}

static const kernel kernels[] = {
	[RESIZE_AREA] = {triangle, 1}, /* where nothing shrinks */
	[RESIZE_BILINEAR] = {triangle, 1},
	[RESIZE_BICUBIC] = {cubic, 2},
	[RESIZE_LANCZOS] = {lanczos, 3},
};

/* Sets where output pixel i begins, and how many taps it has. Returns its first weight; each next weight is plan->count
 * further. */
static float *begin_pixel(resize_axis *plan, uint32_t i, uint32_t first, uint32_t taps)
{
	plan->first[i] = first;
	plan->taps = taps > plan->taps ? taps : plan->taps;
	return plan->weights + i;
}

/* Pixel k of the input covers k to k + 1. */
static void plan_area(resize_axis *plan, uint32_t in, double scale)
{
	for (uint32_t i = 0; i < plan->count; i++) {
		double begin = fmin(i * scale, in - 1);
		double end = fmin(fmax((i + 1) * scale, begin + 1), in);
		uint32_t first = (uint32_t)begin;
		uint32_t last = (uint32_t)ceil(end) - 1;
		float *weight = begin_pixel(plan, i, first, last - first + 1);
		for (uint32_t k = first; k <= last; k++, weight += plan->count)
			*weight = (float)((fmin(k + 1, end) - fmax(k, begin)) / (end - begin));
	}
}

static void plan_kernel(resize_axis *plan, uint32_t in, double scale, const kernel *form)
{
	double stretch = fmax(scale, 1);
	for (uint32_t i = 0; i < plan->count; i++) {
		double centre = fmin((i + 0.5) * scale, in - 0.5);
		uint32_t first = (uint32_t)fmax(0, floor(centre - form->support * stretch + 0.5));
		uint32_t end = (uint32_t)fmin(in, floor(centre + form->support * stretch + 0.5));
		double sum = 0;
		for (uint32_t k = first; k < end; k++)
			sum += form->weight(fabs(k + 0.5 - centre) / stretch);
		float *weight = begin_pixel(plan, i, first, end - first);
		for (uint32_t k = first; k < end; k++, weight += plan->count)
			*weight = (float)(form->weight(fabs(k + 0.5 - centre) / stretch) / sum);
	}
}

static bool plan_axis(resize_axis *plan, uint32_t in, uint32_t out, double scale, resize_filter filter)
{
	const kernel *form = &kernels[filter];
	size_t most = (size_t)(2 * form->support * fmax(scale, 1)) + 2;
	plan->count = out;
	plan->first = malloc(out * sizeof(*plan->first));
	plan->weights = calloc(out * most, sizeof(*plan->weights));
	if (!plan->first || !plan->weights)
		return false;
	if (filter == RESIZE_AREA && scale >= 1)
		plan_area(plan, in, scale);
	else
		plan_kernel(plan, in, scale, form);
	return true;
}

static void free_axis(resize_axis *plan)
{
	free(plan->first);
	free(plan->weights);
}

/* Output row y at the width of the input: the longest sums run over contiguous memory, two rows at a time to halve the
 * traffic of the sum. A weight of 0 stands for a row that may not be there. */
static void sum_rows(const resize_kernels *loops, float *row, const pixel_rows *from, size_t values,
		     const resize_axis *plan, uint32_t y)
{
	const uint8_t *in = from->data + plan->first[y] * from->stride;
	for (uint32_t k = 0; k < plan->taps; k += 2, in += 2 * from->stride) {
		const float *weights = plan->weights + (size_t)k * plan->count + y;
		float two[2] = {weights[0], k + 1 < plan->taps ? weights[plan->count] : 0};
		if (k == 0 || two[0] != 0 || two[1] != 0)
			loops->add_rows(row, in, two[1] != 0 ? in + from->stride : in, two, values, k == 0);
	}
}

static void sum_pixels(const float *row, const resize_axis *plan, uint8_t *to)
{
	sum_pixels_from(row, plan, 0, to);
}

const resize_kernels resize_c = {.name = "c", .add_rows = add_rows, .sum_pixels = sum_pixels, .sum_values = sum_values};

const resize_kernels *resize_kernels_get(unsigned int index)
{
	const resize_kernels *list[3];
	unsigned int count = 0;
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX512)
		list[count++] = &resize_avx512;
	if (bt_isa_level() >= BT_ISA_AVX2)
		list[count++] = &resize_avx2;
#endif
	list[count++] = &resize_c;
	return index < count ? list[index] : NULL;
}

int resize_pixels(const pixel_rows *from, const pixel_rows *to, int channels, double x_scale, double y_scale,
		  resize_filter filter, const char *name, beton_error *err)
{
	const resize_kernels *loops = resize_kernels_get(0);
	resize_axis horizontal = {0};
	resize_axis vertical = {0};
	size_t values = (size_t)from->width * (size_t)channels;
	float *row = NULL;
	int result = BETON_OK;
	if (!plan_axis(&horizontal, from->width, to->width, x_scale, filter) ||
	    !plan_axis(&vertical, from->height, to->height, y_scale, filter) ||
	    !(row = calloc(values + (size_t)horizontal.taps * (size_t)channels + 1, sizeof(*row))))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	for (uint32_t y = 0; result == BETON_OK && y < to->height; y++) {
		uint8_t *out = to->data + y * to->stride;
		sum_rows(loops, row, from, values, &vertical, y);
		if (channels == 3)
			loops->sum_pixels(row, &horizontal, out);
		else
			loops->sum_values(row, &horizontal, out);
	}
	free(row);
	free_axis(&horizontal);
	free_axis(&vertical);
	return result;
}
