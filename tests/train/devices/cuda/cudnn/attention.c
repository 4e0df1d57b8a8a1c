/* SPDX-License-Identifier: Apache-2.0
 *
 * cuDNN's graphs of attention, computed operation by operation, and compared with the ref device.
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
#include "operations.h"
#include "reference.h"

/* ---- ops ---- */

typedef struct shape {
	int64_t batch, queries, keys, dim;
	dtrain_attention_attrs attrs;
	dtrain_dtype dtype;
} shape;

static dtrain_operand operand(dtrain_dtype dtype, int64_t a, int64_t b, int64_t c)
{
	dtrain_operand made = {.dtype = dtype, .shape = dtrain_shape_of(3, (int64_t[]){a, b, c})};
	made.bytes = (size_t)dtrain_shape_count(&made.shape) * dtrain_dtype_size(dtype);
	return made;
}

static dtrain_op_desc describe(const shape *s, bool backward)
{
	const dtrain_attention_attrs *a = &s->attrs;
	int64_t packed = (a->heads + 2 * a->kv_heads) * s->dim;
	dtrain_operand q = operand(s->dtype, s->batch, s->queries, a->packed ? packed : a->heads * s->dim);
	dtrain_operand k = operand(s->dtype, s->batch, s->keys, a->packed ? packed : a->kv_heads * s->dim);
	dtrain_operand y = operand(s->dtype, s->batch, s->queries, a->heads * s->dim);
	dtrain_operand lse = operand(DTRAIN_F32, s->batch, a->heads, s->queries);
	if (backward)
		return (dtrain_op_desc){.kind = DTRAIN_OP_ATTENTION_BWD,
					.attrs.attention = *a,
					.num_inputs = 6,
					.num_outputs = a->packed ? 1 : 3,
					.inputs = {q, k, k, y, y, lse},
					.outputs = {q, k, k}};
	return (dtrain_op_desc){.kind = DTRAIN_OP_ATTENTION,
				.attrs.attention = *a,
				.num_inputs = 3,
				.num_outputs = 2,
				.inputs = {q, k, k},
				.outputs = {y, lse}};
}

static const dtrain_operand *operand_of(const dtrain_op_desc *desc, int i)
{
	return i < desc->num_inputs ? &desc->inputs[i] : &desc->outputs[i - desc->num_inputs];
}

static void compare_outputs(const dtrain_op_desc *desc, int variant, void *const *wanted, void *const *got)
{
	for (int i = desc->num_inputs; i < desc->num_inputs + desc->num_outputs; i++) {
		const dtrain_operand *o = operand_of(desc, i);
		double bound = o->dtype == DTRAIN_F32 ? 1e-5 : o->dtype == DTRAIN_F16 ? 4e-3 : 3e-2;
		for (int64_t k = 0; k < dtrain_shape_count(&o->shape); k++) {
			double right = number_get(o->dtype, wanted[i], k), number = number_get(o->dtype, got[i], k);
			if (!(fabs(number - right) <= bound * (1 + fabs(right))))
				fail_msg("op %s, graph %d, operand %d, element %lld: %.9g instead of %.9g",
					 dtrain__op_name(desc->kind), variant, i, (long long)k, number, right);
		}
	}
}

/* Runs a graph on ref's inputs, and compares the outputs with ref's. */
static void compare(const dtrain_op_desc *desc, int variant, const dnn_graph *graph, void *const *operands)
{
	operations_run r = {.graph = graph, .bytes[DNN_SCRATCH] = graph->scratch_bytes};
	for (int i = 0; i < desc->num_inputs + desc->num_outputs; i++) {
		r.bytes[i] = operand_of(desc, i)->bytes;
		r.operands[i] = i < desc->num_inputs ? operands[i] : calloc(1, r.bytes[i]);
		assert_non_null(r.operands[i]);
	}
	r.operands[DNN_SCRATCH] = malloc(graph->scratch_bytes + 1);
	assert_non_null(r.operands[DNN_SCRATCH]);
	memset(r.operands[DNN_SCRATCH], 0xff, graph->scratch_bytes);
	operations_do(&r);
	compare_outputs(desc, variant, operands, r.operands);
	for (int i = desc->num_inputs; i < desc->num_inputs + desc->num_outputs; i++)
		free(r.operands[i]);
	free(r.operands[DNN_SCRATCH]);
}

/* All graphs of the op. The graphs of gradients sum d_q in scratch memory and without it; with a mask, in two orders.
 */
static void compare_all(const dtrain_op_desc *desc, void *const *operands)
{
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count = 0, with_scratch = 0;
	beton_error err = {0};
	bool backward = desc->kind == DTRAIN_OP_ATTENTION_BWD, causal = desc->attrs.attention.causal;
	if (dnn_op_graphs(desc, false, graphs, &count, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(count, !backward ? 1 : causal ? 4 : 2);
	for (int i = 0; i < count; i++) {
		if (graphs[i]->status != BETON_OK)
			fail_msg("%s", graphs[i]->error.message);
		compare(desc, i, graphs[i], operands);
		with_scratch += graphs[i]->scratch_bytes > 0;
	}
	assert_int_equal(with_scratch, backward ? count / 2 : 0);
	while (count > 0)
		dnn_graph_destroy(graphs[--count]);
}

/* Numbers in -1 ... 1 without a pattern. */
static void *numbers(const dtrain_operand *operand, unsigned *seed)
{
	void *made = calloc(1, operand->bytes);
	assert_non_null(made);
	for (int64_t i = 0; i < dtrain_shape_count(&operand->shape); i++) {
		*seed = *seed * 1664525 + 1013904223;
		number_set(operand->dtype, made, i, (*seed >> 8) / 8388608.0 - 1);
	}
	return made;
}

static void both_directions_are_ref_s(void **state)
{
	(void)state;
	static const shape shapes[] = {
		{2, 7, 7, 8, {.heads = 4, .kv_heads = 2, .causal = true, .packed = true}, DTRAIN_BF16},
		{1, 5, 5, 16, {.heads = 2, .kv_heads = 2, .packed = true, .scale = 0.7}, DTRAIN_F16},
		{2, 6, 6, 8, {.heads = 3, .kv_heads = 3, .causal = true}, DTRAIN_F16},
		{1, 3, 9, 24, {.heads = 6, .kv_heads = 2}, DTRAIN_BF16},
	};
	unsigned seed = 1;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const dtrain_op_desc forward = describe(&shapes[i], false), backward = describe(&shapes[i], true);
		/* Where they are packed nothing but the first is read, so the others are of other numbers here. */
		void *q = numbers(&forward.inputs[0], &seed), *k = numbers(&forward.inputs[1], &seed);
		void *v = numbers(&forward.inputs[1], &seed), *d_y = numbers(&forward.outputs[0], &seed);
		void *y = calloc(1, forward.outputs[0].bytes), *lse = calloc(1, forward.outputs[1].bytes);
		void *d_q = calloc(1, backward.outputs[0].bytes), *d_k = calloc(1, backward.inputs[1].bytes);
		void *d_v = calloc(1, backward.inputs[1].bytes);
		void *in_order[] = {q, k, v, y, lse}, *backwards[] = {q, k, v, y, d_y, lse, d_q, d_k, d_v};
		reference_run(&forward, in_order);
		compare_all(&forward, in_order);
		reference_run(&backward, backwards);
		compare_all(&backward, backwards);
		for (int n = 0; n < 9; n++)
			free(backwards[n]);
	}
}

/* Operands that no engine is asked for. */
static void other_attention_has_no_graph(void **state)
{
	(void)state;
	const shape fits = {1, 8, 8, 8, {.heads = 2, .kv_heads = 1, .causal = true}, DTRAIN_BF16};
	shape f32 = fits, odd = fits, large = fits, more_keys = fits;
	f32.dtype = DTRAIN_F32;
	odd.dim = 12;
	large.dim = 136;
	more_keys.keys = 9;
	dtrain_op_desc segments = describe(&fits, false), wide = describe(&large, false);
	segments.num_inputs = 4;
	segments.inputs[3] = (dtrain_operand){.dtype = DTRAIN_I32, .shape = dtrain_shape_of(2, (int64_t[]){1, 8})};
	const dtrain_op_desc none[] = {describe(&f32, false), describe(&odd, true), describe(&large, true),
				       describe(&more_keys, false), segments};
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count;
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++)
		assert_int_equal(dnn_op_graphs(&none[i], false, graphs, &count, NULL), BETON_UNSUPPORTED);
	assert_int_equal(dnn_op_graphs(&wide, false, graphs, &count, NULL), BETON_OK);
	dnn_graph_destroy(graphs[0]);
}

/* Older versions may access memory outside. */
static void gradients_of_partial_tiles_need_cudnn_9_15_1(void **state)
{
	(void)state;
	shape all[] = {{1, 256, 256, 8, {.heads = 1, .kv_heads = 1}, DTRAIN_BF16},
		       {1, 256, 200, 8, {.heads = 1, .kv_heads = 1}, DTRAIN_BF16}};
	for (int old = 0; old < 2; old++) {
		operations_version = old ? 91500 : 91501;
		for (int partial = 0; partial < 2; partial++) {
			const dtrain_op_desc forward = describe(&all[partial], false),
					     backward = describe(&all[partial], true);
			assert_true(dnn_attention_is_suitable(&forward));
			assert_int_equal(dnn_attention_is_suitable(&backward), !(old && partial));
		}
	}
	operations_version = 91900;
}

/* Two that differ in anything an engine depends on are not taken for each other. */
static void signatures_tell_graphs_apart(void **state)
{
	(void)state;
	shape all[] = {{1, 8, 8, 8, {.heads = 2, .kv_heads = 2}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2}, DTRAIN_F16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2, .causal = true}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2, .packed = true}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 2, .scale = 1}, DTRAIN_BF16},
		       {1, 8, 8, 8, {.heads = 2, .kv_heads = 1}, DTRAIN_BF16}};
	enum { COUNT = sizeof(all) / sizeof(all[0]) };
	dnn_graph *graphs[2 * COUNT * DNN_MAX_VARIANTS];
	int num_graphs = 0;
	for (int i = 0; i < 2 * COUNT; i++) {
		const dtrain_op_desc desc = describe(&all[i / 2], i % 2);
		dnn_graph *of_op[DNN_MAX_VARIANTS];
		int count;
		assert_int_equal(dnn_op_graphs(&desc, false, of_op, &count, NULL), BETON_OK);
		for (int k = 0; k < count; k++)
			graphs[num_graphs++] = of_op[k];
	}
	for (int i = 0; i < num_graphs; i++)
		for (int k = 0; k < i; k++)
			assert_string_not_equal(graphs[i]->signature, graphs[k]->signature);
	while (num_graphs > 0)
		dnn_graph_destroy(graphs[--num_graphs]);
}

/* All kernels' gradients are tried where that is soon won back. */
static void more_is_tried_for_large_gradients(void **state)
{
	(void)state;
	const shape small = {2, 64, 64, 64, {.heads = 4, .kv_heads = 4}, DTRAIN_BF16};
	shape large = small;
	large.queries = large.keys = 1024;
	large.batch = 8;
	const dtrain_op_desc ops[] = {describe(&small, true), describe(&large, false), describe(&large, true)};
	for (int i = 0; i < 3; i++) {
		dnn_limits limits = dnn_op_limits(&ops[i]);
		assert_int_equal(limits.extended, i == 2);
		assert_in_range(limits.compiled, 1, DNN_MAX_COMPILED);
		assert_in_range(limits.candidates, limits.compiled, DNN_MAX_CANDIDATES);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_directions_are_ref_s),
		cmocka_unit_test(other_attention_has_no_graph),
		cmocka_unit_test(gradients_of_partial_tiles_need_cudnn_9_15_1),
		cmocka_unit_test(signatures_tell_graphs_apart),
		cmocka_unit_test(more_is_tried_for_large_gradients),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
