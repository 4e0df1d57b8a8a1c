/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include <string.h>

#include "common/isa.h"

static uint8_t clamp_byte(int value)
{
	return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void vertical(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, size_t count,
		     int16_t *out)
{
	enum { SHIFT = BT_WEIGHT_BITS - BT_ROW_BITS };
	for (size_t j = 0; j < count; j++) {
		int32_t sum = 1 << (SHIFT - 1);
		for (uint32_t k = 0; k < taps; k++)
			sum += weights[k] * in[k * stride + j];
		out[j] = (int16_t)(sum >> SHIFT);
	}
}

static void horizontal_row(const bt_axis *axis, const int16_t *row, uint8_t *out)
{
	enum { SHIFT = BT_WEIGHT_BITS + BT_ROW_BITS };
	uint32_t channels = axis->key.channels;
	for (uint32_t x = 0; x < axis->key.out; x++) {
		const int16_t *weights = axis->weights + (size_t)x * axis->stride;
		const int16_t *in = row + (size_t)axis->first[x] * channels;
		for (uint32_t c = 0; c < channels; c++) {
			int32_t sum = 1 << (SHIFT - 1);
			for (uint32_t k = 0; k < axis->count[x]; k++)
				sum += weights[k] * in[(size_t)k * channels + c];
			*out++ = (uint8_t)(sum >> SHIFT);
		}
	}
}

static void horizontal(const bt_axis *axis, const int16_t *rows, size_t stride, uint32_t count, uint8_t *out,
		       size_t out_stride)
{
	for (uint32_t y = 0; y < count; y++)
		horizontal_row(axis, rows + y * stride, out + y * out_stride);
}

static void ycc_to_rgb(const uint8_t *const ycc[3], size_t count, uint8_t *const rgb[3])
{
	enum { HALF = 1 << 13, SHIFT = 14 };
	const uint8_t *y = ycc[0], *cb = ycc[1], *cr = ycc[2];
	for (size_t j = 0; j < count; j++) {
		int blue = cb[j] - 128, red = cr[j] - 128;
		rgb[0][j] = clamp_byte(y[j] + ((22970 * red + HALF) >> SHIFT));
		rgb[1][j] = clamp_byte(y[j] + ((-5638 * blue - 11700 * red + HALF) >> SHIFT));
		rgb[2][j] = clamp_byte(y[j] + ((29032 * blue + HALF) >> SHIFT));
	}
}

static void join(const uint8_t *const planes[3], size_t count, uint8_t *rgb)
{
	const uint8_t *red = planes[0], *green = planes[1], *blue = planes[2];
	for (size_t j = 0; j < count; j++, rgb += 3) {
		rgb[0] = red[j];
		rgb[1] = green[j];
		rgb[2] = blue[j];
	}
}

static void split(const uint8_t *rgb, size_t count, uint8_t *const planes[3])
{
	uint8_t *restrict red = planes[0], *restrict green = planes[1], *restrict blue = planes[2];
	for (size_t j = 0; j < count; j++, rgb += 3) {
		red[j] = rgb[0];
		green[j] = rgb[1];
		blue[j] = rgb[2];
	}
}

static void bytes(const uint8_t *in, size_t count, bool stream, uint8_t *out)
{
	(void)stream;
	memcpy(out, in, count);
}

/* A byte has 256 values: looking up a quotient costs less than a division. */
static void floats(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, float *out)
{
	(void)stream;
	size_t j = 0;
	for (; j + 3 <= count; j += 3) {
		out[j] = elements->value[0][in[j]];
		out[j + 1] = elements->value[1][in[j + 1]];
		out[j + 2] = elements->value[2][in[j + 2]];
	}
	for (; j < count; j++)
		out[j] = elements->value[0][in[j]];
}

static void halves(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, uint16_t *out)
{
	(void)stream;
	size_t j = 0;
	for (; j + 3 <= count; j += 3) {
		out[j] = elements->value16[0][in[j]];
		out[j + 1] = elements->value16[1][in[j + 1]];
		out[j + 2] = elements->value16[2][in[j + 2]];
	}
	for (; j < count; j++)
		out[j] = elements->value16[0][in[j]];
}

static void fence(void)
{
}

const bt_kernels bt_kernels_c = {.name = "c",
				 .vertical = vertical,
				 .horizontal = horizontal,
				 .ycc_to_rgb = ycc_to_rgb,
				 .join = join,
				 .split = split,
				 .bytes = bytes,
				 .floats = floats,
				 .halves = halves,
				 .fence = fence};

const bt_kernels *bt_kernels_get(unsigned index)
{
	const bt_kernels *list[3];
	unsigned count = 0;
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX512)
		list[count++] = &bt_kernels_avx512;
	if (bt_isa_level() >= BT_ISA_AVX2)
		list[count++] = &bt_kernels_avx2;
#elif defined(__aarch64__)
	list[count++] = &bt_kernels_neon;
#endif
	list[count++] = &bt_kernels_c;
	return index < count ? list[index] : NULL;
}

const bt_kernels *bt_kernels_best(void)
{
	return bt_kernels_get(0);
}
