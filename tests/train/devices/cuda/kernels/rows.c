/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms of long and of many rows, and gradients of large tables: sizes that the examples of the ops do not have.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support.h"
#include "train/devices/cuda/kernels/kernels.h"

static void free_all(array **arrays)
{
	for (; *arrays; arrays++)
		array_free(*arrays);
}

static array workspace_of(size_t bytes)
{
	return array_make("workspace", DTRAIN_F32, (int64_t)(bytes / sizeof(float)) + 1, 0);
}

/* The statistics in F64 are ref's, so that the gradients are compared alone. */
static void check_norm(int64_t rows, int64_t columns, dtrain_dtype type, bool centered, int shift)
{
	const dtrain_op_attrs attrs = {.norm.epsilon = 1e-5};
	const dtrain_shape whole = dtrain_shape_of(2, (int64_t[]){rows, columns});
	const dtrain_shape row = dtrain_shape_of(1, &columns), column = dtrain_shape_of(1, &rows);
	cuda_row_norm n = {.dtype = type, .rows = rows, .columns = columns, .epsilon = 1e-5, .centered = centered};
	array x = array_random("x", type, rows * columns, shift, -2, 3), x64 = array_as(&x, DTRAIN_F64);
	array gamma = array_random("gamma", DTRAIN_F32, columns, shift, 0.5, 1.5);
	array beta = array_random("beta", DTRAIN_F32, columns, 0, -1, 1);
	array d_y = array_random("d_y", type, x.count, 0, -1, 1), d_y64 = array_as(&d_y, DTRAIN_F64);
	array gamma64 = array_as(&gamma, DTRAIN_F64), beta64 = array_as(&beta, DTRAIN_F64);
	array y = array_make("y", type, x.count, 0), d_x = array_make("d_x", type, x.count, shift);
	array first = array_make("first", DTRAIN_F32, rows, 0), var = array_make("var", DTRAIN_F32, rows, 0);
	array d_gamma = array_make("d_gamma", DTRAIN_F32, columns, 0);
	array d_beta = array_make("d_beta", DTRAIN_F32, columns, 0);
	array y64 = array_make("y64", DTRAIN_F64, x.count, 0), d_x64 = array_make("d_x64", DTRAIN_F64, x.count, 0);
	array first64 = array_make("first64", DTRAIN_F64, rows, 0), var64 = array_make("var64", DTRAIN_F64, rows, 0);
	array d_gamma64 = array_make("d_gamma64", DTRAIN_F64, columns, 0);
	array d_beta64 = array_make("d_beta64", DTRAIN_F64, columns, 0);
	array workspace = workspace_of(cuda_kernel_row_norm_workspace(&n));
	CHECK_CUDA(cuda_kernel_row_norm(NULL, &n, x.memory, gamma.memory, centered ? beta.memory : NULL, y.memory,
					first.memory, centered ? var.memory : NULL));
	/* With an addend, d_x is the addend's memory. */
	array addend = array_random("addend", type, x.count, 0, -4, 4), sum = array_as(&addend, DTRAIN_F64);
	array d_x_sum = array_make("d_x", type, x.count, shift);
	array d_gammas[2] = {d_gamma, array_copy(&d_gamma)}, d_betas[2] = {d_beta, array_copy(&d_beta)};
	for (int64_t i = 0; i < x.count; i++)
		array_set(&d_x_sum, i, array_get(&addend, i));
	for (int adds = 0; adds < 2; adds++) {
		const cuda_row_norm_bwd b = {.x = x.memory,
					     .d_y = d_y.memory,
					     .addend = adds ? d_x_sum.memory : NULL,
					     .gamma = gamma.memory,
					     .first = first.memory,
					     .var = centered ? var.memory : NULL,
					     .d_x = adds ? d_x_sum.memory : d_x.memory,
					     .d_gamma = d_gammas[adds].memory,
					     .d_beta = centered ? d_betas[adds].memory : NULL};
		CHECK_CUDA(cuda_kernel_row_norm_bwd(NULL, &n, &b, workspace.memory));
	}
	array_compare_exact(&d_gammas[1], &d_gamma);
	array_compare_exact(&d_betas[1], &d_beta);
	if (centered) {
		ref_run(DTRAIN_OP_LAYER_NORM, &attrs, 3, 3, (dtrain_shape[]){whole, row, row, whole, column, column},
			(array *[]){&x64, &gamma64, &beta64, &y64, &first64, &var64});
		ref_run(DTRAIN_OP_LAYER_NORM_BWD, &attrs, 5, 3,
			(dtrain_shape[]){whole, whole, row, column, column, whole, row, row},
			(array *[]){&x64, &d_y64, &gamma64, &first64, &var64, &d_x64, &d_gamma64, &d_beta64});
		array_compare(&var, &var64, 1e-4);
		array_compare(&d_beta, &d_beta64, 1e-3);
	} else {
		ref_run(DTRAIN_OP_RMS_NORM, &attrs, 2, 2, (dtrain_shape[]){whole, row, whole, column},
			(array *[]){&x64, &gamma64, &y64, &first64});
		ref_run(DTRAIN_OP_RMS_NORM_BWD, &attrs, 4, 2, (dtrain_shape[]){whole, whole, row, column, whole, row},
			(array *[]){&x64, &d_y64, &gamma64, &first64, &d_x64, &d_gamma64});
	}
	array_compare(&y, &y64, 1e-4);
	array_compare(&first, &first64, 1e-4);
	array_compare(&d_x, &d_x64, 1e-4);
	for (int64_t i = 0; i < x.count; i++)
		array_set(&sum, i, array_get(&sum, i) + array_get(&d_x64, i));
	array_compare(&d_x_sum, &sum, 1e-4);
	array_compare(&d_gamma, &d_gamma64, 1e-3);
	free_all((array *[]){&x,       &x64,   &gamma,   &beta,        &d_y,        &d_y64,    &gamma64,
			     &beta64,  &y,     &d_x,     &first,       &var,        &y64,      &d_x64,
			     &first64, &var64, &d_gamma, &d_beta,      &d_gamma64,  &d_beta64, &workspace,
			     &addend,  &sum,   &d_x_sum, &d_gammas[1], &d_betas[1], NULL});
}

static void norms_of_long_and_of_many_rows_equal_ref(void **state)
{
	(void)state;
	/* Backward a row belongs to 32 threads up to 1024 columns, to 64, 128 or 256 up to 8192, and to a block of its
	 * own above. */
	static const int64_t sizes[][2] = {{2, 1000},  {2, 2048},  {1, 9001},  {2, 9008},  {700, 24}, {1030, 5},
					   {101, 768}, {53, 1024}, {27, 1600}, {13, 4096}, {8, 6144}, {9, 3099}};
	for (int i = 0; i < 12; i++)
		for (int way = 0; way < 4; way++)
			check_norm(sizes[i][0], sizes[i][1], way / 2 ? DTRAIN_BF16 : DTRAIN_F32, way % 2, way == 3);
}

/* ---- tables ---- */

enum { TABLE_ROWS = 70000, COLUMNS = 12, COUNT = 5000 };

/* One row has a third of the gradients, another one just more than one thread adds up, most none. */
static int64_t index_at(int64_t i)
{
	return i % 3 == 0 ? 4097 : i < 100 ? TABLE_ROWS - 1 : i * 7919 % TABLE_ROWS;
}

static array index_of(dtrain_dtype type)
{
	array index = array_make("index", type, COUNT, 0);
	for (int64_t i = 0; i < COUNT; i++)
		if (type == DTRAIN_I64)
			((int64_t *)index.memory)[i] = index_at(i);
		else
			((int32_t *)index.memory)[i] = (int32_t)index_at(i);
	return index;
}

static void check_table(dtrain_dtype type, dtrain_dtype number, int shift, bool adds)
{
	int64_t fault = 0;
	const cuda_table table = {.dtype = type,
				  .weight = DTRAIN_F32,
				  .index = number,
				  .table_rows = TABLE_ROWS,
				  .columns = COLUMNS,
				  .count = COUNT,
				  .fault = &fault,
				  .all = TABLE_ROWS};
	array index = index_of(number), d_y = array_random("d_y", type, COUNT * COLUMNS, shift, -1, 1);
	array addend = array_random("addend", DTRAIN_F32, (int64_t)TABLE_ROWS * COLUMNS, 0, -1, 1);
	array d_w = adds ? array_copy(&addend) : array_make("d_w", DTRAIN_F32, addend.count, 0);
	array again = array_make("again", DTRAIN_F32, addend.count, shift);
	array right = array_make("right", DTRAIN_F64, addend.count, 0);
	array workspace = workspace_of(cuda_kernel_embedding_workspace(&table));
	for (int64_t i = 0; i < addend.count; i++)
		array_set(&right, i, adds ? array_get(&addend, i) : 0);
	for (int64_t i = 0; i < COUNT * COLUMNS; i++) {
		int64_t at = index_at(i / COLUMNS) * COLUMNS + i % COLUMNS;
		array_set(&right, at, array_get(&right, at) + array_get(&d_y, i));
	}
	CHECK_CUDA(cuda_kernel_embedding_bwd(NULL, &table, d_y.memory, index.memory, adds ? d_w.memory : NULL,
					     d_w.memory, workspace.memory));
	CHECK_CUDA(cuda_kernel_embedding_bwd(NULL, &table, d_y.memory, index.memory, adds ? addend.memory : NULL,
					     again.memory, workspace.memory));
	array_compare(&d_w, &right, 2e-5);
	array_compare_exact(&again, &d_w);
	assert_int_equal(fault, 0);
	free_all((array *[]){&index, &d_y, &addend, &d_w, &again, &right, &workspace, NULL});
}

static void gradients_of_large_tables_are_sums(void **state)
{
	(void)state;
	check_table(DTRAIN_F32, DTRAIN_I64, 0, false);
	check_table(DTRAIN_BF16, DTRAIN_I32, 1, true);
}

/* The place of an index outside the table is reported, and its row stays out of the sums. */
static void wrong_indices_are_reported(void **state)
{
	(void)state;
	int64_t fault = 0, index[] = {2, -5, 0, 2};
	const cuda_table table = {.dtype = DTRAIN_F32,
				  .weight = DTRAIN_F32,
				  .index = DTRAIN_I64,
				  .table_rows = 3,
				  .columns = 1,
				  .count = 4,
				  .fault = &fault,
				  .all = 3};
	const float w[] = {1, 2, 3};
	float y[4], d_w[3];
	array workspace = workspace_of(cuda_kernel_embedding_workspace(&table));
	CHECK_CUDA(cuda_kernel_embedding(NULL, &table, w, index, y));
	assert_int_equal(fault, (int64_t)((uint64_t)-5 << 32 | 2));
	assert_true(y[0] == 3 && y[1] == 0 && y[2] == 1 && y[3] == 3);
	fault = 0;
	CHECK_CUDA(cuda_kernel_embedding_bwd(NULL, &table, y, index, NULL, d_w, workspace.memory));
	assert_int_equal(fault, (int64_t)((uint64_t)-5 << 32 | 2));
	assert_true(d_w[0] == 1 && d_w[1] == 0 && d_w[2] == 6);
	array_free(&workspace);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(norms_of_long_and_of_many_rows_equal_ref),
		cmocka_unit_test(gradients_of_large_tables_are_sums),
		cmocka_unit_test(wrong_indices_are_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
