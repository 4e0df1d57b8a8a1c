/* SPDX-License-Identifier: Apache-2.0
 *
 * The inverse DCT with vectors of GROUP lanes of 128 bits, each with a row, or a column, of one block. Included once
 * for each instruction set, which defines GROUP, V, TARGET, INLINE, load(), spread(), store(), either(), differ(),
 * is_zero() and the operations op(name).
 */

/* Pairs of factors for two values that stand beside each other. */
INLINE V pair(int first, int second)
{
	return op(set1_epi32)((int)((uint32_t)(uint16_t)second << 16 | (uint16_t)first));
}

typedef struct halves {
	V low[8];
	V high[8];
} halves;

/* Sums and differences of the even and odd part, rounded. */
INLINE void combine(const V even[4], const V odd[4], int shift, V out[8])
{
	V round = op(set1_epi32)(1 << (shift - 1));
	for (int i = 0; i < 4; i++) {
		V rounded = op(add_epi32)(even[i], round);
		out[i] = op(srai_epi32)(op(add_epi32)(rounded, odd[i]), shift);
		out[7 - i] = op(srai_epi32)(op(sub_epi32)(rounded, odd[i]), shift);
	}
}

/* Half of the lanes of eight values; those are the pairs of (2, 6), (0 + 4, 0 - 4), (7 + 3, 5 + 1), (7, 1), (5, 3). */
INLINE void transform_half(V p26, V sum, V difference, V p34, V p71, V p53, int shift, V out[8])
{
	V t3 = op(madd_epi16)(p26, pair(4433 + 6270, 4433)), t2 = op(madd_epi16)(p26, pair(4433, 4433 - 15137));
	V z3 = op(madd_epi16)(p34, pair(9633 - 16069, 9633)), z4 = op(madd_epi16)(p34, pair(9633, 9633 - 3196));
	const V even[4] = {op(add_epi32)(sum, t3), op(add_epi32)(difference, t2), op(sub_epi32)(difference, t2),
			   op(sub_epi32)(sum, t3)};
	const V odd[4] = {op(add_epi32)(op(madd_epi16)(p71, pair(-7373, 12299 - 7373)), z4),
			  op(add_epi32)(op(madd_epi16)(p53, pair(-20995, 25172 - 20995)), z3),
			  op(add_epi32)(op(madd_epi16)(p53, pair(16819 - 20995, -20995)), z4),
			  op(add_epi32)(op(madd_epi16)(p71, pair(2446 - 7373, -7373)), z3)};
	combine(even, odd, shift, out);
}

/* The same where values 4 to 7 are 0; the pairs are (0, 2) and (1, 3). */
INLINE void transform_half_of_4(V p02, V p13, int shift, V out[8])
{
	const V even[4] = {op(madd_epi16)(p02, pair(8192, 4433 + 6270)), op(madd_epi16)(p02, pair(8192, 4433)),
			   op(madd_epi16)(p02, pair(8192, -4433)), op(madd_epi16)(p02, pair(8192, -4433 - 6270))};
	const V odd[4] = {op(madd_epi16)(p13, pair(9633 - 3196 + 12299 - 7373, 9633)),
			  op(madd_epi16)(p13, pair(9633, 9633 - 16069 + 25172 - 20995)),
			  op(madd_epi16)(p13, pair(9633 - 3196, 9633 - 20995)),
			  op(madd_epi16)(p13, pair(9633 - 7373, 9633 - 16069))};
	combine(even, odd, shift, out);
}

INLINE void transform(const V in[8], int shift, V out[8])
{
	halves h;
	V sum = op(add_epi16)(in[0], in[4]), difference = op(sub_epi16)(in[0], in[4]);
	V z3 = op(add_epi16)(in[7], in[3]), z4 = op(add_epi16)(in[5], in[1]), zero = op(set1_epi32)(0);
	transform_half(op(unpacklo_epi16)(in[2], in[6]), op(srai_epi32)(op(unpacklo_epi16)(zero, sum), 3),
		       op(srai_epi32)(op(unpacklo_epi16)(zero, difference), 3), op(unpacklo_epi16)(z3, z4),
		       op(unpacklo_epi16)(in[7], in[1]), op(unpacklo_epi16)(in[5], in[3]), shift, h.low);
	transform_half(op(unpackhi_epi16)(in[2], in[6]), op(srai_epi32)(op(unpackhi_epi16)(zero, sum), 3),
		       op(srai_epi32)(op(unpackhi_epi16)(zero, difference), 3), op(unpackhi_epi16)(z3, z4),
		       op(unpackhi_epi16)(in[7], in[1]), op(unpackhi_epi16)(in[5], in[3]), shift, h.high);
	for (int i = 0; i < 8; i++)
		out[i] = op(packs_epi32)(h.low[i], h.high[i]);
}

/* Rows and columns exchanged within each block. */
INLINE void transpose(V x[8])
{
	V a[8], b[8];
	for (int i = 0; i < 4; i++) {
		a[2 * i] = op(unpacklo_epi16)(x[2 * i], x[2 * i + 1]);
		a[2 * i + 1] = op(unpackhi_epi16)(x[2 * i], x[2 * i + 1]);
	}
	/* a: columns 0-3 and 4-7 of rows (0, 1), (2, 3), (4, 5), (6, 7) */
	for (int i = 0; i < 2; i++) {
		b[4 * i] = op(unpacklo_epi32)(a[4 * i], a[4 * i + 2]);
		b[4 * i + 1] = op(unpackhi_epi32)(a[4 * i], a[4 * i + 2]);
		b[4 * i + 2] = op(unpacklo_epi32)(a[4 * i + 1], a[4 * i + 3]);
		b[4 * i + 3] = op(unpackhi_epi32)(a[4 * i + 1], a[4 * i + 3]);
	}
	/* b: columns (0, 1), (2, 3), (4, 5), (6, 7) of rows 0-3 and 4-7 */
	for (int i = 0; i < 4; i++) {
		x[2 * i] = op(unpacklo_epi64)(b[i], b[i + 4]);
		x[2 * i + 1] = op(unpackhi_epi64)(b[i], b[i + 4]);
	}
}

/* Columns of samples, to rows of bytes, which are stored. */
INLINE void finish(const V c[8], uint8_t *out, size_t stride)
{
	V q[4], a[4], b[4];
	for (int i = 0; i < 4; i++)
		q[i] = op(packs_epi16)(c[i], c[i + 4]);
	for (int i = 0; i < 2; i++) {
		a[2 * i] = op(unpacklo_epi8)(q[2 * i], q[2 * i + 1]);
		a[2 * i + 1] = op(unpackhi_epi8)(q[2 * i], q[2 * i + 1]);
	}
	for (int i = 0; i < 2; i++) {
		b[2 * i] = op(unpacklo_epi16)(a[i], a[i + 2]);
		b[2 * i + 1] = op(unpackhi_epi16)(a[i], a[i + 2]);
	}
	V centre = op(set1_epi8)((char)128);
	for (int i = 0; i < 2; i++) {
		V low = op(unpacklo_epi32)(b[i], b[i + 2]), high = op(unpackhi_epi32)(b[i], b[i + 2]);
		store(op(add_epi8)(low, centre), out + (size_t)(4 * i) * stride, stride);
		store(op(add_epi8)(high, centre), out + (size_t)(4 * i + 2) * stride, stride);
	}
}

enum { SHIFT_COLUMNS = 13 - 2, SHIFT_ROWS = 13 + 2 + 3 };

/* Row i of a group's products; sets bits of *beyond where one is out of range. */
INLINE V product(const int16_t *blocks, const int16_t *quantizers, int i, V *beyond)
{
	V coefficients = load(blocks + (size_t)i * 8), factors = spread(quantizers + (size_t)i * 8);
	V low = op(mullo_epi16)(coefficients, factors), high = op(mulhi_epi16)(coefficients, factors);
	V middle = op(set1_epi16)(1 << (BT_IDCT_RANGE_BITS - 1));
	V outside = op(srli_epi16)(op(add_epi16)(low, middle), BT_IDCT_RANGE_BITS);
	*beyond = either(*beyond, either(outside, differ(high, op(srai_epi16)(low, 15))));
	return low;
}

INLINE V whole_group(int16_t *blocks, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	V x[8], y[8], beyond = op(set1_epi32)(0);
	for (int i = 0; i < 8; i++)
		x[i] = product(blocks, quantizers, i, &beyond);
	transform(x, SHIFT_COLUMNS, y);
	transpose(y);
	transform(y, SHIFT_ROWS, x);
	finish(x, out, stride);
	memset(blocks, 0, GROUP * 64 * sizeof(*blocks));
	return beyond;
}

/* Blocks whose coefficients are 0 but for the upper left 4 x 4. */
INLINE V corner_group(int16_t *blocks, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	V x[4], y[8], low[8], high[8], zero = op(set1_epi32)(0), beyond = zero;
	for (int i = 0; i < 4; i++)
		x[i] = product(blocks, quantizers, i, &beyond);
	transform_half_of_4(op(unpacklo_epi16)(x[0], x[2]), op(unpacklo_epi16)(x[1], x[3]), SHIFT_COLUMNS, low);
	for (int i = 0; i < 8; i++)
		y[i] = op(packs_epi32)(low[i], zero);
	transpose(y);
	transform_half_of_4(op(unpacklo_epi16)(y[0], y[2]), op(unpacklo_epi16)(y[1], y[3]), SHIFT_ROWS, low);
	transform_half_of_4(op(unpackhi_epi16)(y[0], y[2]), op(unpackhi_epi16)(y[1], y[3]), SHIFT_ROWS, high);
	for (int i = 0; i < 8; i++)
		y[i] = op(packs_epi32)(low[i], high[i]);
	finish(y, out, stride);
	for (int i = 0; i < GROUP; i++)
		memset(blocks + (size_t)i * 64, 0, 32 * sizeof(*blocks));
	return beyond;
}

/* Blocks with nothing but a mean. */
INLINE V mean_group(int16_t *blocks, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	uint32_t beyond = 0;
	for (int i = 0; i < GROUP; i++, blocks += 64, out += 8) {
		int64_t mean = blocks[0] * quantizers[0], value = ((mean * 4 + 16) >> 5) + 128;
		uint64_t bytes = (uint64_t)(value < 0 ? 0 : value > 255 ? 255 : value) * UINT64_C(0x0101010101010101);
		for (int y = 0; y < 8; y++)
			memcpy(out + (size_t)y * stride, &bytes, sizeof(bytes));
		beyond |= (uint32_t)(mean + (1 << (BT_IDCT_RANGE_BITS - 1))) >> BT_IDCT_RANGE_BITS;
		blocks[0] = 0;
	}
	return op(set1_epi32)((int)beyond);
}

static TARGET bool row_of_8(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64],
			    uint8_t *out, size_t stride)
{
	V beyond = op(set1_epi32)(0);
	for (uint32_t i = 0; i < count; i += GROUP, blocks += GROUP * 64, out += GROUP * 8) {
		int most = 1;
		for (uint32_t j = i; j < i + GROUP && j < count; j++)
			most = counts[j] > most ? counts[j] : most;
		V of_group = most == 1                ? mean_group(blocks, quantizers, out, stride)
			     : most <= BT_IDCT_CORNER ? corner_group(blocks, quantizers, out, stride)
						      : whole_group(blocks, quantizers, out, stride);
		beyond = either(beyond, of_group);
	}
	return is_zero(beyond);
}

/* ---- to 4 and 2 samples a side ---- */

/* Out of eight values 0, 2, 6 and 1, 3, 5, 7 come four; mean: value 0 with 14 bits of fraction. */
INLINE void transform_to_4(V mean, V p26, V p13, V p57, int shift, V out[4])
{
	V part = op(madd_epi16)(p26, pair(15137, -6270)), round = op(set1_epi32)(1 << (shift - 1));
	const V even[2] = {op(add_epi32)(mean, part), op(sub_epi32)(mean, part)};
	const V odd[2] = {
		op(add_epi32)(op(madd_epi16)(p13, pair(20995, 7373)), op(madd_epi16)(p57, pair(-4926, -4176))),
		op(add_epi32)(op(madd_epi16)(p13, pair(8697, -17799)), op(madd_epi16)(p57, pair(11893, -1730)))};
	for (int i = 0; i < 2; i++) {
		V rounded = op(add_epi32)(even[i], round);
		out[i] = op(srai_epi32)(op(add_epi32)(rounded, odd[i]), shift);
		out[3 - i] = op(srai_epi32)(op(sub_epi32)(rounded, odd[i]), shift);
	}
}

/* Out of values 0 and 1, 3, 5, 7 come two; mean: value 0 with 15 bits of fraction. */
INLINE void transform_to_2(V mean, V p13, V p57, int shift, V out[2])
{
	V odd = op(add_epi32)(op(madd_epi16)(p13, pair(29692, -10426)), op(madd_epi16)(p57, pair(6967, -5906)));
	V rounded = op(add_epi32)(mean, op(set1_epi32)(1 << (shift - 1)));
	out[0] = op(srai_epi32)(op(add_epi32)(rounded, odd), shift);
	out[1] = op(srai_epi32)(op(sub_epi32)(rounded, odd), shift);
}

/* A group's products, whose coefficients are cleared; returns bits where one is out of range. */
INLINE V products(int16_t *blocks, const int16_t *quantizers, V x[8])
{
	V beyond = op(set1_epi32)(0);
	for (int i = 0; i < 8; i++)
		x[i] = product(blocks, quantizers, i, &beyond);
	memset(blocks, 0, GROUP * 64 * sizeof(*blocks));
	return beyond;
}

INLINE V group_of_4(int16_t *blocks, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	V x[8], low[4], high[4], y[4], zero = op(set1_epi32)(0);
	V beyond = products(blocks, quantizers, x);
	transform_to_4(op(srai_epi32)(op(unpacklo_epi16)(zero, x[0]), 2), op(unpacklo_epi16)(x[2], x[6]),
		       op(unpacklo_epi16)(x[1], x[3]), op(unpacklo_epi16)(x[5], x[7]), SHIFT_COLUMNS + 1, low);
	transform_to_4(op(srai_epi32)(op(unpackhi_epi16)(zero, x[0]), 2), op(unpackhi_epi16)(x[2], x[6]),
		       op(unpackhi_epi16)(x[1], x[3]), op(unpackhi_epi16)(x[5], x[7]), SHIFT_COLUMNS + 1, high);
	for (int i = 0; i < 4; i++)
		y[i] = op(packs_epi32)(low[i], high[i]);
	V a = op(unpacklo_epi16)(y[0], y[1]), b = op(unpacklo_epi16)(y[2], y[3]);
	V c = op(unpackhi_epi16)(y[0], y[1]), d = op(unpackhi_epi16)(y[2], y[3]);
	V c01 = op(unpacklo_epi32)(a, b), c23 = op(unpackhi_epi32)(a, b);
	V c45 = op(unpacklo_epi32)(c, d), c67 = op(unpackhi_epi32)(c, d);
	transform_to_4(op(srai_epi32)(op(unpacklo_epi16)(zero, c01), 2), op(unpacklo_epi16)(c23, c67),
		       op(unpackhi_epi16)(c01, c23), op(unpackhi_epi16)(c45, c67), SHIFT_ROWS + 1, low);
	/* Columns of bytes, to rows. */
	V q = op(packs_epi16)(op(packs_epi32)(low[0], low[1]), op(packs_epi32)(low[2], low[3]));
	for (int i = 0; i < 2; i++)
		q = op(unpacklo_epi8)(q, op(unpackhi_epi64)(q, q));
	q = op(add_epi8)(q, op(set1_epi8)((char)128));
	uint8_t bytes[GROUP * 16];
	memcpy(bytes, &q, sizeof(bytes));
	for (int i = 0; i < GROUP; i++)
		for (int j = 0; j < 4; j++)
			memcpy(out + (size_t)j * stride + (size_t)i * 4, bytes + (size_t)i * 16 + (size_t)j * 4, 4);
	return beyond;
}

INLINE V group_of_2(int16_t *blocks, const int16_t *quantizers, uint8_t *out, size_t stride)
{
	V x[8], low[2], high[2], zero = op(set1_epi32)(0);
	V beyond = products(blocks, quantizers, x);
	transform_to_2(op(srai_epi32)(op(unpacklo_epi16)(zero, x[0]), 1), op(unpacklo_epi16)(x[1], x[3]),
		       op(unpacklo_epi16)(x[5], x[7]), SHIFT_COLUMNS + 2, low);
	transform_to_2(op(srai_epi32)(op(unpackhi_epi16)(zero, x[0]), 1), op(unpackhi_epi16)(x[1], x[3]),
		       op(unpackhi_epi16)(x[5], x[7]), SHIFT_COLUMNS + 2, high);
	V y0 = op(packs_epi32)(low[0], high[0]), y1 = op(packs_epi32)(low[1], high[1]);
	V a = op(unpacklo_epi16)(y0, y1), b = op(unpackhi_epi16)(y0, y1);
	/* Columns (0, 1, 4, 5) and (2, 3, 6, 7); then the pairs (1, 3) and (5, 7), which come after others. */
	V c = op(unpacklo_epi64)(a, b), d = op(unpackhi_epi64)(a, b);
	V p13 = op(unpacklo_epi16)(c, d), p57 = op(unpackhi_epi16)(c, d);
	transform_to_2(op(srai_epi32)(op(unpacklo_epi16)(zero, a), 1), op(unpackhi_epi64)(p13, p13),
		       op(unpackhi_epi64)(p57, p57), SHIFT_ROWS + 2, low);
	V q = op(packs_epi32)(op(unpacklo_epi32)(low[0], low[1]), zero);
	q = op(add_epi8)(op(packs_epi16)(q, zero), op(set1_epi8)((char)128));
	uint8_t bytes[GROUP * 16];
	memcpy(bytes, &q, sizeof(bytes));
	for (int i = 0; i < GROUP; i++)
		for (int j = 0; j < 2; j++)
			memcpy(out + (size_t)j * stride + (size_t)i * 2, bytes + (size_t)i * 16 + (size_t)j * 2, 2);
	return beyond;
}

static TARGET bool row_of_4(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64],
			    uint8_t *out, size_t stride)
{
	V beyond = op(set1_epi32)(0);
	(void)counts;
	for (uint32_t i = 0; i < count; i += GROUP, blocks += GROUP * 64, out += GROUP * 4)
		beyond = either(beyond, group_of_4(blocks, quantizers, out, stride));
	return is_zero(beyond);
}

static TARGET bool row_of_2(int16_t *blocks, const uint8_t *counts, uint32_t count, const int16_t quantizers[64],
			    uint8_t *out, size_t stride)
{
	V beyond = op(set1_epi32)(0);
	(void)counts;
	for (uint32_t i = 0; i < count; i += GROUP, blocks += GROUP * 64, out += GROUP * 2)
		beyond = either(beyond, group_of_2(blocks, quantizers, out, stride));
	return is_zero(beyond);
}
