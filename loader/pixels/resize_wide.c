/* SPDX-License-Identifier: Apache-2.0 */
#include "resize_wide.h"

#include <string.h>

#include "common/error.h"
#include "common/isa.h"
#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

enum { SAMPLE_MAX = 65535 };

/* The same place in BT_WIDE_ROWS rows. The loops are compiled for two instruction sets; both give the same results,
 * because floating-point contraction is off. */
typedef float lanes __attribute__((vector_size(BT_WIDE_ROWS * sizeof(float)), aligned(4), may_alias));

/* out[j] = the sum of reals[k] * in[k][j], in the order of k. */
INLINE void sum_rows(const uint8_t *in, size_t stride, const float *reals, uint32_t taps, size_t count,
		     float *restrict out)
{
	const bt_sample16 *row = (const bt_sample16 *)in;
	for (size_t j = 0; j < count; j++)
		out[j] = row[j] * reals[0];
	for (uint32_t k = 1; k < taps; k++) {
		row = (const bt_sample16 *)(in + k * stride);
		for (size_t j = 0; j < count; j++)
			out[j] += row[j] * reals[k];
	}
}

INLINE uint16_t round_sample(float value)
{
	return value < SAMPLE_MAX ? (uint16_t)(value + 0.5f) : SAMPLE_MAX;
}

/* Makes an output column of all channels of all rows. */
INLINE void sum_columns(const bt_wide_resizer *resizer, uint32_t x, size_t out_stride)
{
	const bt_axis *axis = &resizer->horizontal;
	uint32_t channels = resizer->source.channels, taps = axis->count[x];
	const float *reals = axis->reals + (size_t)x * axis->stride;
	size_t step = (size_t)channels * BT_WIDE_ROWS;
	for (uint32_t c = 0; c < channels; c++) {
		const float *in = resizer->rows + (size_t)axis->first[x] * step + (size_t)c * BT_WIDE_ROWS;
		lanes sum = *(const lanes *)in * reals[0];
		for (uint32_t k = 1; k < taps; k++)
			sum += *(const lanes *)(in + k * step) * reals[k];
		uint16_t *out = resizer->out + (size_t)x * channels + c;
		for (uint32_t r = 0; r < BT_WIDE_ROWS; r++)
			out[r * out_stride] = round_sample(sum[r]);
	}
}

/* Rows beyond count repeat earlier values; they are numbers, and are never read. */
INLINE void resize(const bt_wide_resizer *resizer, uint32_t y, uint32_t count)
{
	const bt_axis *vertical = &resizer->vertical, *horizontal = &resizer->horizontal;
	const bt_plane *source = &resizer->source;
	size_t values = (size_t)horizontal->columns * source->channels;
	const uint8_t *in = source->data + (size_t)vertical->low * source->stride +
			    (size_t)horizontal->low * source->channels * sizeof(uint16_t);
	for (uint32_t i = 0; i < count; i++) {
		sum_rows(in + (size_t)vertical->first[y + i] * source->stride, source->stride,
			 vertical->reals + (size_t)(y + i) * vertical->stride, vertical->count[y + i], values,
			 resizer->row);
		for (size_t j = 0; j < values; j++)
			resizer->rows[j * BT_WIDE_ROWS + i] = resizer->row[j];
	}
	for (uint32_t x = 0; x < horizontal->key.out; x++)
		sum_columns(resizer, x, (size_t)horizontal->key.out * source->channels);
}

static void resize_plain(const bt_wide_resizer *resizer, uint32_t y, uint32_t count)
{
	resize(resizer, y, count);
}

#ifdef __x86_64__
static __attribute__((target("avx2"))) void resize_vectors(const bt_wide_resizer *resizer, uint32_t y, uint32_t count)
{
	resize(resizer, y, count);
}
#endif

static int plan(bt_wide_resizer *resizer, const bt_resize_target *target, beton_error *err)
{
	bt_axis_key horizontal, vertical;
	bt_resize_keys(&resizer->source, target, &bt_kernels_c, &horizontal, &vertical);
	horizontal.permuted = false;
	horizontal.real = vertical.real = true;
	int result = bt_axis_plan(&resizer->horizontal, &horizontal, err);
	return result ? result : bt_axis_plan(&resizer->vertical, &vertical, err);
}

int bt_wide_begin(bt_wide_resizer *resizer, const bt_plane *source, const bt_resize_target *target, beton_error *err)
{
	resizer->source = *source;
	int result = plan(resizer, target, err);
	if (result)
		return result;
	size_t values = (size_t)resizer->horizontal.columns * source->channels;
	size_t samples = (size_t)resizer->horizontal.key.out * source->channels * BT_WIDE_ROWS;
	size_t bytes = values * (1 + BT_WIDE_ROWS) * sizeof(float);
	char *memory = bt_buffer_reserve(&resizer->memory, bytes + samples * sizeof(uint16_t));
	if (!memory)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for rows of %u pixels", source->width);
	resizer->rows = (float *)memory;
	resizer->row = resizer->rows + values * BT_WIDE_ROWS;
	resizer->out = (uint16_t *)(memory + bytes);
	memset(resizer->rows, 0, values * BT_WIDE_ROWS * sizeof(float));
	return BETON_OK;
}

const bt_sample16 *bt_wide_rows(bt_wide_resizer *resizer, uint32_t y, uint32_t count, size_t *stride)
{
	const bt_axis *horizontal = &resizer->horizontal, *vertical = &resizer->vertical;
	const bt_plane *source = &resizer->source;
	if (horizontal->identity && vertical->identity) {
		*stride = source->stride;
		return (const bt_sample16 *)(source->data + (vertical->low + y) * source->stride) +
		       (size_t)horizontal->low * source->channels;
	}
	*stride = (size_t)horizontal->key.out * source->channels * sizeof(uint16_t);
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX2) {
		resize_vectors(resizer, y, count);
		return resizer->out;
	}
#endif
	resize_plain(resizer, y, count);
	return resizer->out;
}

void bt_wide_limit(bt_wide_resizer *resizer, bt_budget *budget)
{
	resizer->horizontal.memory.budget = resizer->vertical.memory.budget = budget;
	resizer->memory.budget = budget;
}

void bt_wide_free(bt_wide_resizer *resizer)
{
	bt_buffer_free(&resizer->horizontal.memory);
	bt_buffer_free(&resizer->vertical.memory);
	bt_buffer_free(&resizer->memory);
}
