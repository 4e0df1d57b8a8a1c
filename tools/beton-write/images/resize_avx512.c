/* SPDX-License-Identifier: Apache-2.0 */
#include "resize_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))

#include "resize_lanes.h"

enum { GROUP = 4 }; /* pixels */

/* The pixels' weights, for each of their values. */
static inline TARGET __m512 spread(const float *weights)
{
	return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
				     _mm512_castps128_ps512(_mm_loadu_ps(weights)));
}

static inline TARGET void round_pixels(__m512 sum, uint8_t *to)
{
	const __m128i order = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
	__m512 value = _mm512_min_ps(_mm512_max_ps(sum, _mm512_setzero_ps()), _mm512_set1_ps(255));
	__m128i bytes = _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(_mm512_add_ps(value, _mm512_set1_ps(0.5F))));
	_mm_mask_storeu_epi8(to, (1 << (GROUP * 3)) - 1, _mm_shuffle_epi8(bytes, order));
}

static TARGET void sum_pixels(const float *row, const resize_axis *plan, uint8_t *to)
{
	uint32_t x = 0;
	for (; x + GROUP <= plan->count; x += GROUP) {
		const uint32_t *first = plan->first + x;
		const float *a = row + (size_t)first[0] * 3, *b = row + (size_t)first[1] * 3,
			    *c = row + (size_t)first[2] * 3, *d = row + (size_t)first[3] * 3;
		__m512 sum = _mm512_setzero_ps();
		for (size_t k = 0; k < plan->taps; k++) {
			__m512 in = _mm512_castps128_ps512(_mm_loadu_ps(a + k * 3));
			in = _mm512_insertf32x4(in, _mm_loadu_ps(b + k * 3), 1);
			in = _mm512_insertf32x4(in, _mm_loadu_ps(c + k * 3), 2);
			in = _mm512_insertf32x4(in, _mm_loadu_ps(d + k * 3), 3);
			sum = _mm512_add_ps(sum, _mm512_mul_ps(in, spread(plan->weights + k * plan->count + x)));
		}
		round_pixels(sum, to + (size_t)x * 3);
	}
	sum_pixels_from(row, plan, x, to);
}

const resize_kernels resize_avx512 = {
	.name = "avx512", .add_rows = add_rows, .sum_pixels = sum_pixels, .sum_values = sum_values};
#endif
