/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of resize_kernels.h in plain C. Included once for each instruction set, which defines TARGET, its
 * attribute.
 */
#include <string.h>

#include "common/sse.h"

static TARGET void add_rows(float *restrict row, const uint8_t *a, const uint8_t *b, const float weights[2],
			    size_t count, bool first)
{
	float weight_a = weights[0];
	float weight_b = weights[1];
	if (first)
		for (size_t j = 0; j < count; j++)
			row[j] = weight_a * (float)a[j] + weight_b * (float)b[j];
	else
		for (size_t j = 0; j < count; j++)
			row[j] += weight_a * (float)a[j] + weight_b * (float)b[j];
}

static inline TARGET uint8_t round_byte(float value)
{
	value = value > 0 ? value : 0;
	value = value < 255 ? value : 255;
	return (uint8_t)(value + 0.5f);
}

/* Four floats at any address: a pixel and the first value of the next. */
typedef float unaligned_vector __attribute__((vector_size(16), aligned(4)));

static inline TARGET void round_pixel(unaligned_vector sum, uint8_t *to)
{
#ifdef BT_SSE2
	/* Without branches, which would depend on the picture. */
	__m128 value = _mm_min_ps(_mm_max_ps((__m128)sum, _mm_setzero_ps()), _mm_set1_ps(255));
	__m128i bytes = _mm_cvttps_epi32(_mm_add_ps(value, _mm_set1_ps(0.5F)));
	bytes = _mm_packs_epi32(bytes, bytes);
	uint32_t pixel = (uint32_t)_mm_cvtsi128_si32(_mm_packus_epi16(bytes, bytes));
	for (int c = 0; c < 3; c++, pixel >>= 8)
		to[c] = (uint8_t)pixel;
#else
	for (int c = 0; c < 3; c++)
		to[c] = round_byte(sum[c]);
#endif
}

/* Pixels from x on. */
static TARGET void sum_pixels_from(const float *row, const resize_axis *plan, uint32_t x, uint8_t *to)
{
	for (; x < plan->count; x++) {
		const float *in = row + (size_t)plan->first[x] * 3;
		unaligned_vector sum = {0};
		for (uint32_t k = 0; k < plan->taps; k++)
			sum += *(const unaligned_vector *)(in + (size_t)k * 3) *
			       plan->weights[(size_t)k * plan->count + x];
		round_pixel(sum, to + (size_t)x * 3);
	}
}

static TARGET void sum_values(const float *row, const resize_axis *plan, uint8_t *to)
{
	for (uint32_t x = 0; x < plan->count; x++) {
		float sum = 0;
		for (uint32_t k = 0; k < plan->taps; k++)
			sum += row[plan->first[x] + k] * plan->weights[(size_t)k * plan->count + x];
		to[x] = round_byte(sum);
	}
}
