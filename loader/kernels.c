/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

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

static void horizontal(const bt_axis *axis, const int16_t *row, uint8_t *out)
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

static void ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, size_t count, uint8_t *out)
{
	enum { HALF = 1 << 13, SHIFT = 14 };
	for (size_t j = 0; j < count; j++, out += 3) {
		int blue = cb[j] - 128, red = cr[j] - 128;
		out[0] = clamp_byte(y[j] + ((22970 * red + HALF) >> SHIFT));
		out[1] = clamp_byte(y[j] + ((-5638 * blue - 11700 * red + HALF) >> SHIFT));
		out[2] = clamp_byte(y[j] + ((29032 * blue + HALF) >> SHIFT));
	}
}

const bt_kernels bt_kernels_c = {.name = "c", .vertical = vertical, .horizontal = horizontal, .ycc_to_rgb = ycc_to_rgb};

const bt_kernels *bt_kernels_get(unsigned index)
{
	const bt_kernels *list[3];
	unsigned count = 0;
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx2"))
		list[count++] = &bt_kernels_avx512;
	if (__builtin_cpu_supports("avx2"))
		list[count++] = &bt_kernels_avx2;
#endif
	list[count++] = &bt_kernels_c;
	return index < count ? list[index] : NULL;
}

const bt_kernels *bt_kernels_best(void)
{
	return bt_kernels_get(0);
}
