/* SPDX-License-Identifier: Apache-2.0
 *
 * Called only where the processor has AVX-512 (F, BW, VL): the target is set for each function, so that nothing else
 * may use it. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "kernels.h"

#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512vl")))

enum { VERTICAL_SHIFT = BT_WEIGHT_BITS - BT_ROW_BITS, HORIZONTAL_SHIFT = BT_WEIGHT_BITS + BT_ROW_BITS };

static int32_t weight_pair(const int16_t *weights)
{
	int32_t pair;
	memcpy(&pair, weights, sizeof(pair));
	return pair;
}

/* 32 columns as in AVX2; the mask keeps the last ones from reading behind the plane. */
static TARGET __m512i vertical_32(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps,
				  __mmask32 mask)
{
	__m512i low = _mm512_set1_epi32(1 << (VERTICAL_SHIFT - 1)), high = low;
	for (uint32_t k = 0; k < taps; k += 2) {
		const uint8_t *second = k + 1 < taps ? in + stride : in;
		__m512i a = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, in));
		__m512i b = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, second));
		__m512i weight = _mm512_set1_epi32(weight_pair(weights + k));
		low = _mm512_add_epi32(low, _mm512_madd_epi16(_mm512_unpacklo_epi16(a, b), weight));
		high = _mm512_add_epi32(high, _mm512_madd_epi16(_mm512_unpackhi_epi16(a, b), weight));
		in += 2 * stride;
	}
	return _mm512_packs_epi32(_mm512_srai_epi32(low, VERTICAL_SHIFT), _mm512_srai_epi32(high, VERTICAL_SHIFT));
}

static TARGET void vertical(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, size_t count,
			    int16_t *out)
{
	size_t j = 0;
	for (; j + 32 <= count; j += 32)
		_mm512_storeu_si512(out + j, vertical_32(in + j, stride, weights, taps, UINT32_MAX));
	if (j == count)
		return;
	__mmask32 mask = (__mmask32)((UINT64_C(1) << (count - j)) - 1);
	_mm512_mask_storeu_epi16(out + j, mask, vertical_32(in + j, stride, weights, taps, mask));
}

/* A group of output bytes lies close together in the row: two registers hold all it needs, and a permutation of words
 * brings the two values of each pair of taps side by side for pmaddwd. */
static TARGET void horizontal(const bt_axis *axis, const int16_t *row, uint8_t *out)
{
	if (!axis->permutation) {
		bt_kernels_avx2.horizontal(axis, row, out);
		return;
	}
	uint32_t groups = (axis->key.out * axis->key.channels + BT_GROUP - 1) / BT_GROUP;
	const uint16_t *index = axis->index;
	const int16_t *weights = axis->pair_weights;
	for (uint32_t group = 0; group < groups; group++) {
		const int16_t *in = row + axis->base[group];
		__m512i left = _mm512_loadu_si512(in), right = _mm512_loadu_si512(in + 32);
		__m512i sum = _mm512_set1_epi32(1 << (HORIZONTAL_SHIFT - 1));
		for (uint32_t p = 0; p < axis->pairs; p++, index += 32, weights += 32) {
			__m512i pairs = _mm512_permutex2var_epi16(left, _mm512_loadu_si512(index), right);
			sum = _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_loadu_si512(weights)));
		}
		_mm_storeu_si128((__m128i *)(out + (size_t)group * BT_GROUP),
				 _mm512_cvtusepi32_epi8(_mm512_srli_epi32(sum, HORIZONTAL_SHIFT)));
	}
}

static TARGET void ycc_to_rgb(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, size_t count, uint8_t *out)
{
	/* Bound by the interleaving of bytes, which has no wider shuffle without VBMI. */
	bt_kernels_avx2.ycc_to_rgb(y, cb, cr, count, out);
}

const bt_kernels bt_kernels_avx512 = {
	.name = "avx512", .permutes = true, .vertical = vertical, .horizontal = horizontal, .ycc_to_rgb = ycc_to_rgb};
#endif
