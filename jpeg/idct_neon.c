/* SPDX-License-Identifier: Apache-2.0 */
#include "idct.h"

#ifdef __aarch64__
#include <string.h>

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

/* A half of the lanes of 8 values times a factor, alone or added to a sum; `high` and `lane` are constants. */
#define TIMES(x, factors, lane) \
	(high ? vmull_high_laneq_s16(x, factors, lane) : vmull_laneq_s16(vget_low_s16(x), factors, lane))
#define ADD_TIMES(sum, x, factors, lane) \
	(high ? vmlal_high_laneq_s16(sum, x, factors, lane) : vmlal_laneq_s16(sum, vget_low_s16(x), factors, lane))
#define SHIFT_LEFT(x, bits) (high ? vshll_high_n_s16(x, bits) : vshll_n_s16(vget_low_s16(x), bits))

enum {
	SHIFT_COLUMNS = 13 - 2,
	SHIFT_ROWS = 13 + 2 + 3,
	WORD = 16, /* rows are narrowed by so many bits first, and then by the others */
	CENTRE = 128,
};

/* Four lanes of eight results: even[i] + odd[i], and even[i] - odd[i] from the other end. */
typedef struct halves {
	int32x4_t even[4];
	int32x4_t odd[4];
} halves;

/* round: what is added to all results. */
INLINE halves sum_half(const int16x8_t x[8], int32_t round, bool high)
{
	const int16x8_t f = {4433 + 6270, 4433, 4433 - 15137, 9633 - 16069, 9633, 9633 - 3196, -7373, 12299 - 7373};
	const int16x8_t g = {-20995, 25172 - 20995, 16819 - 20995, 2446 - 7373};
	int16x8_t z3 = vaddq_s16(x[7], x[3]), z4 = vaddq_s16(x[5], x[1]);
	int32x4_t sum = SHIFT_LEFT(vaddq_s16(x[0], x[4]), 13), difference = SHIFT_LEFT(vsubq_s16(x[0], x[4]), 13);
	if (round) {
		sum = vaddq_s32(sum, vdupq_n_s32(round));
		difference = vaddq_s32(difference, vdupq_n_s32(round));
	}
	int32x4_t t3 = ADD_TIMES(TIMES(x[2], f, 0), x[6], f, 1), t2 = ADD_TIMES(TIMES(x[2], f, 1), x[6], f, 2);
	int32x4_t p3 = ADD_TIMES(TIMES(z3, f, 3), z4, f, 4), p4 = ADD_TIMES(TIMES(z3, f, 4), z4, f, 5);
	return (halves){
		{vaddq_s32(sum, t3), vaddq_s32(difference, t2), vsubq_s32(difference, t2), vsubq_s32(sum, t3)},
		{ADD_TIMES(ADD_TIMES(p4, x[7], f, 6), x[1], f, 7), ADD_TIMES(ADD_TIMES(p3, x[5], g, 0), x[3], g, 1),
		 ADD_TIMES(ADD_TIMES(p4, x[5], g, 2), x[3], g, 0), ADD_TIMES(ADD_TIMES(p3, x[7], g, 3), x[1], f, 6)}};
}

/* The same where values 4 to 7 are 0. */
INLINE halves sum_half_of_4(const int16x8_t x[4], int32_t round, bool high)
{
	const int16x8_t f = {
		4433 + 6270,  4433,       9633 - 3196 + 12299 - 7373, 9633, 9633 - 16069 + 25172 - 20995, 9633 - 3196,
		9633 - 20995, 9633 - 7373};
	const int16x8_t g = {9633 - 16069};
	int32x4_t sum = SHIFT_LEFT(x[0], 13);
	if (round)
		sum = vaddq_s32(sum, vdupq_n_s32(round));
	int32x4_t t3 = TIMES(x[2], f, 0), t2 = TIMES(x[2], f, 1);
	return (halves){{vaddq_s32(sum, t3), vaddq_s32(sum, t2), vsubq_s32(sum, t2), vsubq_s32(sum, t3)},
			{ADD_TIMES(TIMES(x[1], f, 2), x[3], f, 3), ADD_TIMES(TIMES(x[1], f, 3), x[3], f, 4),
			 ADD_TIMES(TIMES(x[1], f, 5), x[3], f, 6), ADD_TIMES(TIMES(x[1], f, 7), x[3], g, 0)}};
}

/* Results of columns, rounded: four lanes. */
INLINE int16x4_t column(const halves *of, int i)
{
	return i < 4 ? vqrshrn_n_s32(vaddq_s32(of->even[i], of->odd[i]), SHIFT_COLUMNS)
		     : vqrshrn_n_s32(vsubq_s32(of->even[7 - i], of->odd[7 - i]), SHIFT_COLUMNS);
}

/* Results of rows, without their last WORD bits; what rounds them has been added before. */
INLINE int16x8_t row_words(const halves *low, const halves *high, int i)
{
	if (i < 4)
		return vaddhn_high_s32(vaddhn_s32(low->even[i], low->odd[i]), high->even[i], high->odd[i]);
	i = 7 - i;
	return vsubhn_high_s32(vsubhn_s32(low->even[i], low->odd[i]), high->even[i], high->odd[i]);
}

/* Two columns of samples less CENTRE. */
INLINE int8x16_t samples(const halves *low, const halves *high, int first, int second)
{
	int8x8_t samples_8 = vqshrn_n_s16(row_words(low, high, first), SHIFT_ROWS - WORD);
	return vqshrn_high_n_s16(samples_8, row_words(low, high, second), SHIFT_ROWS - WORD);
}

INLINE void store(int8x16_t rows, uint8_t *out, size_t stride)
{
	uint8x16_t bytes = veorq_u8(vreinterpretq_u8_s8(rows), vdupq_n_u8(CENTRE));
	vst1_u8(out, vget_low_u8(bytes));
	vst1_u8(out + stride, vget_high_u8(bytes));
}

/* Columns of samples, to rows of bytes, which are stored. */
INLINE void finish(const halves *low, const halves *high, uint8_t *out, size_t stride)
{
	int8x16_t q[4];
	for (int i = 0; i < 4; i++)
		q[i] = samples(low, high, i, i + 4);
	/* Columns (0, 1), (4, 5), (2, 3), (6, 7); then 0 to 3 and 4 to 7 of four rows; then all of two. */
	int16x8_t a = vreinterpretq_s16_s8(vzip1q_s8(q[0], q[1])), b = vreinterpretq_s16_s8(vzip2q_s8(q[0], q[1]));
	int16x8_t c = vreinterpretq_s16_s8(vzip1q_s8(q[2], q[3])), d = vreinterpretq_s16_s8(vzip2q_s8(q[2], q[3]));
	int32x4_t left[2] = {vreinterpretq_s32_s16(vzip1q_s16(a, c)), vreinterpretq_s32_s16(vzip2q_s16(a, c))};
	int32x4_t right[2] = {vreinterpretq_s32_s16(vzip1q_s16(b, d)), vreinterpretq_s32_s16(vzip2q_s16(b, d))};
	for (int i = 0; i < 2; i++, out += 4 * stride) {
		store(vreinterpretq_s8_s32(vzip1q_s32(left[i], right[i])), out, stride);
		store(vreinterpretq_s8_s32(vzip2q_s32(left[i], right[i])), out + 2 * stride, stride);
	}
}

/* Exchanges the places of four lanes, in both halves: lane i of vector j and lane j of vector i. */
INLINE void transpose_4(int16x8_t x[4])
{
	int32x4_t a = vreinterpretq_s32_s16(vtrn1q_s16(x[0], x[1])), b = vreinterpretq_s32_s16(vtrn2q_s16(x[0], x[1]));
	int32x4_t c = vreinterpretq_s32_s16(vtrn1q_s16(x[2], x[3])), d = vreinterpretq_s32_s16(vtrn2q_s16(x[2], x[3]));
	x[0] = vreinterpretq_s16_s32(vtrn1q_s32(a, c));
	x[1] = vreinterpretq_s16_s32(vtrn1q_s32(b, d));
	x[2] = vreinterpretq_s16_s32(vtrn2q_s32(a, c));
	x[3] = vreinterpretq_s16_s32(vtrn2q_s32(b, d));
}

/* Row i of a block's products; sets bits of *beyond where one is out of range. vqdmulh doubles, and so gives the sign
 * and what is beyond 16 bits. */
INLINE int16x8_t product(const int16_t *block, const int16_t *quantizers, int i, uint16x8_t *beyond)
{
	int16x8_t coefficients = vld1q_s16(block + (ptrdiff_t)i * 8),
		  factors = vld1q_s16(quantizers + (ptrdiff_t)i * 8);
	int16x8_t low = vmulq_s16(coefficients, factors), high = vqdmulhq_s16(coefficients, factors);
	uint16x8_t middle = vdupq_n_u16(1 << (BT_IDCT_RANGE_BITS - 1));
	uint16x8_t outside = vshrq_n_u16(vaddq_u16(vreinterpretq_u16_s16(low), middle), BT_IDCT_RANGE_BITS);
	uint16x8_t other = vreinterpretq_u16_s16(veorq_s16(high, vshrq_n_s16(low, 15)));
	*beyond = vorrq_u16(*beyond, vorrq_u16(outside, other));
	return low;
}

INLINE uint16x8_t whole_block(int16_t *block, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	uint16x8_t beyond = vdupq_n_u16(0);
	int16x8_t x[8], y[8];
	for (int i = 0; i < 8; i++)
		x[i] = product(block, quantizers, i, &beyond);
	memset(block, 0, 64 * sizeof(*block));
	halves low = sum_half(x, 0, false), high = sum_half(x, 0, true);
	/* Columns 0 to 3 of rows i and i + 4 in one vector, and columns 4 to 7. */
	for (int i = 0; i < 4; i++) {
		y[i] = vcombine_s16(column(&low, i), column(&low, i + 4));
		y[i + 4] = vcombine_s16(column(&high, i), column(&high, i + 4));
	}
	transpose_4(y);
	transpose_4(y + 4);
	low = sum_half(y, 1 << (SHIFT_ROWS - 1), false);
	high = sum_half(y, 1 << (SHIFT_ROWS - 1), true);
	finish(&low, &high, out, stride);
	return beyond;
}

/* A block whose coefficients are 0 but for the upper left 4 x 4. */
INLINE uint16x8_t corner_block(int16_t *block, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	uint16x8_t beyond = vdupq_n_u16(0);
	int16x8_t x[4];
	for (int i = 0; i < 4; i++)
		x[i] = product(block, quantizers, i, &beyond);
	memset(block, 0, 32 * sizeof(*block));
	halves low = sum_half_of_4(x, 0, false);
	for (int i = 0; i < 4; i++)
		x[i] = vcombine_s16(column(&low, i), column(&low, i + 4));
	transpose_4(x);
	low = sum_half_of_4(x, 1 << (SHIFT_ROWS - 1), false);
	halves high = sum_half_of_4(x, 1 << (SHIFT_ROWS - 1), true);
	finish(&low, &high, out, stride);
	return beyond;
}

/* A block with nothing but a mean. */
INLINE uint16x8_t mean_block(int16_t *block, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	int64_t mean = block[0] * quantizers[0], value = ((mean * 4 + 16) >> 5) + CENTRE;
	uint8x8_t row = vdup_n_u8((uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value));
	for (int y = 0; y < 8; y++)
		vst1_u8(out + (size_t)y * stride, row);
	block[0] = 0;
	return vdupq_n_u16((uint32_t)(mean + (1 << (BT_IDCT_RANGE_BITS - 1))) >> BT_IDCT_RANGE_BITS != 0);
}

static bool row_of_8(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64], uint8_t *out,
		     size_t stride)
{
	uint16x8_t beyond = vdupq_n_u16(0);
	for (uint32_t i = 0; i < count; i++, blocks += 64, out += 8) {
		uint16x8_t of_block = counts[i] == 1                ? mean_block(blocks, quantizers, out, stride)
				      : counts[i] <= BT_IDCT_CORNER ? corner_block(blocks, quantizers, out, stride)
								    : whole_block(blocks, quantizers, out, stride);
		beyond = vorrq_u16(beyond, of_block);
	}
	return vmaxvq_u16(beyond) == 0;
}

/* ---- to 4 and 2 samples a side ---- */

/* Four values out of eight; number 4 does not contribute. */
typedef struct quarters {
	int32x4_t even[2];
	int32x4_t odd[2];
} quarters;

INLINE quarters sum_to_4(int32x4_t mean, int16x4_t x2, int16x4_t x6, const int16x4_t odd[4])
{
	const int16x8_t f = {15137, -6270, 20995, 7373, -4926, -4176, 8697, -17799}, g = {11893, -1730};
	int32x4_t part = vmlal_laneq_s16(vmull_laneq_s16(x2, f, 0), x6, f, 1);
	int32x4_t outer = vmlal_laneq_s16(vmull_laneq_s16(odd[0], f, 2), odd[1], f, 3);
	int32x4_t inner = vmlal_laneq_s16(vmull_laneq_s16(odd[0], f, 6), odd[1], f, 7);
	outer = vmlal_laneq_s16(vmlal_laneq_s16(outer, odd[2], f, 4), odd[3], f, 5);
	inner = vmlal_laneq_s16(vmlal_laneq_s16(inner, odd[2], g, 0), odd[3], g, 1);
	return (quarters){{vaddq_s32(mean, part), vsubq_s32(mean, part)}, {outer, inner}};
}

/* Four columns of products, to four rows. */
INLINE void columns_to_4(const int16x4_t x[8], int16x4_t rows[4])
{
	quarters of = sum_to_4(vshll_n_s16(x[0], 14), x[2], x[6], (const int16x4_t[4]){x[1], x[3], x[5], x[7]});
	for (int i = 0; i < 2; i++) {
		rows[i] = vqrshrn_n_s32(vaddq_s32(of.even[i], of.odd[i]), SHIFT_COLUMNS + 1);
		rows[3 - i] = vqrshrn_n_s32(vsubq_s32(of.even[i], of.odd[i]), SHIFT_COLUMNS + 1);
	}
}

INLINE uint16x8_t block_of_4(int16_t *block, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	static const uint8_t by_rows[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
	uint16x8_t beyond = vdupq_n_u16(0);
	int16x4_t x[2][8], rows[2][4];
	int16x8_t y[4];
	for (int i = 0; i < 8; i++) {
		int16x8_t row = product(block, quantizers, i, &beyond);
		x[0][i] = vget_low_s16(row);
		x[1][i] = vget_high_s16(row);
	}
	memset(block, 0, 64 * sizeof(*block));
	for (int i = 0; i < 2; i++)
		columns_to_4(x[i], rows[i]);
	for (int i = 0; i < 4; i++)
		y[i] = vcombine_s16(rows[0][i], rows[1][i]);
	/* Afterwards y[i] has columns i and i + 4. */
	transpose_4(y);
	int32x4_t mean = vaddq_s32(vshll_n_s16(vget_low_s16(y[0]), 14), vdupq_n_s32(1 << SHIFT_ROWS));
	const int16x4_t odd[4] = {vget_low_s16(y[1]), vget_low_s16(y[3]), vget_high_s16(y[1]), vget_high_s16(y[3])};
	quarters of = sum_to_4(mean, vget_low_s16(y[2]), vget_high_s16(y[2]), odd);
	int16x8_t first = vaddhn_high_s32(vaddhn_s32(of.even[0], of.odd[0]), of.even[1], of.odd[1]);
	int16x8_t last = vsubhn_high_s32(vsubhn_s32(of.even[1], of.odd[1]), of.even[0], of.odd[0]);
	int8x16_t columns = vqshrn_high_n_s16(vqshrn_n_s16(first, SHIFT_ROWS + 1 - WORD), last, SHIFT_ROWS + 1 - WORD);
	uint8x16_t bytes = vqtbl1q_u8(veorq_u8(vreinterpretq_u8_s8(columns), vdupq_n_u8(CENTRE)), vld1q_u8(by_rows));
	uint8_t stored[16];
	vst1q_u8(stored, bytes);
	for (int i = 0; i < 4; i++)
		memcpy(out + (size_t)i * stride, stored + (ptrdiff_t)i * 4, 4);
	return beyond;
}

/* Two rows of eight values; the first and the odd ones contribute to the result. */
INLINE uint16x8_t block_of_2(int16_t *block, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	const int16x8_t f = {29692, -10426, 6967, -5906, 29692, -10426, 6967, -5906};
	enum { SHIFT = SHIFT_COLUMNS + 2 };
	uint16x8_t beyond = vdupq_n_u16(0);
	int16x8_t x[8];
	for (int i = 0; i < 8; i++)
		x[i] = product(block, quantizers, i, &beyond);
	memset(block, 0, 64 * sizeof(*block));
	int32x4_t sums[2], odd[2];
	for (int half = 0; half < 2; half++) {
		const bool high = half;
		int32x4_t mean = SHIFT_LEFT(x[0], 15);
		int32x4_t part = ADD_TIMES(TIMES(x[1], f, 0), x[3], f, 1);
		part = ADD_TIMES(ADD_TIMES(part, x[5], f, 2), x[7], f, 3);
		sums[half] = vaddq_s32(mean, part);
		odd[half] = vsubq_s32(mean, part);
	}
	int16x8_t rows[2] = {vcombine_s16(vqrshrn_n_s32(sums[0], SHIFT), vqrshrn_n_s32(sums[1], SHIFT)),
			     vcombine_s16(vqrshrn_n_s32(odd[0], SHIFT), vqrshrn_n_s32(odd[1], SHIFT))};
	for (int y = 0; y < 2; y++) {
		int16x4_t of_row = vget_low_s16(vuzp2q_s16(rows[y], rows[y]));
		uint32_t part = (uint32_t)vaddvq_s32(vmull_s16(of_row, vget_low_s16(f)));
		uint32_t mean = (uint32_t)(vgetq_lane_s16(rows[y], 0) * (1 << 15)) + (1 << (SHIFT_ROWS + 1));
		int32_t values[2] = {((int32_t)(mean + part) >> (SHIFT_ROWS + 2)) + CENTRE,
				     ((int32_t)(mean - part) >> (SHIFT_ROWS + 2)) + CENTRE};
		for (int i = 0; i < 2; i++)
			out[(size_t)y * stride + (size_t)i] = (uint8_t)(values[i] < 0     ? 0
									: values[i] > 255 ? 255
											  : values[i]);
	}
	return beyond;
}

static bool row_of_4(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64], uint8_t *out,
		     size_t stride)
{
	uint16x8_t beyond = vdupq_n_u16(0);
	(void)counts;
	for (uint32_t i = 0; i < count; i++)
		beyond =
			vorrq_u16(beyond, block_of_4(blocks + (size_t)i * 64, quantizers, out + (size_t)i * 4, stride));
	return vmaxvq_u16(beyond) == 0;
}

static bool row_of_2(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64], uint8_t *out,
		     size_t stride)
{
	uint16x8_t beyond = vdupq_n_u16(0);
	(void)counts;
	for (uint32_t i = 0; i < count; i++)
		beyond =
			vorrq_u16(beyond, block_of_2(blocks + (size_t)i * 64, quantizers, out + (size_t)i * 2, stride));
	return vmaxvq_u16(beyond) == 0;
}

const bt_idct bt_idct_neon = {.name = "neon", .row_of_8 = row_of_8, .row_of_4 = row_of_4, .row_of_2 = row_of_2};
#endif
