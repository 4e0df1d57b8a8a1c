/* SPDX-License-Identifier: Apache-2.0
 *
 * Called only where the processor has AVX2: the target is set for each function, so that nothing else may use it. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "kernels.h"

#define TARGET __attribute__((target("avx2")))

enum { VERTICAL_SHIFT = BT_WEIGHT_BITS - BT_ROW_BITS, HORIZONTAL_SHIFT = BT_WEIGHT_BITS + BT_ROW_BITS };

static int32_t weight_pair(const int16_t *weights)
{
	int32_t pair;
	memcpy(&pair, weights, sizeof(pair));
	return pair;
}

/* 16 columns: two rows interleaved, so that pmaddwd weighs and adds them. unpack and packs both work within 128 bits,
 * which brings the columns back in order. */
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

static TARGET void vertical(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, size_t count,
			    int16_t *out)
{
	size_t j = 0;
	for (; j + 16 <= count; j += 16)
		_mm256_storeu_si256((__m256i *)(out + j), vertical_16(in + j, stride, weights, taps));
	/* The rest once more with the columns before it, or alone in a picture narrower than a vector. */
	if (j < count && count >= 16)
		_mm256_storeu_si256((__m256i *)(out + count - 16), vertical_16(in + count - 16, stride, weights, taps));
	else if (j < count)
		bt_kernels_c.vertical(in + j, stride, weights, taps, count - j, out + j);
}

/* The sums of 8 products, as 4 numbers. */
static TARGET __m128i sum_8(const int16_t *in, const int16_t *weights, uint32_t taps)
{
	__m128i sum = _mm_madd_epi16(_mm_loadu_si128((const __m128i *)in), _mm_loadu_si128((const __m128i *)weights));
	for (uint32_t k = 8; k < taps; k += 8)
		sum = _mm_add_epi32(sum, _mm_madd_epi16(_mm_loadu_si128((const __m128i *)(in + k)),
							_mm_loadu_si128((const __m128i *)(weights + k))));
	return sum;
}

/* Rounds 4 sums to bytes and stores them. */
static TARGET void store_4(__m128i sum, uint8_t *out)
{
	sum = _mm_srai_epi32(_mm_add_epi32(sum, _mm_set1_epi32(1 << (HORIZONTAL_SHIFT - 1))), HORIZONTAL_SHIFT);
	sum = _mm_packs_epi32(sum, sum);
	int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(sum, sum));
	memcpy(out, &bytes, sizeof(bytes));
}

static TARGET void horizontal_1(const bt_axis *axis, const int16_t *row, uint8_t *out)
{
	uint32_t width = axis->key.out;
	for (uint32_t x = 0; x < width; x += 4) {
		__m128i sums[4];
		for (uint32_t i = 0; i < 4; i++) {
			uint32_t at = x + i < width ? x + i : width - 1;
			sums[i] = sum_8(row + axis->first[at], axis->weights + (size_t)at * axis->stride,
					axis->count[at]);
		}
		store_4(_mm_hadd_epi32(_mm_hadd_epi32(sums[0], sums[1]), _mm_hadd_epi32(sums[2], sums[3])), out + x);
	}
}

/* Two neighbouring pixels interleaved: pmaddwd gives R, G, B and a value that the next pixel overwrites. */
static TARGET void horizontal_3(const bt_axis *axis, const int16_t *row, uint8_t *out)
{
	for (uint32_t x = 0; x < axis->key.out; x++) {
		const int16_t *weights = axis->weights + (size_t)x * axis->stride;
		const int16_t *in = row + (size_t)axis->first[x] * 3;
		__m128i sum = _mm_setzero_si128();
		for (uint32_t k = 0; k < axis->count[x]; k += 2, in += 6) {
			__m128i pixels = _mm_unpacklo_epi16(_mm_loadl_epi64((const __m128i *)in),
							    _mm_loadl_epi64((const __m128i *)(in + 3)));
			sum = _mm_add_epi32(sum, _mm_madd_epi16(pixels, _mm_set1_epi32(weight_pair(weights + k))));
		}
		store_4(sum, out + (size_t)x * 3);
	}
}

static TARGET void horizontal(const bt_axis *axis, const int16_t *row, uint8_t *out)
{
	if (axis->key.channels == 1)
		horizontal_1(axis, row, out);
	else
		horizontal_3(axis, row, out);
}

/* (sum of two products + 1/2) >> 14 of 16 pairs; a and b are 16-bit values. */
static TARGET __m256i mix(__m256i a, __m256i b, int16_t weight_a, int16_t weight_b)
{
	__m256i weights = _mm256_set1_epi32((int32_t)((uint16_t)weight_a | (uint32_t)(uint16_t)weight_b << 16));
	__m256i half = _mm256_set1_epi32(1 << 13);
	__m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(a, b), weights);
	__m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(a, b), weights);
	return _mm256_packs_epi32(_mm256_srai_epi32(_mm256_add_epi32(low, half), 14),
				  _mm256_srai_epi32(_mm256_add_epi32(high, half), 14));
}

static TARGET __m128i to_bytes(__m256i values)
{
	return _mm_packus_epi16(_mm256_castsi256_si128(values), _mm256_extracti128_si256(values, 1));
}

/* 16 pixels of three planes -> 48 bytes. Each output vector takes bytes of all three: -1 leaves a 0 for another. */
static TARGET void store_rgb(__m128i r, __m128i g, __m128i b, uint8_t *out)
{
	const __m128i r0 = _mm_setr_epi8(0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1, 5);
	const __m128i g0 = _mm_setr_epi8(-1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1, -1);
	const __m128i b0 = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
	const __m128i r1 = _mm_setr_epi8(-1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10, -1);
	const __m128i g1 = _mm_setr_epi8(5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1, 10);
	const __m128i b1 = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, 8, -1, -1, 9, -1, -1);
	const __m128i r2 = _mm_setr_epi8(-1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1, -1);
	const __m128i g2 = _mm_setr_epi8(-1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15, -1);
	const __m128i b2 = _mm_setr_epi8(10, -1, -1, 11, -1, -1, 12, -1, -1, 13, -1, -1, 14, -1, -1, 15);
	__m128i *to = (__m128i *)out;
	_mm_storeu_si128(to, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, r0), _mm_shuffle_epi8(g, g0)),
					  _mm_shuffle_epi8(b, b0)));
	_mm_storeu_si128(to + 1, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, r1), _mm_shuffle_epi8(g, g1)),
					      _mm_shuffle_epi8(b, b1)));
	_mm_storeu_si128(to + 2, _mm_or_si128(_mm_or_si128(_mm_shuffle_epi8(r, r2), _mm_shuffle_epi8(g, g2)),
					      _mm_shuffle_epi8(b, b2)));
}

static TARGET void ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, size_t count, uint8_t *out)
{
	const __m256i middle = _mm256_set1_epi16(128), zero = _mm256_setzero_si256();
	size_t j = 0;
	for (; j + 16 <= count; j += 16) {
		__m256i luma = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(y + j)));
		__m256i blue = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(cb + j)));
		__m256i red = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(cr + j)));
		blue = _mm256_sub_epi16(blue, middle);
		red = _mm256_sub_epi16(red, middle);
		store_rgb(to_bytes(_mm256_add_epi16(luma, mix(red, zero, 22970, 0))),
			  to_bytes(_mm256_add_epi16(luma, mix(blue, red, -5638, -11700))),
			  to_bytes(_mm256_add_epi16(luma, mix(blue, zero, 29032, 0))), out + 3 * j);
	}
	bt_kernels_c.ycc_to_rgb(y + j, cb + j, cr + j, count - j, out + 3 * j);
}

const bt_kernels bt_kernels_avx2 = {
	.name = "avx2", .vertical = vertical, .horizontal = horizontal, .ycc_to_rgb = ycc_to_rgb};
#endif
