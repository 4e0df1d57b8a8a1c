/* SPDX-License-Identifier: Apache-2.0
 *
 * Called only where the processor has AVX2, FMA and F16C: the target is set for each function, so that nothing else may
 * use it. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "kernels.h"
#include "plan_avx2.h"

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define INLINE static inline __attribute__((always_inline))

enum {
	LINE = 64,         /* bytes of a cache line */
	PAIRS_AT_ONCE = 2, /* of taps, whose weights registers hold for several rows */
};
enum { VERTICAL_SHIFT = BT_WEIGHT_BITS - BT_ROW_BITS, HORIZONTAL_SHIFT = BT_WEIGHT_BITS + BT_ROW_BITS };

static int32_t weight_pair(const int16_t *weights)
{
	int32_t pair;
	memcpy(&pair, weights, sizeof(pair));
	return pair;
}

/* 16 columns. Two rows are interleaved, so that pmaddwd multiplies and adds them. unpack and packs both work within 128
 * bits, so the columns keep their order. */
static TARGET __m256i vertical_16(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps)
{
	__m256i low = _mm256_set1_epi32(1 << (VERTICAL_SHIFT - 1)), high = low;
	for (uint32_t k = 0; k < taps; k += 2) {
		const uint8_t *second = k + 1 < taps ? in + stride : in;
		__m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)in));
		__m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)second));
		__m256i weight = _mm256_set1_epi32(weight_pair(weights + k));
		low = _mm256_add_epi32(low, _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weight));
		high = _mm256_add_epi32(high, _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weight));
		in += 2 * stride;
	}
	return _mm256_packs_epi32(_mm256_srai_epi32(low, VERTICAL_SHIFT), _mm256_srai_epi32(high, VERTICAL_SHIFT));
}

/* Two rows with weights w and 1 - w: b + w (a - b), where pmulhrsw rounds the product as the sum would be rounded. */
static TARGET __m256i mix_16(const uint8_t *in, size_t stride, __m256i weight)
{
	__m256i a = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)in));
	__m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(in + stride)));
	__m256i apart = _mm256_slli_epi16(_mm256_sub_epi16(a, b), BT_ROW_BITS);
	return _mm256_add_epi16(_mm256_mulhrs_epi16(apart, weight), _mm256_slli_epi16(b, BT_ROW_BITS));
}

static TARGET void vertical_2(const uint8_t *in, size_t stride, int16_t weight, size_t count, int16_t *out)
{
	__m256i twice = _mm256_set1_epi16((int16_t)(2 * weight));
	for (size_t j = 0; j + 16 <= count; j += 16)
		_mm256_storeu_si256((__m256i *)(out + j), mix_16(in + j, stride, twice));
	if (count % 16)
		_mm256_storeu_si256((__m256i *)(out + count - 16), mix_16(in + count - 16, stride, twice));
}

static TARGET void vertical(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, size_t count,
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
		_mm256_storeu_si256((__m256i *)(out + j), vertical_16(in + j, stride, weights, taps));
	/* The remainder is computed together with columns before it again. */
	if (count % 16)
		_mm256_storeu_si256((__m256i *)(out + count - 16), vertical_16(in + count - 16, stride, weights, taps));
}

static TARGET __m128i load_128(const int16_t *at)
{
	return _mm_loadu_si128((const __m128i *)at);
}

/* Loads 4 values from each of two places. */
static TARGET __m128i load_64_64(const int16_t *low, const int16_t *high)
{
	__m128 both = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)low));
	return _mm_castps_si128(_mm_loadh_pi(both, (const __m64 *)high));
}

static TARGET __m128i round_sums(__m128i sums)
{
	return _mm_srai_epi32(_mm_add_epi32(sums, _mm_set1_epi32(1 << (HORIZONTAL_SHIFT - 1))), HORIZONTAL_SHIFT);
}

/* One channel: output x's products, with all taps of a row of weights, in 4 partial sums. */
INLINE TARGET __m128i sum_products(const bt_axis *axis, const int16_t *row, uint32_t x)
{
	const int16_t *in = row + axis->first[x], *weights = axis->weights + (size_t)x * axis->stride;
	__m128i sum = _mm_madd_epi16(load_128(in), load_128(weights));
	for (uint32_t k = 8; k < axis->count[x]; k += 8)
		sum = _mm_add_epi32(sum, _mm_madd_epi16(load_128(in + k), load_128(weights + k)));
	return sum;
}

INLINE TARGET __m128i outputs_4(const bt_axis *axis, const int16_t *row, uint32_t x)
{
	__m128i low = _mm_hadd_epi32(sum_products(axis, row, x), sum_products(axis, row, x + 1));
	__m128i high = _mm_hadd_epi32(sum_products(axis, row, x + 2), sum_products(axis, row, x + 3));
	return round_sums(_mm_hadd_epi32(low, high));
}

static TARGET void horizontal_1(const bt_axis *axis, const int16_t *row, uint8_t *out)
{
	for (uint32_t x = 0; x < axis->key.out; x += 8) {
		/* The last outputs, together with those before them again. */
		uint32_t at = x + 8 <= axis->key.out ? x : axis->key.out - 8;
		__m128i words = _mm_packs_epi32(outputs_4(axis, row, at), outputs_4(axis, row, at + 4));
		_mm_storel_epi64((__m128i *)(out + at), _mm_packus_epi16(words, words));
	}
}

/* Four values from each of in[0], in[1], in[4] and in[5]. */
INLINE TARGET __m256i load_4_of_4(const int16_t *const in[6], size_t ahead)
{
	return _mm256_set_m128i(load_64_64(in[4] + ahead, in[5] + ahead), load_64_64(in[0] + ahead, in[1] + ahead));
}

/* The same bytes for several rows, whose weights are loaded once; at most four taps. */
static TARGET void horizontal_1_rows(const bt_axis *axis, const int16_t *rows, size_t stride, uint32_t count,
				     uint8_t *out, size_t out_stride)
{
	const __m256i round = _mm256_set1_epi32(1 << (HORIZONTAL_SHIFT - 1));
	for (uint32_t x = 0; x < axis->key.out; x += 8) {
		uint32_t at = x + 8 <= axis->key.out ? x : axis->key.out - 8;
		const int16_t *in[8], *weights[8];
		for (uint32_t i = 0; i < 8; i++) {
			in[i] = rows + axis->first[at + i];
			weights[i] = axis->weights + (size_t)(at + i) * axis->stride;
		}
		__m256i low = load_4_of_4(weights, 0), high = load_4_of_4(weights + 2, 0);
		for (uint32_t y = 0; y < count; y++) {
			size_t ahead = y * stride;
			__m256i sums = _mm256_hadd_epi32(_mm256_madd_epi16(load_4_of_4(in, ahead), low),
							 _mm256_madd_epi16(load_4_of_4(in + 2, ahead), high));
			sums = _mm256_srai_epi32(_mm256_add_epi32(sums, round), HORIZONTAL_SHIFT);
			__m128i words =
				_mm_packs_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
			_mm_storel_epi64((__m128i *)(out + y * out_stride + at), _mm_packus_epi16(words, words));
		}
	}
}

/* Pixel x of three channels. Two neighbours are interleaved; pmaddwd gives R, G, B and an unused value. */
INLINE TARGET __m128i pixel(const bt_axis *axis, const int16_t *row, uint32_t x)
{
	const __m128i interleaved = _mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
	const int16_t *weights = axis->weights + (size_t)x * axis->stride;
	const int16_t *in = row + (size_t)axis->first[x] * 3;
	__m128i sum = _mm_setzero_si128();
	for (uint32_t k = 0; k < axis->count[x]; k += 2, in += 6) {
		__m128i pixels = _mm_shuffle_epi8(load_128(in), interleaved);
		sum = _mm_add_epi32(sum, _mm_madd_epi16(pixels, _mm_set1_epi32(weight_pair(weights + k))));
	}
	return round_sums(sum);
}

static TARGET void horizontal_3(const bt_axis *axis, const int16_t *row, uint8_t *out)
{
	const __m128i together = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
	for (uint32_t x = 0; x < axis->key.out; x += 4) {
		uint32_t at = x + 4 <= axis->key.out ? x : axis->key.out - 4;
		__m128i low = _mm_packs_epi32(pixel(axis, row, at), pixel(axis, row, at + 1));
		__m128i high = _mm_packs_epi32(pixel(axis, row, at + 2), pixel(axis, row, at + 3));
		__m128i bytes = _mm_shuffle_epi8(_mm_packus_epi16(low, high), together);
		_mm_storeu_si128((__m128i *)(out + (size_t)at * 3), bytes);
	}
}

/* How eight pixels of three channels are made, pixels i and i + 4 in the halves of register i. */
typedef struct eight {
	const int16_t *in[8];              /* of a row, where each pixel's samples begin */
	__m256i weights[4][PAIRS_AT_ONCE]; /* of each register's pairs of taps */
} eight;

INLINE TARGET void prepare_8(const bt_axis *axis, const int16_t *row, uint32_t x, uint32_t pairs, eight *out)
{
	for (uint32_t i = 0; i < 8; i++)
		out->in[i] = row + (size_t)axis->first[x + i] * 3;
	for (uint32_t i = 0; i < 4; i++) {
		const int16_t *low = axis->weights + (size_t)(x + i) * axis->stride, *high = low + 4 * axis->stride;
		for (uint32_t p = 0; p < pairs; p++)
			out->weights[i][p] = _mm256_set_m128i(_mm_set1_epi32(weight_pair(high + 2 * p)),
							      _mm_set1_epi32(weight_pair(low + 2 * p)));
	}
}

/* Register i of the row that begins `ahead` values after the row of prepare_8. */
INLINE TARGET __m256i pixels_2(const eight *e, uint32_t i, size_t ahead, uint32_t pairs)
{
	const __m256i interleaved =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1));
	__m256i sum = _mm256_set1_epi32(1 << (HORIZONTAL_SHIFT - 1));
	for (uint32_t p = 0; p < pairs; p++) {
		size_t at = ahead + 6 * (size_t)p;
		__m256i pixels = _mm256_set_m128i(load_128(e->in[i + 4] + at), load_128(e->in[i] + at));
		pixels = _mm256_shuffle_epi8(pixels, interleaved);
		sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pixels, e->weights[i][p]));
	}
	return _mm256_srai_epi32(sum, HORIZONTAL_SHIFT);
}

/* The same bytes for several rows, whose weights are loaded once. */
INLINE TARGET void horizontal_3_rows(const bt_axis *axis, const int16_t *rows, size_t stride, uint32_t count,
				     uint8_t *out, size_t out_stride, uint32_t pairs)
{
	const __m256i together =
		_mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
	for (uint32_t x = 0; x < axis->key.out; x += 8) {
		/* The last outputs, together with those before them again. */
		uint32_t at = x + 8 <= axis->key.out ? x : axis->key.out - 8;
		eight e;
		prepare_8(axis, rows, at, pairs, &e);
		for (uint32_t y = 0; y < count; y++) {
			size_t ahead = y * stride;
			__m256i low = _mm256_packs_epi32(pixels_2(&e, 0, ahead, pairs), pixels_2(&e, 1, ahead, pairs));
			__m256i high = _mm256_packs_epi32(pixels_2(&e, 2, ahead, pairs), pixels_2(&e, 3, ahead, pairs));
			__m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(low, high), together);
			uint8_t *to = out + y * out_stride + (size_t)at * 3;
			_mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(bytes));
			_mm_storeu_si128((__m128i *)(to + 12), _mm256_extracti128_si256(bytes, 1));
		}
	}
}

static TARGET void horizontal(const bt_axis *axis, const int16_t *rows, size_t stride, uint32_t count, uint8_t *out,
			      size_t out_stride)
{
	if (!bt_axis_is_common(axis)) {
		bt_kernels_c.horizontal(axis, rows, stride, count, out, out_stride);
		return;
	}
	bool one = axis->key.channels == 1;
	if (one && axis->pairs <= 2)
		horizontal_1_rows(axis, rows, stride, count, out, out_stride);
	else if (!one && axis->pairs == 1)
		horizontal_3_rows(axis, rows, stride, count, out, out_stride, 1);
	else if (!one && axis->pairs == 2)
		horizontal_3_rows(axis, rows, stride, count, out, out_stride, 2);
	else
		for (uint32_t y = 0; y < count; y++)
			(one ? horizontal_1 : horizontal_3)(axis, rows + y * stride, out + y * out_stride);
}

/* The loops below process 32 or 24 values at a time. The remainder is processed together with values before it again,
 * or alone in a shorter row. unpack widens bytes to words and pack narrows them, both within 128 bits, so the order is
 * kept. */

/* For 16 pixels with chroma less 128: (sum of two products + 1/2) >> 14. */
static TARGET __m256i green_shift(__m256i blue, __m256i red)
{
	const __m256i weights = _mm256_set1_epi32((int32_t)((uint16_t)-5638 | (uint32_t)(uint16_t)-11700 << 16));
	const __m256i half = _mm256_set1_epi32(1 << 13);
	__m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(blue, red), weights);
	__m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(blue, red), weights);
	return _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 14),
				  _mm256_srai_epi32(_mm256_add_epi32(high, half), 14));
}

/* out: red, green and blue of 16 pixels, as words not yet clamped to 0..255. */
static TARGET void ycc_16(__m256i luma, __m256i blue, __m256i red, __m256i out[3])
{
	const __m256i middle = _mm256_set1_epi16(128);
	blue = _mm256_sub_epi16(blue, middle);
	red = _mm256_sub_epi16(red, middle);
	/* pmulhrsw shifts by 15, so an operand is doubled; it rounds as the formula does. */
	__m256i add_red = _mm256_mulhrs_epi16(_mm256_add_epi16(red, red), _mm256_set1_epi16(22970));
	__m256i add_blue = _mm256_mulhrs_epi16(_mm256_add_epi16(blue, blue), _mm256_set1_epi16(29032));
	out[0] = _mm256_add_epi16(luma, add_red);
	out[1] = _mm256_add_epi16(luma, green_shift(blue, red));
	out[2] = _mm256_add_epi16(luma, add_blue);
}

static TARGET void ycc_32(const uint8_t *const ycc[3], size_t at, uint8_t *const rgb[3])
{
	const __m256i zero = _mm256_setzero_si256();
	__m256i in[3], low[3], high[3];
	for (int i = 0; i < 3; i++)
		in[i] = _mm256_loadu_si256((const __m256i *)(ycc[i] + at));
	ycc_16(_mm256_unpacklo_epi8(in[0], zero), _mm256_unpacklo_epi8(in[1], zero), _mm256_unpacklo_epi8(in[2], zero),
	       low);
	ycc_16(_mm256_unpackhi_epi8(in[0], zero), _mm256_unpackhi_epi8(in[1], zero), _mm256_unpackhi_epi8(in[2], zero),
	       high);
	for (int i = 0; i < 3; i++)
		_mm256_storeu_si256((__m256i *)(rgb[i] + at), _mm256_packus_epi16(low[i], high[i]));
}

static TARGET void ycc_to_rgb(const uint8_t *const ycc[3], size_t count, uint8_t *const rgb[3])
{
	if (count < 32) {
		bt_kernels_c.ycc_to_rgb(ycc, count, rgb);
		return;
	}
	for (size_t j = 0; j + 32 <= count; j += 32)
		ycc_32(ycc, j, rgb);
	if (count % 32)
		ycc_32(ycc, count - 32, rgb);
}

/* 16 pixels are three vectors v of 16 bytes. The bytes of one channel have places p that are distinct modulo 16, so one
 * shuffle moves them to or from their places, and blends combine the vectors. A blend takes its second operand where
 * the mask has its highest bit: at places p with (p + 16 v) % 3 == channel. */
static TARGET __m256i twice(__m128i x)
{
	return _mm256_broadcastsi128_si256(x);
}

/* Places p with p % 3 == 0, 1, 2. */
static TARGET void third_masks(__m256i masks[3])
{
	const __m128i first = _mm_setr_epi8(-1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1, 0, 0, -1);
	masks[0] = twice(first);
	masks[1] = twice(_mm_slli_si128(first, 1));
	masks[2] = twice(_mm_slli_si128(first, 2));
}

static TARGET void join_32(const uint8_t *const planes[3], size_t at, uint8_t *rgb)
{
	const __m256i places[3] = {twice(_mm_setr_epi8(0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10, 5)),
				   twice(_mm_setr_epi8(5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10)),
				   twice(_mm_setr_epi8(10, 5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15))};
	__m256i masks[3], channel[3], v[3];
	third_masks(masks);
	for (int c = 0; c < 3; c++)
		channel[c] = _mm256_shuffle_epi8(_mm256_loadu_si256((const __m256i *)(planes[c] + at)), places[c]);
	/* Vector i begins with channel i. */
	for (int i = 0; i < 3; i++) {
		v[i] = _mm256_blendv_epi8(channel[i], channel[(i + 1) % 3], masks[1]);
		v[i] = _mm256_blendv_epi8(v[i], channel[(i + 2) % 3], masks[2]);
	}
	__m256i *to = (__m256i *)(rgb + 3 * at);
	_mm256_storeu_si256(to, _mm256_permute2x128_si256(v[0], v[1], 0x20));
	_mm256_storeu_si256(to + 1, _mm256_permute2x128_si256(v[2], v[0], 0x30));
	_mm256_storeu_si256(to + 2, _mm256_permute2x128_si256(v[1], v[2], 0x31));
}

static TARGET void join(const uint8_t *const planes[3], size_t count, uint8_t *rgb)
{
	if (count < 32) {
		bt_kernels_c.join(planes, count, rgb);
		return;
	}
	for (size_t j = 0; j + 32 <= count; j += 32)
		join_32(planes, j, rgb);
	if (count % 32)
		join_32(planes, count - 32, rgb);
}

static TARGET void split_32(const uint8_t *rgb, size_t at, uint8_t *const planes[3])
{
	const __m256i places[3] = {twice(_mm_setr_epi8(0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13)),
				   twice(_mm_setr_epi8(1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14)),
				   twice(_mm_setr_epi8(2, 5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15))};
	__m256i masks[3], v[3];
	third_masks(masks);
	const __m256i *from = (const __m256i *)(rgb + 3 * at);
	__m256i in[3] = {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1), _mm256_loadu_si256(from + 2)};
	v[0] = _mm256_permute2x128_si256(in[0], in[1], 0x30);
	v[1] = _mm256_permute2x128_si256(in[0], in[2], 0x21);
	v[2] = _mm256_permute2x128_si256(in[1], in[2], 0x30);
	/* Channel c is at the places of masks[c] in the first vector, and of the mask before it in each next vector. */
	for (int c = 0; c < 3; c++) {
		__m256i mixed = _mm256_blendv_epi8(v[2], v[0], masks[c]);
		mixed = _mm256_blendv_epi8(mixed, v[1], masks[(c + 2) % 3]);
		_mm256_storeu_si256((__m256i *)(planes[c] + at), _mm256_shuffle_epi8(mixed, places[c]));
	}
}

static TARGET void split(const uint8_t *rgb, size_t count, uint8_t *const planes[3])
{
	if (count < 32) {
		bt_kernels_c.split(rgb, count, planes);
		return;
	}
	for (size_t j = 0; j + 32 <= count; j += 32)
		split_32(rgb, j, planes);
	if (count % 32)
		split_32(rgb, count - 32, planes);
}

/* 8 elements of the channels from `lane` on; see bt_elements. */
static TARGET __m256 elements_8(const bt_elements *elements, const uint8_t *in, int lane)
{
	__m256 std = _mm256_loadu_ps(elements->std + lane), inverse = _mm256_loadu_ps(elements->inverse + lane);
	__m256 x = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(in + lane))));
	x = _mm256_sub_ps(x, _mm256_loadu_ps(elements->mean + lane));
	__m256 q = _mm256_mul_ps(x, inverse);
	return _mm256_fmadd_ps(_mm256_fnmadd_ps(q, std, x), inverse, q);
}

static TARGET void bytes(const uint8_t *in, size_t count, bool stream, uint8_t *out)
{
	size_t begin = -(uintptr_t)out % LINE;
	if (!stream || count < begin + LINE) {
		memcpy(out, in, count);
		return;
	}
	size_t j = begin;
	memcpy(out, in, begin);
	for (; j + LINE <= count; j += LINE) {
		__m256i low = _mm256_loadu_si256((const __m256i *)(in + j));
		__m256i high = _mm256_loadu_si256((const __m256i *)(in + j + 32));
		_mm256_stream_si256((__m256i *)(out + j), low);
		_mm256_stream_si256((__m256i *)(out + j + 32), high);
	}
	memcpy(out + j, in + j, count - j);
}

/* Whether all stores of the elements, the last ones too, are aligned for streaming. */
static bool aligned(const void *out, size_t count)
{
	return (uintptr_t)out % LINE == 0 && count % 16 == 0;
}

static TARGET void floats_24(const bt_elements *elements, const uint8_t *in, bool stream, float *out)
{
	for (int lane = 0; lane < 24; lane += 8) {
		__m256 value = elements_8(elements, in, lane);
		if (stream)
			_mm256_stream_ps(out + lane, value);
		else
			_mm256_storeu_ps(out + lane, value);
	}
}

static TARGET void floats(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, float *out)
{
	if (count < 24 || !elements->computable) {
		bt_kernels_c.floats(elements, in, count, stream, out);
		return;
	}
	stream = stream && aligned(out, count);
	for (size_t j = 0; j + 24 <= count; j += 24)
		floats_24(elements, in + j, stream, out + j);
	if (count % 24)
		floats_24(elements, in + count - 24, stream, out + count - 24);
}

static TARGET __m128i to_bfloat16(__m256 value)
{
	__m256i bits = _mm256_castps_si256(value);
	__m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
	bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
	bits = _mm256_srli_epi32(bits, 16);
	return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}

static TARGET void halves_24(const bt_elements *elements, const uint8_t *in, bool stream, uint16_t *out)
{
	for (int lane = 0; lane < 24; lane += 8) {
		__m256 value = elements_8(elements, in, lane);
		__m128i half = elements->dtype == BETON_BFLOAT16 ? to_bfloat16(value)
								 : _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
		if (stream)
			_mm_stream_si128((__m128i *)(out + lane), half);
		else
			_mm_storeu_si128((__m128i *)(out + lane), half);
	}
}

static TARGET void halves(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, uint16_t *out)
{
	if (count < 24 || !elements->computable) {
		bt_kernels_c.halves(elements, in, count, stream, out);
		return;
	}
	stream = stream && aligned(out, count);
	for (size_t j = 0; j + 24 <= count; j += 24)
		halves_24(elements, in + j, stream, out + j);
	if (count % 24)
		halves_24(elements, in + count - 24, stream, out + count - 24);
}

static void fence(void)
{
	_mm_sfence();
}

const bt_kernels bt_kernels_avx2 = {.name = "avx2",
				    .fill = bt_fill_avx2,
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
