/* SPDX-License-Identifier: Apache-2.0 */
#include "dnn_run.h"

#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/gate.h"
#include "devices/cuda/kernels/kernels.h"

/* ---- copies ---- */

static const dtrain_operand *operand_of(const dtrain_op_desc *desc, int index)
{
	return index < desc->num_inputs ? &desc->inputs[index] : &desc->outputs[index - desc->num_inputs];
}

/* Convolution weights that are F32 or in KCRS are rounded and converted to KRSC at each run; CAST's weights are used
 * unchanged. */
static bool is_weight(const dtrain_op_desc *desc, int index)
{
	switch (desc->kind) {
	case DTRAIN_OP_CONV2D:
	case DTRAIN_OP_CONV2D_BWD_DATA:
		return index == 1;
	case DTRAIN_OP_CONV2D_BWD_WEIGHT:
		return index == 2;
	default:
		return false;
	}
}

/* The graph's type of weights: that of activations, or F32 if it writes the gradient as F32. */
static dtrain_dtype weight_type(const dnn_graph *graph, const dtrain_op_desc *desc, int index)
{
	size_t count = (size_t)dtrain_shape_count(&operand_of(desc, index)->shape);
	for (int i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].operand == index && graph->tensors[i].bytes == count * sizeof(float))
			return DTRAIN_F32;
	return dtrain__op_compute_type(desc);
}

/* The copy between the operand, which is plain, and the engine's tensor. */
static dnn_move move_of(const dtrain_op_desc *desc, const dnn_graph *graph, int index)
{
	const dtrain_operand *operand = operand_of(desc, index);
	const int64_t *dim = operand->shape.dim;
	bool weight = is_weight(desc, index);
	if (operand->shape.ndim != 4 || operand->dtype == DTRAIN_U8 || cuda_is_nhwc(operand))
		return (dnn_move){.needed = false};
	dtrain_dtype inside = weight ? weight_type(graph, desc, index) : operand->dtype;
	int64_t area = dim[2] * dim[3];
	dnn_move move = {.batch = dim[0], .rows = dim[1], .columns = area, .from = operand->dtype, .to = inside};
	move.transposes = area > 1 && dim[1] > 1;
	move.needed = move.transposes || inside != operand->dtype;
	if (index >= desc->num_inputs) {
		move.rows = area;
		move.columns = dim[1];
		move.from = inside;
		move.to = operand->dtype;
	}
	return move;
}

static size_t bytes_inside(const dnn_move *move, bool input)
{
	return (size_t)(move->batch * move->rows * move->columns) * dtrain_dtype_size(input ? move->to : move->from);
}

static int run_move(const dnn_move *move, cudaStream_t stream, const void *from, void *to, beton_error *err)
{
	cudaError_t status = move->transposes ? cuda_kernel_transpose(stream, from, move->from, to, move->to,
								      move->batch, move->rows, move->columns)
					      : cuda_kernel_cast(stream, from, move->from, to, move->to,
								 move->batch * move->rows * move->columns);
	return cuda_check(status, err, "copy to another layout or type");
}

/* ---- ops ---- */

/* Since this version the engines clear the memory that they add to. */
enum { ENGINES_CLEAR_SCRATCH = 90600 };

dnn_target dnn_target_of(const dtrain_device *device)
{
	/* On a large GPU several times what any engine needs; on a small one a part that can be spared. */
	return (dnn_target){.handle = device->dnn,
			    .tf32 = device->tf32,
			    .deterministic = device->deterministic,
			    .workspace_limit = device->properties.totalGlobalMem / 16,
			    .store = device->dnn_store,
			    .driver = device->driver,
			    .stop = device->gate ? &device->gate->closing : NULL};
}

static bool adds(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_CONV2D_BWD_DATA && desc->num_inputs > 2;
}

/* If no engine can add to its result's memory, it writes elsewhere, and a kernel adds. */
static int choose_without_addend(dtrain_device *device, const dtrain_op_desc *desc, dnn_op *op, beton_error *err)
{
	dtrain_op_desc plain = *desc;
	plain.num_inputs = 2;
	int status = dnn_choose(device, &plain, &op->plan, err);
	if (status != BETON_OK)
		return status;
	op->adds_after = true;
	op->unadded = cuda_reserve(&op->bytes, op->sum_bytes);
	return BETON_OK;
}

int dnn_op_create(dtrain_device *device, const dtrain_op_desc *desc, const dtrain_op_desc *backward, dnn_op **out,
		  beton_error *err)
{
	*out = NULL;
	dnn_op *op = calloc(1, sizeof(*op));
	if (!op)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	op->device = device;
	op->num_inputs = desc->num_inputs;
	op->num_operands = desc->num_inputs + desc->num_outputs;
	op->addend = adds(desc) ? 2 : -1;
	op->sum_type = desc->outputs[0].dtype;
	op->sum_bytes = (size_t)dtrain_shape_count(&desc->outputs[0].shape) * dtrain_dtype_size(op->sum_type);
	int status = backward ? dnn_choose(device, backward, &op->partner, err) : BETON_OK;
	if (status == BETON_OK)
		status = dnn_choose(device, desc, &op->plan, err);
	if (status == BETON_UNSUPPORTED && op->addend >= 0)
		status = choose_without_addend(device, desc, op, err);
	if (status != BETON_OK) {
		dnn_op_destroy(op);
		return status;
	}
	for (int i = 0; i < op->num_operands; i++) {
		op->moves[i] = move_of(desc, op->plan->graph, i);
		if (op->moves[i].needed && i != op->addend)
			op->moves[i].offset = cuda_reserve(&op->bytes, bytes_inside(&op->moves[i], i < op->num_inputs));
	}
	op->scratch = cuda_reserve(&op->bytes, op->plan->graph->scratch_bytes);
	op->clears = op->plan->graph->scratch_bytes > 0 && cudnnGetVersion() < ENGINES_CLEAR_SCRATCH;
	op->plan_workspace = cuda_reserve(&op->bytes, op->plan->workspace_bytes);
	*out = op;
	return BETON_OK;
}

void dnn_op_destroy(void *op)
{
	dnn_op *self = op;
	if (!self)
		return;
	dnn_pack_clear(&self->pack);
	dnn_release(self->device, self->plan);
	dnn_release(self->device, self->partner);
	free(self);
}

/* Copies the addend to where the sum will be. */
static int run_addend(const dnn_op *op, cudaStream_t stream, void *const *operands, void *sum, beton_error *err)
{
	const dnn_move *move = &op->moves[op->addend];
	if (move->needed)
		return run_move(move, stream, operands[op->addend], sum, err);
	if (operands[op->addend] == sum)
		return BETON_OK;
	return cuda_check(cudaMemcpyAsync(sum, operands[op->addend], op->sum_bytes, cudaMemcpyDeviceToDevice, stream),
			  err, "copy of what is added to");
}

static int run_plan(dnn_op *op, cudaStream_t stream, void **addresses, void *workspace, beton_error *err)
{
	void *sum = addresses[op->num_inputs], *own = (char *)workspace + op->plan_workspace;
	int status = BETON_OK;
	addresses[DNN_SCRATCH] = (char *)workspace + op->scratch;
	if (op->clears)
		status = cuda_check(cudaMemsetAsync(addresses[DNN_SCRATCH], 0, op->plan->graph->scratch_bytes, stream),
				    err, "clearing sums");
	/* Without an addend the plan's result is the next operand. */
	if (op->adds_after)
		addresses[op->addend] = (char *)workspace + op->unadded;
	if (status == BETON_OK)
		status = dnn_plan_run(op->plan, &op->pack, op->device->dnn, stream, addresses,
				      op->plan->workspace_bytes ? own : NULL, err);
	if (status != BETON_OK || !op->adds_after)
		return status;
	return cuda_check(cuda_kernel_add(stream, op->sum_type, sum, addresses[op->addend], sum, false,
					  (int64_t)(op->sum_bytes / dtrain_dtype_size(op->sum_type))),
			  err, "addition");
}

int dnn_op_run(dnn_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	void *addresses[DNN_MAX_OPERANDS];
	int status = BETON_OK;
	for (int i = 0; i < op->num_operands && status == BETON_OK; i++) {
		const dnn_move *move = &op->moves[i];
		bool moved = move->needed && i != op->addend;
		addresses[i] = moved ? (char *)workspace + move->offset : operands[i];
		if (moved && i < op->num_inputs)
			status = run_move(move, stream, operands[i], addresses[i], err);
	}
	if (status == BETON_OK && op->addend >= 0)
		status = run_addend(op, stream, operands, addresses[op->num_inputs], err);
	if (status == BETON_OK)
		status = run_plan(op, stream, addresses, workspace, err);
	for (int i = op->num_inputs; i < op->num_operands && status == BETON_OK; i++)
		if (op->moves[i].needed)
			status = run_move(&op->moves[i], stream, addresses[i], operands[i], err);
	return status;
}

/* ---- builders ---- */

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	return dnn_op_run(op->state, stream, operands, workspace, err);
}

int cuda_build_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, const dtrain_op_desc *backward, beton_error *err)
{
	dnn_op *state;
	int status = dnn_op_create(op->device, desc, backward, &state, err);
	if (status != BETON_OK)
		return status;
	desc->workspace_bytes = state->bytes;
	op->run = run;
	op->destroy = dnn_op_destroy;
	op->state = state;
	return BETON_OK;
}
