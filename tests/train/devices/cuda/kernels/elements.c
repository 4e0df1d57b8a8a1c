/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that move elements or look at one at a time, run on the CPU and compared with ref.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support.h"
#include "train/devices/cuda/kernels/kernels.h"

/* Around the width of a vector, of what a block does at once, and of what all blocks do at once. */
static const int64_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 1023, 1024, 1025, 4096, 8191, 8193, 100003};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* Values that relu and casts must not lose: signed zeros, infinities, NaN, what overflows F16, subnormals, ties. */
static const double special[] = {
	0.0,     -0.0,          INFINITY,     -INFINITY,        NAN,     65504,   65519, 65520, -1e6, 1e-8, -6e-8,
	0x1p-24, 1.0 + 0x1p-11, 1.0 + 0x1p-8, 1.0 + 3 * 0x1p-8, FLT_MAX, 0x1p-140};
#define SPECIAL ((int64_t)(sizeof(special) / sizeof(special[0])))

static array numbers(const char *name, dtrain_dtype dtype, int64_t count, int shift)
{
	array a = array_random(name, dtype, count, shift, -2, 2);
	for (int64_t i = 0; i < SPECIAL && i < count / 2; i++)
		array_set(&a, (i * 7 + name[0]) % count, special[i]);
	return a;
}

static void cast_rounds_to_the_nearest(void **state)
{
	(void)state;
	for (size_t k = 0; k < COUNTS * 9; k++)
		for (int shift = 0; shift < 4; shift++) {
			dtrain_dtype from = test_types[k / 3 % 3], to = test_types[k % 3];
			array x = numbers("x", from, counts[k / 9], shift & 1);
			array y = array_make("y", to, x.count, shift >> 1), right = array_as(&x, to);
			CHECK_CUDA(cuda_kernel_cast(NULL, x.memory, from, y.memory, to, x.count));
			array_compare_exact(&y, &right);
			array_free(&x);
			array_free(&y);
			array_free(&right);
		}
}

static void check_transpose(dtrain_dtype from, dtrain_dtype to, int64_t batch, int64_t rows, int64_t columns, int shift)
{
	array x = numbers("x", from, batch * rows * columns, shift);
	array y = array_make("y", to, x.count, shift);
	array turned = array_turned(&x, batch, rows, columns), right = array_as(&turned, to);
	CHECK_CUDA(cuda_kernel_transpose(NULL, x.memory, from, y.memory, to, batch, rows, columns));
	array_compare_exact(&y, &right);
	array_free(&x);
	array_free(&y);
	array_free(&turned);
	array_free(&right);
}

static void transpose_moves_each_element(void **state)
{
	(void)state;
	static const int64_t sides[] = {1, 2, 3, 9, 31, 32, 33, 49, 63, 64, 65, 129};
	static const int64_t large[][3] = {{1, 3, 5000}, {1, 5000, 3},  {2, 63, 700},
					   {2, 700, 63}, {3, 200, 300}, {300, 2, 2}};
	const int n = sizeof(sides) / sizeof(sides[0]);
	for (int i = 0; i < n * n; i++)
		check_transpose(test_types[i % 3], test_types[i / 3 % 3], 1 + i % 4, sides[i / n], sides[i % n], i % 2);
	for (int i = 0; i < 6 * 9; i++)
		check_transpose(test_types[i % 3], test_types[i / 3 % 3], large[i / 9][0], large[i / 9][1],
				large[i / 9][2], 0);
}

/* Filters and vectors in turn, with 3 elements between them that stay as they are. */
enum { CAST_PARTS = 100 };

static int64_t make_parts(cuda_cast_part *parts, int64_t apart)
{
	static const int64_t filters[][3] = {{16, 8, 9},    {1, 1, 9},     {3, 2, 4},     {2, 900, 9},  {5, 31, 15},
					     {2, 3, 4096},  {1, 70, 2048}, {4, 3, 49},    {1, 5000, 3}, {33, 1, 4},
					     {1, 33, 1089}, {2, 64, 64},   {300, 2, 1025}};
	const int n = sizeof(filters) / sizeof(filters[0]);
	int64_t end = 0;
	for (int i = 0; i < CAST_PARTS; i++) {
		const int64_t *f = i < 2 * n ? filters[i / 2] : filters[i % 5];
		bool turned = i % 2 == 0;
		int64_t count = turned ? f[0] * f[1] * f[2] : counts[i / 2 % (int)(COUNTS - 1)];
		parts[i] = (cuda_cast_part){end, count, turned ? f[1] : 1, turned ? f[2] : 1};
		end += (count + apart + 15) / 16 * 16;
	}
	return end;
}

static void copies_of_parameters_are_made_at_once(void **state)
{
	(void)state;
	cuda_cast_part parts[CAST_PARTS];
	int64_t count = make_parts(parts, 3);
	for (int i = 0; i < 3 * 2; i++) {
		dtrain_dtype to = test_types[i % 3];
		array x = numbers("x", DTRAIN_F32, count, i / 3), y = array_make("y", to, count, i / 3);
		array right = array_copy(&y);
		for (int p = 0; p < CAST_PARTS; p++) {
			const cuda_cast_part *part = &parts[p];
			for (int64_t k = 0; k < part->count; k++) {
				int64_t pixel = k % part->area, channel = k / part->area % part->channels;
				int64_t filter = k / part->area / part->channels;
				array_set(&right,
					  part->first + (filter * part->area + pixel) * part->channels + channel,
					  array_get(&x, part->first + k));
			}
		}
		CHECK_CUDA(cuda_kernel_cast_parts(NULL, x.memory, y.memory, to, parts, CAST_PARTS));
		array_compare_exact(&y, &right);
		array_free(&x);
		array_free(&y);
		array_free(&right);
	}
}

typedef cudaError_t binary(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
			   int64_t count);

static cudaError_t run_relu(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
			    int64_t count)
{
	(void)b;
	return cuda_kernel_relu(stream, dtype, a, y, count);
}

static cudaError_t run_add(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
			   int64_t count)
{
	return cuda_kernel_add(stream, dtype, a, b, y, false, count);
}

static cudaError_t run_add_relu(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
				int64_t count)
{
	return cuda_kernel_add(stream, dtype, a, b, y, true, count);
}

/* It has so few bits that the product is exact in float. */
#define FACTOR 0.375

static cudaError_t run_scale(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
			     int64_t count)
{
	(void)b;
	return cuda_kernel_scale(stream, a, dtype, y, dtype, FACTOR, count);
}

static cudaError_t run_gelu(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
			    int64_t count)
{
	(void)b;
	return cuda_kernel_gelu(stream, dtype, a, y, count);
}

/* allowed: besides the rounding of the type. */
static const struct element_op {
	dtrain_op_kind kind;
	int num_inputs;
	bool relu;
	binary *run;
	double allowed;
} element_ops[] = {
	{DTRAIN_OP_RELU, 1, false, run_relu},
	{DTRAIN_OP_RELU_BWD, 2, false, cuda_kernel_relu_bwd},
	{DTRAIN_OP_ADD, 2, false, run_add},
	{DTRAIN_OP_ADD, 2, true, run_add_relu},
	{DTRAIN_OP_SCALE, 1, false, run_scale},
	{DTRAIN_OP_GELU, 1, false, run_gelu, 3e-7},
	{DTRAIN_OP_GELU_BWD, 2, false, cuda_kernel_gelu_bwd, 6e-7},
};

/* in_place: y is a, as the device table allows for additions. */
static void check_element_op(const struct element_op *op, dtrain_dtype dtype, int64_t count, const int *shifts,
			     bool in_place)
{
	array a = numbers("a", dtype, count, shifts[0]);
	/* An error in proportion to a huge gradient would be none. */
	array b = op->allowed > 0 ? array_random("b", dtype, count, shifts[1], -2, 2)
				  : numbers("b", dtype, count, shifts[1]);
	array y = in_place ? array_copy(&a) : array_make("y", dtype, count, shifts[2]);
	array a64 = array_as(&a, DTRAIN_F64), b64 = array_as(&b, DTRAIN_F64),
	      right = array_make("y", DTRAIN_F64, count, 0);
	dtrain_shape flat = dtrain_shape_of(1, &count), shapes[] = {flat, flat, flat};
	dtrain_op_attrs attrs = {.relu = op->relu};
	if (op->kind == DTRAIN_OP_SCALE)
		attrs.factor = FACTOR;
	ref_run(op->kind, &attrs, op->num_inputs, 1, shapes,
		op->num_inputs == 1 ? (array *[]){&a64, &right} : (array *[]){&a64, &b64, &right});
	CHECK_CUDA(op->run(NULL, dtype, in_place ? y.memory : a.memory, b.memory, y.memory, count));
	array rounded = array_as(&right, dtype);
	/* A result that is not exact in F32 may be rounded the other way. */
	array_compare(&y, op->allowed > 0 ? &right : &rounded, op->allowed);
	for (array *free_me[] = {&a, &b, &y, &a64, &b64, &right, &rounded, NULL}, **p = free_me; *p; p++)
		array_free(*p);
}

static void element_ops_equal_ref(void **state)
{
	(void)state;
	static const int shifts[][3] = {{0, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {1, 1, 1}};
	for (size_t i = 0; i < sizeof(element_ops) / sizeof(element_ops[0]); i++)
		for (size_t k = 0; k < COUNTS; k++)
			for (int t = 0; t < 3; t++)
				for (int s = 0; s < 6; s++)
					check_element_op(&element_ops[i], test_types[t], counts[k], shifts[s % 5],
							 s == 5);
}

static void other_types_are_refused(void **state)
{
	(void)state;
	float f = 0;
	double x = 0, y = 0;
	assert_int_equal(cuda_kernel_relu(NULL, DTRAIN_F64, &x, &y, 1), cudaErrorInvalidValue);
	assert_int_equal(cuda_kernel_scale(NULL, &x, DTRAIN_F64, &y, DTRAIN_F32, 2, 1), cudaErrorInvalidValue);
	assert_int_equal(cuda_kernel_gelu(NULL, DTRAIN_F64, &x, &y, 1), cudaErrorInvalidValue);
	assert_int_equal(cuda_kernel_gelu_bwd(NULL, DTRAIN_I64, &x, &x, &y, 1), cudaErrorInvalidValue);
	assert_int_equal(cuda_kernel_cast(NULL, &x, DTRAIN_F32, &y, DTRAIN_U8, 1), cudaErrorInvalidValue);
	assert_int_equal(cuda_kernel_transpose(NULL, &x, DTRAIN_I64, &y, DTRAIN_F32, 1, 1, 1), cudaErrorInvalidValue);
	assert_int_equal(cuda_kernel_cast_parts(NULL, &f, &y, DTRAIN_F64, &(cuda_cast_part){0, 1, 1, 1}, 1),
			 cudaErrorInvalidValue);
	/* A call without elements succeeds. */
	CHECK_CUDA(cuda_kernel_relu(NULL, DTRAIN_F32, NULL, NULL, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cast_rounds_to_the_nearest),
		cmocka_unit_test(transpose_moves_each_element),
		cmocka_unit_test(copies_of_parameters_are_made_at_once),
		cmocka_unit_test(element_ops_equal_ref),
		cmocka_unit_test(other_types_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
