/* SPDX-License-Identifier: Apache-2.0
 *
 * The cpu device's inner loops for other kinds of processors give the same results as this one's, which the tests of
 * ops compare with ref. Loops in F16 give the bits of common/half.h on all.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/device.h>

#include "common/half.h"
#include "common/isa.h"
#include "devices/cpu/vector.h"

enum { MOST = 96, ARRAYS = 6 };

/* Arrays that a function reads and writes; the same at first for all kinds of processors. */
typedef struct arrays {
	float of[ARRAYS][MOST], numbers[4];
} arrays;

static arrays fresh(void)
{
	arrays a = {.numbers = {0}};
	uint32_t state = 7;
	for (int i = 0; i < ARRAYS * MOST; i++) {
		state = state * 1664525u + 1013904223u;
		a.of[i / MOST][i % MOST] = 4 * ((float)(state >> 8) * 0x1p-23f - 1);
	}
	return a;
}

typedef void trial(const cpu_vector *v, arrays *a, int64_t n);

static void sums(const cpu_vector *v, arrays *a, int64_t n)
{
	a->numbers[0] = v->f32->dot(a->of[0], a->of[1], n);
	v->f32->scale(a->of[2], a->of[0], 0.7f, n);
	v->f32->add(a->of[3], a->of[0], n);
	v->f32->add_rows(a->of[4], a->of[0], n % 5, MOST, n);
}

static void norms(const cpu_vector *v, arrays *a, int64_t n)
{
	v->f32->layer_norm(a->of[2], a->of[0], a->of[1], n % 2 ? a->of[3] : NULL, n, 1e-5f, &a->numbers[0],
			   &a->numbers[1]);
	v->f32->rms_norm(a->of[4], a->of[0], a->of[1], n, 1e-5f, &a->numbers[2]);
}

static void norms_back(const cpu_vector *v, arrays *a, int64_t n)
{
	v->f32->layer_norm_back(a->of[0], a->of[1], n % 2 ? a->of[2] : NULL, a->of[3], a->of[4],
				n % 3 ? a->of[0] : NULL, a->of[5], n, 0.3f, 0.8f);
	v->f32->rms_norm_back(a->of[4], a->of[2], a->of[3], a->of[0], n % 3 ? NULL : a->of[4], a->of[5], n, 0.8f);
}

static void activations(const cpu_vector *v, arrays *a, int64_t n)
{
	a->of[0][0] = 60;
	a->of[1][0] = -60;
	v->f32->activate(a->of[2], a->of[0], n, CPU_GELU);
	v->f32->activate(a->of[3], a->of[0], n, CPU_GELU_TANH);
	v->f32->activate(a->of[4], a->of[1], n, CPU_SILU);
	v->f32->activate(a->of[1], a->of[1], n, CPU_RELU);
}

static void activations_back(const cpu_vector *v, arrays *a, int64_t n)
{
	a->of[0][0] = 60;
	a->of[1][0] = -60;
	a->of[0][1] = NAN;
	v->f32->activate_back(a->of[2], a->of[0], a->of[5], n, CPU_GELU);
	v->f32->activate_back(a->of[3], a->of[0], a->of[5], n, CPU_GELU_TANH);
	v->f32->activate_back(a->of[4], a->of[1], a->of[5], n, CPU_SILU);
}

static void gates(const cpu_vector *v, arrays *a, int64_t n)
{
	v->f32->swiglu(a->of[2], a->of[0], a->of[1], n);
	v->f32->swiglu_back(a->of[3], a->of[4], a->of[0], a->of[1], a->of[5], n);
}

static void softmax(const cpu_vector *v, arrays *a, int64_t n)
{
	v->softmax_sums(a->of[0], n, &a->numbers[0], &a->numbers[1], &a->numbers[2]);
	v->softmax_gradient(a->of[0], n, a->numbers[0], 1 / a->numbers[1], 0.01f, 2);
}

static void rotations(const cpu_vector *v, arrays *a, int64_t n)
{
	int64_t head = n / 4 * 2;
	if (head)
		v->f32->rotate(a->of[2], a->of[0], 2 * head, head, n % 2, a->of[3], a->of[4]);
}

/* Memory after a row's columns, as far as a vector reaches, does not matter. */
static void clear_rest(float *rows, int64_t columns)
{
	for (int64_t i = 0; i < 2 * MOST; i++)
		rows[i] = i % MOST < columns ? rows[i] : 0;
}

/* Two rows of scores in two blocks; the second row does not have all columns. */
static void attention(const cpu_vector *v, arrays *a, int64_t n)
{
	int32_t segment[MOST];
	int64_t bound[2];
	float most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
	for (int i = 0; i < MOST; i++)
		segment[i] = i / 5 % 2;
	cpu_scores block = {.scores = a->of[0], .step = MOST, .rows = 2, .columns = n, .bound = bound, .scale = 0.9f};
	bound[0] = n;
	bound[1] = n / 2;
	v->attend(&block, most, sum, a->of[4]);
	block.scores = a->of[2];
	block.row_segment = block.column_segment = segment;
	v->attend(&block, most, sum, a->of[4] + 2);
	clear_rest(a->of[0], n);
	clear_rest(a->of[2], n);
	memcpy(a->numbers, most, sizeof(most));
	memcpy(a->numbers + 2, sum, sizeof(sum));
}

static void attention_back(const cpu_vector *v, arrays *a, int64_t n)
{
	const int64_t bound[2] = {-3, n / 3};
	cpu_scores block = {.scores = a->of[0], .step = MOST, .rows = 2, .columns = n, .bound = bound, .scale = 0.9f};
	v->attend_back(&block, a->of[2], a->of[4], a->of[5], 0.6f);
	clear_rest(a->of[0], n);
	clear_rest(a->of[2], n);
}

static void drops(const cpu_vector *v, arrays *a, int64_t n)
{
	const int64_t random[DTRAIN_RANDOMS] = {0x123456789abcdef, 42, 0, 1};
	v->f32->dropout(a->of[2], a->of[0], n, 0x3fffffffdULL * (uint64_t)n, random, 9, 1u << 30, 1.25f);
}

/* The first arrays hold rows in BF16, whose results are F32 sums or rounded to BF16 in the fourth. */
static void halves(const cpu_vector *v, arrays *a, int64_t n)
{
	uint16_t *x = (uint16_t *)a->of[1], *y = (uint16_t *)a->of[2];
	a->of[0][0] = NAN;
	a->of[0][1] = INFINITY;
	a->of[0][2] = 3.40282347e38f;
	v->bf16->narrow(x, a->of[0], 1, n);
	v->bf16->add(a->of[3], x, n);
	if (n > 3)
		a->numbers[2] = v->bf16->dot(x + 3, x + 3, n - 3);
	v->bf16->scale(y, x, 0.7f, n);
	v->bf16->widen(a->of[0], y, n);
	v->bf16->narrow(x, a->of[4], 1, n);
	v->bf16->layer_norm(y, x, a->of[5], NULL, n, 1e-5f, &a->numbers[0], &a->numbers[1]);
	memset(x, 0, sizeof(a->of[1]));
	v->bf16->widen(a->of[4], y, n);
	memset(y, 0, sizeof(a->of[2]));
}

static void expect_near(const arrays *a, const arrays *b, const char *kind, int index, int64_t n)
{
	const float *x = a->of[0], *y = b->of[0];
	for (size_t i = 0; i < sizeof(*a) / sizeof(float); i++) {
		if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])))
			continue;
		/* The difference of two sums is compared with the terms. */
		if (!(fabs((double)x[i] - (double)y[i]) <= 2e-5 * (fabs((double)y[i]) + 1)))
			fail_msg("%s, trial %d of %d elements: number %zu is %.9g, not %.9g", kind, index, (int)n, i,
				 (double)x[i], (double)y[i]);
	}
}

/* ---- F16: the bits of common/half.h ---- */

/* No multiple of a vector, so that a call ends with a part of one. */
enum { FLOATS = 1021 };

static float float_of(uint32_t bits)
{
	float value;
	memcpy(&value, &bits, sizeof(value));
	return value;
}

static void check_narrow(const cpu_vector *v, const char *kind, const float *values, int count)
{
	uint16_t halves[FLOATS];
	v->f16->narrow(halves, values, 1, count);
	for (int i = 0; i < count; i++)
		if (halves[i] != bt_float16(values[i]))
			fail_msg("%s: %a becomes 0x%04x, not 0x%04x", kind, (double)values[i], halves[i],
				 bt_float16(values[i]));
}

static void check_widen(const cpu_vector *v, const char *kind)
{
	for (uint32_t first = 0; first < 0x10000; first += FLOATS) {
		uint16_t halves[FLOATS];
		float wide[FLOATS];
		int count = 0x10000 - first < FLOATS ? (int)(0x10000 - first) : FLOATS;
		for (int i = 0; i < count; i++)
			halves[i] = (uint16_t)(first + (uint32_t)i);
		v->f16->widen(wide, halves, count);
		for (int i = 0; i < count; i++) {
			float right = bt_widen_float16(halves[i]);
			if (memcmp(&wide[i], &right, sizeof(right)) != 0)
				fail_msg("%s: 0x%04x becomes %a, not %a", kind, halves[i], (double)wide[i],
					 (double)right);
		}
	}
}

/* Every number of F16, the middle between it and the next one, and the floats next to that middle; then floats of all
 * sizes, which end with NaN. */
static void check_halves(const cpu_vector *v, const char *kind)
{
	float values[FLOATS];
	int count = 0;
	check_widen(v, kind);
	for (uint32_t bits = 0; bits < 0x10000; bits++) {
		float value = bt_widen_float16((uint16_t)bits), next = bt_widen_float16((uint16_t)(bits + 1));
		float end = isinf(next) ? copysignf(65536, value) : next, middle = (value + end) / 2;
		const float some[] = {value, middle, nextafterf(middle, 0), nextafterf(middle, 2 * middle)};
		for (int i = 0; i < 4; i++) {
			values[count++] = some[i];
			if (count == FLOATS)
				check_narrow(v, kind, values, count);
			count %= FLOATS;
		}
	}
	check_narrow(v, kind, values, count);
	for (uint64_t bits = 0; bits < 1ULL << 32; bits += 1021 * FLOATS) {
		for (uint64_t i = 0; i < FLOATS; i++)
			values[i] = float_of((uint32_t)(bits + 1021 * i));
		check_narrow(v, kind, values, FLOATS);
	}
}

/* ---- the kinds of processors ---- */

static void compare(const cpu_vector *v, const char *kind)
{
	check_halves(v, kind);
	static trial *const trials[] = {sums,  norms,   norms_back, activations, activations_back,
					gates, softmax, rotations,  attention,   attention_back,
					drops, halves};
	for (int i = 0; i < (int)(sizeof(trials) / sizeof(trials[0])); i++)
		for (int64_t n = 1; n <= 70; n++) {
			arrays got = fresh(), right = fresh();
			trials[i](v, &got, n);
			trials[i](cpu_vector_find(), &right, n);
			expect_near(&got, &right, kind, i, n);
		}
}

static void any_processor_computes_the_same(void **state)
{
	(void)state;
	compare(&cpu_vector_base, "base");
}

static void avx2_computes_the_same(void **state)
{
	(void)state;
#ifdef __x86_64__
	if (bt_isa_level() >= BT_ISA_AVX2) {
		compare(&cpu_vector_avx2, "avx2");
		return;
	}
#endif
	fprintf(stderr, "this processor has no AVX2, or " BT_ISA_VARIABLE " takes it away\n");
	skip();
}

static void this_processor_rounds_as_the_others(void **state)
{
	(void)state;
	check_halves(cpu_vector_find(), "this processor");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(this_processor_rounds_as_the_others),
		cmocka_unit_test(any_processor_computes_the_same),
		cmocka_unit_test(avx2_computes_the_same),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
