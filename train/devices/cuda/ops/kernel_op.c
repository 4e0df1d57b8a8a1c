/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel_op.h"

#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/kernels/kernels.h"

cuda_extent cuda_extent_of(const dtrain_operand *operand)
{
	const dtrain_shape *shape = &operand->shape;
	cuda_extent extent = {shape->dim[0], shape->dim[1], 1};
	for (int i = 2; i < shape->ndim; i++)
		extent.area *= shape->dim[i];
	return extent;
}

/* Masks, indices and pixels have their own layouts. */
static bool is_activation(const dtrain_operand *operand)
{
	return operand->shape.ndim == 4 && operand->dtype != DTRAIN_U8;
}

/* from_nhwc and to_nhwc: the operand's and the kernel's layout; for an output the reverse. */
static cuda_turn turn_of(const dtrain_operand *operand, bool from_nhwc, bool to_nhwc, size_t *workspace)
{
	cuda_extent extent = cuda_extent_of(operand);
	bool needed = is_activation(operand) && from_nhwc != to_nhwc && extent.channels > 1 && extent.area > 1;
	if (!needed)
		return (cuda_turn){.needed = false};
	return (cuda_turn){.needed = true,
			   .dtype = operand->dtype,
			   .batch = extent.n,
			   .rows = from_nhwc ? extent.area : extent.channels,
			   .columns = from_nhwc ? extent.channels : extent.area,
			   .offset = cuda_reserve(workspace, (size_t)dtrain_shape_count(&operand->shape) *
								     dtrain_dtype_size(operand->dtype))};
}

static cudaError_t turn(const cuda_turn *t, cudaStream_t stream, const void *from, void *to)
{
	return cuda_kernel_transpose(stream, from, t->dtype, to, t->dtype, t->batch, t->rows, t->columns);
}

static cudaError_t run(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
		       char *workspace)
{
	void *places[2 * DTRAIN_OP_MAX_OPERANDS];
	int count = desc->num_inputs + desc->num_outputs;
	cudaError_t status = cudaSuccess;
	for (int i = 0; i < count && status == cudaSuccess; i++) {
		const cuda_turn *t = &k->turns[i];
		places[i] = t->needed ? workspace + t->offset : operands[i];
		if (t->needed && i < desc->num_inputs)
			status = turn(t, stream, operands[i], places[i]);
	}
	if (status == cudaSuccess)
		status = k->launch(k, desc, stream, places, workspace + k->own_offset);
	for (int i = desc->num_inputs; i < count && status == cudaSuccess; i++)
		if (k->turns[i].needed)
			status = turn(&k->turns[i], stream, places[i], operands[i]);
	return status;
}

static int run_op(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	return cuda_check(run(op->state, &op->desc, stream, operands, workspace), err, "device 'cuda' %d: op %s",
			  op->device->index, dtrain__op_name(op->desc.kind));
}

int cuda_kernel_op_create(dtrain_op *op, dtrain_op_desc *desc, const cuda_kernel_op *k, beton_error *err)
{
	cuda_kernel_op *own = malloc(sizeof(*own));
	if (!own)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	*own = *k;
	own->fault = op->device->fault;
	size_t workspace = 0;
	for (int i = 0; i < desc->num_inputs; i++)
		own->turns[i] = turn_of(&desc->inputs[i], cuda_is_nhwc(&desc->inputs[i]), k->nhwc, &workspace);
	for (int i = 0; i < desc->num_outputs; i++)
		own->turns[desc->num_inputs + i] =
			turn_of(&desc->outputs[i], k->nhwc, cuda_is_nhwc(&desc->outputs[i]), &workspace);
	own->own_offset = cuda_reserve(&workspace, k->own_bytes);
	desc->workspace_bytes = workspace;
	op->state = own;
	op->destroy = free;
	op->run = run_op;
	return BETON_OK;
}
