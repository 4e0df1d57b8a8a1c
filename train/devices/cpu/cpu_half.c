/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops in F16 and BF16 on processors where oneDNN does not compute in the type (few do in F16): the op in F32 computes
 * on copies of the operands, and its results are rounded once. A tensor has the layout that the op in F32 chose, with
 * elements of half the size.
 */
#include "common/error.h"
#include "core/builtin.h"
#include "core/host.h"
#include "core/op.h"
#include "core/shape.h"
#include "cpu.h"

/* Elements of a piece of work, and those below which one thread is faster. */
enum { PIECE = 4096, FEW = 65536 };

bool cpu_half_widens(const dtrain_device *device, dtrain_op_kind kind, dtrain_dtype dtype)
{
	if (dtype != DTRAIN_F16 && (dtype != DTRAIN_BF16 || device->has_bf16))
		return false;
	return kind != DTRAIN_OP_CAST && kind != DTRAIN_OP_EMBEDDING && kind != DTRAIN_OP_NARROW &&
	       kind != DTRAIN_OP_WIDEN;
}

/* ---- building ---- */

/* Elements of a tensor with the padding of its layout. */
static int64_t elements_of(const dtrain_operand *operand)
{
	const cpu_layout *layout = operand->layout;
	return layout ? (int64_t)(dnnl_memory_desc_get_size(layout->md) / sizeof(float))
		      : dtrain_shape_count(&operand->shape);
}

static void place_copy(cpu_build *build, int operand, int64_t count)
{
	build->op->half.counts[operand] = count;
	build->op->half.places[operand] = build->workspace;
	build->workspace += dtrain__round_up((size_t)count * sizeof(float), DTRAIN__HOST_ALIGNMENT);
}

/* The op in F32. A weight in F32 is copied, too, since it is rounded. */
static dtrain_op_desc widen_operands(cpu_build *build)
{
	const dtrain_op_desc *desc = build->desc;
	dtrain_op_desc wide = *desc;
	for (int i = 0; i < desc->num_inputs; i++) {
		dtrain_dtype dtype = desc->inputs[i].dtype;
		bool weight = dtrain__op_input_letter(desc->kind, i) == 'W';
		if (dtype != build->op->dtype && !(weight && dtype == DTRAIN_F32))
			continue;
		place_copy(build, i, elements_of(&desc->inputs[i]));
		wide.inputs[i].dtype = DTRAIN_F32;
	}
	for (int i = 0; i < desc->num_outputs; i++)
		if (desc->outputs[i].dtype == build->op->dtype)
			wide.outputs[i].dtype = DTRAIN_F32;
	return wide;
}

/* The outputs have the layouts of the op in F32. */
static void take_outputs(cpu_build *build, const dtrain_op_desc *wide)
{
	dtrain_op_desc *desc = build->desc;
	for (int i = 0; i < wide->num_outputs; i++) {
		dtrain_operand *output = &desc->outputs[i];
		bool is_copied = output->dtype == build->op->dtype;
		output->layout = wide->outputs[i].layout;
		output->bytes = wide->outputs[i].bytes / (is_copied ? 2 : 1);
		if (is_copied)
			place_copy(build, desc->num_inputs + i, elements_of(output));
	}
}

/* The op of the function that a linear layer ends in. It reads what memory holds, like the function's own op. */
static void build_activation(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc;
	dtrain_activation activation = desc->attrs.linear.activation;
	dtrain_op_desc function = {.kind = activation == DTRAIN_ACTIVATION_SILU ? DTRAIN_OP_SILU : DTRAIN_OP_GELU,
				   .attrs.gelu.tanh = activation == DTRAIN_ACTIVATION_GELU_TANH,
				   .num_inputs = 1,
				   .num_outputs = 1,
				   .inputs = {desc->outputs[0]},
				   .outputs = {desc->outputs[0]}};
	build->status = dtrain__cpu_api.op_create(build->device, &function, &build->op->half.activation, build->err);
	if (function.workspace_bytes > build->workspace)
		build->workspace = function.workspace_bytes;
	desc->outputs[desc->num_outputs - 1] = desc->outputs[0];
}

void cpu_build_half(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc, wide = widen_operands(build);
	bool ends_in_function = desc->kind == DTRAIN_OP_LINEAR && desc->attrs.linear.activation;
	if (ends_in_function) {
		wide.attrs.linear.activation = DTRAIN_ACTIVATION_NONE;
		wide.num_outputs = 1;
	}
	build->status = dtrain__cpu_api.op_create(build->device, &wide, &build->op->half.wide, build->err);
	if (build->status != BETON_OK)
		return;
	take_outputs(build, &wide);
	build->op->half.updates = dtrain__op_rules_of(desc->kind)->updates;
	build->op->half.workspace = build->workspace;
	build->workspace += wide.workspace_bytes;
	if (ends_in_function)
		build_activation(build);
}

/* ---- running ---- */

/* A weight in F32 is rounded on the way. */
static void widen(const struct dtrain_op *op, int input, const void *from, float *to)
{
	int64_t all = op->half.counts[input];
	bool rounds = op->dtypes[input] == DTRAIN_F32;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (all > FEW)
#endif
	for (int64_t i = 0; i < all; i += PIECE) {
		int64_t count = all - i < PIECE ? all - i : PIECE;
		uint16_t rounded[PIECE];
		if (rounds)
			op->rows->narrow(rounded, (const float *)from + i, 1, count);
		op->rows->widen(to + i, rounds ? rounded : (const uint16_t *)from + i, count);
	}
}

static void narrow(const struct dtrain_op *op, int operand, const float *from, uint16_t *to)
{
	int64_t all = op->half.counts[operand];
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (all > FEW)
#endif
	for (int64_t i = 0; i < all; i += PIECE)
		op->rows->narrow(to + i, from + i, 1, all - i < PIECE ? all - i : PIECE);
}

int cpu_run_half(const struct dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace,
		 beton_error *err)
{
	const cpu_half *half = &op->half;
	int all = op->num_inputs + op->num_outputs;
	void *wide[CPU_OPERANDS_MAX] = {NULL}, *results[CPU_OPERANDS_MAX];
	for (int i = 0; i < all; i++) {
		results[i] = operands[i];
		wide[i] = half->counts[i] ? (char *)workspace + half->places[i] : operands[i];
		if (half->counts[i] && i < op->num_inputs)
			widen(op, i, operands[i], wide[i]);
	}
	/* The argument of a function is the last output, or y, which the function then overwrites. */
	void *argument = operands[all - 1];
	if (half->activation)
		results[op->num_inputs] = argument;
	int status = dtrain__cpu_api.op_run(half->wide, stream, wide, (char *)workspace + half->workspace, err);
	for (int i = 0; i < all && status == BETON_OK; i++)
		if (half->counts[i] && (i >= op->num_inputs || half->updates >> i & 1))
			narrow(op, i, wide[i], results[i]);
	if (status == BETON_OK && half->activation)
		status = dtrain__cpu_api.op_run(half->activation, stream,
						(void *[]){argument, operands[op->num_inputs]}, workspace, err);
	return status;
}
