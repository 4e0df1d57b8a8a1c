/* SPDX-License-Identifier: Apache-2.0 */
#include "rgb.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))
#define INLINE static inline TARGET __attribute__((always_inline))

#include "rgb_lanes.h"

enum { GROUP = 16 }; /* pixels */

INLINE __m256i load(const uint8_t *samples)
{
	return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)samples));
}

/* (a * factor + HALF) >> 16: without what the first product loses, as its last bit is added. */
INLINE __m256i scale(__m256i a, int16_t factor)
{
	__m256i product = _mm256_mulhi_epi16(_mm256_add_epi16(a, a), _mm256_set1_epi16(factor));
	return _mm256_srai_epi16(_mm256_add_epi16(product, _mm256_set1_epi16(1)), 1);
}

/* The part of green that depends on blue and red. A factor beyond 16 bits is less 1 here. */
INLINE __m256i green_of(__m256i blue, __m256i red)
{
	const __m256i factors = _mm256_set1_epi32((int32_t)((uint32_t)(CR_TO_G + (1 << 16)) << 16 | (uint16_t)CB_TO_G));
	const __m256i half = _mm256_set1_epi32(HALF);
	__m256i low = _mm256_madd_epi16(_mm256_unpacklo_epi16(blue, red), factors);
	__m256i high = _mm256_madd_epi16(_mm256_unpackhi_epi16(blue, red), factors);
	low = _mm256_srai_epi32(_mm256_add_epi32(low, half), 16);
	high = _mm256_srai_epi32(_mm256_add_epi32(high, half), 16);
	return _mm256_sub_epi16(_mm256_packs_epi32(low, high), red);
}

/* 8 pixels: the bytes of red and green, and the bytes of blue twice. */
INLINE void store(__m128i red_green, __m128i blue, uint8_t *rgb)
{
	const __m128i first = _mm_setr_epi8(0, 8, -1, 1, 9, -1, 2, 10, -1, 3, 11, -1, 4, 12, -1, 5);
	const __m128i first_blue = _mm_setr_epi8(-1, -1, 0, -1, -1, 1, -1, -1, 2, -1, -1, 3, -1, -1, 4, -1);
	const __m128i last = _mm_setr_epi8(13, -1, 6, 14, -1, 7, 15, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m128i last_blue = _mm_setr_epi8(-1, 5, -1, -1, 6, -1, -1, 7, -1, -1, -1, -1, -1, -1, -1, -1);
	_mm_storeu_si128((__m128i *)rgb,
			 _mm_or_si128(_mm_shuffle_epi8(red_green, first), _mm_shuffle_epi8(blue, first_blue)));
	_mm_storel_epi64((__m128i *)(rgb + 16),
			 _mm_or_si128(_mm_shuffle_epi8(red_green, last), _mm_shuffle_epi8(blue, last_blue)));
}

static TARGET void convert(const uint8_t *y, const uint8_t *cb, const uint8_t *cr, uint32_t count, uint8_t *rgb)
{
	const __m256i centre = _mm256_set1_epi16(CENTRE);
	uint32_t i = 0;
	for (; i + GROUP <= count; i += GROUP, rgb += 3 * GROUP) {
		__m256i luma = load(y + i), blue = _mm256_sub_epi16(load(cb + i), centre),
			red = _mm256_sub_epi16(load(cr + i), centre);
		__m256i r = _mm256_add_epi16(_mm256_add_epi16(luma, red), scale(red, CR_TO_R - (1 << 16)));
		__m256i g = _mm256_add_epi16(luma, green_of(blue, red));
		__m256i b = _mm256_add_epi16(_mm256_add_epi16(luma, _mm256_add_epi16(blue, blue)),
					     scale(blue, CB_TO_B - (2 << 16)));
		__m256i red_green = _mm256_packus_epi16(r, g), blues = _mm256_packus_epi16(b, b);
		store(_mm256_castsi256_si128(red_green), _mm256_castsi256_si128(blues), rgb);
		store(_mm256_extracti128_si256(red_green, 1), _mm256_extracti128_si256(blues, 1), rgb + 24);
	}
	convert_rest(y + i, cb + i, cr + i, count - i, rgb);
}

const bt_rgb_kernels bt_rgb_avx2 = {.name = "avx2", .add = add, .spread = spread, .convert = convert};
#endif
