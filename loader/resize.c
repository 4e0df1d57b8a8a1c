/* SPDX-License-Identifier: Apache-2.0 */
#include "resize.h"

#include <math.h>
#include <stdbool.h>

#include "common/error.h"

static int reserve_axis(bt_axis *axis, uint32_t in, uint32_t out, beton_error *err)
{
	axis->taps = in > out ? in / out + 2 : 2;
	size_t entries = out;
	char *memory = bt_buffer_reserve(&axis->memory, entries * (2 * sizeof(uint32_t) + axis->taps * sizeof(float)));
	if (!memory)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for resizing %u to %u pixels", in, out);
	axis->first = (uint32_t *)memory;
	axis->count = axis->first + entries;
	axis->weights = (float *)(axis->count + entries);
	return BETON_OK;
}

/* In units of 1/out input pixel, output pixel i covers [i * in, (i + 1) * in), input pixel k [k * out, (k + 1) * out):
 * the shares are exact. */
static void plan_area(bt_axis *axis, uint32_t in, uint32_t out)
{
	for (uint32_t i = 0; i < out; i++) {
		uint64_t begin = (uint64_t)i * in;
		uint64_t end = begin + in;
		uint32_t first = (uint32_t)(begin / out);
		uint32_t last = (uint32_t)((end - 1) / out);
		float *weights = axis->weights + (size_t)i * axis->taps;
		axis->first[i] = first;
		axis->count[i] = last - first + 1;
		for (uint32_t k = first; k <= last; k++) {
			uint64_t from = (uint64_t)k * out > begin ? (uint64_t)k * out : begin;
			uint64_t to = (uint64_t)(k + 1) * out < end ? (uint64_t)(k + 1) * out : end;
			weights[k - first] = (float)((double)(to - from) / in);
		}
	}
}

static void plan_linear(bt_axis *axis, uint32_t in, uint32_t out)
{
	double step = (double)in / out;
	for (uint32_t i = 0; i < out; i++) {
		double centre = (i + 0.5) * step - 0.5;
		centre = centre < 0 ? 0 : centre > in - 1 ? in - 1 : centre;
		uint32_t first = (uint32_t)centre;
		double share = centre - first;
		float *weights = axis->weights + (size_t)i * axis->taps;
		axis->first[i] = first;
		axis->count[i] = share > 0 ? 2 : 1;
		weights[0] = (float)(1 - share);
		weights[1] = (float)share;
	}
}

static int plan_axis(bt_axis *axis, uint32_t in, uint32_t out, beton_error *err)
{
	int result = reserve_axis(axis, in, out, err);
	if (result == BETON_OK && in >= out)
		plan_area(axis, in, out);
	else if (result == BETON_OK)
		plan_linear(axis, in, out);
	return result;
}

int bt_resize_begin(bt_resizer *resizer, const bt_pixels *source, uint32_t width, uint32_t height, beton_error *err)
{
	resizer->source = *source;
	resizer->width = width;
	int result = plan_axis(&resizer->horizontal, source->width, width, err);
	if (result == BETON_OK)
		result = plan_axis(&resizer->vertical, source->height, height, err);
	/* One float more than the pixels have, for the last vector. */
	size_t row_bytes = ((size_t)source->width * 3 + 1) * sizeof(float);
	if (result == BETON_OK && !bt_buffer_reserve(&resizer->row, row_bytes))
		result = bt_fail(err, BETON_NO_MEMORY, "out of memory for a row of %u pixels", source->width);
	return result;
}

static uint8_t round_byte(float value)
{
	return (uint8_t)(value + 0.5f);
}

/* row = or += the weighted sum of two input rows; one of weight 0 may stand twice. */
static void add_rows(float *restrict row, const uint8_t *a, const uint8_t *b, const float weights[2], size_t count,
		     bool first)
{
	float weight_a = weights[0], weight_b = weights[1];
	if (first)
		for (size_t j = 0; j < count; j++)
			row[j] = weight_a * (float)a[j] + weight_b * (float)b[j];
	else
		for (size_t j = 0; j < count; j++)
			row[j] = row[j] + weight_a * (float)a[j] + weight_b * (float)b[j];
}

/* Rows first, since they are contiguous and the sum runs at the width of the vector unit, two at a time to halve the
 * traffic of the sum; then each pixel of the one row that is left. */
static const float *sum_rows(bt_resizer *resizer, uint32_t y)
{
	const bt_axis *axis = &resizer->vertical;
	const float *weights = axis->weights + (size_t)y * axis->taps;
	size_t stride = resizer->source.stride;
	const uint8_t *in = resizer->source.data + axis->first[y] * stride;
	uint32_t count = axis->count[y];
	for (uint32_t k = 0; k < count; k += 2, in += 2 * stride) {
		bool pair = k + 1 < count;
		float two[2] = {weights[k], pair ? weights[k + 1] : 0};
		add_rows(resizer->row.data, in, pair ? in + stride : in, two, (size_t)resizer->source.width * 3,
			 k == 0);
	}
	return resizer->row.data;
}

/* Four floats at any address: a pixel and the first value of the next. */
typedef float unaligned_vector __attribute__((vector_size(16), aligned(4)));

void bt_resize_row(bt_resizer *resizer, uint32_t y, uint8_t *out)
{
	const float *row = sum_rows(resizer, y);
	const bt_axis *axis = &resizer->horizontal;
	for (uint32_t x = 0; x < resizer->width; x++) {
		const float *weights = axis->weights + (size_t)x * axis->taps;
		const float *in = row + (size_t)axis->first[x] * 3;
		unaligned_vector sum = {0};
		for (uint32_t k = 0; k < axis->count[x]; k++)
			sum += *(const unaligned_vector *)(in + (size_t)k * 3) * weights[k];
		for (int c = 0; c < 3; c++)
			out[3 * x + (uint32_t)c] = round_byte(sum[c]);
	}
}

void bt_resize_free(bt_resizer *resizer)
{
	bt_buffer_free(&resizer->horizontal.memory);
	bt_buffer_free(&resizer->vertical.memory);
	bt_buffer_free(&resizer->row);
}
