/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows and their opposite, biases, normalization of pictures: run on the CPU and compared with ref.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support.h"
#include "train/devices/cuda/kernels/kernels.h"

/* Batch, rows, columns: one of each, around 8 channels and a block's width, more rows than one block takes. */
static const int64_t matrices[][3] = {{1, 1, 1},    {1, 1, 8},     {1, 7, 3},     {2, 49, 64},   {3, 15, 7},
				      {1, 5000, 1}, {5, 33, 10},   {1, 257, 24},  {1, 1000, 40}, {1, 300, 96},
				      {2, 4, 1000}, {1, 9, 2048},  {1, 4099, 8},  {40, 3, 17},   {1, 31, 257},
				      {4, 64, 256}, {1, 20001, 2}, {1, 40000, 3}, {2, 3000, 96}};
#define MATRICES (sizeof(matrices) / sizeof(matrices[0]))

static array sums_of(const array *x, const int64_t *m, double factor)
{
	array y = array_make("sums", DTRAIN_F64, m[0] * m[2], 0);
	for (int64_t b = 0; b < m[0]; b++)
		for (int64_t c = 0; c < m[2]; c++) {
			double sum = 0;
			for (int64_t r = 0; r < m[1]; r++)
				sum += array_get(x, (b * m[1] + r) * m[2] + c);
			array_set(&y, b * m[2] + c, sum * factor);
		}
	return y;
}

static void check_sums(const int64_t *m, dtrain_dtype from, dtrain_dtype to, int shift)
{
	array x = array_random("x", from, m[0] * m[1] * m[2], shift, -1, 2), y = array_make("y", to, m[0] * m[2], 0);
	size_t bytes = cuda_kernel_column_sums_workspace(m[0], m[1], m[2]);
	array workspace = array_make("workspace", DTRAIN_U8, (int64_t)bytes, 0);
	double factor = 1.0 / (double)m[1];
	array right = sums_of(&x, m, factor);
	CHECK_CUDA(cuda_kernel_column_sums(NULL, x.memory, from, y.memory, to, m[0], m[1], m[2], factor,
					   workspace.memory));
	array_compare(&y, &right, 2e-6);
	array_free(&x);
	array_free(&y);
	array_free(&right);
	array_free(&workspace);
}

/* One matrix; what y has before is added once, also where a sum has several parts. apart: elements between rows, which
 * belong to no sum. */
static void check_added_sums(int64_t rows, int64_t columns, int64_t apart, bool adds, dtrain_dtype from)
{
	int64_t pitch = columns + apart;
	array wide = array_random("x", from, rows * pitch, 0, -1, 2), x = array_make("x", from, rows * columns, 0),
	      y = array_random("y", DTRAIN_F32, columns, 0, 1, 5);
	for (int64_t i = 0; i < x.count; i++)
		array_set(&x, i, array_get(&wide, i / columns * pitch + i % columns));
	array workspace =
		array_make("workspace", DTRAIN_U8, (int64_t)cuda_kernel_column_sums_workspace(1, rows, columns), 0);
	array right = sums_of(&x, (int64_t[]){1, rows, columns}, 1);
	for (int64_t c = 0; adds && c < columns; c++)
		array_set(&right, c, array_get(&right, c) + array_get(&y, c));
	CHECK_CUDA(cuda_kernel_matrix_sums(NULL, wide.memory, from, y.memory, rows, columns, pitch, adds,
					   workspace.memory));
	array_compare(&y, &right, 2e-6 * (double)rows);
	array_free(&wide);
	array_free(&x);
	array_free(&y);
	array_free(&right);
	array_free(&workspace);
}

static void sums_are_added_to_what_is_there(void **state)
{
	(void)state;
	for (size_t i = 0; i < MATRICES; i++)
		for (int t = 0; t < 18; t++)
			check_added_sums(matrices[i][1], matrices[i][2], (int64_t[]){0, 3, 8}[t / 6], t / 3 % 2,
					 test_types[t % 3]);
}

static void column_sums_equal_sums_in_double(void **state)
{
	(void)state;
	int parts = 0;
	for (size_t i = 0; i < MATRICES; i++) {
		for (int t = 0; t < 9; t++)
			check_sums(matrices[i], test_types[t / 3], test_types[t % 3], (int)i % 2 && t % 2);
		parts += cuda_kernel_column_sums_workspace(matrices[i][0], matrices[i][1], matrices[i][2]) > 0;
	}
	assert_true(parts >= 3);
}

static void spread_repeats_rows(void **state)
{
	(void)state;
	for (size_t i = 0; i < MATRICES * 3; i++) {
		const int64_t *m = matrices[i / 3];
		dtrain_dtype type = test_types[i % 3];
		array x = array_random("x", type, m[0] * m[2], 0, -1, 2);
		array y = array_make("y", type, m[0] * m[1] * m[2], (int)i % 2);
		array right = array_make("right", DTRAIN_F64, y.count, 0);
		for (int64_t k = 0; k < y.count; k++)
			array_set(&right, k, array_get(&x, k / m[2] / m[1] * m[2] + k % m[2]) * 0.3);
		CHECK_CUDA(cuda_kernel_spread(NULL, type, x.memory, y.memory, m[0], m[1], m[2], 0.3));
		array_compare(&y, &right, 1e-7);
		array_free(&x);
		array_free(&y);
		array_free(&right);
	}
}

/* in_place: y is x. shift: not 0 has elements read and written one at a time. The sum is rounded to F32, then to the
 * type. */
static void check_bias(const int64_t *m, dtrain_dtype type, int shift, bool in_place)
{
	int64_t rows = m[0] * m[1], columns = m[2];
	array x = array_random("x", type, rows * columns, shift, -1, 2);
	array b = array_random("b", DTRAIN_F32, columns, shift, -1, 1);
	array y = in_place ? array_copy(&x) : array_make("y", type, x.count, 0);
	array right = array_make("right", DTRAIN_F64, x.count, 0);
	for (int64_t i = 0; i < x.count; i++)
		array_set(&right, i, (double)((float)array_get(&x, i) + (float)array_get(&b, i % columns)));
	CHECK_CUDA(cuda_kernel_row_bias(NULL, type, in_place ? y.memory : x.memory, b.memory, y.memory, rows, columns));
	array rounded = array_as(&right, type);
	array_compare_exact(&y, &rounded);
	for (array *p[] = {&x, &b, &y, &right, &rounded, NULL}, **a = p; *a; a++)
		array_free(*a);
}

static void biases_are_added_to_each_row(void **state)
{
	(void)state;
	for (size_t i = 0; i < MATRICES * 9; i++)
		check_bias(matrices[i / 9], test_types[i % 3], i % 9 > 5, i / 3 % 3 == 1);
	float x = 0;
	assert_int_equal(cuda_kernel_row_bias(NULL, DTRAIN_U8, &x, &x, &x, 1, 1), cudaErrorInvalidValue);
}

static void check_normalize(dtrain_dtype type, bool nhwc, int64_t n, int64_t height, int64_t width, int channels,
			    int shift)
{
	static const dtrain_op_attrs attrs = {
		.pixels = {.scale = {0.017f, 0.018f, 0.5f, 3}, .shift = {-2.1f, -2, 7, 0}}};
	int64_t area = height * width;
	dtrain_shape shapes[] = {dtrain_shape_of(4, (int64_t[]){n, height, width, channels}),
				 dtrain_shape_of(4, (int64_t[]){n, channels, height, width})};
	array x = array_random("x", DTRAIN_U8, n * area * channels, shift, 0, 255.99);
	array y = array_make("y", type, x.count, shift), plain = array_make("right", DTRAIN_F64, x.count, 0);
	ref_run(DTRAIN_OP_NORMALIZE, &attrs, 1, 1, shapes, (array *[]){&x, &plain});
	array right = nhwc ? array_turned(&plain, n, channels, area) : array_copy(&plain);
	CHECK_CUDA(cuda_kernel_normalize(NULL, x.memory, y.memory, type, nhwc, n, area, channels, attrs.pixels.scale,
					 attrs.pixels.shift));
	array_compare(&y, &right, 1e-4);
	for (array *p[] = {&x, &y, &plain, &right, NULL}, **a = p; *a; a++)
		array_free(*a);
}

static void normalize_equals_ref(void **state)
{
	(void)state;
	static const int64_t sizes[][3] = {{1, 1, 1}, {2, 4, 4}, {3, 5, 7}, {8, 3, 3}, {2, 32, 32}, {1, 24, 111}};
	for (int i = 0; i < 6; i++)
		for (int channels = 1; channels <= 4; channels++)
			for (int k = 0; k < 12; k++)
				check_normalize(test_types[k % 3], k / 3 % 2, sizes[i][0], sizes[i][1], sizes[i][2],
						channels, k / 6);
	float four[4] = {0};
	assert_int_equal(cuda_kernel_normalize(NULL, NULL, NULL, DTRAIN_F32, true, 1, 1, 5, four, four),
			 cudaErrorInvalidValue);
}

/* Element k of a picture of cells, from the picture in NCHW; zero in the padding and in further channels. */
static double cell_value(const cuda_cell_pictures *p, const array *plain, int64_t k)
{
	int64_t place = k % 8, cell = k / 16, pixel = place / p->channels, channel = place % p->channels;
	int64_t column = cell % p->columns * 2 + pixel - p->padding[1];
	int64_t row = cell / p->columns % p->rows * 2 + k / 8 % 2 - p->padding[0];
	int64_t picture = cell / p->columns / p->rows;
	if (pixel > 1 || column < 0 || column >= p->width || row < 0 || row >= p->height)
		return 0;
	return array_get(plain, ((picture * p->channels + channel) * p->height + row) * p->width + column);
}

static void cells_equal_ref(void **state)
{
	(void)state;
	static const dtrain_op_attrs attrs = {
		.pixels = {.scale = {0.017f, 0.018f, 0.5f, 3}, .shift = {-2.1f, -2, 7, 0}}};
	for (int i = 0; i < 16; i++) {
		cuda_cell_pictures p = {.n = 1 + i % 3,
					.height = 7 + i % 5,
					.width = 8 + i % 4,
					.channels = 1 + i % 4,
					.rows = 5 + i % 2,
					.columns = 6,
					.padding = {i / 4 % 4, i / 3 % 3}};
		dtrain_dtype type = i / 4 % 2 ? DTRAIN_F16 : DTRAIN_BF16;
		dtrain_shape shapes[] = {dtrain_shape_of(4, (int64_t[]){p.n, p.height, p.width, p.channels}),
					 dtrain_shape_of(4, (int64_t[]){p.n, p.channels, p.height, p.width})};
		array x = array_random("x", DTRAIN_U8, dtrain_shape_count(&shapes[0]), 0, 0, 255.99);
		array y = array_make("y", type, p.n * p.rows * p.columns * 16, 0);
		array plain = array_make("right", DTRAIN_F64, x.count, 0),
		      right = array_make("cells", DTRAIN_F64, y.count, 0);
		ref_run(DTRAIN_OP_NORMALIZE, &attrs, 1, 1, shapes, (array *[]){&x, &plain});
		for (int64_t k = 0; k < y.count; k++)
			array_set(&right, k, cell_value(&p, &plain, k));
		CHECK_CUDA(cuda_kernel_normalize_cells(NULL, &p, x.memory, y.memory, type, attrs.pixels.scale,
						       attrs.pixels.shift));
		array_compare(&y, &right, 1e-4);
		for (array *all[] = {&x, &y, &plain, &right, NULL}, **a = all; *a; a++)
			array_free(*a);
	}
	float four[4] = {0};
	cuda_cell_pictures p = {.n = 1, .height = 1, .width = 1, .channels = 3, .rows = 1, .columns = 1};
	assert_int_equal(cuda_kernel_normalize_cells(NULL, &p, NULL, NULL, DTRAIN_F32, four, four),
			 cudaErrorInvalidValue);
	p.channels = 5;
	assert_int_equal(cuda_kernel_normalize_cells(NULL, &p, NULL, NULL, DTRAIN_F16, four, four),
			 cudaErrorInvalidValue);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(column_sums_equal_sums_in_double),
		cmocka_unit_test(sums_are_added_to_what_is_there),
		cmocka_unit_test(spread_repeats_rows),
		cmocka_unit_test(biases_are_added_to_each_row),
		cmocka_unit_test(normalize_equals_ref),
		cmocka_unit_test(cells_equal_ref),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
