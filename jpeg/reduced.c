/* SPDX-License-Identifier: Apache-2.0 */
#include "idct.h"

#include <string.h>

enum {
	FRACTION = 13, /* bits of constants */
	BETWEEN = 2,   /* bits more between the passes */
	CENTRE = 128,
};

/* Sums wrap, as in vectors. */
static uint32_t times(int16_t value, int32_t factor)
{
	return (uint32_t)(value * factor);
}

static int16_t half_up(uint32_t sum, int shift)
{
	int32_t value = (int32_t)(sum + (UINT32_C(1) << (shift - 1))) >> shift;
	return (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
}

static uint8_t sample_of(int32_t value)
{
	value += CENTRE;
	return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One pass: eight values, `step` apart, to four. Value 4 has no part in them. */
static void to_4(const int16_t *x, int step, int shift, int16_t out[4])
{
	int16_t x1 = x[step], x3 = x[3 * step], x5 = x[5 * step], x7 = x[7 * step];
	uint32_t mean = times(x[0], 1 << (FRACTION + 1)), even = times(x[2 * step], 15137) - times(x[6 * step], 6270);
	uint32_t outer = times(x1, 20995) + times(x3, 7373) - times(x5, 4926) - times(x7, 4176);
	uint32_t inner = times(x1, 8697) - times(x3, 17799) + times(x5, 11893) - times(x7, 1730);
	out[0] = half_up(mean + even + outer, shift);
	out[1] = half_up(mean - even + inner, shift);
	out[2] = half_up(mean - even - inner, shift);
	out[3] = half_up(mean + even - outer, shift);
}

/* The same, to two; of the even values only the first has a part in them. */
static void to_2(const int16_t *x, int step, int shift, int16_t out[2])
{
	uint32_t mean = times(x[0], 1 << (FRACTION + 2));
	uint32_t odd =
		times(x[step], 29692) - times(x[3 * step], 10426) + times(x[5 * step], 6967) - times(x[7 * step], 5906);
	out[0] = half_up(mean + odd, shift);
	out[1] = half_up(mean - odd, shift);
}

static void block_of_4(const int16_t products[64], uint8_t *out, size_t stride)
{
	int16_t columns[4 * 8], row[4];
	for (int x = 0; x < 8; x++) {
		to_4(products + x, 8, FRACTION - BETWEEN + 1, row);
		for (int y = 0; y < 4; y++)
			columns[y * 8 + x] = row[y];
	}
	for (int y = 0; y < 4; y++, out += stride) {
		to_4(columns + (ptrdiff_t)y * 8, 1, FRACTION + BETWEEN + 3 + 1, row);
		for (int x = 0; x < 4; x++)
			out[x] = sample_of(row[x]);
	}
}

static void block_of_2(const int16_t products[64], uint8_t *out, size_t stride)
{
	int16_t columns[2 * 8], row[2];
	for (int x = 0; x < 8; x++) {
		to_2(products + x, 8, FRACTION - BETWEEN + 2, row);
		columns[x] = row[0];
		columns[8 + x] = row[1];
	}
	for (int y = 0; y < 2; y++, out += stride) {
		to_2(columns + (ptrdiff_t)y * 8, 1, FRACTION + BETWEEN + 3 + 2, row);
		out[0] = sample_of(row[0]);
		out[1] = sample_of(row[1]);
	}
}

/* Makes a block's products, and clears it. False: one is out of range. */
static bool multiply(int16_t *block, const int16_t quantizers[64], int16_t products[64])
{
	uint32_t beyond = 0;
	for (int i = 0; i < 64; i++) {
		int32_t product = block[i] * quantizers[i];
		beyond |= (uint32_t)(product + (1 << (BT_IDCT_RANGE_BITS - 1)));
		products[i] = (int16_t)product;
	}
	memset(block, 0, 64 * sizeof(*block));
	return !(beyond >> BT_IDCT_RANGE_BITS);
}

/* A function that transforms a block's products. */
typedef void transform_block(const int16_t products[64], uint8_t *out, size_t stride);

static bool row_of(transform_block *transform, size_t side, int16_t *blocks, uint32_t count,
		   const int16_t quantizers[64], uint8_t *out, size_t stride)
{
	int16_t products[64];
	bool good = true;
	for (uint32_t i = 0; i < count; i++) {
		good &= multiply(blocks + (size_t)i * 64, quantizers, products);
		transform(products, out + i * side, stride);
	}
	return good;
}

bool bt_idct_c_4(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64], uint8_t *out,
		 size_t stride)
{
	(void)counts;
	return row_of(block_of_4, 4, blocks, count, quantizers, out, stride);
}

bool bt_idct_c_2(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64], uint8_t *out,
		 size_t stride)
{
	(void)counts;
	return row_of(block_of_2, 2, blocks, count, quantizers, out, stride);
}

bool bt_idct_1(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64], uint8_t *out,
	       size_t stride)
{
	bool good = true;
	(void)counts;
	(void)stride;
	for (uint32_t i = 0; i < count; i++) {
		int32_t mean = (blocks[(size_t)i * 64] * quantizers[0] + 4) >> 3;
		good &= mean >= -4 * CENTRE && mean < 4 * CENTRE;
		out[i] = sample_of(mean);
	}
	memset(blocks, 0, (size_t)count * 64 * sizeof(*blocks));
	return good;
}
