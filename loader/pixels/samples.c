/* SPDX-License-Identifier: Apache-2.0 */
#include "samples.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "common/half.h"
#include "common/isa.h"
#include "kernels.h"
#include "resize_wide.h"

#define INLINE static inline __attribute__((always_inline))

/* The loops are compiled for two instruction sets. Both give the same results, because floating-point contraction is
 * off. Elements are made in pieces of one period, which stay in the first cache. */

INLINE void normalize(const bt_samples *samples, const uint8_t *in, size_t count, float *restrict out)
{
	const float *restrict mean = samples->mean, *restrict std = samples->std;
	const bt_sample16 *wide = (const bt_sample16 *)in;
	if (samples->item == 1)
		for (size_t i = 0; i < count; i++)
			out[i] = ((float)in[i] - mean[i]) / std[i];
	else
		for (size_t i = 0; i < count; i++)
			out[i] = ((float)wide[i] - mean[i]) / std[i];
}

INLINE void narrow_bfloats(const float *in, size_t count, uint16_t *out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = bt_bfloat16(in[i]);
}

static void narrow_halves(const float *in, size_t count, uint16_t *out)
{
	for (size_t i = 0; i < count; i++)
		out[i] = bt_float16(in[i]);
}

#ifdef __x86_64__
static __attribute__((target("avx2,f16c"))) void narrow_halves_wide(const float *in, size_t count, uint16_t *out)
{
	size_t i = 0;
	for (; i + 8 <= count; i += 8)
		_mm_storeu_si128((__m128i *)(out + i),
				 _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
	narrow_halves(in + i, count - i, out + i);
}
#endif

typedef void narrow(const float *in, size_t count, uint16_t *out);

INLINE void store_all(const bt_samples *samples, const uint8_t *in, size_t count, void *out, narrow *halves)
{
	float piece[BT_SAMPLES_PERIOD_MAX];
	for (size_t at = 0; at < count; at += samples->period) {
		size_t part = count - at < samples->period ? count - at : samples->period;
		const uint8_t *from = in + at * samples->item;
		if (samples->dtype == BETON_FLOAT32) {
			normalize(samples, from, part, (float *)out + at);
			continue;
		}
		normalize(samples, from, part, piece);
		if (samples->dtype == BETON_FLOAT16)
			halves(piece, part, (uint16_t *)out + at);
		else
			narrow_bfloats(piece, part, (uint16_t *)out + at);
	}
}

#ifdef __x86_64__
static __attribute__((target("avx2,f16c"))) void store_wide(const bt_samples *samples, const uint8_t *in, size_t count,
							    void *out)
{
	store_all(samples, in, count, out, narrow_halves_wide);
}
#endif

void bt_samples_store(const bt_samples *samples, const void *in, size_t count, void *out)
{
	if (samples->dtype == BETON_UINT8 || samples->dtype == BETON_UINT16) {
		memcpy(out, in, count * samples->item);
		return;
	}
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX2) {
		store_wide(samples, in, count, out);
		return;
	}
#endif
	store_all(samples, in, count, out, narrow_halves);
}

void bt_samples_pick(uint32_t item, const void *in, size_t step, size_t count, void *out)
{
	const bt_sample16 *wide = in;
	const uint8_t *narrow_in = in;
	for (size_t i = 0; i < count && item == 2; i++)
		((uint16_t *)out)[i] = wide[i * step];
	for (size_t i = 0; i < count && item == 1; i++)
		((uint8_t *)out)[i] = narrow_in[i * step];
}
