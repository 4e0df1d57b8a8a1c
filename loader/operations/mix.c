/* SPDX-License-Identifier: Apache-2.0 */
#include "mix.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "common/elementary.h"
#include "common/half.h"
#include "common/isa.h"
#include "order/permutation.h"

/* Pictures are mixed in place, along the ring, this many bytes at a time. So only this part of the first picture must
 * be saved, and a partner's part is still in the cache when it is mixed itself. */
enum { PART = 4096 };

void bt_mix_ring(int64_t *partner, uint32_t count, uint64_t key)
{
	bt_permutation order = bt_permutation_make(count, key);
	uint64_t first = bt_permutation_at(&order, 0), row = first;
	for (uint32_t i = 1; i < count; i++) {
		uint64_t next = bt_permutation_at(&order, i);
		partner[row] = (int64_t)next;
		row = next;
	}
	partner[row] = (int64_t)first;
}

/* The logarithm of a draw from Gamma(shape), as log + boost / shape: for a small shape the draw itself underflows, and
 * the quotient may overflow. */
typedef struct gamma_draw {
	double log;
	double boost;
} gamma_draw;

/* Marsaglia and Tsang, "A Simple Method for Generating Gamma Variables" (2000). */
static gamma_draw draw_gamma(double shape, bt_random *random)
{
	double boost = 0;
	if (shape < 1) {
		boost = bt_log(1 - bt_random_uniform(random, 0, 1));
		shape += 1;
	}
	double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
	for (;;) {
		double size = sqrt(-2 * bt_log(1 - bt_random_uniform(random, 0, 1))), sine, cosine;
		bt_sin_cos(bt_random_uniform(random, 0, 1), &sine, &cosine);
		double normal = size * cosine;
		double v = 1 + c * normal;
		if (v <= 0)
			continue;
		v = v * v * v;
		double u = 1 - bt_random_uniform(random, 0, 1);
		if (bt_log(u) < normal * normal / 2 + d - d * v + d * bt_log(v))
			return (gamma_draw){bt_log(d * v), boost};
	}
}

uint32_t bt_mix_lambda(double alpha, bt_random *random)
{
	gamma_draw a = draw_gamma(alpha, random), b = draw_gamma(alpha, random);
	return (uint32_t)nearbyint(BT_MIX_ONE / (1 + bt_exp(b.log - a.log + (b.boost - a.boost) / alpha)));
}

/* Computes one side of the box: `half` pixels on both sides of a centre. */
static void clip(uint32_t size, double share, bt_random *random, int32_t *begin, int32_t *length)
{
	int64_t centre = (int64_t)bt_random_uniform(random, 0, size);
	int64_t half = (int64_t)(share / 2 * size);
	int64_t low = centre - half > 0 ? centre - half : 0;
	int64_t high = centre + half < size ? centre + half : size;
	*begin = (int32_t)low;
	*length = (int32_t)(high - low);
}

bt_mix_box bt_mix_draw_box(uint32_t width, uint32_t height, uint32_t lambda, bt_random *random)
{
	bt_mix_box box;
	double share = sqrt(1 - (double)lambda / BT_MIX_ONE);
	clip(width, share, random, &box.x, &box.width);
	clip(height, share, random, &box.y, &box.height);
	return box;
}

/* On x86-64 the loops are compiled for two instruction sets. Both give the same results, because floating-point
 * contraction is off, so the compiler makes no fused multiply-adds. */

static inline __attribute__((always_inline)) void mix_bytes(void *to, const void *from, size_t bytes, uint32_t weight)
{
	uint8_t *restrict a = to;
	const uint8_t *restrict b = from;
	int32_t own = (int32_t)weight, others = BT_MIX_ONE - own;
	for (size_t i = 0; i < bytes; i++)
		a[i] = (uint8_t)((a[i] * own + b[i] * others + BT_MIX_ONE / 2) / BT_MIX_ONE);
}

static inline __attribute__((always_inline)) void mix_words(void *to, const void *from, size_t bytes, uint32_t weight)
{
	uint16_t *restrict a = to;
	const uint16_t *restrict b = from;
	uint32_t others = BT_MIX_ONE - weight;
	for (size_t i = 0; i < bytes / sizeof(*a); i++)
		a[i] = (uint16_t)((a[i] * weight + b[i] * others + BT_MIX_ONE / 2) / BT_MIX_ONE);
}

static inline float blend(float a, float b, float lambda)
{
	return a * lambda + b * (1 - lambda);
}

static inline __attribute__((always_inline)) void mix_floats(void *to, const void *from, size_t bytes, uint32_t weight)
{
	float *restrict a = to;
	const float *restrict b = from;
	float lambda = (float)weight / BT_MIX_ONE;
	for (size_t i = 0; i < bytes / sizeof(*a); i++)
		a[i] = blend(a[i], b[i], lambda);
}

static inline __attribute__((always_inline)) void mix_bfloats(void *to, const void *from, size_t bytes, uint32_t weight)
{
	uint16_t *restrict a = to;
	const uint16_t *restrict b = from;
	float lambda = (float)weight / BT_MIX_ONE;
	for (size_t i = 0; i < bytes / sizeof(*a); i++)
		a[i] = bt_bfloat16(blend(bt_widen_bfloat16(a[i]), bt_widen_bfloat16(b[i]), lambda));
}

static void mix_halves(void *to, const void *from, size_t bytes, uint32_t weight)
{
	uint16_t *a = to;
	const uint16_t *b = from;
	float lambda = (float)weight / BT_MIX_ONE;
	for (size_t i = 0; i < bytes / sizeof(*a); i++)
		a[i] = bt_float16(blend(bt_widen_float16(a[i]), bt_widen_float16(b[i]), lambda));
}

typedef void (*mixer)(void *to, const void *from, size_t bytes, uint32_t weight);

static void plain_bytes(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_bytes(to, from, bytes, weight);
}

static void plain_words(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_words(to, from, bytes, weight);
}

static void plain_floats(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_floats(to, from, bytes, weight);
}

static void plain_bfloats(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_bfloats(to, from, bytes, weight);
}

#ifdef __x86_64__
#define TARGET __attribute__((target("avx2,fma,f16c")))

static TARGET void wide_bytes(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_bytes(to, from, bytes, weight);
}

static TARGET void wide_words(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_words(to, from, bytes, weight);
}

static TARGET void wide_floats(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_floats(to, from, bytes, weight);
}

static TARGET void wide_bfloats(void *to, const void *from, size_t bytes, uint32_t weight)
{
	mix_bfloats(to, from, bytes, weight);
}

/* Leaves the elements after the last multiple of 8 to the plain loop. */
static TARGET void wide_halves(void *to, const void *from, size_t bytes, uint32_t weight)
{
	enum { STEP = 16 };
	char *a = to;
	const char *b = from;
	float lambda = (float)weight / BT_MIX_ONE;
	__m256 own = _mm256_set1_ps(lambda), others = _mm256_set1_ps(1 - lambda);
	size_t i = 0;
	for (; i + STEP <= bytes; i += STEP) {
		__m256 x = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(a + i)));
		__m256 y = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(b + i)));
		__m256 mixed = _mm256_add_ps(_mm256_mul_ps(x, own), _mm256_mul_ps(y, others));
		_mm_storeu_si128((__m128i *)(a + i), _mm256_cvtps_ph(mixed, _MM_FROUND_TO_NEAREST_INT));
	}
	mix_halves(a + i, b + i, bytes - i, weight);
}
#elif defined(__aarch64__)
/* Leaves the elements after the last multiple of 4 to the plain loop. */
static void wide_halves(void *to, const void *from, size_t bytes, uint32_t weight)
{
	enum { STEP = 8 };
	char *a = to;
	const char *b = from;
	float lambda = (float)weight / BT_MIX_ONE;
	size_t i = 0;
	for (; i + STEP <= bytes; i += STEP) {
		float32x4_t x = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)(a + i))));
		float32x4_t y = vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8((const uint8_t *)(b + i))));
		float32x4_t mixed = vaddq_f32(vmulq_n_f32(x, lambda), vmulq_n_f32(y, 1 - lambda));
		vst1_u8((uint8_t *)(a + i), vreinterpret_u8_f16(vcvt_f16_f32(mixed)));
	}
	mix_halves(a + i, b + i, bytes - i, weight);
}
#endif

static mixer choose(beton_dtype dtype, bool plain)
{
#ifdef __x86_64__
	if (!plain && bt_isa_level() >= BT_ISA_AVX2)
		return dtype == BETON_UINT8     ? wide_bytes
		       : dtype == BETON_UINT16  ? wide_words
		       : dtype == BETON_FLOAT32 ? wide_floats
		       : dtype == BETON_FLOAT16 ? wide_halves
						: wide_bfloats;
#elif defined(__aarch64__)
	if (!plain && dtype == BETON_FLOAT16)
		return wide_halves;
#endif
	(void)plain;
	return dtype == BETON_UINT8     ? plain_bytes
	       : dtype == BETON_UINT16  ? plain_words
	       : dtype == BETON_FLOAT32 ? plain_floats
	       : dtype == BETON_FLOAT16 ? mix_halves
					: plain_bfloats;
}

void bt_mix_up(const bt_mix_images *images, const float *lambda, bool plain)
{
	mixer mix = choose(images->dtype, plain);
	size_t total = images->rows * (size_t)images->width * images->pixel_bytes;
	char first[PART];
	for (size_t at = 0; at < total; at += PART) {
		size_t bytes = total - at < PART ? total - at : PART;
		char *data = (char *)images->data + at;
		memcpy(first, data, bytes);
		size_t row = 0, partner;
		do {
			partner = (size_t)images->partner[row];
			const char *from = partner == 0 ? first : data + partner * images->stride;
			uint32_t weight = (uint32_t)(lambda[row] * BT_MIX_ONE);
			if (partner != row && weight < BT_MIX_ONE)
				mix(data + row * images->stride, from, bytes, weight);
			row = partner;
		} while (row != 0);
	}
}

/* Part of a row of pixels, in bytes from its start. */
typedef struct span {
	size_t begin;
	size_t end;
} span;

static span intersect(span a, span b)
{
	return (span){a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

/* Cuts one part of row y. data: that row of the first picture. */
static void cut_part(const bt_mix_images *images, const bt_mix_box *boxes, char *data, int64_t y, span part)
{
	char first[PART];
	memcpy(first, data + part.begin, part.end - part.begin);
	size_t row = 0, partner;
	do {
		partner = (size_t)images->partner[row];
		const bt_mix_box *box = &boxes[row];
		span columns = {(size_t)box->x * images->pixel_bytes,
				((size_t)box->x + (size_t)box->width) * images->pixel_bytes};
		span taken = intersect(part, columns);
		const char *from = partner == 0 ? first + (taken.begin - part.begin)
						: data + partner * images->stride + taken.begin;
		if (partner != row && y >= box->y && y < (int64_t)box->y + box->height && taken.begin < taken.end)
			memcpy(data + row * images->stride + taken.begin, from, taken.end - taken.begin);
		row = partner;
	} while (row != 0);
}

/* The smallest box that contains all boxes; may be empty. */
static bt_mix_box hull(const bt_mix_box *boxes, uint32_t count)
{
	int32_t left = INT32_MAX, top = INT32_MAX, right = 0, bottom = 0;
	for (uint32_t i = 0; i < count; i++) {
		const bt_mix_box *box = &boxes[i];
		left = box->x < left ? box->x : left;
		top = box->y < top ? box->y : top;
		right = box->x + box->width > right ? box->x + box->width : right;
		bottom = box->y + box->height > bottom ? box->y + box->height : bottom;
	}
	return (bt_mix_box){left, top, right - left, bottom - top};
}

void bt_mix_cut(const bt_mix_images *images, const bt_mix_box *boxes)
{
	bt_mix_box area = hull(boxes, images->count);
	size_t row_bytes = images->width * images->pixel_bytes;
	size_t end = ((size_t)area.x + (size_t)area.width) * images->pixel_bytes;
	for (uint32_t r = 0; r < images->rows; r++) {
		int64_t y = r % images->height;
		if (y < area.y || y >= (int64_t)area.y + area.height)
			continue;
		for (size_t at = (size_t)area.x * images->pixel_bytes; at < end; at += PART)
			cut_part(images, boxes, (char *)images->data + r * row_bytes, y,
				 (span){at, end - at < PART ? end : at + PART});
	}
}
