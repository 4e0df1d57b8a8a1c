/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes an axis' tables for 8 outputs and 16 bytes at a time, because crops differ and so each picture needs new
 * tables. The arithmetic is that of resize_axis.c, operation by operation.
 */
#ifdef __x86_64__
#include <immintrin.h>

#include "plan_avx512.h"

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl")))

enum { OUTPUTS = 8, SAMPLES = 4, STRIDE = 8, ONE = 1 << BT_WEIGHT_BITS };

/* The samples of 8 outputs, and the inputs of their weights. */
typedef struct spans {
	__m512d first;
	__m512d last;
	__m512d begin; /* of a box */
	__m512d end;
	__m512d centre; /* of a tent */
	__m512d support;
} spans;

static TARGET __m512d floor_of(__m512d value)
{
	return _mm512_roundscale_pd(value, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

static TARGET __m512d clamp(__m512d value, __m512d low, __m512d high)
{
	return _mm512_min_pd(_mm512_max_pd(value, low), high);
}

static TARGET void locate(const bt_axis_key *key, const bt_box *box, uint32_t i, spans *out)
{
	const __m512d one = _mm512_set1_pd(1), half = _mm512_set1_pd(0.5);
	__m512d low = _mm512_set1_pd((double)box->low), high = _mm512_set1_pd((double)box->high);
	__m512d scale = _mm512_set1_pd(box->scale), begin = _mm512_set1_pd(key->begin);
	__m512d number = _mm512_add_pd(_mm512_set1_pd(key->before + i), _mm512_setr_pd(0, 1, 2, 3, 4, 5, 6, 7));
	if (box->tent) {
		out->support = _mm512_max_pd(scale, one);
		out->centre = _mm512_add_pd(begin, _mm512_mul_pd(_mm512_add_pd(number, half), scale));
		__m512d left = _mm512_add_pd(_mm512_sub_pd(out->centre, out->support), half);
		__m512d right = _mm512_add_pd(_mm512_add_pd(out->centre, out->support), half);
		out->first = clamp(floor_of(left), low, high);
		out->last = clamp(_mm512_sub_pd(floor_of(right), one), out->first, high);
	} else {
		out->begin = _mm512_add_pd(begin, _mm512_mul_pd(number, scale));
		out->end = _mm512_add_pd(out->begin, scale);
		__m512d right = _mm512_roundscale_pd(out->end, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
		out->first = clamp(floor_of(out->begin), low, high);
		out->last = clamp(_mm512_sub_pd(right, one), out->first, high);
	}
}

static TARGET __m512d weigh(const spans *s, bool tent, __m512d sample)
{
	const __m512d one = _mm512_set1_pd(1), half = _mm512_set1_pd(0.5), zero = _mm512_setzero_pd();
	if (tent) {
		__m512d away = _mm512_abs_pd(_mm512_sub_pd(_mm512_add_pd(sample, half), s->centre));
		return _mm512_max_pd(_mm512_sub_pd(one, _mm512_div_pd(away, s->support)), zero);
	}
	__m512d left = _mm512_max_pd(s->begin, sample), right = _mm512_min_pd(s->end, _mm512_add_pd(sample, one));
	return _mm512_max_pd(_mm512_sub_pd(right, left), zero);
}

/* Running totals of the weights of SAMPLES samples. */
static TARGET void add_up(const spans *s, bool tent, __m512d sums[SAMPLES])
{
	__m512d total = _mm512_setzero_pd(), sample = s->first;
	for (int k = 0; k < SAMPLES; k++) {
		__mmask8 has = _mm512_cmp_pd_mask(sample, s->last, _CMP_LE_OQ);
		total = sums[k] = _mm512_mask_add_pd(total, has, total, weigh(s, tent, sample));
		sample = _mm512_add_pd(sample, _mm512_set1_pd(1));
	}
}

/* The rounded weights of 8 outputs, 16 bits each. */
static TARGET __m512i round_weights(const spans *s, const __m512d sums[SAMPLES])
{
	const __m512d one = _mm512_set1_pd(ONE), half = _mm512_set1_pd(0.5);
	__m512d factor = _mm512_div_pd(one, sums[SAMPLES - 1]), sample = s->first;
	__m512i weights = _mm512_setzero_si512(), before = weights;
	for (int k = 0; k < SAMPLES; k++) {
		__mmask8 more = _mm512_cmp_pd_mask(sample, s->last, _CMP_LT_OQ);
		__m512d total = _mm512_add_pd(_mm512_mul_pd(sums[k], factor), half);
		__m256i rounded = _mm512_cvttpd_epi32(_mm512_mask_blend_pd(more, one, total));
		__m512i now = _mm512_cvtepu32_epi64(rounded);
		__m512i weight = _mm512_sll_epi64(_mm512_sub_epi64(now, before), _mm_cvtsi32_si128(16 * k));
		weights = _mm512_or_si512(weights, weight);
		before = now;
		sample = _mm512_add_pd(sample, _mm512_set1_pd(1));
	}
	return weights;
}

/* Stores weights without leading and trailing zeros, with the first sample and the number of weights. */
static TARGET void store(bt_axis *axis, uint32_t i, __m512i weights, __m256i first)
{
	__m256i leading = _mm256_setzero_si256(), count = _mm256_set1_epi32(SAMPLES);
	__mmask8 low = UINT8_MAX, high = UINT8_MAX;
	for (int k = 0; k < SAMPLES - 1; k++) {
		low &= _mm512_testn_epi64_mask(weights, _mm512_set1_epi64(UINT64_C(0xffff) << (16 * k)));
		leading = _mm256_mask_add_epi32(leading, low, leading, _mm256_set1_epi32(1));
		high &= _mm512_testn_epi64_mask(weights,
						_mm512_set1_epi64((int64_t)(UINT64_C(0xffff) << (48 - 16 * k))));
		count = _mm256_mask_sub_epi32(count, high, count, _mm256_set1_epi32(1));
	}
	weights = _mm512_srlv_epi64(weights, _mm512_cvtepu32_epi64(_mm256_slli_epi32(leading, 4)));
	first = _mm256_add_epi32(first, leading);
	count = _mm256_sub_epi32(count, leading);
	uint32_t place = i;
	if (axis->key.mirrored) {
		place = axis->key.out - OUTPUTS - i;
		const __m256i reversed = _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0);
		weights = _mm512_permutexvar_epi64(_mm512_setr_epi64(7, 6, 5, 4, 3, 2, 1, 0), weights);
		first = _mm256_permutexvar_epi32(reversed, first);
		count = _mm256_permutexvar_epi32(reversed, count);
	}
	_mm256_storeu_si256((__m256i *)(axis->first + place), first);
	_mm256_storeu_si256((__m256i *)(axis->count + place), count);
	int16_t *to = axis->weights + (size_t)place * STRIDE;
	_mm512_storeu_si512(to,
			    _mm512_maskz_permutexvar_epi64(0x55, _mm512_setr_epi64(0, 0, 1, 0, 2, 0, 3, 0), weights));
	_mm512_storeu_si512(to + 4 * STRIDE,
			    _mm512_maskz_permutexvar_epi64(0x55, _mm512_setr_epi64(4, 0, 5, 0, 6, 0, 7, 0), weights));
}

TARGET bool bt_fill_avx512(bt_axis *axis, const bt_box *box)
{
	uint32_t out = axis->key.out;
	if (out < OUTPUTS || axis->stride != STRIDE || box->high > INT32_MAX)
		return false;
	for (uint32_t i = 0; i < out; i += OUTPUTS) {
		/* The last outputs, together with those before them again. */
		uint32_t at = i < out - OUTPUTS ? i : out - OUTPUTS;
		spans s;
		__m512d sums[SAMPLES];
		locate(&axis->key, box, at, &s);
		add_up(&s, box->tent, sums);
		__m512d more = _mm512_sub_pd(s.last, s.first);
		if (_mm512_cmp_pd_mask(more, _mm512_set1_pd(SAMPLES), _CMP_LT_OQ) != UINT8_MAX ||
		    _mm512_cmp_pd_mask(sums[SAMPLES - 1], _mm512_setzero_pd(), _CMP_GT_OQ) != UINT8_MAX)
			return false;
		store(axis, at, round_weights(&s, sums), _mm512_cvttpd_epi32(s.first));
	}
	return true;
}

/* 16 bytes of a row: the output and the channel of each. */
typedef struct bytes_16 {
	__m512i output;
	__m512i channel;
} bytes_16;

static TARGET bytes_16 next_16(bytes_16 at, uint32_t channels)
{
	__m512i wrap = _mm512_set1_epi32((int)channels);
	at.output = _mm512_add_epi32(at.output, _mm512_set1_epi32((int)(BT_GROUP / channels)));
	at.channel = _mm512_add_epi32(at.channel, _mm512_set1_epi32((int)(BT_GROUP % channels)));
	__mmask16 over = _mm512_cmpge_epu32_mask(at.channel, wrap);
	at.output = _mm512_mask_add_epi32(at.output, over, at.output, _mm512_set1_epi32(1));
	at.channel = _mm512_mask_sub_epi32(at.channel, over, at.channel, wrap);
	return at;
}

/* Bytes past the end use the last byte's place. */
static TARGET bytes_16 limit_16(bytes_16 at, const bt_axis_key *key)
{
	__m512i last = _mm512_set1_epi32((int)key->out - 1);
	__mmask16 behind = _mm512_cmpgt_epu32_mask(at.output, last);
	at.output = _mm512_mask_mov_epi32(at.output, behind, last);
	at.channel = _mm512_mask_mov_epi32(at.channel, behind, _mm512_set1_epi32((int)key->channels - 1));
	return at;
}

/* A number twice, in the low and the high half of a lane. */
static TARGET __m512i both(uint32_t number)
{
	return _mm512_set1_epi32((int)(number * 0x10001u));
}

/* Fills the tables of one group; returns its reach in values. */
static TARGET uint32_t permute_group(bt_axis *axis, uint32_t group, bytes_16 at)
{
	uint32_t channels = axis->key.channels;
	__m512i wide = _mm512_set1_epi32((int)channels);
	__m512i first = _mm512_mullo_epi32(_mm512_i32gather_epi32(at.output, axis->first, 4), wide);
	__m512i more = _mm512_sub_epi32(_mm512_i32gather_epi32(at.output, axis->count, 4), _mm512_set1_epi32(1));
	uint32_t base = _mm512_reduce_min_epu32(first);
	__m512i place = _mm512_add_epi32(_mm512_sub_epi32(first, _mm512_set1_epi32((int)base)), at.channel);
	uint32_t reach = _mm512_reduce_max_epu32(_mm512_add_epi32(place, _mm512_mullo_epi32(more, wide))) + 1;
	axis->base[group] = base;
	if (reach > BT_GROUP_REACH)
		return reach;
	__m512i pair = _mm512_or_si512(place, _mm512_slli_epi32(_mm512_add_epi32(place, wide), 16));
	__m512i row = _mm512_mullo_epi32(at.output, _mm512_set1_epi32((int)axis->stride / 2));
	size_t to = (size_t)group * axis->pairs * 2 * BT_GROUP;
	for (uint32_t p = 0; p < axis->pairs; p++, to += 2 * BT_GROUP) {
		_mm512_storeu_si512(axis->index + to, _mm512_add_epi16(pair, both(2 * p * channels)));
		__m512i weights =
			_mm512_i32gather_epi32(_mm512_add_epi32(row, _mm512_set1_epi32((int)p)), axis->weights, 4);
		_mm512_storeu_si512(axis->pair_weights + to, weights);
	}
	return reach;
}

TARGET bool bt_permute_avx512(bt_axis *axis)
{
	/* Offsets and lengths of rows of weights have 31 bits. */
	if ((uint64_t)axis->columns * axis->key.channels > INT32_MAX ||
	    (uint64_t)axis->key.out * axis->stride > INT32_MAX)
		return false;
	uint32_t reach = 0;
	const uint32_t channels = axis->key.channels;
	_Alignas(64) uint32_t output[BT_GROUP], channel[BT_GROUP];
	for (uint32_t j = 0; j < BT_GROUP; j++) {
		output[j] = j / channels;
		channel[j] = j % channels;
	}
	bytes_16 at = {_mm512_load_si512(output), _mm512_load_si512(channel)};
	for (uint32_t group = 0; group < axis->groups && reach <= BT_GROUP_REACH; group++) {
		uint32_t needed = permute_group(axis, group, limit_16(at, &axis->key));
		reach = needed > reach ? needed : reach;
		at = next_16(at, channels);
	}
	axis->narrow = reach <= BT_GROUP_NARROW;
	return reach <= BT_GROUP_REACH;
}
#endif
