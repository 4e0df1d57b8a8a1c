/* SPDX-License-Identifier: Apache-2.0 */
#include "resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "common/elementary.h"
#include "common/error.h"

/* Output pixel i of an axis is the sum of weights[i * taps ...] times count[i] input pixels from first[i] on. */
typedef struct axis {
	uint32_t *first;
	uint32_t *count;
	float *weights;
	uint32_t taps;
} axis;

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

/* Pixel k of the input covers k to k + 1. */
static void plan_area(axis *plan, uint32_t in, uint32_t out, double scale)
{
	for (uint32_t i = 0; i < out; i++) {
		double begin = fmin(i * scale, in - 1);
		double end = fmin(fmax((i + 1) * scale, begin + 1), in);
		uint32_t first = (uint32_t)begin;
		uint32_t last = (uint32_t)ceil(end) - 1;
		float *weights = plan->weights + (size_t)i * plan->taps;
		plan->first[i] = first;
		plan->count[i] = last - first + 1;
		for (uint32_t k = first; k <= last; k++)
			weights[k - first] = (float)((fmin(k + 1, end) - fmax(k, begin)) / (end - begin));
	}
}

static void plan_kernel(axis *plan, uint32_t in, uint32_t out, double scale, const kernel *form)
{
	double stretch = fmax(scale, 1);
	for (uint32_t i = 0; i < out; i++) {
		double centre = fmin((i + 0.5) * scale, in - 0.5);
		uint32_t first = (uint32_t)fmax(0, floor(centre - form->support * stretch + 0.5));
		uint32_t end = (uint32_t)fmin(in, floor(centre + form->support * stretch + 0.5));
		float *weights = plan->weights + (size_t)i * plan->taps;
		double sum = 0;
		for (uint32_t k = first; k < end; k++)
			sum += form->weight(fabs(k + 0.5 - centre) / stretch);
		for (uint32_t k = first; k < end; k++)
			weights[k - first] = (float)(form->weight(fabs(k + 0.5 - centre) / stretch) / sum);
		plan->first[i] = first;
		plan->count[i] = end - first;
	}
}

static bool plan_axis(axis *plan, uint32_t in, uint32_t out, double scale, resize_filter filter)
{
	const kernel *form = &kernels[filter];
	plan->taps = (uint32_t)(2 * form->support * fmax(scale, 1)) + 2;
	plan->first = malloc(out * sizeof(*plan->first));
	plan->count = malloc(out * sizeof(*plan->count));
	plan->weights = malloc((size_t)out * plan->taps * sizeof(*plan->weights));
	if (!plan->first || !plan->count || !plan->weights)
		return false;
	if (filter == RESIZE_AREA && scale >= 1)
		plan_area(plan, in, out, scale);
	else
		plan_kernel(plan, in, out, scale, form);
	return true;
}

static void free_axis(axis *plan)
{
	free(plan->first);
	free(plan->count);
	free(plan->weights);
}

/* row = or += the weighted sum of two input rows; one of weight 0 may stand twice. */
static void add_rows(float *restrict row, const uint8_t *a, const uint8_t *b, const float weights[2], size_t count,
		     bool first)
{
	float weight_a = weights[0];
	float weight_b = weights[1];
	if (first)
		for (size_t j = 0; j < count; j++)
			row[j] = weight_a * (float)a[j] + weight_b * (float)b[j];
	else
		for (size_t j = 0; j < count; j++)
			row[j] += weight_a * (float)a[j] + weight_b * (float)b[j];
}

/* Output row y at the width of the input: the longest sums run over contiguous memory, two rows at a time to halve the
 * traffic of the sum. */
static void sum_rows(float *row, const pixel_rows *from, size_t values, const axis *plan, uint32_t y)
{
	const float *weights = plan->weights + (size_t)y * plan->taps;
	const uint8_t *in = from->data + plan->first[y] * from->stride;
	for (uint32_t k = 0; k < plan->count[y]; k += 2, in += 2 * from->stride) {
		bool pair = k + 1 < plan->count[y];
		float two[2] = {weights[k], pair ? weights[k + 1] : 0};
		add_rows(row, in, pair ? in + from->stride : in, two, values, k == 0);
	}
}

static uint8_t round_byte(float value)
{
	value = value > 0 ? value : 0;
	value = value < 255 ? value : 255;
	return (uint8_t)(value + 0.5f);
}

/* Four floats at any address: a pixel and the first value of the next. */
typedef float unaligned_vector __attribute__((vector_size(16), aligned(4)));

static void round_pixel(unaligned_vector sum, uint8_t *to)
{
#ifdef __SSE2__
	/* Without branches, which would depend on the picture. */
	__m128 value = _mm_min_ps(_mm_max_ps((__m128)sum, _mm_setzero_ps()), _mm_set1_ps(255));
	__m128i bytes = _mm_cvttps_epi32(_mm_add_ps(value, _mm_set1_ps(0.5F)));
	bytes = _mm_packs_epi32(bytes, bytes);
	uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(bytes, bytes));
	memcpy(to, &pixel, 3);
#else
	for (int c = 0; c < 3; c++)
		to[c] = round_byte(sum[c]);
#endif
}

static void sum_pixels(const float *row, const axis *plan, uint32_t width, uint8_t *to)
{
	for (uint32_t x = 0; x < width; x++, to += 3) {
		const float *weights = plan->weights + (size_t)x * plan->taps;
		const float *in = row + (size_t)plan->first[x] * 3;
		unaligned_vector sum = {0};
		for (uint32_t k = 0; k < plan->count[x]; k++)
			sum += *(const unaligned_vector *)(in + (size_t)k * 3) * weights[k];
		round_pixel(sum, to);
	}
}

static void sum_values(const float *row, const axis *plan, uint32_t width, uint8_t *to)
{
	for (uint32_t x = 0; x < width; x++) {
		const float *weights = plan->weights + (size_t)x * plan->taps;
		float sum = 0;
		for (uint32_t k = 0; k < plan->count[x]; k++)
			sum += row[plan->first[x] + k] * weights[k];
		to[x] = round_byte(sum);
	}
}

int resize_pixels(const pixel_rows *from, const pixel_rows *to, int channels, double x_scale, double y_scale,
		  resize_filter filter, const char *name, beton_error *err)
{
	axis horizontal = {0};
	axis vertical = {0};
	size_t values = (size_t)from->width * (size_t)channels;
	/* One float more than the pixels have, for the last vector. */
	float *row = calloc(values + 1, sizeof(*row));
	int result = BETON_OK;
	if (!row || !plan_axis(&horizontal, from->width, to->width, x_scale, filter) ||
	    !plan_axis(&vertical, from->height, to->height, y_scale, filter))
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	for (uint32_t y = 0; result == BETON_OK && y < to->height; y++) {
		sum_rows(row, from, values, &vertical, y);
		if (channels == 3)
			sum_pixels(row, &horizontal, to->width, to->data + y * to->stride);
		else
			sum_values(row, &horizontal, to->width, to->data + y * to->stride);
	}
	free(row);
	free_axis(&horizontal);
	free_axis(&vertical);
	return result;
}
