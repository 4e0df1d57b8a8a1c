/* SPDX-License-Identifier: Apache-2.0 */
#include "idct.h"

#ifdef __x86_64__
#include <string.h>

#include <immintrin.h>

#define TARGET
#define INLINE static inline TARGET __attribute__((always_inline))

enum { GROUP = 1 };
typedef __m128i V;
#define op(name) _mm_##name

INLINE V load(const int16_t *row)
{
	return _mm_loadu_si128((const __m128i *)row);
}

/* A row of quantizers, for each block. */
INLINE V spread(const int16_t *row)
{
	return load(row);
}

INLINE V either(V a, V b)
{
	return _mm_or_si128(a, b);
}

INLINE V differ(V a, V b)
{
	return _mm_xor_si128(a, b);
}

INLINE bool is_zero(V a)
{
	return _mm_movemask_epi8(_mm_cmpeq_epi8(a, _mm_setzero_si128())) == 0xffff;
}

/* Two rows. */
INLINE void store(V rows, uint8_t *out, size_t stride)
{
	_mm_storel_epi64((__m128i *)out, rows);
	_mm_storel_epi64((__m128i *)(out + stride), _mm_unpackhi_epi64(rows, rows));
}

#include "idct_lanes.h"

const bt_idct bt_idct_sse2 = {.name = "sse2", .row_of_8 = row_of_8, .row_of_4 = row_of_4, .row_of_2 = row_of_2};
#endif
