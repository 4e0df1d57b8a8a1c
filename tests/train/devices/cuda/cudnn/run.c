/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda device's work around cuDNN: layouts, types, statistics, workspaces. In cuDNN's place the ref device
 * computes, on the memory of the host, in the layouts and types that the graph promises; our kernels are compiled for
 * the CPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/train/devices/cuda/kernels/numbers.h"
#include "cases.h"
#include "core/op.h"
#include "devices/cuda/autotune.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/cudnn/dnn_run.h"
#include "devices/cuda/kernels/kernels.h"

enum { MAX_OPERANDS = 2 * DTRAIN_OP_MAX_OPERANDS, GUARD = 64 };

const char cuda_nhwc[] = "NHWC", cuda_nhwc_sums[] = "NHWC with sums", cuda_cells_layout[] = "cells",
	   cuda_dnn_private[] = "cuDNN's own";

static dtrain_device *ref;
static dtrain_stream *ref_stream;
static const dtrain_device_api *ref_api;

/* The next behaviour of the engine in cuDNN's place. */
static struct {
	dtrain_op_desc desc;
	int variant;                   /* of the graphs */
	bool unsupported, no_backward; /* no engine */
	bool slow;                     /* our kernels are faster */
	bool sums_nothing;             /* no engine makes sums of channels */
	bool adds_nothing;             /* no engine adds to what its result's memory holds */
	bool in_place;                 /* what is added to is in the result's memory, where layouts allow */
	int runs, kernels;
} engine;

static int64_t count_of(const dtrain_operand *operand)
{
	return dtrain_shape_count(&operand->shape);
}

static dtrain_operand *operand_of(dtrain_op_desc *desc, int index)
{
	return index < desc->num_inputs ? &desc->inputs[index] : &desc->outputs[index - desc->num_inputs];
}

static int num_operands(const dtrain_op_desc *desc)
{
	return desc->num_inputs + desc->num_outputs;
}

static void *take(size_t bytes)
{
	void *memory = calloc(1, bytes + GUARD);
	assert_non_null(memory);
	memset((char *)memory + bytes, 0xa5, GUARD);
	return memory;
}

/* Gives the memory back, and checks that its end was not written. */
static void give(void *memory, size_t bytes)
{
	for (int i = 0; i < GUARD; i++)
		assert_int_equal(((unsigned char *)memory)[bytes + i], 0xa5);
	free(memory);
}

/* to[n][hw][c] = from[n][c][hw], or back. */
static void turn(const dtrain_shape *shape, size_t size, const void *from, void *to, bool to_nhwc)
{
	int64_t channels = shape->dim[1], area = shape->dim[2] * shape->dim[3];
	for (int64_t n = 0; n < shape->dim[0]; n++)
		for (int64_t c = 0; c < channels; c++)
			for (int64_t i = 0; i < area; i++) {
				size_t nchw = (size_t)((n * channels + c) * area + i) * size;
				size_t nhwc = (size_t)((n * area + i) * channels + c) * size;
				memcpy((char *)to + (to_nhwc ? nhwc : nchw),
				       (const char *)from + (to_nhwc ? nchw : nhwc), size);
			}
}

/* ---- ref ---- */

static void run_ref(const dtrain_op_desc *desc, void *const *operands)
{
	dtrain_op_desc plain = *desc;
	dtrain_op *op = NULL;
	beton_error err = {0};
	for (int i = 0; i < num_operands(&plain); i++) {
		dtrain_operand *operand = operand_of(&plain, i);
		operand->layout = NULL;
		operand->bytes = (size_t)count_of(operand) * dtrain_dtype_size(operand->dtype);
	}
	if (ref_api->op_create(ref, &plain, &op, &err) != BETON_OK)
		fail_msg("%s", err.message);
	void *workspace = take(plain.workspace_bytes);
	if (ref_api->op_run(op, ref_stream, operands, workspace, &err) != BETON_OK)
		fail_msg("%s", err.message);
	give(workspace, plain.workspace_bytes);
	ref_api->op_destroy(op);
}

/* ---- in cuDNN's place ---- */

static bool is_norm(dtrain_op_kind kind)
{
	return kind == DTRAIN_OP_BATCH_NORM_TRAIN || kind == DTRAIN_OP_BATCH_NORM_BWD;
}

/* Which operand is 1 / sqrt(var + epsilon) for cuDNN. */
static int inverse_operand(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_BATCH_NORM_BWD ? 4 : desc->num_inputs + 2;
}

static float to_inverse(float var, double epsilon)
{
	return (float)(1 / sqrt((double)var + epsilon));
}

static float to_var(float inverse, double epsilon)
{
	return (float)fmax(1 / ((double)inverse * (double)inverse) - epsilon, 0);
}

static void convert_inverse(float *values, int64_t count, double epsilon, bool to)
{
	for (int64_t i = 0; i < count; i++)
		values[i] = to ? to_inverse(values[i], epsilon) : to_var(values[i], epsilon);
}

/* Weights in the engine's type, which the op has in F32. */
static bool is_rounded_weight(const dtrain_operand *operand, size_t bytes)
{
	return operand->dtype == DTRAIN_F32 && bytes < operand->bytes;
}

static size_t bytes_in_graph(const dnn_graph *graph, int index)
{
	for (int i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].operand == index)
			return graph->tensors[i].bytes;
	return 0;
}

/* Between the engine's memory of an operand and plain memory of the op's type. */
static void exchange(const dnn_graph *graph, int index, void *inside, void *plain, bool to_plain)
{
	dtrain_operand *operand = operand_of(&engine.desc, index);
	size_t bytes = bytes_in_graph(graph, index), size = dtrain_dtype_size(operand->dtype);
	int64_t count = count_of(operand);
	if (bytes == 0)
		return; /* running statistics are none of its business */
	if (operand->dtype == DTRAIN_U8 && bytes == (size_t)count / 8) {
		unsigned char *bytes_nhwc = take((size_t)count), *bits = inside;
		if (!to_plain)
			turn(&operand->shape, 1, plain, bytes_nhwc, true);
		for (int64_t i = 0; i < count; i++) {
			if (to_plain)
				bytes_nhwc[i] = bits[i / 8] >> i % 8 & 1;
			else
				bits[i / 8] =
					(unsigned char)((bits[i / 8] & ~(1 << i % 8)) | (bytes_nhwc[i] != 0) << i % 8);
		}
		if (to_plain)
			turn(&operand->shape, 1, bytes_nhwc, plain, false);
		give(bytes_nhwc, (size_t)count);
	} else if (operand->shape.ndim != 4) {
		memcpy(to_plain ? plain : inside, to_plain ? inside : plain, bytes);
	} else if (is_rounded_weight(operand, bytes)) {
		dtrain_dtype type = dtrain__op_compute_type(&engine.desc);
		void *copy = take((size_t)count * size);
		if (!to_plain) {
			turn(&operand->shape, size, plain, copy, true);
			for (int64_t i = 0; i < count; i++)
				number_set(type, inside, i, (double)((float *)copy)[i]);
		} else {
			for (int64_t i = 0; i < count; i++)
				((float *)copy)[i] = (float)number_get(type, inside, i);
			turn(&operand->shape, size, copy, plain, false);
		}
		give(copy, (size_t)count * size);
	} else {
		turn(&operand->shape, size, to_plain ? inside : plain, to_plain ? plain : inside, !to_plain);
	}
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)stream;
	assert_int_equal(kind, cudaMemcpyDeviceToDevice);
	memcpy(to, from, bytes);
	return cudaSuccess;
}

static bool has_addend(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_CONV2D_BWD_DATA && desc->num_inputs > 2;
}

int dnn_plan_run(const dnn_plan *plan, dnn_pack *pack, cudnnHandle_t handle, cudaStream_t stream,
		 void *const *addresses, void *workspace, beton_error *err)
{
	(void)pack;
	(void)handle;
	(void)stream;
	(void)err;
	dtrain_op_desc *desc = &engine.desc;
	void *plain[MAX_OPERANDS];
	memset(workspace, 0xcc, plan->workspace_bytes);
	for (int i = 0; i < num_operands(desc); i++) {
		plain[i] = take((size_t)count_of(operand_of(desc, i)) * sizeof(float));
		if (i < desc->num_inputs)
			exchange(plan->graph, i, addresses[i], plain[i], true);
	}
	if (has_addend(desc))
		exchange(plan->graph, 3, addresses[3], plain[2], true);
	int inverse = inverse_operand(desc);
	if (desc->kind == DTRAIN_OP_BATCH_NORM_BWD)
		convert_inverse(plain[inverse], desc->inputs[4].shape.dim[0], desc->attrs.norm.epsilon, false);
	run_ref(desc, plain);
	if (desc->kind == DTRAIN_OP_BATCH_NORM_TRAIN)
		convert_inverse(plain[inverse], desc->inputs[1].shape.dim[0], desc->attrs.norm.epsilon, true);
	for (int i = 0; i < num_operands(desc); i++) {
		if (i >= desc->num_inputs)
			exchange(plan->graph, i, addresses[i], plain[i], false);
		give(plain[i], (size_t)count_of(operand_of(desc, i)) * sizeof(float));
	}
	engine.runs++;
	return BETON_OK;
}

static bool is_backward(dtrain_op_kind kind)
{
	return kind == DTRAIN_OP_BATCH_NORM_BWD || kind == DTRAIN_OP_MAX_POOL_BWD;
}

int dnn_choose(dtrain_device *device, const dtrain_op_desc *desc, dnn_plan **plan, beton_error *err)
{
	(void)device;
	dnn_graph *chosen = NULL, *graphs[DNN_MAX_VARIANTS];
	int count = 0;
	*plan = NULL;
	bool sums = desc->kind == DTRAIN_OP_CONV2D && desc->attrs.window.fusion != DTRAIN_FUSION_NONE;
	if (engine.unsupported || (engine.sums_nothing && sums) || (engine.no_backward && is_backward(desc->kind)) ||
	    (engine.adds_nothing && has_addend(desc)))
		return BETON_UNSUPPORTED;
	int status = dnn_op_graphs(desc, false, graphs, &count, err);
	if (status != BETON_OK)
		return status;
	for (int i = 0; i < count; i++) {
		assert_int_equal(graphs[i]->status, BETON_OK);
		if (i == engine.variant % count)
			chosen = graphs[i];
		else
			dnn_graph_destroy(graphs[i]);
	}
	*plan = calloc(1, sizeof(**plan));
	assert_non_null(*plan);
	(*plan)->graph = chosen;
	(*plan)->workspace_bytes = 777;
	engine.desc = *desc;
	return BETON_OK;
}

void dnn_release(dtrain_device *device, dnn_plan *plan)
{
	(void)device;
	if (plan)
		dnn_graph_destroy(plan->graph);
	free(plan);
}

void dnn_pack_clear(dnn_pack *pack)
{
	(void)pack;
}

static bool has_graphs(const dtrain_op_desc *desc)
{
	dnn_graph *graphs[DNN_MAX_VARIANTS];
	int count = 0;
	if (engine.unsupported || dnn_op_graphs(desc, false, graphs, &count, NULL) != BETON_OK)
		return false;
	while (count > 0)
		dnn_graph_destroy(graphs[--count]);
	return true;
}

bool cuda_second_wins(dtrain_device *device, cuda_preference preference, const dtrain_op_desc *desc,
		      cuda_describer *next, const cuda_way ways[2])
{
	(void)device;
	(void)preference;
	/* The backward op is part of it wherever it depends on which of the two ran this one, and so is the batch norm
	 * after a convolution. */
	bool conv = desc->kind == DTRAIN_OP_CONV2D;
	bool leaves = conv || desc->kind == DTRAIN_OP_MAX_POOL ||
		      (desc->kind == DTRAIN_OP_BATCH_NORM_TRAIN && desc->attrs.relu);
	assert_true(leaves == (next != NULL));
	for (int i = 0; i < 2 && leaves; i++)
		assert_true(ways[i].builders[1] != NULL && (ways[i].builders[2] != NULL) == conv);
	return engine.slow;
}

/* Our own kernels have tests of their own; here it is counted who would run. */
int cuda_batch_norm_kernels(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	(void)op;
	(void)desc;
	(void)err;
	engine.kernels++;
	return BETON_UNSUPPORTED;
}

int cuda_max_pool_kernels(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_batch_norm_kernels(op, desc, err);
}

int cuda_build_attention(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_batch_norm_kernels(op, desc, err);
}

/* ---- comparing ---- */

typedef struct operands {
	void *plain[MAX_OPERANDS]; /* as ref has them */
	void *cuda[MAX_OPERANDS];  /* as the cuda device has them */
	size_t bytes[MAX_OPERANDS];
} operands;

/* Numbers of an input: variances are above 0; an index is the middle of its window, which is never in the padding. */
static void fill(const dtrain_op_desc *desc, int index, void *memory)
{
	const dtrain_operand *operand = &desc->inputs[index];
	int64_t count = count_of(operand);
	for (int64_t i = 0; i < count; i++) {
		float value = (float)((i * 7919 + index * 31) % 101 - 50) / 16;
		if (operand->dtype == DTRAIN_U8)
			value = (float)(desc->attrs.window.kernel[0] / 2 * desc->attrs.window.kernel[1] +
					desc->attrs.window.kernel[1] / 2);
		else if (index == 4 && is_norm(desc->kind))
			value = fabsf(value) + 0.1f;
		number_set(operand->dtype, memory, i, (double)value);
	}
}

/* In the place of a variance. */
static bool is_deviation(const dtrain_operand *operand)
{
	return operand->layout == cuda_dnn_private && operand->shape.ndim == 1;
}

static operands make_operands(dtrain_op_desc *desc)
{
	operands all = {0};
	for (int i = 0; i < num_operands(desc); i++) {
		dtrain_operand *operand = operand_of(desc, i);
		all.bytes[i] = operand->bytes;
		size_t plain = (size_t)count_of(operand) * sizeof(float);
		all.plain[i] = take(plain);
		all.cuda[i] = take(operand->bytes);
		if (i >= desc->num_inputs)
			continue;
		fill(desc, i, all.plain[i]);
		if (is_deviation(operand)) {
			memcpy(all.cuda[i], all.plain[i], operand->bytes);
			convert_inverse(all.cuda[i], count_of(operand), desc->attrs.norm.epsilon, true);
		} else if (operand->layout == cuda_dnn_private && operand->bytes < (size_t)count_of(operand))
			for (int64_t k = 0; k < count_of(operand); k++)
				((uint8_t *)all.cuda[i])[k / 8] |= (uint8_t)(1u << k % 8);
		else if (operand->layout)
			turn(&operand->shape, dtrain_dtype_size(operand->dtype), all.plain[i], all.cuda[i], true);
		else
			memcpy(all.cuda[i], all.plain[i], operand->bytes);
	}
	/* A mask of ones, so that the order of its bits does not matter here. */
	if (desc->kind == DTRAIN_OP_BATCH_NORM_BWD && desc->num_inputs > 5)
		memset(all.plain[5], 1, (size_t)count_of(&desc->inputs[5]));
	return all;
}

static void free_operands(dtrain_op_desc *desc, operands *all)
{
	for (int i = 0; i < num_operands(desc); i++) {
		give(all->plain[i], (size_t)count_of(operand_of(desc, i)) * sizeof(float));
		give(all->cuda[i], all->bytes[i]);
	}
}

static void compare(dtrain_op_desc *desc, int index, const operands *all, double bound)
{
	const dtrain_operand *operand = operand_of(desc, index);
	size_t size = dtrain_dtype_size(operand->dtype);
	if (is_deviation(operand))
		convert_inverse(all->plain[index], count_of(operand), desc->attrs.norm.epsilon, true);
	else if (operand->layout == cuda_dnn_private)
		return;
	void *copy = take(operand->bytes);
	if (operand->layout && operand->shape.ndim == 4)
		turn(&operand->shape, size, all->cuda[index], copy, false);
	else
		memcpy(copy, all->cuda[index], operand->bytes);
	for (int64_t i = 0; i < count_of(operand); i++) {
		double wanted = number_get(operand->dtype, all->plain[index], i);
		double got = number_get(operand->dtype, copy, i);
		if (!(fabs(got - wanted) <= bound * (1 + fabs(wanted))))
			fail_msg("op %s, operand %d, element %d: %.9g instead of %.9g", dtrain__op_name(desc->kind),
				 index, (int)i, got, wanted);
	}
	give(copy, operand->bytes);
}

static int build(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	switch (desc->kind) {
	case DTRAIN_OP_BATCH_NORM_TRAIN:
	case DTRAIN_OP_BATCH_NORM_BWD:
		return cuda_build_batch_norm(op, desc, err);
	case DTRAIN_OP_MAX_POOL:
	case DTRAIN_OP_MAX_POOL_BWD:
		return cuda_build_max_pool(op, desc, err);
	case DTRAIN_OP_ATTENTION:
	case DTRAIN_OP_ATTENTION_BWD:
		return cuda_build_fused_attention(op, desc, err);
	default:
		return cuda_build_conv(op, desc, err);
	}
}

enum { INPUTS_PLAIN = 1, OUTPUTS_PLAIN = 2 };

static bool is_activation(const dtrain_op_desc *desc, const dtrain_operand *operand)
{
	bool weight = desc->inputs[0].dtype == DTRAIN_F32
			      ? operand == &desc->inputs[1] && desc->kind <= DTRAIN_OP_CONV2D_BWD_DATA
			      : operand->dtype == DTRAIN_F32;
	return operand->shape.ndim == 4 && !weight &&
	       !(desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT && operand == &desc->outputs[0]);
}

/* As the device's op_create does before it calls a builder. */
static void lay_out(dtrain_op_desc *desc, int plain)
{
	for (int i = 0; i < num_operands(desc); i++) {
		dtrain_operand *operand = operand_of(desc, i);
		bool input = i < desc->num_inputs;
		bool nhwc = is_activation(desc, operand) && !(plain & (input ? INPUTS_PLAIN : OUTPUTS_PLAIN));
		operand->layout = nhwc ? cuda_nhwc : NULL;
		if (!input)
			desc->plain_output[i - desc->num_inputs] =
				!nhwc && (operand->shape.ndim == 4 || (plain & OUTPUTS_PLAIN));
		if (input && operand->dtype == DTRAIN_U8)
			operand->layout = NULL;
		if (input && operand->dtype == DTRAIN_U8 && has_graphs(desc)) {
			operand->layout = cuda_dnn_private;
			if (is_norm(desc->kind))
				operand->bytes /= 8;
			if (is_norm(desc->kind) && !(plain & INPUTS_PLAIN))
				desc->inputs[4].layout = cuda_dnn_private;
		}
	}
}

static void check(const dtrain_op_desc *given, int plain)
{
	dtrain_op_desc desc = *given;
	dtrain_device device = {.index = 0};
	dtrain_op op = {.device = &device};
	beton_error err = {0};
	lay_out(&desc, plain);
	int status = build(&op, &desc, &err);
	if (status == BETON_UNSUPPORTED && engine.kernels > 0) {
		engine.kernels = 0;
		return;
	}
	if (status != BETON_OK)
		fail_msg("%s", err.message);
	/* Backward needs no kernel to turn it back. */
	if (desc.kind == DTRAIN_OP_BATCH_NORM_TRAIN && desc.outputs[3].layout == cuda_dnn_private)
		assert_ptr_equal(desc.outputs[2].layout, plain & OUTPUTS_PLAIN ? NULL : cuda_dnn_private);
	op.desc = desc;
	operands all = make_operands(&desc);
	char *workspace = take(desc.workspace_bytes);
	run_ref(&desc, all.plain);
	void *sum = all.cuda[3];
	if (engine.in_place && has_addend(&desc) && desc.inputs[2].layout == desc.outputs[0].layout)
		all.cuda[3] = all.cuda[2];
	if (op.run(&op, NULL, all.cuda, workspace, &err) != BETON_OK)
		fail_msg("%s", err.message);
	/* A gradient that passes through half precision loses what that rounds. */
	double bound = is_norm(desc.kind) ? 2e-6 : 0;
	if (desc.inputs[0].dtype != DTRAIN_F32 && desc.kind == DTRAIN_OP_CONV2D_BWD_WEIGHT && engine.variant == 1)
		bound = 0x1p-8;
	if (desc.inputs[0].dtype != DTRAIN_F32 && has_addend(&desc) && engine.adds_nothing)
		bound = 0x1p-7;
	for (int i = desc.num_inputs; i < num_operands(&desc); i++)
		compare(&desc, i, &all, bound);
	/* Statistics are updated in place. */
	for (int i = 3; i < 5 && desc.kind == DTRAIN_OP_BATCH_NORM_TRAIN; i++)
		compare(&desc, i, &all, 2e-6);
	all.cuda[3] = sum;
	give(workspace, desc.workspace_bytes);
	free_operands(&desc, &all);
	op.destroy(op.state);
}

static void ops_give_what_ref_gives(void **state)
{
	(void)state;
	static const dtrain_dtype types[] = {DTRAIN_F32, DTRAIN_BF16, DTRAIN_F16};
	record *ops = calloc(1, sizeof(*ops));
	assert_non_null(ops);
	for (int t = 0; t < 3; t++)
		record_examples(ops, types[t]);
	for (engine.variant = 0; engine.variant < 2; engine.variant++)
		for (int i = 0; i < ops->count; i++)
			for (int plain = 0; plain < 4; plain++)
				check(&ops->ops[i], plain);
	assert_in_range(engine.runs, ops->count, 8 * ops->count);
	free(ops);
}

/* In the memory of what is added to, and where a kernel has to add. */
static void sums_are_made_in_place(void **state)
{
	(void)state;
	static const dtrain_dtype types[] = {DTRAIN_F32, DTRAIN_BF16, DTRAIN_F16};
	record *ops = calloc(1, sizeof(*ops));
	assert_non_null(ops);
	for (int t = 0; t < 3; t++)
		record_examples(ops, types[t]);
	int checked = 0;
	for (int way = 0; way < 3; way++)
		for (int i = 0; i < ops->count; i++)
			for (int plain = 0; plain < 4 && has_addend(&ops->ops[i]); plain++, checked++) {
				engine.in_place = way < 2;
				engine.adds_nothing = way > 0;
				check(&ops->ops[i], plain);
			}
	assert_true(checked > 50);
	engine.in_place = engine.adds_nothing = false;
	free(ops);
}

/* Weights that were rounded before: channels-last ones are used where they are, plain ones are turned. */
static void copies_of_weights_are_used_as_they_are(void **state)
{
	(void)state;
	static const dtrain_dtype types[] = {DTRAIN_BF16, DTRAIN_F16};
	record *ops = calloc(1, sizeof(*ops));
	assert_non_null(ops);
	for (int t = 0; t < 2; t++)
		record_examples(ops, types[t]);
	int seen = 0;
	for (int i = 0; i < ops->count; i++) {
		dtrain_op_desc desc = ops->ops[i];
		if (desc.kind != DTRAIN_OP_CONV2D && desc.kind != DTRAIN_OP_CONV2D_BWD_DATA)
			continue;
		desc.inputs[1].dtype = desc.inputs[0].dtype;
		desc.inputs[1].bytes /= 2;
		for (int plain = 0; plain < 4; plain++)
			check(&desc, plain);
		dtrain_device device = {.index = 0};
		dtrain_op op = {.device = &device};
		lay_out(&desc, 0);
		assert_int_equal(build(&op, &desc, NULL), BETON_OK);
		assert_false(((dnn_op *)op.state)->moves[1].needed);
		op.destroy(op.state);
		seen++;
	}
	assert_true(seen > 20);
	free(ops);
}

/* Where one direction has no engine, both use our kernels, which cannot read cuDNN's mask. */
static void check_kernels_run(bool only_forward)
{
	record *ops = calloc(1, sizeof(*ops));
	assert_non_null(ops);
	record_examples(ops, DTRAIN_F32);
	engine.unsupported = !only_forward;
	engine.no_backward = only_forward;
	for (int i = 0; i < ops->count; i++) {
		dtrain_op_desc desc = ops->ops[i];
		if (only_forward && desc.kind != DTRAIN_OP_BATCH_NORM_TRAIN && desc.kind != DTRAIN_OP_MAX_POOL)
			continue;
		dtrain_device device = {.index = 0};
		dtrain_op op = {.device = &device};
		bool conv = desc.kind <= DTRAIN_OP_CONV2D_BWD_WEIGHT;
		lay_out(&desc, 0);
		engine.kernels = 0;
		assert_int_equal(build(&op, &desc, NULL), BETON_UNSUPPORTED);
		assert_int_equal(engine.kernels, conv ? 0 : 1);
		if (op.destroy)
			op.destroy(op.state);
	}
	engine.unsupported = engine.no_backward = false;
	free(ops);
}

static void without_engines_kernels_run(void **state)
{
	(void)state;
	check_kernels_run(false);
}

static void without_backward_engines_kernels_run(void **state)
{
	(void)state;
	check_kernels_run(true);
}

/* cuDNN itself reads the mask or the index that it made, even if our kernels are faster. */
static void where_kernels_are_faster_they_run(void **state)
{
	(void)state;
	record *ops = calloc(1, sizeof(*ops));
	assert_non_null(ops);
	record_examples(ops, DTRAIN_F32);
	engine.slow = true;
	for (int i = 0; i < ops->count; i++) {
		dtrain_op_desc desc = ops->ops[i];
		dtrain_device device = {.index = 0};
		dtrain_op op = {.device = &device};
		if (desc.kind <= DTRAIN_OP_CONV2D_BWD_WEIGHT)
			continue;
		lay_out(&desc, 0);
		bool bound = false;
		for (int k = 0; k < desc.num_inputs; k++)
			bound |= desc.inputs[k].layout == cuda_dnn_private;
		engine.kernels = 0;
		assert_int_equal(build(&op, &desc, NULL), bound ? BETON_OK : BETON_UNSUPPORTED);
		assert_int_equal(engine.kernels, bound ? 0 : 1);
		if (op.destroy)
			op.destroy(op.state);
	}
	engine.slow = false;
	free(ops);
}

/* Each direction by itself; in deterministic mode gradients are our kernels'. */
static void attention_runs_where_it_is_faster(void **state)
{
	(void)state;
	const dtrain_shape rows = dtrain_shape_of(3, (int64_t[]){2, 5, 16}),
			   sums = dtrain_shape_of(3, (int64_t[]){2, 2, 5});
	const dtrain_operand x = {.dtype = DTRAIN_BF16, .shape = rows, .bytes = (size_t)2 * 2 * 5 * 16};
	const dtrain_operand lse = {.dtype = DTRAIN_F32, .shape = sums, .bytes = (size_t)4 * 2 * 2 * 5};
	const dtrain_op_desc ops[] = {{.kind = DTRAIN_OP_ATTENTION,
				       .num_inputs = 3,
				       .num_outputs = 2,
				       .inputs = {x, x, x},
				       .outputs = {x, lse},
				       .attrs.attention = {.heads = 2, .kv_heads = 2, .causal = true}},
				      {.kind = DTRAIN_OP_ATTENTION_BWD,
				       .num_inputs = 6,
				       .num_outputs = 3,
				       .inputs = {x, x, x, x, x, lse},
				       .outputs = {x, x, x},
				       .attrs.attention = {.heads = 2, .kv_heads = 2, .causal = true}}};
	for (int i = 0; i < 2; i++) {
		engine.runs = engine.kernels = 0;
		check(&ops[i], 0);
		assert_int_equal(engine.runs, 1);
		for (int why = 0; why < 4; why++) {
			dtrain_op_desc desc = ops[i];
			dtrain_device device = {.deterministic = why == 2};
			dtrain_op op = {.device = &device};
			bool ours = why < 2 || (why == 2 && i == 1) || why == 3;
			engine.slow = why == 0;
			engine.unsupported = why == 1;
			for (int k = 0; k < num_operands(&desc) && why == 3; k++)
				operand_of(&desc, k)->dtype = DTRAIN_F32;
			engine.kernels = 0;
			assert_int_equal(build(&op, &desc, NULL), ours ? BETON_UNSUPPORTED : BETON_OK);
			assert_int_equal(engine.kernels, ours);
			if (op.destroy)
				op.destroy(op.state);
		}
		engine.slow = engine.unsupported = false;
	}
}

/* Whose sums a deterministic engine can split; where candidates are timed, F32 sums that are not rounded are wanted. */
static void plain_weight_gradients_are_first_in_deterministic_mode(void **state)
{
	(void)state;
	static const dtrain_dtype types[] = {DTRAIN_BF16, DTRAIN_F16, DTRAIN_F32};
	record *ops = calloc(1, sizeof(*ops));
	assert_non_null(ops);
	int seen = 0;
	for (int t = 0; t < 3; t++)
		record_examples(ops, types[t]);
	for (int i = 0; i < ops->count; i++)
		for (int deterministic = 0; deterministic < 2; deterministic++) {
			dnn_graph *graphs[DNN_MAX_VARIANTS];
			int count = 0;
			if (ops->ops[i].kind != DTRAIN_OP_CONV2D_BWD_WEIGHT)
				continue;
			assert_int_equal(dnn_op_graphs(&ops->ops[i], deterministic, graphs, &count, NULL), BETON_OK);
			bool half = ops->ops[i].inputs[0].dtype != DTRAIN_F32;
			assert_int_equal(count, half ? 2 : 1);
			assert_int_equal(graphs[0]->num_operations, half && !deterministic ? 2 : 1);
			if (half)
				assert_int_equal(graphs[1]->num_operations, deterministic ? 2 : 1);
			while (count > 0)
				dnn_graph_destroy(graphs[--count]);
			seen++;
		}
	assert_true(seen > 0);
	free(ops);
}

/* Where both are faster so, and an engine can; a batch norm that gets them asks no engine. */
static void sums_are_left_where_that_is_faster(void **state)
{
	(void)state;
	const dtrain_shape square = dtrain_shape_of(4, (int64_t[]){2, 8, 4, 4}),
			   filter = dtrain_shape_of(4, (int64_t[]){8, 8, 1, 1});
	const dtrain_operand x = {.dtype = DTRAIN_F16, .shape = square, .bytes = (size_t)2 * 2 * 8 * 16};
	const dtrain_operand w = {.dtype = DTRAIN_F16, .shape = filter, .bytes = (size_t)2 * 64, .layout = cuda_nhwc};
	const dtrain_op_desc conv = {.kind = DTRAIN_OP_CONV2D,
				     .attrs.window = {.stride = {1, 1}, .fusion = DTRAIN_FUSION_NORM_RELU},
				     .num_inputs = 2,
				     .num_outputs = 1,
				     .inputs = {x, w},
				     .outputs = {x}};
	enum { FASTER, SLOWER, NO_ENGINE, NOT_FOLLOWED, PLAIN, CASES };
	for (int i = 0; i < CASES; i++) {
		dtrain_op_desc desc = conv;
		dtrain_op op = {.device = &(dtrain_device){.index = 0}};
		engine.slow = i != SLOWER; /* the first way is */
		engine.sums_nothing = i == NO_ENGINE;
		if (i == NOT_FOLLOWED)
			desc.attrs.window.fusion = DTRAIN_FUSION_NONE;
		lay_out(&desc, i == PLAIN ? OUTPUTS_PLAIN : 0);
		assert_int_equal(build(&op, &desc, NULL), BETON_OK);
		assert_int_equal(((dnn_op *)op.state)->plan->graph->num_operations, i == FASTER ? 2 : 1);
		assert_ptr_equal(desc.outputs[0].layout, i == FASTER ? cuda_nhwc_sums : i == PLAIN ? NULL : cuda_nhwc);
		assert_int_equal(desc.outputs[0].bytes, x.bytes + (i == FASTER ? 2 * 8 * sizeof(float) : 0));
		op.destroy(op.state);
		engine.slow = engine.sums_nothing = false;
	}
	record *ops = calloc(1, sizeof(*ops));
	assert_non_null(ops);
	record_examples(ops, DTRAIN_F16);
	for (int i = 0; i < ops->count; i++)
		for (int behind = 0; behind < 2 && ops->ops[i].kind == DTRAIN_OP_BATCH_NORM_TRAIN; behind++) {
			dtrain_op_desc desc = ops->ops[i];
			dtrain_op op = {.device = &(dtrain_device){.index = 0}};
			lay_out(&desc, 0);
			if (behind)
				desc.inputs[0].layout = cuda_nhwc_sums;
			engine.kernels = 0;
			bool ours = behind || !has_graphs(&desc);
			assert_int_equal(build(&op, &desc, NULL), ours ? BETON_UNSUPPORTED : BETON_OK);
			assert_int_equal(engine.kernels, ours);
			if (op.destroy)
				op.destroy(op.state);
		}
	free(ops);
}

int main(void)
{
	ref_api = dtrain_device_find("ref");
	beton_error err = {0};
	if (!ref_api || dtrain_device_open("ref", NULL, &ref, &err) != BETON_OK ||
	    ref_api->stream_create(ref, &ref_stream, &err) != BETON_OK) {
		print_error("%s\n", err.message);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_give_what_ref_gives),
		cmocka_unit_test(sums_are_made_in_place),
		cmocka_unit_test(copies_of_weights_are_used_as_they_are),
		cmocka_unit_test(without_engines_kernels_run),
		cmocka_unit_test(without_backward_engines_kernels_run),
		cmocka_unit_test(where_kernels_are_faster_they_run),
		cmocka_unit_test(sums_are_left_where_that_is_faster),
		cmocka_unit_test(attention_runs_where_it_is_faster),
		cmocka_unit_test(plain_weight_gradients_are_first_in_deterministic_mode),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	ref_api->stream_destroy(ref_stream);
	dtrain_device_close(&ref);
	return failed;
}
