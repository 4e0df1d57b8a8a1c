/* SPDX-License-Identifier: Apache-2.0 */
#include "idct.h"

#include <string.h>

#include "common/isa.h"

enum {
	FRACTION = 13, /* bits of constants */
	BETWEEN = 2,   /* bits more between the passes */
	CENTRE = 128,
};

static int16_t saturate(int32_t value)
{
	return (int16_t)(value < INT16_MIN ? INT16_MIN : value > INT16_MAX ? INT16_MAX : value);
}

static int32_t half_up(int32_t value, int shift)
{
	return (value + (1 << (shift - 1))) >> shift;
}

/* One pass over eight values, `step` apart. */
static void transform(const int16_t *in, int step, int shift, int16_t out[8])
{
	int32_t x[8];
	for (int i = 0; i < 8; i++)
		x[i] = in[i * step];
	int32_t both = (x[2] + x[6]) * 4433;
	int32_t even[4], odd[4];
	/* As vectors do, these are in 16 bits. */
	int32_t sum = (int16_t)(x[0] + x[4]) * (1 << FRACTION), difference = (int16_t)(x[0] - x[4]) * (1 << FRACTION);
	even[0] = sum + both + x[2] * 6270;
	even[3] = sum - both - x[2] * 6270;
	even[1] = difference + both - x[6] * 15137;
	even[2] = difference - both + x[6] * 15137;
	int32_t z3 = (int16_t)(x[7] + x[3]), z4 = (int16_t)(x[5] + x[1]), z5 = (z3 + z4) * 9633;
	int32_t z1 = -(x[7] + x[1]) * 7373, z2 = -(x[5] + x[3]) * 20995;
	z3 = z5 - z3 * 16069;
	z4 = z5 - z4 * 3196;
	odd[0] = x[1] * 12299 + z1 + z4;
	odd[1] = x[3] * 25172 + z2 + z3;
	odd[2] = x[5] * 16819 + z2 + z4;
	odd[3] = x[7] * 2446 + z1 + z3;
	for (int i = 0; i < 4; i++) {
		out[i] = saturate(half_up(even[i] + odd[i], shift));
		out[7 - i] = saturate(half_up(even[i] - odd[i], shift));
	}
}

static uint8_t sample_of(int32_t value)
{
	value += CENTRE;
	return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static bool block(const int16_t *coefficients, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	int16_t products[64], columns[64], row[8];
	uint32_t beyond = 0;
	for (int i = 0; i < 64; i++) {
		int32_t product = coefficients[i] * quantizers[i];
		beyond |= (uint32_t)(product + (1 << (BT_IDCT_RANGE_BITS - 1))) >> BT_IDCT_RANGE_BITS;
		products[i] = (int16_t)product;
	}
	for (int x = 0; x < 8; x++) {
		transform(products + x, 8, FRACTION - BETWEEN, row);
		for (int y = 0; y < 8; y++)
			columns[y * 8 + x] = row[y];
	}
	for (int y = 0; y < 8; y++, out += stride) {
		transform(columns + (ptrdiff_t)y * 8, 1, FRACTION + BETWEEN + 3, row);
		for (int x = 0; x < 8; x++)
			out[x] = sample_of(row[x]);
	}
	return !beyond;
}

static bool row(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64], uint8_t *out,
		size_t stride)
{
	bool good = true;
	(void)counts;
	for (uint32_t i = 0; i < count; i++)
		good &= block(blocks + (size_t)i * 64, quantizers, out + (size_t)i * 8, stride);
	memset(blocks, 0, (size_t)count * 64 * sizeof(*blocks));
	return good;
}

const bt_idct bt_idct_c = {.name = "c", .row_of_8 = row, .row_of_4 = bt_idct_c_4, .row_of_2 = bt_idct_c_2};

bt_idct_row *bt_idct_row_of(const bt_idct *idct, uint32_t size)
{
	return size == 8   ? idct->row_of_8
	       : size == 4 ? idct->row_of_4
	       : size == 2 ? idct->row_of_2
	       : size == 1 ? bt_idct_1
			   : NULL;
}

const bt_idct *bt_idct_get(unsigned index)
{
	const bt_idct *list[4];
	unsigned count = 0;
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX512)
		list[count++] = &bt_idct_avx512;
	if (bt_isa_level() >= BT_ISA_AVX2)
		list[count++] = &bt_idct_avx2;
	list[count++] = &bt_idct_sse2;
#elif defined(__aarch64__)
	list[count++] = &bt_idct_neon;
#endif
	list[count++] = &bt_idct_c;
	return index < count ? list[index] : NULL;
}
