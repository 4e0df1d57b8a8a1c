/* SPDX-License-Identifier: Apache-2.0 */
#include "resize_kernels.h"

#ifdef __x86_64__
#include <immintrin.h>

#define TARGET __attribute__((target("avx2")))

#include "resize_lanes.h"

enum { GROUP = 2 }; /* pixels */

/* Both pixels' weights, for each of their values. */
static inline TARGET __m256 spread(const float *weights)
{
	__m128 both = _mm_castsi128_ps(_mm_loadl_epi64((const __m128i *)weights));
	return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(both), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

static inline TARGET void round_pixels(__m256 sum, uint8_t *to)
{
	const __m256i order = _mm256_setr_epi8(0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
					       0, 4, 8, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
	__m256 value = _mm256_min_ps(_mm256_max_ps(sum, _mm256_setzero_ps()), _mm256_set1_ps(255));
	__m256i bytes = _mm256_cvttps_epi32(_mm256_add_ps(value, _mm256_set1_ps(0.5F)));
	bytes = _mm256_shuffle_epi8(bytes, order);
	uint64_t six = (uint64_t)_mm_cvtsi128_si64(
		_mm_or_si128(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1)));
	memcpy(to, &six, 6);
}

static TARGET void sum_pixels(const float *row, const resize_axis *plan, uint8_t *to)
{
	uint32_t x = 0;
	for (; x + GROUP <= plan->count; x += GROUP) {
		const float *a = row + (size_t)plan->first[x] * 3, *b = row + (size_t)plan->first[x + 1] * 3;
		__m256 sum = _mm256_setzero_ps();
		for (size_t k = 0; k < plan->taps; k++) {
			__m256 in = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(a + k * 3)),
							 _mm_loadu_ps(b + k * 3), 1);
			sum = _mm256_add_ps(sum, _mm256_mul_ps(in, spread(plan->weights + k * plan->count + x)));
		}
		round_pixels(sum, to + (size_t)x * 3);
	}
	sum_pixels_from(row, plan, x, to);
}

const resize_kernels resize_avx2 = {
	.name = "avx2", .add_rows = add_rows, .sum_pixels = sum_pixels, .sum_values = sum_values};
#endif
