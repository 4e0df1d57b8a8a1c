/* SPDX-License-Identifier: Apache-2.0
 *
 * Called only where the processor has AVX-512 (F, BW, VL): the target is set for each function, so that nothing else
 * may use it. */
#ifdef __x86_64__
#include <immintrin.h>
#include <string.h>

#include "plan_avx512.h"

#define TARGET __attribute__((target("avx2,avx512f,avx512bw,avx512vl")))

enum { LINE = 64 }; /* bytes of a cache line */
enum { VERTICAL_SHIFT = BT_WEIGHT_BITS - BT_ROW_BITS, HORIZONTAL_SHIFT = BT_WEIGHT_BITS + BT_ROW_BITS };

static int32_t weight_pair(const int16_t *weights)
{
	int32_t pair;
	memcpy(&pair, weights, sizeof(pair));
	return pair;
}

/* 32 columns as in AVX2; the mask prevents reads past the plane. */
static TARGET __m512i vertical_32(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps,
				  __mmask32 mask)
{
	__m512i low = _mm512_set1_epi32(1 << (VERTICAL_SHIFT - 1)), high = low;
	for (uint32_t k = 0; k < taps; k += 2) {
		const uint8_t *second = k + 1 < taps ? in + stride : in;
		__m512i a = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, in));
		__m512i b = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, second));
		__m512i weight = _mm512_set1_epi32(weight_pair(weights + k));
		low = _mm512_add_epi32(low, _mm512_madd_epi16(_mm512_unpacklo_epi16(a, b), weight));
		high = _mm512_add_epi32(high, _mm512_madd_epi16(_mm512_unpackhi_epi16(a, b), weight));
		in += 2 * stride;
	}
	return _mm512_packs_epi32(_mm512_srai_epi32(low, VERTICAL_SHIFT), _mm512_srai_epi32(high, VERTICAL_SHIFT));
}

/* Two rows as in AVX2. */
static TARGET __m512i mix_32(__m256i first, __m256i second, __m512i weight)
{
	__m512i a = _mm512_cvtepu8_epi16(first), b = _mm512_cvtepu8_epi16(second);
	__m512i apart = _mm512_slli_epi16(_mm512_sub_epi16(a, b), BT_ROW_BITS);
	return _mm512_add_epi16(_mm512_mulhrs_epi16(apart, weight), _mm512_slli_epi16(b, BT_ROW_BITS));
}

static TARGET void vertical_2(const uint8_t *in, size_t stride, int16_t weight, size_t count, int16_t *out)
{
	const __m512i twice = _mm512_set1_epi16((int16_t)(2 * weight));
	size_t j = 0;
	for (; j + 32 <= count; j += 32)
		_mm512_storeu_si512(out + j, mix_32(_mm256_loadu_si256((const __m256i *)(in + j)),
						    _mm256_loadu_si256((const __m256i *)(in + stride + j)), twice));
	if (j == count)
		return;
	__mmask32 mask = (__mmask32)((UINT64_C(1) << (count - j)) - 1);
	_mm512_mask_storeu_epi16(
		out + j, mask,
		mix_32(_mm256_maskz_loadu_epi8(mask, in + j), _mm256_maskz_loadu_epi8(mask, in + stride + j), twice));
}

static TARGET void vertical(const uint8_t *in, size_t stride, const int16_t *weights, uint32_t taps, size_t count,
			    int16_t *out)
{
	if (taps == 2 && weights[0] < 1 << BT_WEIGHT_BITS) {
		vertical_2(in, stride, weights[0], count, out);
		return;
	}
	size_t j = 0;
	for (; j + 32 <= count; j += 32)
		_mm512_storeu_si512(out + j, vertical_32(in + j, stride, weights, taps, UINT32_MAX));
	if (j == count)
		return;
	__mmask32 mask = (__mmask32)((UINT64_C(1) << (count - j)) - 1);
	_mm512_mask_storeu_epi16(out + j, mask, vertical_32(in + j, stride, weights, taps, mask));
}

/* The input of a group of output bytes is close together in the row: one or two registers hold it, and a permutation of
 * words puts the two values of each pair of taps side by side for pmaddwd. */
static TARGET __m512i take(const int16_t *in, __m512i index, bool wide)
{
	__m512i left = _mm512_loadu_si512(in);
	return wide ? _mm512_permutex2var_epi16(left, index, _mm512_loadu_si512(in + BT_GROUP_NARROW))
		    : _mm512_permutexvar_epi16(index, left);
}

/* Converts four groups of sums to 64 bytes. */
static TARGET void store_groups(const __m512i sums[BT_GROUPS], uint8_t *out)
{
	const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
	__m512i words[2];
	for (int i = 0; i < 2; i++)
		words[i] = _mm512_packs_epi32(_mm512_srli_epi32(sums[2 * i], HORIZONTAL_SHIFT),
					      _mm512_srli_epi32(sums[2 * i + 1], HORIZONTAL_SHIFT));
	_mm512_storeu_si512(out, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(words[0], words[1])));
}

/* All rows of four groups, with the tables in registers, for one or two pairs of taps. */
static inline __attribute__((always_inline)) TARGET void groups_of_rows(const bt_axis *axis, uint32_t group,
									const int16_t *rows, size_t stride,
									uint32_t count, uint8_t *out, size_t out_stride,
									uint32_t pairs, bool wide)
{
	const __m512i half = _mm512_set1_epi32(1 << (HORIZONTAL_SHIFT - 1));
	__m512i index[2 * BT_GROUPS], weights[2 * BT_GROUPS];
	for (uint32_t i = 0; i < pairs * BT_GROUPS; i++) {
		size_t at = ((size_t)group * pairs + i) * 2 * BT_GROUP;
		index[i] = _mm512_loadu_si512(axis->index + at);
		weights[i] = _mm512_loadu_si512(axis->pair_weights + at);
	}
	const uint32_t *base = axis->base + group;
	out += (size_t)group * BT_GROUP;
	for (uint32_t y = 0; y < count; y++, rows += stride, out += out_stride) {
		__m512i sums[BT_GROUPS];
		for (uint32_t i = 0; i < BT_GROUPS; i++) {
			sums[i] = half;
			for (uint32_t p = i * pairs; p < (i + 1) * pairs; p++)
				sums[i] = _mm512_add_epi32(
					sums[i], _mm512_madd_epi16(take(rows + base[i], index[p], wide), weights[p]));
		}
		store_groups(sums, out);
	}
}

static TARGET void groups_of_row(const bt_axis *axis, uint32_t group, const int16_t *row, uint8_t *out)
{
	__m512i sums[BT_GROUPS];
	size_t at = (size_t)group * axis->pairs * 2 * BT_GROUP;
	for (uint32_t i = 0; i < BT_GROUPS; i++) {
		sums[i] = _mm512_set1_epi32(1 << (HORIZONTAL_SHIFT - 1));
		for (uint32_t p = 0; p < axis->pairs; p++, at += 2 * BT_GROUP) {
			__m512i values = take(row + axis->base[group + i], _mm512_loadu_si512(axis->index + at), true);
			__m512i weights = _mm512_loadu_si512(axis->pair_weights + at);
			sums[i] = _mm512_add_epi32(sums[i], _mm512_madd_epi16(values, weights));
		}
	}
	store_groups(sums, out + (size_t)group * BT_GROUP);
}

static TARGET void horizontal(const bt_axis *axis, const int16_t *rows, size_t stride, uint32_t count, uint8_t *out,
			      size_t out_stride)
{
	if (!axis->permutation) {
		bt_kernels_avx2.horizontal(axis, rows, stride, count, out, out_stride);
		return;
	}
	uint32_t pairs = axis->pairs;
	for (uint32_t group = 0; group < axis->groups; group += BT_GROUPS) {
		if (pairs == 1 && axis->narrow)
			groups_of_rows(axis, group, rows, stride, count, out, out_stride, 1, false);
		else if (pairs == 2 && axis->narrow)
			groups_of_rows(axis, group, rows, stride, count, out, out_stride, 2, false);
		else if (pairs == 2)
			groups_of_rows(axis, group, rows, stride, count, out, out_stride, 2, true);
		else
			for (uint32_t y = 0; y < count; y++)
				groups_of_row(axis, group, rows + y * stride, out + y * out_stride);
	}
}

/* The loops below are AVX2's at twice the width. */
static TARGET __m512i green_shift(__m512i blue, __m512i red)
{
	const __m512i weights = _mm512_set1_epi32((int32_t)((uint16_t)-5638 | (uint32_t)(uint16_t)-11700 << 16));
	const __m512i half = _mm512_set1_epi32(1 << 13);
	__m512i low = _mm512_madd_epi16(_mm512_unpacklo_epi16(blue, red), weights);
	__m512i high = _mm512_madd_epi16(_mm512_unpackhi_epi16(blue, red), weights);
	return _mm512_packs_epi32(_mm512_srai_epi32(_mm512_add_epi32(low, half), 14),
				  _mm512_srai_epi32(_mm512_add_epi32(high, half), 14));
}

static TARGET void ycc_32(__m512i luma, __m512i blue, __m512i red, __m512i out[3])
{
	const __m512i middle = _mm512_set1_epi16(128);
	blue = _mm512_sub_epi16(blue, middle);
	red = _mm512_sub_epi16(red, middle);
	__m512i add_red = _mm512_mulhrs_epi16(_mm512_add_epi16(red, red), _mm512_set1_epi16(22970));
	__m512i add_blue = _mm512_mulhrs_epi16(_mm512_add_epi16(blue, blue), _mm512_set1_epi16(29032));
	out[0] = _mm512_add_epi16(luma, add_red);
	out[1] = _mm512_add_epi16(luma, green_shift(blue, red));
	out[2] = _mm512_add_epi16(luma, add_blue);
}

static TARGET void ycc_64(const uint8_t *const ycc[3], size_t at, uint8_t *const rgb[3])
{
	const __m512i zero = _mm512_setzero_si512();
	__m512i in[3], low[3], high[3];
	for (int i = 0; i < 3; i++)
		in[i] = _mm512_loadu_si512(ycc[i] + at);
	ycc_32(_mm512_unpacklo_epi8(in[0], zero), _mm512_unpacklo_epi8(in[1], zero), _mm512_unpacklo_epi8(in[2], zero),
	       low);
	ycc_32(_mm512_unpackhi_epi8(in[0], zero), _mm512_unpackhi_epi8(in[1], zero), _mm512_unpackhi_epi8(in[2], zero),
	       high);
	for (int i = 0; i < 3; i++)
		_mm512_storeu_si512(rgb[i] + at, _mm512_packus_epi16(low[i], high[i]));
}

static TARGET void ycc_to_rgb(const uint8_t *const ycc[3], size_t count, uint8_t *const rgb[3])
{
	if (count < 64) {
		bt_kernels_avx2.ycc_to_rgb(ycc, count, rgb);
		return;
	}
	for (size_t j = 0; j + 64 <= count; j += 64)
		ycc_64(ycc, j, rgb);
	if (count % 64)
		ycc_64(ycc, count - 64, rgb);
}

/* Places p with p % 3 == 0, 1, 2 in each 16. */
static const __mmask64 third_masks[3] = {UINT64_C(0x9249924992499249), UINT64_C(0x2492249224922492),
					 UINT64_C(0x4924492449244924)};

static TARGET __m512i four_times(__m128i x)
{
	return _mm512_broadcast_i32x4(x);
}

/* Selects 8-byte elements of a and b by number (b's are 8 to 15), and of c where the mask is set. */
static TARGET __m512i pick(__m512i a, __m512i b, __m512i ab_places, __m512i c, __m512i c_places, __mmask8 mask)
{
	return _mm512_mask_permutexvar_epi64(_mm512_permutex2var_epi64(a, ab_places, b), mask, c_places, c);
}

static TARGET void join_64(const uint8_t *const planes[3], size_t at, uint8_t *rgb)
{
	const __m512i places[3] = {four_times(_mm_setr_epi8(0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10, 5)),
				   four_times(_mm_setr_epi8(5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15, 10)),
				   four_times(_mm_setr_epi8(10, 5, 0, 11, 6, 1, 12, 7, 2, 13, 8, 3, 14, 9, 4, 15))};
	__m512i channel[3], v[3];
	for (int c = 0; c < 3; c++)
		channel[c] = _mm512_shuffle_epi8(_mm512_loadu_si512(planes[c] + at), places[c]);
	for (int i = 0; i < 3; i++) {
		v[i] = _mm512_mask_blend_epi8(third_masks[1], channel[i], channel[(i + 1) % 3]);
		v[i] = _mm512_mask_blend_epi8(third_masks[2], v[i], channel[(i + 2) % 3]);
	}
	uint8_t *to = rgb + 3 * at;
	_mm512_storeu_si512(to, pick(v[0], v[1], _mm512_setr_epi64(0, 1, 8, 9, 0, 0, 2, 3), v[2],
				     _mm512_setr_epi64(0, 0, 0, 0, 0, 1, 0, 0), 0x30));
	_mm512_storeu_si512(to + 64, pick(v[0], v[1], _mm512_setr_epi64(10, 11, 0, 0, 4, 5, 12, 13), v[2],
					  _mm512_setr_epi64(0, 0, 2, 3, 0, 0, 0, 0), 0x0c));
	_mm512_storeu_si512(to + 128, pick(v[0], v[1], _mm512_setr_epi64(0, 0, 6, 7, 14, 15, 0, 0), v[2],
					   _mm512_setr_epi64(4, 5, 0, 0, 0, 0, 6, 7), 0xc3));
}

static TARGET void join(const uint8_t *const planes[3], size_t count, uint8_t *rgb)
{
	if (count < 64) {
		bt_kernels_avx2.join(planes, count, rgb);
		return;
	}
	for (size_t j = 0; j + 64 <= count; j += 64)
		join_64(planes, j, rgb);
	if (count % 64)
		join_64(planes, count - 64, rgb);
}

static TARGET void split_64(const uint8_t *rgb, size_t at, uint8_t *const planes[3])
{
	const __m512i places[3] = {four_times(_mm_setr_epi8(0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13)),
				   four_times(_mm_setr_epi8(1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14)),
				   four_times(_mm_setr_epi8(2, 5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15))};
	const uint8_t *from = rgb + 3 * at;
	__m512i a = _mm512_loadu_si512(from), b = _mm512_loadu_si512(from + 64), c = _mm512_loadu_si512(from + 128);
	__m512i v[3] = {pick(a, b, _mm512_setr_epi64(0, 1, 6, 7, 12, 13, 0, 0), c,
			     _mm512_setr_epi64(0, 0, 0, 0, 0, 0, 2, 3), 0xc0),
			pick(a, b, _mm512_setr_epi64(2, 3, 8, 9, 14, 15, 0, 0), c,
			     _mm512_setr_epi64(0, 0, 0, 0, 0, 0, 4, 5), 0xc0),
			pick(a, b, _mm512_setr_epi64(4, 5, 10, 11, 0, 0, 0, 0), c,
			     _mm512_setr_epi64(0, 0, 0, 0, 0, 1, 6, 7), 0xf0)};
	for (int i = 0; i < 3; i++) {
		__m512i mixed = _mm512_mask_blend_epi8(third_masks[i], v[2], v[0]);
		mixed = _mm512_mask_blend_epi8(third_masks[(i + 2) % 3], mixed, v[1]);
		_mm512_storeu_si512(planes[i] + at, _mm512_shuffle_epi8(mixed, places[i]));
	}
}

static TARGET void split(const uint8_t *rgb, size_t count, uint8_t *const planes[3])
{
	if (count < 64) {
		bt_kernels_avx2.split(rgb, count, planes);
		return;
	}
	for (size_t j = 0; j + 64 <= count; j += 64)
		split_64(rgb, j, planes);
	if (count % 64)
		split_64(rgb, count - 64, planes);
}

/* Constants for 48 elements. */
typedef struct constants {
	__m512 mean[3];
	__m512 std[3];
	__m512 inverse[3];
} constants;

static TARGET void load_constants(const bt_elements *elements, constants *out)
{
	for (int i = 0; i < 3; i++) {
		out->mean[i] = _mm512_loadu_ps(elements->mean + 16 * i);
		out->std[i] = _mm512_loadu_ps(elements->std + 16 * i);
		out->inverse[i] = _mm512_loadu_ps(elements->inverse + 16 * i);
	}
}

static TARGET __m512 elements_16(const constants *with, const uint8_t *in, int i)
{
	__m512 x = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(in + (size_t)i * 16))));
	x = _mm512_sub_ps(x, with->mean[i]);
	__m512 q = _mm512_mul_ps(x, with->inverse[i]);
	return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, with->std[i], x), with->inverse[i], q);
}

static TARGET void bytes(const uint8_t *in, size_t count, bool stream, uint8_t *out)
{
	size_t begin = -(uintptr_t)out % LINE;
	if (!stream || count < begin + LINE) {
		memcpy(out, in, count);
		return;
	}
	size_t j = begin;
	memcpy(out, in, begin);
	for (; j + LINE <= count; j += LINE)
		_mm512_stream_si512((void *)(out + j), _mm512_loadu_si512(in + j));
	memcpy(out + j, in + j, count - j);
}

/* Whether all stores of the elements, the last ones too, are aligned for streaming. */
static bool aligned(const void *out, size_t count)
{
	return (uintptr_t)out % LINE == 0 && count % 16 == 0;
}

static TARGET void floats_48(const constants *with, const uint8_t *in, bool stream, float *out)
{
	for (int i = 0; i < 3; i++) {
		__m512 value = elements_16(with, in, i);
		if (stream)
			_mm512_stream_ps(out + (size_t)i * 16, value);
		else
			_mm512_storeu_ps(out + (size_t)i * 16, value);
	}
}

static TARGET void floats(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, float *out)
{
	if (count < 48 || !elements->computable) {
		bt_kernels_avx2.floats(elements, in, count, stream, out);
		return;
	}
	constants with;
	load_constants(elements, &with);
	stream = stream && aligned(out, count);
	for (size_t j = 0; j + 48 <= count; j += 48)
		floats_48(&with, in + j, stream, out + j);
	if (count % 48)
		floats_48(&with, in + count - 48, stream, out + count - 48);
}

static TARGET __m256i to_bfloat16(__m512 value)
{
	__m512i bits = _mm512_castps_si512(value);
	__m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
	bits = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
	return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

static TARGET void halves_48(const constants *with, const uint8_t *in, bool bfloat16, bool stream, uint16_t *out)
{
	for (int i = 0; i < 3; i++) {
		__m512 value = elements_16(with, in, i);
		__m256i half = bfloat16 ? to_bfloat16(value) : _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
		if (stream)
			_mm256_stream_si256((__m256i *)(out + (size_t)i * 16), half);
		else
			_mm256_storeu_si256((__m256i *)(out + (size_t)i * 16), half);
	}
}

static TARGET void halves(const bt_elements *elements, const uint8_t *in, size_t count, bool stream, uint16_t *out)
{
	if (count < 48 || !elements->computable) {
		bt_kernels_avx2.halves(elements, in, count, stream, out);
		return;
	}
	constants with;
	load_constants(elements, &with);
	bool bfloat16 = elements->dtype == BETON_BFLOAT16;
	stream = stream && aligned(out, count);
	for (size_t j = 0; j + 48 <= count; j += 48)
		halves_48(&with, in + j, bfloat16, stream, out + j);
	if (count % 48)
		halves_48(&with, in + count - 48, bfloat16, stream, out + count - 48);
}

static void fence(void)
{
	_mm_sfence();
}

const bt_kernels bt_kernels_avx512 = {.name = "avx512",
				      .fill = bt_fill_avx512,
				      .permute = bt_permute_avx512,
				      .vertical = vertical,
				      .horizontal = horizontal,
				      .ycc_to_rgb = ycc_to_rgb,
				      .join = join,
				      .split = split,
				      .bytes = bytes,
				      .floats = floats,
				      .halves = halves,
				      .fence = fence};
#endif
