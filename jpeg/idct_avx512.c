/* SPDX-License-Identifier: Apache-2.0 */
#include "idct.h"

#ifdef __x86_64__
#include <string.h>

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw")))
#define INLINE static inline TARGET __attribute__((always_inline))

enum { GROUP = 4 };
typedef __m512i V;
#define op(name) _mm512_##name

INLINE V load(const int16_t *row)
{
	V out = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)row));
	out = _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(row + 64)), 1);
	out = _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(row + 128)), 2);
	return _mm512_inserti32x4(out, _mm_loadu_si128((const __m128i *)(row + 192)), 3);
}

/* A row of quantizers, for each block. */
INLINE V spread(const int16_t *row)
{
	return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)row));
}

INLINE V either(V a, V b)
{
	return _mm512_or_si512(a, b);
}

INLINE V differ(V a, V b)
{
	return _mm512_xor_si512(a, b);
}

INLINE bool is_zero(V a)
{
	return _mm512_test_epi32_mask(a, a) == 0;
}

/* Two rows. */
INLINE void store(V rows, uint8_t *out, size_t stride)
{
	rows = _mm512_permutexvar_epi64(_mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0), rows);
	_mm256_storeu_si256((__m256i *)out, _mm512_castsi512_si256(rows));
	_mm256_storeu_si256((__m256i *)(out + stride), _mm512_extracti64x4_epi64(rows, 1));
}

#include "idct_lanes.h"

const bt_idct bt_idct_avx512 = {.name = "avx512", .row_of_8 = row_of_8, .row_of_4 = row_of_4, .row_of_2 = row_of_2};
#endif
