/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes an axis' tables for 4 outputs at a time, as plan_avx512.c does for 8. The arithmetic is that of
 * resize_axis.c, operation by operation; the target has no fused multiply-add.
 */
#ifdef __x86_64__
#include <immintrin.h>

#include "plan_avx2.h"

#define TARGET __attribute__((target("avx2")))

enum { OUTPUTS = 4, SAMPLES = 4, STRIDE = 8, ONE = 1 << BT_WEIGHT_BITS, ALL = (1 << OUTPUTS) - 1 };

/* The samples of 4 outputs, and the inputs of their weights. */
typedef struct spans {
	__m256d first;
	__m256d last;
	__m256d begin; /* of a box */
	__m256d end;
	__m256d centre; /* of a tent */
	__m256d support;
} spans;

static TARGET __m256d clamp(__m256d value, __m256d low, __m256d high)
{
	return _mm256_min_pd(_mm256_max_pd(value, low), high);
}

static TARGET void locate(const bt_axis_key *key, const bt_box *box, uint32_t i, spans *out)
{
	const __m256d one = _mm256_set1_pd(1), half = _mm256_set1_pd(0.5);
	__m256d low = _mm256_set1_pd((double)box->low), high = _mm256_set1_pd((double)box->high);
	__m256d scale = _mm256_set1_pd(box->scale), begin = _mm256_set1_pd(key->begin);
	__m256d number = _mm256_add_pd(_mm256_set1_pd(key->before + i), _mm256_setr_pd(0, 1, 2, 3));
	if (box->tent) {
		out->support = _mm256_max_pd(scale, one);
		out->centre = _mm256_add_pd(begin, _mm256_mul_pd(_mm256_add_pd(number, half), scale));
		__m256d left = _mm256_add_pd(_mm256_sub_pd(out->centre, out->support), half);
		__m256d right = _mm256_add_pd(_mm256_add_pd(out->centre, out->support), half);
		out->first = clamp(_mm256_floor_pd(left), low, high);
		out->last = clamp(_mm256_sub_pd(_mm256_floor_pd(right), one), out->first, high);
	} else {
		out->begin = _mm256_add_pd(begin, _mm256_mul_pd(number, scale));
		out->end = _mm256_add_pd(out->begin, scale);
		out->first = clamp(_mm256_floor_pd(out->begin), low, high);
		out->last = clamp(_mm256_sub_pd(_mm256_ceil_pd(out->end), one), out->first, high);
	}
}

static TARGET __m256d weigh(const spans *s, bool tent, __m256d sample)
{
	const __m256d one = _mm256_set1_pd(1), half = _mm256_set1_pd(0.5), zero = _mm256_setzero_pd();
	if (tent) {
		__m256d away = _mm256_sub_pd(_mm256_add_pd(sample, half), s->centre);
		away = _mm256_andnot_pd(_mm256_set1_pd(-0.0), away);
		return _mm256_max_pd(_mm256_sub_pd(one, _mm256_div_pd(away, s->support)), zero);
	}
	__m256d left = _mm256_max_pd(s->begin, sample), right = _mm256_min_pd(s->end, _mm256_add_pd(sample, one));
	return _mm256_max_pd(_mm256_sub_pd(right, left), zero);
}

/* Running totals of the weights of SAMPLES samples. */
static TARGET void add_up(const spans *s, bool tent, __m256d sums[SAMPLES])
{
	__m256d total = _mm256_setzero_pd(), sample = s->first;
	for (int k = 0; k < SAMPLES; k++) {
		__m256d has = _mm256_cmp_pd(sample, s->last, _CMP_LE_OQ);
		total = sums[k] = _mm256_add_pd(total, _mm256_and_pd(has, weigh(s, tent, sample)));
		sample = _mm256_add_pd(sample, _mm256_set1_pd(1));
	}
}

/* The rounded weights of 4 outputs, 16 bits each. */
static TARGET __m256i round_weights(const spans *s, const __m256d sums[SAMPLES])
{
	const __m256d one = _mm256_set1_pd(ONE), half = _mm256_set1_pd(0.5);
	__m256d factor = _mm256_div_pd(one, sums[SAMPLES - 1]), sample = s->first;
	__m256i weights = _mm256_setzero_si256(), before = weights;
	for (int k = 0; k < SAMPLES; k++) {
		__m256d more = _mm256_cmp_pd(sample, s->last, _CMP_LT_OQ);
		__m256d total = _mm256_add_pd(_mm256_mul_pd(sums[k], factor), half);
		__m256i now = _mm256_cvtepi32_epi64(_mm256_cvttpd_epi32(_mm256_blendv_pd(one, total, more)));
		weights = _mm256_or_si256(weights, _mm256_slli_epi64(_mm256_sub_epi64(now, before), 16 * k));
		before = now;
		sample = _mm256_add_pd(sample, _mm256_set1_pd(1));
	}
	return weights;
}

/* Where none of the bits is set: all ones. */
static TARGET __m256i has_none(__m256i weights, uint64_t bits)
{
	return _mm256_cmpeq_epi64(_mm256_and_si256(weights, _mm256_set1_epi64x((int64_t)bits)), _mm256_setzero_si256());
}

static TARGET void store_numbers(uint32_t *to, __m256i numbers)
{
	const __m256i low = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
	_mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(_mm256_permutevar8x32_epi32(numbers, low)));
}

/* Stores weights without leading and trailing zeros, with the first sample and the number of weights. */
static TARGET void store(bt_axis *axis, uint32_t i, __m256i weights, __m256i first)
{
	__m256i leading = _mm256_setzero_si256(), count = _mm256_set1_epi64x(SAMPLES);
	__m256i low = _mm256_set1_epi64x(-1), high = low;
	for (int k = 0; k < SAMPLES - 1; k++) {
		low = _mm256_and_si256(low, has_none(weights, UINT64_C(0xffff) << (16 * k)));
		leading = _mm256_sub_epi64(leading, low);
		high = _mm256_and_si256(high, has_none(weights, UINT64_C(0xffff) << (48 - 16 * k)));
		count = _mm256_add_epi64(count, high);
	}
	weights = _mm256_srlv_epi64(weights, _mm256_slli_epi64(leading, 4));
	first = _mm256_add_epi64(first, leading);
	count = _mm256_sub_epi64(count, leading);
	uint32_t place = i;
	if (axis->key.mirrored) {
		enum { REVERSED = 0x1b };
		place = axis->key.out - OUTPUTS - i;
		weights = _mm256_permute4x64_epi64(weights, REVERSED);
		first = _mm256_permute4x64_epi64(first, REVERSED);
		count = _mm256_permute4x64_epi64(count, REVERSED);
	}
	store_numbers(axis->first + place, first);
	store_numbers(axis->count + place, count);
	__m256i even = _mm256_unpacklo_epi64(weights, _mm256_setzero_si256());
	__m256i odd = _mm256_unpackhi_epi64(weights, _mm256_setzero_si256());
	int16_t *to = axis->weights + (size_t)place * STRIDE;
	_mm256_storeu_si256((__m256i *)to, _mm256_permute2x128_si256(even, odd, 0x20));
	_mm256_storeu_si256((__m256i *)(to + 2 * STRIDE), _mm256_permute2x128_si256(even, odd, 0x31));
}

TARGET bool bt_fill_avx2(bt_axis *axis, const bt_box *box)
{
	uint32_t out = axis->key.out;
	if (out < OUTPUTS || axis->stride != STRIDE || box->high > INT32_MAX)
		return false;
	for (uint32_t i = 0; i < out; i += OUTPUTS) {
		/* The last outputs, together with those before them again. */
		uint32_t at = i < out - OUTPUTS ? i : out - OUTPUTS;
		spans s;
		__m256d sums[SAMPLES];
		locate(&axis->key, box, at, &s);
		add_up(&s, box->tent, sums);
		__m256d more = _mm256_sub_pd(s.last, s.first);
		if (_mm256_movemask_pd(_mm256_cmp_pd(more, _mm256_set1_pd(SAMPLES), _CMP_LT_OQ)) != ALL ||
		    _mm256_movemask_pd(_mm256_cmp_pd(sums[SAMPLES - 1], _mm256_setzero_pd(), _CMP_GT_OQ)) != ALL)
			return false;
		store(axis, at, round_weights(&s, sums), _mm256_cvtepi32_epi64(_mm256_cvttpd_epi32(s.first)));
	}
	return true;
}
#endif
