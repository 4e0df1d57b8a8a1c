/* SPDX-License-Identifier: Apache-2.0 */
#include "idct.h"

#ifdef __x86_64__
#include <string.h>

#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))
#define INLINE static inline TARGET __attribute__((always_inline))

enum { GROUP = 2 };
typedef __m256i V;
#define op(name) _mm256_##name

INLINE V load(const int16_t *row)
{
	return _mm256_loadu2_m128i((const __m128i *)(row + 64), (const __m128i *)row);
}

/* A row of quantizers, for each block. */
INLINE V spread(const int16_t *row)
{
	return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)row));
}

INLINE V either(V a, V b)
{
	return _mm256_or_si256(a, b);
}

INLINE V differ(V a, V b)
{
	return _mm256_xor_si256(a, b);
}

INLINE bool is_zero(V a)
{
	return _mm256_testz_si256(a, a);
}

/* Two rows. */
INLINE void store(V rows, uint8_t *out, size_t stride)
{
	rows = _mm256_permute4x64_epi64(rows, 0xd8);
	_mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(rows));
	_mm_storeu_si128((__m128i *)(out + stride), _mm256_extracti128_si256(rows, 1));
}

#include "idct_lanes.h"

const bt_idct bt_idct_avx2 = {.name = "avx2", .row_of_8 = row_of_8, .row_of_4 = row_of_4, .row_of_2 = row_of_2};
#endif
