/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm: run on the CPU and compared with ref.
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

/* Rows, channels: the op cases' sizes, around 8 channels and a block's width, one row to many threads, many chunks. */
static const int64_t matrices[][2] = {{32, 16}, {35, 3},    {27, 5},    {5, 33},   {6, 20},   {2, 1},
				      {2, 8},   {3, 7},     {257, 9},   {129, 24}, {500, 64}, {4099, 8},
				      {9, 264}, {1030, 40}, {70, 1000}, {2600, 96}};
#define MATRICES (sizeof(matrices) / sizeof(matrices[0]))

typedef struct layer {
	cuda_batch_norm g;
	bool residual;
	int shift;
	double mean, deviation; /* of x, about */
	array x, residual_x, d_y, gamma, beta, running_mean, running_var;
	array y, mask, mean_out, var_out, d_x, d_gamma, d_beta, d_residual, workspace;
	/* The same of ref. */
	array x64, residual_x64, d_y64, gamma64, beta64, running_mean64, running_var64;
	array y64, mask64, mean64, var64, d_x64, d_gamma64, d_beta64, d_residual64;
} layer;

static void make_inputs(layer *l)
{
	dtrain_dtype type = l->g.dtype;
	int64_t count = l->g.rows * l->g.channels, channels = l->g.channels;
	l->x = array_random("x", type, count, l->shift, l->mean - 2 * l->deviation, l->mean + 2 * l->deviation);
	l->residual_x = array_random("residual", type, count, l->shift, -1, 1);
	l->d_y = array_random("d_y", type, count, l->shift, -1, 1);
	l->gamma = array_random("gamma", DTRAIN_F32, channels, 1, 0.5, 1.5);
	l->beta = array_random("beta", DTRAIN_F32, channels, 1, -1, 1);
	l->running_mean = array_random("running_mean", DTRAIN_F32, channels, 0, -1, 1);
	l->running_var = array_random("running_var", DTRAIN_F32, channels, 0, 0.5, 2);
	l->x64 = array_as(&l->x, DTRAIN_F64);
	l->residual_x64 = array_as(&l->residual_x, DTRAIN_F64);
	l->d_y64 = array_as(&l->d_y, DTRAIN_F64);
	l->gamma64 = array_as(&l->gamma, DTRAIN_F64);
	l->beta64 = array_as(&l->beta, DTRAIN_F64);
	l->running_mean64 = array_as(&l->running_mean, DTRAIN_F64);
	l->running_var64 = array_as(&l->running_var, DTRAIN_F64);
}

static void make_outputs(layer *l)
{
	dtrain_dtype type = l->g.dtype;
	int64_t count = l->g.rows * l->g.channels, channels = l->g.channels;
	l->y = array_make("y", type, count, l->shift);
	l->mask = array_make("mask", DTRAIN_U8, (int64_t)cuda_kernel_mask_bytes(l->g.rows, channels), 0);
	l->mean_out = array_make("mean", DTRAIN_F32, channels, 0);
	l->var_out = array_make("var", DTRAIN_F32, channels, 0);
	l->d_x = array_make("d_x", type, count, l->shift);
	l->d_gamma = array_make("d_gamma", DTRAIN_F32, channels, 1);
	l->d_beta = array_make("d_beta", DTRAIN_F32, channels, 1);
	l->d_residual = array_make("d_residual", type, count, l->shift);
	l->workspace = array_make("workspace", DTRAIN_U8, (int64_t)cuda_kernel_batch_norm_workspace(&l->g), 0);
	l->y64 = array_make("y", DTRAIN_F64, count, 0);
	l->mask64 = array_make("mask", DTRAIN_U8, count, 0);
	l->mean64 = array_make("mean", DTRAIN_F64, channels, 0);
	l->var64 = array_make("var", DTRAIN_F64, channels, 0);
	l->d_x64 = array_make("d_x", DTRAIN_F64, count, 0);
	l->d_gamma64 = array_make("d_gamma", DTRAIN_F64, channels, 0);
	l->d_beta64 = array_make("d_beta", DTRAIN_F64, channels, 0);
	l->d_residual64 = array_make("d_residual", DTRAIN_F64, count, 0);
}

static void free_layer(layer *l)
{
	for (array *a = &l->x; a <= &l->d_residual64; a++)
		array_free(a);
}

static layer layer_of(const int64_t *size, dtrain_dtype type, bool relu, bool residual, int shift, double mean,
		      double deviation)
{
	layer l = {.g = {type, size[0], size[1], 1e-5, 0.1, relu},
		   .residual = residual,
		   .shift = shift,
		   .mean = mean,
		   .deviation = deviation};
	make_inputs(&l);
	make_outputs(&l);
	return l;
}

static void run_kernels(layer *l)
{
	CHECK_CUDA(cuda_kernel_batch_norm_statistics(NULL, &l->g, l->x.memory, l->mean_out.memory, l->var_out.memory,
						     l->running_mean.memory, l->running_var.memory,
						     l->workspace.memory));
	CHECK_CUDA(cuda_kernel_batch_norm_apply(
		NULL, &l->g, l->x.memory, l->gamma.memory, l->beta.memory, l->mean_out.memory, l->var_out.memory,
		l->residual ? l->residual_x.memory : NULL, l->y.memory, l->g.relu ? l->mask.memory : NULL));
}

static dtrain_op_attrs attrs_of(const layer *l)
{
	return (dtrain_op_attrs){.relu = l->g.relu, .norm = {.epsilon = l->g.epsilon, .momentum = l->g.momentum}};
}

static void run_ref(layer *l)
{
	dtrain_op_attrs attrs = attrs_of(l);
	dtrain_shape x = dtrain_shape_of(2, (int64_t[]){l->g.rows, l->g.channels}),
		     c = dtrain_shape_of(1, &l->g.channels);
	if (l->residual)
		ref_run(DTRAIN_OP_BATCH_NORM_TRAIN, &attrs, 6, 4, (dtrain_shape[]){x, c, c, c, c, x, x, c, c, x},
			(array *[]){&l->x64, &l->gamma64, &l->beta64, &l->running_mean64, &l->running_var64,
				    &l->residual_x64, &l->y64, &l->mean64, &l->var64, &l->mask64});
	else
		ref_run(DTRAIN_OP_BATCH_NORM_TRAIN, &attrs, 5, 3 + l->g.relu,
			(dtrain_shape[]){x, c, c, c, c, x, c, c, x},
			(array *[]){&l->x64, &l->gamma64, &l->beta64, &l->running_mean64, &l->running_var64, &l->y64,
				    &l->mean64, &l->var64, &l->mask64});
}

/* Bits of the mask against y, and against ref's where rounding cannot change them; then ref's, for the backward op. */
static void check_mask(layer *l)
{
	for (int64_t r = 0; r < l->g.rows; r++)
		for (int64_t c = 0; c < l->g.channels; c++) {
			int64_t byte = r * ((l->g.channels + 7) / 8) + c / 8, at = r * l->g.channels + c;
			uint8_t *bits = (uint8_t *)l->mask.memory + byte, bit = (uint8_t)(1u << c % 8);
			bool set = *bits & bit, right = array_get(&l->mask64, at) != 0;
			double y = array_get(&l->y, at);
			if (set != (y > 0) || (set != right && fmax(y, array_get(&l->y64, at)) > 1e-4))
				fail_msg("bit of row %lld, channel %lld is %d; y is %g", (long long)r, (long long)c,
					 set, y);
			*bits = (uint8_t)(right ? *bits | bit : *bits & ~bit);
		}
}

static void check_forward(layer *l)
{
	run_kernels(l);
	run_ref(l);
	array_compare(&l->mean_out, &l->mean64, 1e-6);
	array_compare(&l->var_out, &l->var64, 2e-6);
	array_compare(&l->running_mean, &l->running_mean64, 1e-6);
	array_compare(&l->running_var, &l->running_var64, 2e-6);
	array_compare(&l->y, &l->y64, 1e-5);
	if (l->g.relu)
		check_mask(l);
}

static void check_backward(layer *l)
{
	dtrain_op_attrs attrs = attrs_of(l);
	dtrain_shape x = dtrain_shape_of(2, (int64_t[]){l->g.rows, l->g.channels}),
		     c = dtrain_shape_of(1, &l->g.channels);
	CHECK_CUDA(cuda_kernel_batch_norm_bwd(NULL, &l->g, l->x.memory, l->d_y.memory, l->gamma.memory,
					      l->mean_out.memory, l->var_out.memory, l->g.relu ? l->mask.memory : NULL,
					      l->d_x.memory, l->d_gamma.memory, l->d_beta.memory,
					      l->residual ? l->d_residual.memory : NULL, l->workspace.memory));
	if (l->g.relu)
		ref_run(DTRAIN_OP_BATCH_NORM_BWD, &attrs, 6, 3 + l->residual,
			(dtrain_shape[]){x, x, c, c, c, x, x, c, c, x},
			(array *[]){&l->x64, &l->d_y64, &l->gamma64, &l->mean64, &l->var64, &l->mask64, &l->d_x64,
				    &l->d_gamma64, &l->d_beta64, &l->d_residual64});
	else
		ref_run(DTRAIN_OP_BATCH_NORM_BWD, &attrs, 5, 3, (dtrain_shape[]){x, x, c, c, c, x, c, c},
			(array *[]){&l->x64, &l->d_y64, &l->gamma64, &l->mean64, &l->var64, &l->d_x64, &l->d_gamma64,
				    &l->d_beta64});
	double allowed = 1e-5 + 1e-8 * (double)l->g.rows; /* sums of as many numbers */
	array_compare(&l->d_gamma, &l->d_gamma64, allowed);
	array_compare(&l->d_beta, &l->d_beta64, allowed);
	array_compare(&l->d_x, &l->d_x64, 1e-5);
	if (l->residual)
		array_compare(&l->d_residual, &l->d_residual64, 0);
}

static void training_equals_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < MATRICES; i++)
		for (int k = 0; k < 9; k++) {
			layer l = layer_of(matrices[i], test_types[k % 3], k / 3 > 0, k / 3 > 1, k % 2, 0.5, 1);
			check_forward(&l);
			check_backward(&l);
			free_layer(&l);
		}
}

static void evaluation_equals_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < MATRICES; i++)
		for (int k = 0; k < 9; k++) {
			layer l = layer_of(matrices[i], test_types[k % 3], k / 3 > 0, k / 3 > 1, 0, 0.5, 1);
			dtrain_op_attrs attrs = attrs_of(&l);
			dtrain_shape x = dtrain_shape_of(2, matrices[i]), c = dtrain_shape_of(1, &matrices[i][1]);
			CHECK_CUDA(cuda_kernel_batch_norm_apply(
				NULL, &l.g, l.x.memory, l.gamma.memory, l.beta.memory, l.running_mean.memory,
				l.running_var.memory, l.residual ? l.residual_x.memory : NULL, l.y.memory, NULL));
			array *operands[] = {&l.x64,           &l.gamma64, &l.beta64, &l.running_mean64,
					     &l.running_var64, &l.y64,     NULL};
			if (l.residual) {
				operands[5] = &l.residual_x64;
				operands[6] = &l.y64;
			}
			ref_run(DTRAIN_OP_BATCH_NORM_EVAL, &attrs, 5 + l.residual, 1,
				(dtrain_shape[]){x, c, c, c, c, x, x}, operands);
			array_compare(&l.y, &l.y64, 1e-5);
			free_layer(&l);
		}
}

/* A deviation of 1 at a mean of 1000 and more: the difference of sums would have no right digit. */
static void variance_survives_a_large_mean(void **state)
{
	(void)state;
	static const double means[] = {1000, -30000};
	for (int i = 0; i < 2; i++) {
		layer l = layer_of((int64_t[]){6000, 16}, DTRAIN_F32, false, false, 0, means[i], 1);
		run_kernels(&l);
		run_ref(&l);
		array_compare(&l.mean_out, &l.mean64, 0x1p-24 * fabs(means[i]));
		array_compare(&l.var_out, &l.var64, 16 * 0x1p-24 * fabs(means[i]));
		free_layer(&l);
	}
}

/* ---- the rows of a matrix divided between two ranks, with an empty rank between them ---- */

enum { RANKS = 3 };

typedef struct shared {
	layer l;
	int64_t cut, length;              /* rows of the first rank; numbers of a rank */
	array moments, totals;            /* of all ranks */
	array row, sums, d_gamma, d_beta; /* of one */
} shared;

/* A rank's part of l: its rows, and the offset of its first element in bytes. */
static cuda_batch_norm part_of(const shared *s, int64_t rank, size_t *at)
{
	cuda_batch_norm part = s->l.g;
	part.rows = rank ? s->l.g.rows - s->cut : s->cut;
	*at = rank ? (size_t)(s->cut * part.channels) * dtrain_dtype_size(part.dtype) : 0;
	return part;
}

static void gather_moments(shared *s, int64_t rank)
{
	size_t at;
	cuda_batch_norm part = part_of(s, rank, &at);
	CHECK_CUDA(cuda_kernel_batch_norm_moments(NULL, &part, (char *)s->l.x.memory + at, s->row.memory, RANKS, rank,
						  s->l.workspace.memory));
	for (int64_t i = 0; i < RANKS * s->length; i++)
		if (i / s->length == rank)
			array_set(&s->moments, i, array_get(&s->row, i));
		else
			assert_true(array_get(&s->row, i) == 0);
}

static void add_sums(shared *s, int64_t rank)
{
	size_t at;
	cuda_batch_norm part = part_of(s, rank, &at);
	CHECK_CUDA(cuda_kernel_batch_norm_sums(NULL, &part, (char *)s->l.x.memory + at, (char *)s->l.d_y.memory + at,
					       s->l.mean_out.memory, s->l.var_out.memory, NULL, s->sums.memory,
					       s->d_gamma.memory, s->d_beta.memory, s->l.workspace.memory));
	for (int64_t i = 0; i < s->length; i++)
		array_set(&s->totals, i, array_get(&s->totals, i) + array_get(&s->sums, i));
	assert_true(array_get(&s->sums, 0) == (double)part.rows);
	for (int64_t c = 0; c < part.channels; c++)
		assert_true(array_get(&s->sums, 1 + c) == array_get(&s->d_beta, c) &&
			    array_get(&s->sums, 1 + part.channels + c) == array_get(&s->d_gamma, c));
}

static void compute_gradient(shared *s, int64_t rank)
{
	size_t at;
	cuda_batch_norm part = part_of(s, rank, &at);
	CHECK_CUDA(cuda_kernel_batch_norm_sync_bwd(
		NULL, &part, (char *)s->l.x.memory + at, (char *)s->l.d_y.memory + at, s->l.gamma.memory,
		s->l.mean_out.memory, s->l.var_out.memory, s->totals.memory, NULL, (char *)s->l.d_x.memory + at, NULL));
}

static void compare_with_ref(layer *l)
{
	double lost = 0x1p-24 * fabs(l->mean);
	dtrain_op_attrs attrs = attrs_of(l);
	dtrain_shape x = dtrain_shape_of(2, (int64_t[]){l->g.rows, l->g.channels}),
		     c = dtrain_shape_of(1, &l->g.channels);
	run_ref(l);
	array_compare(&l->mean_out, &l->mean64, 1e-6 + lost);
	array_compare(&l->var_out, &l->var64, 2e-6 + 16 * lost);
	array_compare(&l->running_mean, &l->running_mean64, 1e-6 + lost);
	array_compare(&l->running_var, &l->running_var64, 2e-6 + 16 * lost);
	ref_run(DTRAIN_OP_BATCH_NORM_BWD, &attrs, 5, 3, (dtrain_shape[]){x, x, c, c, c, x, c, c},
		(array *[]){&l->x64, &l->d_y64, &l->gamma64, &l->mean64, &l->var64, &l->d_x64, &l->d_gamma64,
			    &l->d_beta64});
	array_compare(&l->d_x, &l->d_x64, 1e-5 + 16 * lost);
}

static void ranks_equal_one(const int64_t *size, int64_t cut, dtrain_dtype type, double mean)
{
	shared s = {.l = layer_of(size, type, false, false, 0, mean, 1), .cut = cut, .length = 2 * size[1] + 1};
	s.moments = array_random("moments", DTRAIN_F32, RANKS * s.length, 0, 0, 0);
	s.totals = array_random("totals", DTRAIN_F32, s.length, 0, 0, 0);
	s.row = array_copy(&s.moments);
	s.sums = array_copy(&s.totals);
	s.d_gamma = array_copy(&s.l.d_gamma);
	s.d_beta = array_copy(&s.l.d_beta);
	for (int64_t rank = 0; rank < RANKS; rank += 2)
		gather_moments(&s, rank);
	CHECK_CUDA(cuda_kernel_batch_norm_join(NULL, &s.l.g, s.moments.memory, RANKS, s.l.mean_out.memory,
					       s.l.var_out.memory, s.l.running_mean.memory, s.l.running_var.memory));
	for (int64_t rank = 0; rank < RANKS; rank += 2)
		add_sums(&s, rank);
	for (int64_t rank = 0; rank < RANKS; rank += 2)
		compute_gradient(&s, rank);
	compare_with_ref(&s.l);
	for (array *a = &s.moments; a <= &s.d_beta; a++)
		array_free(a);
	free_layer(&s.l);
}

static void parts_of_ranks_equal_the_whole(void **state)
{
	(void)state;
	static const int64_t sizes[][2] = {{35, 3}, {9, 264}, {700, 24}};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ranks_equal_one(sizes[i], 1, test_types[i], 0.5);
		ranks_equal_one(sizes[i], sizes[i][0] * 3 / 4, test_types[(i + 1) % 3], 0.5);
	}
	ranks_equal_one((int64_t[]){2000, 8}, 500, DTRAIN_F32, 1000);
}

/* The reference's result for a constant column: no variance, no NaN. */
static void a_constant_column_has_no_variance(void **state)
{
	(void)state;
	layer l = layer_of((int64_t[]){1000, 24}, DTRAIN_F32, true, false, 0, 0.5, 0);
	array_set(&l.beta, 3, 0); /* y is 0 then, which relu's gradient leaves out */
	array_set(&l.beta64, 3, 0);
	check_forward(&l);
	for (int64_t c = 0; c < 24; c++)
		assert_true(array_get(&l.var_out, c) < 1e-14);
	free_layer(&l);
}

static void outputs_may_be_inputs(void **state)
{
	(void)state;
	layer l = layer_of((int64_t[]){300, 40}, DTRAIN_F16, true, true, 0, 0.5, 1);
	run_ref(&l);
	CHECK_CUDA(cuda_kernel_batch_norm_statistics(NULL, &l.g, l.x.memory, l.mean_out.memory, l.var_out.memory, NULL,
						     NULL, l.workspace.memory));
	array x = array_copy(&l.x), d_y = array_copy(&l.d_y);
	CHECK_CUDA(cuda_kernel_batch_norm_apply(NULL, &l.g, x.memory, l.gamma.memory, l.beta.memory, l.mean_out.memory,
						l.var_out.memory, l.residual_x.memory, x.memory, l.mask.memory));
	array_compare(&x, &l.y64, 1e-5);
	memcpy(l.y.memory, x.memory, (size_t)x.count * 2);
	check_mask(&l);
	check_backward(&l);
	CHECK_CUDA(cuda_kernel_batch_norm_bwd(NULL, &l.g, l.x.memory, d_y.memory, l.gamma.memory, l.mean_out.memory,
					      l.var_out.memory, l.mask.memory, d_y.memory, l.d_gamma.memory,
					      l.d_beta.memory, NULL, l.workspace.memory));
	array_compare_exact(&d_y, &l.d_x);
	array_free(&x);
	array_free(&d_y);
	free_layer(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(training_equals_ref),
		cmocka_unit_test(evaluation_equals_ref),
		cmocka_unit_test(variance_survives_a_large_mean),
		cmocka_unit_test(parts_of_ranks_equal_the_whole),
		cmocka_unit_test(a_constant_column_has_no_variance),
		cmocka_unit_test(outputs_may_be_inputs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
