/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __aarch64__
#include <arm_neon.h>
#include <string.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))

enum { VERTICAL_SHIFT = BT_WEIGHT_BITS - BT_ROW_BITS, HORIZONTAL_SHIFT = BT_WEIGHT_BITS + BT_ROW_BITS };

/* 16 columns. */
INLINE void vertical_16(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, int16_t *out)
{
	int32x4_t sums[4] = {0};
	for (uint32_t k = 0; k < taps; k++, in += stride) {
		uint8x16_t bytes = vld1q_u8(in);
		int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
		int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
		sums[0] = vmlal_n_s16(sums[0], vget_low_s16(low), weights[k]);
		sums[1] = vmlal_high_n_s16(sums[1], low, weights[k]);
		sums[2] = vmlal_n_s16(sums[2], vget_low_s16(high), weights[k]);
		sums[3] = vmlal_high_n_s16(sums[3], high, weights[k]);
	}
	for (int i = 0; i < 4; i++)
		vst1_s16(out + (ptrdiff_t)i * 4, vrshrn_n_s32(sums[i], VERTICAL_SHIFT));
}

/* Two rows with weights w and 1 - w: b + w (a - b), where sqrdmulh, which doubles, rounds the product as the sum would
 * be rounded. */
INLINE int16x8_t mix_8(uint8x8_t a, uint8x8_t b, int16_t twice)
{
	int16x8_t apart = vshlq_n_s16(vreinterpretq_s16_u16(vsubl_u8(a, b)), BT_ROW_BITS);
	return vaddq_s16(vqrdmulhq_n_s16(apart, twice), vreinterpretq_s16_u16(vshll_n_u8(b, BT_ROW_BITS)));
}

INLINE void mix_16(const uint8_t *in, size_t stride, int16_t twice, int16_t *out)
{
	uint8x16_t a = vld1q_u8(in), b = vld1q_u8(in + stride);
	vst1q_s16(out, mix_8(vget_low_u8(a), vget_low_u8(b), twice));
	vst1q_s16(out + 8, mix_8(vget_high_u8(a), vget_high_u8(b), twice));
}

static void vertical_2(const uint8_t *in, size_t stride, int16_t weight, size_t count, int16_t *out)
{
	int16_t twice = (int16_t)(2 * weight);
	for (size_t j = 0; j + 16 <= count; j += 16)
		mix_16(in + j, stride, twice, out + j);
	if (count % 16)
		mix_16(in + count - 16, stride, twice, out + count - 16);
}

static void vertical(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, size_t count,
		     int16_t *out)
{
	if (count < 16) {
		bt_kernels_c.vertical(in, stride, weights, taps, count, out);
		return;
	}
	if (taps == 2 && weights[0] < 1 << BT_WEIGHT_BITS) {
		vertical_2(in, stride, weights[0], count, out);
		return;
	}
	for (size_t j = 0; j + 16 <= count; j += 16)
		vertical_16(in + j, stride, weights, taps, out + j);
	/* The remainder is computed together with columns before it again. */
	if (count % 16)
		vertical_16(in + count - 16, stride, weights, taps, out + count - 16);
}

/* Rounds sums, and narrows them in two steps: 16 bits and the rest. */
INLINE int16x8_t round_sums(int32x4_t low, int32x4_t high)
{
	const int32x4_t half = vdupq_n_s32(1 << (HORIZONTAL_SHIFT - 1));
	return vcombine_s16(vaddhn_s32(low, half), vaddhn_s32(high, half));
}

INLINE uint8x8_t narrow(int16x8_t words)
{
	return vqshrun_n_s16(words, HORIZONTAL_SHIFT - 16);
}

/* The rows of horizontal(). */
typedef struct row_set {
	const int16_t *in;
	size_t stride; /* values */
	uint32_t count;
	uint8_t *out;
	size_t out_stride; /* bytes */
} row_set;

/* One channel: output x's products, with all taps of a row of weights, in 4 partial sums. */
INLINE int32x4_t sum_products(const bt_axis *axis, const int16_t *row, uint32_t x)
{
	const int16_t *in = row + axis->first[x], *weights = axis->weights + (size_t)x * axis->stride;
	const uint32_t taps = axis->count[x];
	int32x4_t sum = vdupq_n_s32(0);
	for (uint32_t k = 0; k < taps; k += 8) {
		int16x8_t a = vld1q_s16(in + k), b = vld1q_s16(weights + k);
		sum = vmlal_high_s16(vmlal_s16(sum, vget_low_s16(a), vget_low_s16(b)), a, b);
	}
	return sum;
}

INLINE int32x4_t add_up(const int32x4_t sums[4])
{
	return vpaddq_s32(vpaddq_s32(sums[0], sums[1]), vpaddq_s32(sums[2], sums[3]));
}

/* Up to four weights and the first sample of some outputs, which are the same in all rows. */
typedef struct outputs {
	int16x4_t weights[8];
	uint32_t first[8];
} outputs;

INLINE outputs load_outputs(const bt_axis *axis, uint32_t x, int count)
{
	outputs of;
	for (int i = 0; i < count; i++) {
		of.weights[i] = vld1_s16(axis->weights + (size_t)(x + (uint32_t)i) * axis->stride);
		of.first[i] = axis->first[x + (uint32_t)i] * axis->key.channels;
	}
	return of;
}

/* Outputs x to x + 7 of one channel. short_taps: none has more than 4. */
INLINE void outputs_8(const bt_axis *axis, const row_set *rows, uint32_t x, bool short_taps)
{
	const outputs of = load_outputs(axis, x, 8);
	const int16_t *in = rows->in;
	uint8_t *out = rows->out + x;
	for (uint32_t y = 0; y < rows->count; y++, in += rows->stride, out += rows->out_stride) {
		int32x4_t sums[8];
		for (int i = 0; i < 8; i++)
			sums[i] = short_taps ? vmull_s16(vld1_s16(in + of.first[i]), of.weights[i])
					     : sum_products(axis, in, x + (uint32_t)i);
		vst1_u8(out, narrow(round_sums(add_up(sums), add_up(sums + 4))));
	}
}

/* Four taps of a pixel of three channels, beside which the sum has an unused value. */
INLINE int32x4_t add_taps(int32x4_t sum, const int16_t *in, int16x4_t weights)
{
	sum = vmlal_lane_s16(sum, vld1_s16(in), weights, 0);
	sum = vmlal_lane_s16(sum, vld1_s16(in + 3), weights, 1);
	sum = vmlal_lane_s16(sum, vld1_s16(in + 6), weights, 2);
	return vmlal_lane_s16(sum, vld1_s16(in + 9), weights, 3);
}

/* Pixel x with any number of taps. Weights after the last one are 0. */
INLINE int32x4_t pixel(const bt_axis *axis, const int16_t *row, uint32_t x)
{
	const int16_t *in = row + (size_t)axis->first[x] * 3, *weights = axis->weights + (size_t)x * axis->stride;
	const uint32_t taps = axis->count[x];
	int32x4_t sum = vdupq_n_s32(0);
	for (uint32_t k = 0; k < taps; k += 4, in += 12)
		sum = add_taps(sum, in, vld1_s16(weights + k));
	return sum;
}

/* A pixel with 2 or 4 taps. */
INLINE int32x4_t short_pixel(const int16_t *in, int16x4_t weights, uint32_t pairs)
{
	int32x4_t sum = vmull_lane_s16(vld1_s16(in), weights, 0);
	sum = vmlal_lane_s16(sum, vld1_s16(in + 3), weights, 1);
	if (pairs == 1)
		return sum;
	sum = vmlal_lane_s16(sum, vld1_s16(in + 6), weights, 2);
	return vmlal_lane_s16(sum, vld1_s16(in + 9), weights, 3);
}

/* Pixels x to x + 3 of three channels. pairs: number of pairs of taps, 1 or 2; 0: each pixel's own. */
INLINE void pixels_4(const bt_axis *axis, const row_set *rows, uint32_t x, uint32_t pairs)
{
	static const uint8_t together[16] = {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 255, 255, 255, 255};
	const uint8x16_t places = vld1q_u8(together);
	const outputs of = load_outputs(axis, x, 4);
	const int16_t *in = rows->in;
	uint8_t *out = rows->out + (size_t)x * 3;
	for (uint32_t y = 0; y < rows->count; y++, in += rows->stride, out += rows->out_stride) {
		int32x4_t sums[4];
		for (int i = 0; i < 4; i++)
			sums[i] = pairs ? short_pixel(in + of.first[i], of.weights[i], pairs)
					: pixel(axis, in, x + (uint32_t)i);
		uint8x16_t bytes =
			vcombine_u8(narrow(round_sums(sums[0], sums[1])), narrow(round_sums(sums[2], sums[3])));
		vst1q_u8(out, vqtbl1q_u8(bytes, places));
	}
}

INLINE void horizontal_1(const bt_axis *axis, const row_set *rows, bool short_taps)
{
	/* The last outputs, together with those before them again. */
	for (uint32_t x = 0, width = axis->key.out; x < width; x += 8)
		outputs_8(axis, rows, x + 8 <= width ? x : width - 8, short_taps);
}

INLINE void horizontal_3(const bt_axis *axis, const row_set *rows, uint32_t pairs)
{
	for (uint32_t x = 0, width = axis->key.out; x < width; x += 4)
		pixels_4(axis, rows, x + 4 <= width ? x : width - 4, pairs);
}

static void horizontal(const bt_axis *axis, const int16_t *in, size_t stride, uint32_t count, uint8_t *out,
		       size_t out_stride)
{
	if (!bt_axis_is_common(axis)) {
		bt_kernels_c.horizontal(axis, in, stride, count, out, out_stride);
		return;
	}
	const row_set rows = {in, stride, count, out, out_stride};
	if (axis->key.channels == 1 && axis->pairs <= 2)
		horizontal_1(axis, &rows, true);
	else if (axis->key.channels == 1)
		horizontal_1(axis, &rows, false);
	else if (axis->pairs == 1)
		horizontal_3(axis, &rows, 1);
	else if (axis->pairs == 2)
		horizontal_3(axis, &rows, 2);
	else
		horizontal_3(axis, &rows, 0);
}

/* The loops below process 16 or 24 values at a time. The remainder is processed together with values before it again,
 * or alone in a shorter row. */

/* 8 pixels; blue and red are less 128. sqrdmulh doubles and shifts by 16, so an operand is doubled; it rounds as the
 * formula does. */
INLINE void ycc_8(uint8x8_t luma, int16x8_t blue, int16x8_t red, uint8x8_t rgb[3])
{
	int16x8_t y = vreinterpretq_s16_u16(vmovl_u8(luma));
	int32x4_t low = vmlal_n_s16(vmull_n_s16(vget_low_s16(blue), -5638), vget_low_s16(red), -11700);
	int32x4_t high = vmlal_high_n_s16(vmull_high_n_s16(blue, -5638), red, -11700);
	int16x8_t green = vcombine_s16(vrshrn_n_s32(low, 14), vrshrn_n_s32(high, 14));
	rgb[0] = vqmovun_s16(vaddq_s16(y, vqrdmulhq_n_s16(vshlq_n_s16(red, 1), 22970)));
	rgb[1] = vqmovun_s16(vaddq_s16(y, green));
	rgb[2] = vqmovun_s16(vaddq_s16(y, vqrdmulhq_n_s16(vshlq_n_s16(blue, 1), 29032)));
}

INLINE void ycc_16(const uint8_t *const ycc[3], size_t at, uint8_t *const rgb[3])
{
	const uint8x16_t middle = vdupq_n_u8(128);
	uint8x16_t luma = vld1q_u8(ycc[0] + at);
	int8x16_t blue = vreinterpretq_s8_u8(vsubq_u8(vld1q_u8(ycc[1] + at), middle));
	int8x16_t red = vreinterpretq_s8_u8(vsubq_u8(vld1q_u8(ycc[2] + at), middle));
	uint8x8_t low[3], high[3];
	ycc_8(vget_low_u8(luma), vmovl_s8(vget_low_s8(blue)), vmovl_s8(vget_low_s8(red)), low);
	ycc_8(vget_high_u8(luma), vmovl_high_s8(blue), vmovl_high_s8(red), high);
	for (int i = 0; i < 3; i++)
		vst1q_u8(rgb[i] + at, vcombine_u8(low[i], high[i]));
}

static void ycc_to_rgb(const uint8_t *const ycc[3], size_t count, uint8_t *const rgb[3])
{
	if (count < 16) {
		bt_kernels_c.ycc_to_rgb(ycc, count, rgb);
		return;
	}
	for (size_t j = 0; j + 16 <= count; j += 16)
		ycc_16(ycc, j, rgb);
	if (count % 16)
		ycc_16(ycc, count - 16, rgb);
}

INLINE void join_16(const uint8_t *const planes[3], size_t at, uint8_t *rgb)
{
	uint8x16x3_t pixels = {{vld1q_u8(planes[0] + at), vld1q_u8(planes[1] + at), vld1q_u8(planes[2] + at)}};
	vst3q_u8(rgb + 3 * at, pixels);
}

static void join(const uint8_t *const planes[3], size_t count, uint8_t *rgb)
{
	if (count < 16) {
		bt_kernels_c.join(planes, count, rgb);
		return;
	}
	for (size_t j = 0; j + 16 <= count; j += 16)
		join_16(planes, j, rgb);
	if (count % 16)
		join_16(planes, count - 16, rgb);
}

INLINE void split_16(const uint8_t *rgb, size_t at, uint8_t *const planes[3])
{
	uint8x16x3_t pixels = vld3q_u8(rgb + 3 * at);
	for (int i = 0; i < 3; i++)
		vst1q_u8(planes[i] + at, pixels.val[i]);
}

static void split(const uint8_t *rgb, size_t count, uint8_t *const planes[3])
{
	if (count < 16) {
		bt_kernels_c.split(rgb, count, planes);
		return;
	}
	for (size_t j = 0; j + 16 <= count; j += 16)
		split_16(rgb, j, planes);
	if (count % 16)
		split_16(rgb, count - 16, planes);
}

/* No store past the caches: compilers have none for AArch64 in common. */
static void bytes(const uint8_t *in, size_t count, bool stream, uint8_t *out)
{
	(void)stream;
	memcpy(out, in, count);
}

/* The parameters of 12 lanes, four whole pixels; see bt_elements. */
typedef struct parameters {
	float32x4_t mean[3];
	float32x4_t std[3];
	float32x4_t inverse[3];
} parameters;

INLINE parameters load_parameters(const bt_elements *elements)
{
	parameters out;
	for (int i = 0; i < 3; i++) {
		out.mean[i] = vld1q_f32(elements->mean + (ptrdiff_t)i * 4);
		out.std[i] = vld1q_f32(elements->std + (ptrdiff_t)i * 4);
		out.inverse[i] = vld1q_f32(elements->inverse + (ptrdiff_t)i * 4);
	}
	return out;
}

/* Four elements, of the lanes from 4 i on. */
INLINE float32x4_t element(const parameters *with, int i, uint16x4_t in)
{
	float32x4_t x = vsubq_f32(vcvtq_f32_u32(vmovl_u16(in)), with->mean[i]);
	float32x4_t q = vmulq_f32(x, with->inverse[i]);
	return vfmaq_f32(q, vfmsq_f32(x, q, with->std[i]), with->inverse[i]);
}

INLINE void elements_24(const parameters *with, const uint8_t *in, float32x4_t out[6])
{
	for (int i = 0; i < 6; i += 2) {
		uint16x8_t words = vmovl_u8(vld1_u8(in + (ptrdiff_t)i * 4));
		out[i] = element(with, i % 3, vget_low_u16(words));
		out[i + 1] = element(with, (i + 1) % 3, vget_high_u16(words));
	}
}

INLINE void floats_24(const parameters *with, const uint8_t *in, float *out)
{
	float32x4_t values[6];
	elements_24(with, in, values);
	for (int i = 0; i < 6; i++)
		vst1q_f32(out + (ptrdiff_t)i * 4, values[i]);
}

static void floats(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, float *out)
{
	if (count < 24 || !elements->computable) {
		bt_kernels_c.floats(elements, in, count, stream, out);
		return;
	}
	const parameters with = load_parameters(elements);
	for (size_t j = 0; j + 24 <= count; j += 24)
		floats_24(&with, in + j, out + j);
	if (count % 24)
		floats_24(&with, in + count - 24, out + count - 24);
}

INLINE uint16x4_t to_bfloat16(float32x4_t value)
{
	uint32x4_t bits = vreinterpretq_u32_f32(value);
	uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
	return vaddhn_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
}

INLINE void halves_24(const parameters *with, bool brain, const uint8_t *in, uint16_t *out)
{
	float32x4_t values[6];
	elements_24(with, in, values);
	for (int i = 0; i < 6; i++) {
		uint16x4_t half = brain ? to_bfloat16(values[i]) : vreinterpret_u16_f16(vcvt_f16_f32(values[i]));
		vst1_u16(out + (ptrdiff_t)i * 4, half);
	}
}

static void halves(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, uint16_t *out)
{
	if (count < 24 || !elements->computable) {
		bt_kernels_c.halves(elements, in, count, stream, out);
		return;
	}
	const parameters with = load_parameters(elements);
	bool brain = elements->dtype == BETON_BFLOAT16;
	for (size_t j = 0; j + 24 <= count; j += 24)
		halves_24(&with, brain, in + j, out + j);
	if (count % 24)
		halves_24(&with, brain, in + count - 24, out + count - 24);
}

static void fence(void)
{
}

const bt_kernels bt_kernels_neon = {.name = "neon",
				    .vertical = vertical,
				    .horizontal = horizontal,
				    .ycc_to_rgb = ycc_to_rgb,
				    .join = join,
				    .split = split,
				    .bytes = bytes,
				    .floats = floats,
				    .halves = halves,
				    .fence = fence};
#endif
