/* SPDX-License-Identifier: Apache-2.0
 *
 * A convolution that also makes the sums of its channels, operation by operation, and the batch norm of our kernels
 * that takes them; the ref device gives what is right.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/train/devices/cuda/kernels/numbers.h"
#include "core/op.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/kernels/kernels.h"
#include "operations.h"
#include "reference.h"

const char cuda_nhwc[] = "NHWC", cuda_nhwc_sums[] = "NHWC with sums", cuda_cells_layout[] = "cells",
	   cuda_dnn_private[] = "cuDNN's own";

typedef struct example {
	int64_t n, channels, side, filters;
	int32_t kernel, stride;
	dtrain_fusion fusion;
} example;

/* Operands of both ops; y is the convolution's. */
enum { X, W, Y, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, RESIDUAL, Z, MEAN, VAR, MASK, COUNT };

typedef struct pair {
	dtrain_op_desc conv, norm;
	size_t bytes[COUNT];
	void *plain[COUNT], *cuda[COUNT];
} pair;

static dtrain_operand operand(dtrain_dtype dtype, int ndim, const int64_t *dims)
{
	dtrain_operand made = {.dtype = dtype, .shape = dtrain_shape_of(ndim, dims)};
	made.bytes = (size_t)dtrain_shape_count(&made.shape) * dtrain_dtype_size(dtype);
	return made;
}

static void describe(pair *p, const example *s, dtrain_dtype dtype)
{
	int64_t side = (s->side + 2 * (s->kernel / 2) - s->kernel) / s->stride + 1;
	bool relu = s->fusion != DTRAIN_FUSION_NORM, adds = s->fusion == DTRAIN_FUSION_NORM_ADD_RELU;
	dtrain_operand x = operand(dtype, 4, (int64_t[]){s->n, s->channels, s->side, s->side});
	dtrain_operand w = operand(dtype, 4, (int64_t[]){s->filters, s->channels, s->kernel, s->kernel});
	dtrain_operand y = operand(dtype, 4, (int64_t[]){s->n, s->filters, side, side});
	dtrain_operand c = operand(DTRAIN_F32, 1, &s->filters), mask = y;
	mask.dtype = DTRAIN_U8;
	p->conv = (dtrain_op_desc){.kind = DTRAIN_OP_CONV2D,
				   .attrs.window = {.stride = {s->stride, s->stride},
						    .padding = {s->kernel / 2, s->kernel / 2},
						    .fusion = s->fusion},
				   .num_inputs = 2,
				   .num_outputs = 1,
				   .inputs = {x, w},
				   .outputs = {y}};
	p->norm = (dtrain_op_desc){.kind = DTRAIN_OP_BATCH_NORM_TRAIN,
				   .attrs = {.relu = relu, .norm = {.epsilon = 1e-5, .momentum = 0.1}},
				   .num_inputs = 5 + adds,
				   .num_outputs = 3 + relu,
				   .inputs = {y, c, c, c, c, y},
				   .outputs = {y, c, c, mask}};
	const dtrain_operand *const all[COUNT] = {
		[X] = &x,           [W] = &w,        [Y] = &y, [GAMMA] = &c, [BETA] = &c, [RUNNING_MEAN] = &c,
		[RUNNING_VAR] = &c, [RESIDUAL] = &y, [Z] = &y, [MEAN] = &c,  [VAR] = &c,  [MASK] = &mask};
	for (int i = 0; i < COUNT; i++)
		p->bytes[i] = all[i]->bytes;
	p->bytes[Y] = cuda_sums_offset(&y) + 2 * c.bytes;
}

/* to[n][area][c] = from[n][c][area], or back. */
static void turn(const dtrain_shape *shape, dtrain_dtype dtype, const void *from, void *to, bool to_nhwc)
{
	int64_t channels = shape->dim[1], area = shape->dim[2] * shape->dim[3];
	for (int64_t i = 0; i < dtrain_shape_count(shape); i++) {
		int64_t n = i / (channels * area), c = i / area % channels, at = (n * area + i % area) * channels + c;
		number_set(dtype, to, to_nhwc ? at : i, number_get(dtype, from, to_nhwc ? i : at));
	}
}

static void fill(void *memory, const dtrain_operand *o, double least, double most, unsigned *seed)
{
	for (int64_t i = 0; i < dtrain_shape_count(&o->shape); i++) {
		*seed = *seed * 1664525 + 1013904223;
		number_set(o->dtype, memory, i, least + (most - least) * (*seed >> 8) / 16777216.0);
	}
}

/* The same numbers for both, in each one's layout. */
static void make_operands(pair *p, unsigned *seed)
{
	for (int i = 0; i < COUNT; i++) {
		p->plain[i] = calloc(1, p->bytes[i]);
		p->cuda[i] = calloc(1, p->bytes[i]);
		assert_true(p->plain[i] && p->cuda[i]);
	}
	const dtrain_operand *x = &p->conv.inputs[0], *w = &p->conv.inputs[1], *y = &p->conv.outputs[0];
	fill(p->plain[X], x, -1, 2, seed);
	fill(p->plain[W], w, -0.5, 0.5, seed);
	fill(p->plain[RESIDUAL], y, -1, 1, seed);
	turn(&x->shape, x->dtype, p->plain[X], p->cuda[X], true);
	turn(&w->shape, w->dtype, p->plain[W], p->cuda[W], true);
	turn(&y->shape, y->dtype, p->plain[RESIDUAL], p->cuda[RESIDUAL], true);
	for (int i = GAMMA; i <= RUNNING_VAR; i++) {
		fill(p->plain[i], &p->norm.inputs[1], 0.5, 1.5, seed);
		memcpy(p->cuda[i], p->plain[i], p->bytes[i]);
	}
}

static void norm_operands(void *const *all, const dtrain_op_desc *norm, void **out)
{
	void *const inputs[] = {all[Y], all[GAMMA], all[BETA], all[RUNNING_MEAN], all[RUNNING_VAR], all[RESIDUAL]};
	void *const outputs[] = {all[Z], all[MEAN], all[VAR], all[MASK]};
	memcpy(out, inputs, sizeof(inputs));
	memcpy(out + norm->num_inputs, outputs, sizeof(outputs));
}

static void run_graph(const pair *p)
{
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count = 0;
	beton_error err = {0};
	if (dnn_op_graphs(&p->conv, false, graphs, &count, &err) != BETON_OK || graphs[0]->status != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(count, 1);
	assert_int_equal(graphs[0]->num_operations, 2);
	operations_run run = {.graph = graphs[0]};
	for (int i = 0; i < 3; i++) {
		run.operands[i] = p->cuda[i];
		run.bytes[i] = p->bytes[i];
	}
	operations_do(&run);
	dnn_graph_destroy(graphs[0]);
}

static void run_kernels(pair *p)
{
	dtrain_device device = {.index = 0};
	dtrain_op op = {.device = &device};
	beton_error err = {0};
	void *operands[MAX_OPERANDS];
	dtrain_op_desc desc = p->norm;
	desc.inputs[0].layout = cuda_nhwc_sums;
	desc.inputs[5].layout = desc.outputs[0].layout = desc.outputs[3].layout = cuda_nhwc;
	if (cuda_batch_norm_kernels(&op, &desc, &err) != BETON_OK)
		fail_msg("%s", err.message);
	op.desc = desc;
	void *workspace = calloc(1, desc.workspace_bytes + 1);
	norm_operands(p->cuda, &desc, operands);
	if (op.run(&op, NULL, operands, workspace, &err) != BETON_OK)
		fail_msg("%s", err.message);
	free(workspace);
	op.destroy(op.state);
}

static void compare(const char *what, const dtrain_operand *o, const void *wanted, const void *got, double bound)
{
	for (int64_t i = 0; i < dtrain_shape_count(&o->shape); i++) {
		double a = number_get(o->dtype, wanted, i), b = number_get(o->dtype, got, i);
		if (!(fabs(a - b) <= bound * (1 + fabs(a))))
			fail_msg("%s, element %lld: %.9g instead of %.9g", what, (long long)i, b, a);
	}
}

static void compare_tensor(const char *what, const dtrain_operand *o, const void *wanted, const void *got)
{
	void *turned = calloc(1, o->bytes);
	assert_non_null(turned);
	turn(&o->shape, o->dtype, got, turned, false);
	compare(what, o, wanted, turned, o->dtype == DTRAIN_F16 ? 4e-3 : 3e-2);
	free(turned);
}

static void both_ops_give_what_ref_gives(void **state)
{
	(void)state;
	static const example shapes[] = {
		{3, 3, 13, 16, 7, 2, DTRAIN_FUSION_NORM_RELU},
		{2, 8, 7, 24, 3, 1, DTRAIN_FUSION_NORM_ADD_RELU},
		{2, 16, 6, 8, 1, 2, DTRAIN_FUSION_NORM},
		{1, 5, 4, 40, 3, 2, DTRAIN_FUSION_NORM_RELU},
	};
	static const dtrain_dtype types[] = {DTRAIN_F16, DTRAIN_BF16};
	unsigned seed = 1;
	for (size_t i = 0; i < 2 * sizeof(shapes) / sizeof(shapes[0]); i++) {
		pair p;
		void *operands[MAX_OPERANDS];
		describe(&p, &shapes[i / 2], types[i % 2]);
		make_operands(&p, &seed);
		reference_run(&p.conv, p.plain);
		norm_operands(p.plain, &p.norm, operands);
		reference_run(&p.norm, operands);
		run_graph(&p);
		run_kernels(&p);
		compare_tensor("y", &p.conv.outputs[0], p.plain[Y], p.cuda[Y]);
		compare_tensor("norm", &p.norm.outputs[0], p.plain[Z], p.cuda[Z]);
		static const char *const names[] = {[MEAN] = "mean", [VAR] = "var"};
		for (int k = MEAN; k <= VAR; k++)
			compare(names[k], &p.norm.outputs[1], p.plain[k], p.cuda[k], 1e-3);
		compare("running mean", &p.norm.outputs[1], p.plain[RUNNING_MEAN], p.cuda[RUNNING_MEAN], 1e-4);
		compare("running var", &p.norm.outputs[1], p.plain[RUNNING_VAR], p.cuda[RUNNING_VAR], 1e-4);
		for (int k = 0; k < COUNT; k++) {
			free(p.plain[k]);
			free(p.cuda[k]);
		}
	}
}

/* cuDNN is not called for the others. */
static void other_convolutions_have_no_sums(void **state)
{
	(void)state;
	const example fits = {1, 8, 4, 8, 1, 1, DTRAIN_FUSION_NORM}, odd = {1, 8, 4, 12, 1, 1, DTRAIN_FUSION_NORM};
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count;
	pair p;
	describe(&p, &fits, DTRAIN_F32);
	assert_int_equal(dnn_op_graphs(&p.conv, false, graphs, &count, NULL), BETON_UNSUPPORTED);
	describe(&p, &odd, DTRAIN_F16);
	assert_int_equal(dnn_op_graphs(&p.conv, false, graphs, &count, NULL), BETON_UNSUPPORTED);
	p.conv.attrs.window.fusion = DTRAIN_FUSION_NONE;
	assert_int_equal(dnn_op_graphs(&p.conv, false, graphs, &count, NULL), BETON_OK);
	assert_int_equal(graphs[0]->num_operations, 1);
	dnn_graph_destroy(graphs[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ops_give_what_ref_gives),
		cmocka_unit_test(other_convolutions_have_no_sums),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
