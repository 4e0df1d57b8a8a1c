/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that compress gradients, run on the CPU: codes and pairs have the bits of ref.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support.h"
#include "train/devices/cuda/kernels/kernels.h"

/* Around a thread's eight, a scale's 256, a block's 2048, and what all blocks of a multiprocessor do at once. */
static const int64_t counts[] = {1, 7, 8, 9, 255, 256, 257, 2047, 2048, 2049, 4096, 60001};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

enum numbers { RANDOM, ZEROS, EQUAL, FEW, TINY, TINIEST, HUGE_ONES, INFINITE, NOT_NUMBERS, PAYLOADS, NUMBERS };

static float special(enum numbers kind, int64_t i)
{
	static const uint32_t words[NUMBERS][4] = {
		[INFINITE] = {0x7f800000, 0xff800000, 0x7f7fffff, 0x80000000},
		[NOT_NUMBERS] = {0x7fc00000, 0xffc00000, 0x7f800000, 0x80000000},
		[PAYLOADS] = {0x7fc00000, 0xffc00009, 0x7f800000, 0x7fc00007},
	};
	float value;
	memcpy(&value, &words[kind][i % 4], sizeof(value));
	return value;
}

static array numbers_of(enum numbers kind, int64_t count, int shift)
{
	static const double most[NUMBERS] = {
		[RANDOM] = 2,          [FEW] = 2,      [TINY] = 1e-36,    [TINIEST] = 1e-43,
		[HUGE_ONES] = FLT_MAX, [INFINITE] = 2, [NOT_NUMBERS] = 2, [PAYLOADS] = 2};
	array a = array_random("x", DTRAIN_F32, count, shift, -most[kind], most[kind]);
	for (int64_t i = 0; i < count; i++) {
		if (kind == EQUAL)
			array_set(&a, i, i % 3 ? 0.375 : -0.375);
		if (kind == FEW)
			array_set(&a, i, floor(array_get(&a, i)) / 3);
		if (kind >= INFINITE && i % 97 == count % 97)
			((float *)a.memory)[i] = special(kind, i / 97);
	}
	return a;
}

static dtrain_shape shape_of(int64_t a, int64_t b, int64_t c)
{
	const int64_t dims[] = {a, b, c};
	return dtrain_shape_of(1 + (b > 0) + (c > 0), dims);
}

/* ---- codes ---- */

/* x and its codes, by the kernel and by ref. */
static void check_codes(enum numbers kind, int64_t count, int64_t blocks, int shift)
{
	array x = numbers_of(kind, count, shift), right_x = array_copy(&x);
	array codes = array_make("codes", DTRAIN_U8, blocks * DTRAIN_CODE_BYTES, 4 * shift);
	array right = array_make("codes", DTRAIN_U8, codes.count, 0);
	const dtrain_shape shapes[] = {shape_of(count, 0, 0), shape_of(blocks, DTRAIN_CODE_BYTES, 0),
				       shape_of(count, 0, 0)};
	ref_run(DTRAIN_OP_QUANTIZE, &(dtrain_op_attrs){0}, 1, 2, shapes, (array *[]){&right_x, &right, &right_x});
	CHECK_CUDA(cuda_kernel_quantize(NULL, x.memory, count, codes.memory, blocks));
	array_compare_exact(&codes, &right);
	array_compare_exact(&x, &right_x);
	for (array *free_me[] = {&x, &right_x, &codes, &right, NULL}, **p = free_me; *p; p++)
		array_free(*p);
}

static void codes_have_the_bits_of_ref(void **state)
{
	(void)state;
	/* Which of several NaN the scale becomes is not specified. */
	for (size_t i = 0; i < COUNTS; i++)
		for (int kind = 0; kind < PAYLOADS; kind++)
			for (int shift = 0; shift < 2; shift++) {
				int64_t blocks = (counts[i] + DTRAIN_CODE_BLOCK - 1) / DTRAIN_CODE_BLOCK;
				check_codes(kind, counts[i], blocks + (kind % 3 == 0 ? 0 : 11 * shift + 1), shift);
			}
}

/* Each part has codes of other numbers: a byte of 0 after an infinite scale, too. */
static void check_sum(int64_t count, int64_t parts, int64_t spare, int shift)
{
	int64_t blocks = (count + DTRAIN_CODE_BLOCK - 1) / DTRAIN_CODE_BLOCK + spare, part = blocks * DTRAIN_CODE_BYTES;
	array codes = array_make("codes", DTRAIN_U8, parts * part, 4 * shift);
	array y = array_make("y", DTRAIN_F32, count, shift), right = array_make("y", DTRAIN_F32, count, 0);
	for (int64_t p = 0; p < parts; p++) {
		array x = numbers_of((enum numbers)((p * 7 + parts) % PAYLOADS), count, 0);
		CHECK_CUDA(cuda_kernel_quantize(NULL, x.memory, count, (char *)codes.memory + p * part, blocks));
		array_free(&x);
	}
	const dtrain_shape shapes[] = {shape_of(parts, blocks, DTRAIN_CODE_BYTES), shape_of(count, 0, 0)};
	ref_run(DTRAIN_OP_DEQUANTIZE, &(dtrain_op_attrs){0}, 1, 1, shapes, (array *[]){&codes, &right});
	CHECK_CUDA(cuda_kernel_dequantize(NULL, codes.memory, parts, blocks, y.memory, count));
	/* Which NaN a sum of some is depends on the processor. */
	array_compare(&y, &right, 0);
	for (int64_t i = 0; i < count; i++)
		assert_true(isnan(array_get(&y, i)) || array_get(&y, i) == array_get(&right, i));
	for (array *free_me[] = {&codes, &y, &right, NULL}, **p = free_me; *p; p++)
		array_free(*p);
}

static void sums_of_codes_have_the_bits_of_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNTS; i++)
		for (int64_t parts = 1; parts < 8; parts++)
			check_sum(counts[i], parts, parts % 3, (int)(parts & 1));
}

/* ---- pairs ---- */

static void check_pairs(enum numbers kind, int64_t count, int64_t k, int shift)
{
	array x = numbers_of(kind, count, shift), right_x = array_copy(&x);
	array pairs = array_make("pairs", DTRAIN_U8, k * DTRAIN_PAIR_BYTES, 4 * shift);
	array right = array_make("pairs", DTRAIN_U8, pairs.count, 0);
	array workspace = array_make("workspace", DTRAIN_U8, (int64_t)cuda_kernel_top_k_workspace(count), 4 * shift);
	const dtrain_shape shapes[] = {shape_of(count, 0, 0), shape_of(k, DTRAIN_PAIR_BYTES, 0), shape_of(count, 0, 0)};
	ref_run(DTRAIN_OP_TOP_K, &(dtrain_op_attrs){0}, 1, 2, shapes, (array *[]){&right_x, &right, &right_x});
	CHECK_CUDA(cuda_kernel_top_k(NULL, x.memory, count, pairs.memory, k, workspace.memory));
	array_compare_exact(&pairs, &right);
	array_compare_exact(&x, &right_x);
	for (array *free_me[] = {&x, &right_x, &pairs, &right, &workspace, NULL}, **p = free_me; *p; p++)
		array_free(*p);
}

static void the_largest_are_those_of_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNTS; i++)
		for (int kind = 0; kind < NUMBERS; kind++) {
			const int64_t n = counts[i], ks[] = {1, n / 100, n / 3, n - 1, n};
			for (size_t m = 0; m < sizeof(ks) / sizeof(ks[0]); m++)
				/* All k take long at the largest count: each kind has one there. */
				if (ks[m] > 0 && (i + 1 < COUNTS || (size_t)kind % 5 == m))
					check_pairs(kind, n, ks[m], (int)(m + i) % 2);
		}
	/* Several tiles for each thread that adds them up. */
	check_pairs(FEW, 1100003, 11000, 0);
	check_pairs(RANDOM, 1100003, 550000, 0);
}

static int64_t fault;

/* A part has no index twice, and shares many with the other parts. */
static array make_pairs(int64_t parts, int64_t k, int64_t count)
{
	array pairs = array_make("pairs", DTRAIN_U8, parts * k * DTRAIN_PAIR_BYTES, 0);
	for (int64_t i = 0; i < parts * k; i++) {
		int32_t index = (int32_t)((i % k * (count / k) + i / k) % count);
		float value = (float)(i * 89 % 257) / 7 - 15;
		memcpy((char *)pairs.memory + i * DTRAIN_PAIR_BYTES, &index, sizeof(index));
		memcpy((char *)pairs.memory + i * DTRAIN_PAIR_BYTES + 4, &value, sizeof(value));
	}
	return pairs;
}

static void sums_of_pairs_have_the_bits_of_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNTS; i++)
		for (int64_t parts = 1; parts < 5; parts++) {
			const int64_t count = counts[i], k = parts % 2 ? count : (count + 6) / 7;
			array pairs = make_pairs(parts, k, count);
			array y = array_make("y", DTRAIN_F32, count, (int)(parts & 1));
			array right = array_make("y", DTRAIN_F32, count, 0);
			const dtrain_shape shapes[] = {shape_of(parts, k, DTRAIN_PAIR_BYTES), shape_of(count, 0, 0)};
			ref_run(DTRAIN_OP_SPREAD, &(dtrain_op_attrs){0}, 1, 1, shapes, (array *[]){&pairs, &right});
			CHECK_CUDA(cuda_kernel_add_pairs(NULL, pairs.memory, parts, k, y.memory, count, &fault));
			array_compare_exact(&y, &right);
			assert_int_equal(fault, 0);
			for (array *free_me[] = {&pairs, &y, &right, NULL}, **p = free_me; *p; p++)
				array_free(*p);
		}
}

static void an_index_outside_is_a_fault(void **state)
{
	(void)state;
	static const int32_t outside[] = {-1, 500, INT32_MIN, INT32_MAX};
	for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
		array pairs = make_pairs(2, 400, 500), y = array_make("y", DTRAIN_F32, 500, 0);
		memcpy((char *)pairs.memory + 700 * DTRAIN_PAIR_BYTES, &outside[i], sizeof(outside[i]));
		CHECK_CUDA(cuda_kernel_add_pairs(NULL, pairs.memory, 2, 400, y.memory, 500, &fault));
		assert_int_equal((int32_t)(fault >> 32), outside[i]);
		assert_int_equal((int32_t)fault, 701);
		fault = 0;
		array_free(&pairs);
		array_free(&y);
	}
}

/* ---- orthonormal columns ---- */

/* Most columns become a sum of others, zeros, or not finite, and have to be drawn. */
static void spoil_columns(array *x, int64_t rows, int64_t columns)
{
	for (int64_t i = 0; i < rows; i++)
		for (int64_t c = 1; c < columns; c++) {
			double sum = array_get(x, i * columns) - 2 * array_get(x, i * columns + c - 1);
			const double values[] = {0, array_get(x, i * columns + c), sum, i ? 0.5 : NAN,
						 i ? 0.5 : INFINITY};
			array_set(x, i * columns + c, values[c % 5]);
		}
}

static void require_orthonormal(const array *x, int64_t rows, int64_t columns)
{
	for (int64_t a = 0; a < columns; a++)
		for (int64_t b = 0; b <= a; b++) {
			double sum = 0;
			for (int64_t i = 0; i < rows; i++)
				sum += array_get(x, i * columns + a) * array_get(x, i * columns + b);
			if (!(fabs(sum - (a == b)) <= 1e-5))
				fail_msg("%lld x %lld: columns %lld and %lld: %g", (long long)rows, (long long)columns,
					 (long long)a, (long long)b, sum);
		}
}

static void check_columns(int64_t rows, int64_t columns, bool spoiled, int shift)
{
	array x = array_random("x", DTRAIN_F32, rows * columns, shift, -2, 2);
	if (spoiled)
		spoil_columns(&x, rows, columns);
	array right = array_as(&x, DTRAIN_F64), random = array_make("random", DTRAIN_I64, DTRAIN_RANDOMS, 0);
	for (int i = 0; i < DTRAIN_RANDOMS; i++)
		array_set(&random, i, 11 * i + 5);
	array right_random = array_copy(&random);
	const dtrain_shape of_x = shape_of(rows, columns, 0), of_random = shape_of(DTRAIN_RANDOMS, 0, 0);
	ref_run(DTRAIN_OP_ORTHONORMALIZE, &(dtrain_op_attrs){0}, 2, 2,
		(dtrain_shape[]){of_x, of_random, of_x, of_random},
		(array *[]){&right, &right_random, &right, &right_random});
	CHECK_CUDA(cuda_kernel_orthonormalize(NULL, x.memory, rows, columns, random.memory));
	require_orthonormal(&x, rows, columns);
	array_compare(&x, &right, 2e-4);
	array_compare_exact(&random, &right_random);
	for (array *free_me[] = {&x, &right, &random, &right_random, NULL}, **p = free_me; *p; p++)
		array_free(*p);
}

static void columns_are_those_of_ref(void **state)
{
	(void)state;
	static const int64_t shapes[][2] = {{1, 1},    {2, 1},    {9, 9},    {255, 3},
					    {1023, 4}, {1024, 1}, {1025, 5}, {5001, 7}};
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
		for (int spoiled = 0; spoiled < 2; spoiled++)
			check_columns(shapes[i][0], shapes[i][1], spoiled != 0, spoiled);
	check_columns(40, 40, true, 0);
}

static void a_column_too_many_is_not_a_number(void **state)
{
	(void)state;
	array x = array_random("x", DTRAIN_F32, 2 * 3, 0, -2, 2),
	      random = array_make("random", DTRAIN_I64, DTRAIN_RANDOMS, 0);
	array two = array_make("two", DTRAIN_F32, 4, 0);
	CHECK_CUDA(cuda_kernel_orthonormalize(NULL, x.memory, 2, 3, random.memory));
	for (int i = 0; i < 6; i++)
		if (i % 3 < 2)
			array_set(&two, i / 3 * 2 + i % 3, array_get(&x, i));
		else
			assert_true(isnan(array_get(&x, i)));
	require_orthonormal(&two, 2, 2);
	for (array *free_me[] = {&x, &random, &two, NULL}, **p = free_me; *p; p++)
		array_free(*p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(codes_have_the_bits_of_ref),
		cmocka_unit_test(sums_of_codes_have_the_bits_of_ref),
		cmocka_unit_test(the_largest_are_those_of_ref),
		cmocka_unit_test(sums_of_pairs_have_the_bits_of_ref),
		cmocka_unit_test(an_index_outside_is_a_fault),
		cmocka_unit_test(columns_are_those_of_ref),
		cmocka_unit_test(a_column_too_many_is_not_a_number),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
