/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of pictures that NORMALIZE gave further channels of zeros, because cuDNN would otherwise make such a
 * copy itself at each run. The weight gets zeros for them, too, in the workspace; of its gradient they are dropped.
 * Both are small: there are three channels.
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/kernels/kernels.h"

typedef struct padded_conv {
	dtrain_op inner;
	dtrain_operand weight; /* of the outer op: without the further channels */
	bool turns;            /* the weight is not yet KRSC in the inner op's type */
	size_t turned, padded; /* offsets in the workspace */
} padded_conv;

/* The weight is [filters][channels][area] in memory, or with padded channels at the end: [filters][area][channels]. */
typedef struct extent {
	int64_t filters, channels, area;
} extent;

static extent extent_of(const dtrain_operand *weight)
{
	const int64_t *dim = weight->shape.dim;
	return (extent){dim[0], dim[1], dim[2] * dim[3]};
}

static cudaError_t pad(const padded_conv *self, cudaStream_t stream, const void *weight, char *workspace)
{
	const extent w = extent_of(&self->weight);
	const int64_t all = CUDA_PADDED_CHANNELS;
	dtrain_dtype dtype = self->inner.desc.inputs[1].dtype;
	size_t element = dtrain_dtype_size(dtype);
	char *padded = workspace + self->padded;
	cudaError_t status = cudaSuccess;
	if (self->turns) {
		status = cuda_kernel_transpose(stream, weight, self->weight.dtype, workspace + self->turned, dtype,
					       w.filters, w.channels, w.area);
		weight = workspace + self->turned;
	}
	const cuda_box values = {
		.ndim = 2, .dim = {w.filters * w.area, w.channels}, .from = {w.channels, 1}, .to = {all, 1}};
	const cuda_box zeros = {.ndim = 2, .dim = {w.filters * w.area, all - w.channels}, .to = {all, 1}};
	if (status == cudaSuccess)
		status = cuda_kernel_copy_box(stream, element, weight, padded, &values);
	if (status == cudaSuccess)
		status = cuda_kernel_copy_box(stream, element, NULL, padded + (size_t)w.channels * element, &zeros);
	return status;
}

static cudaError_t crop(const padded_conv *self, cudaStream_t stream, void *gradient, char *workspace)
{
	const extent w = extent_of(&self->weight);
	const cuda_box values = {.ndim = 2,
				 .dim = {w.filters, w.channels * w.area},
				 .from = {CUDA_PADDED_CHANNELS * w.area, 1},
				 .to = {w.channels * w.area, 1}};
	return cuda_kernel_copy_box(stream, dtrain_dtype_size(self->weight.dtype), workspace + self->padded, gradient,
				    &values);
}

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	padded_conv *self = op->state;
	bool forward = op->desc.kind == DTRAIN_OP_CONV2D;
	int weight = forward ? 1 : 2;
	void *inner[] = {operands[0], operands[1], operands[2]};
	inner[weight] = (char *)workspace + self->padded;
	int status =
		forward ? cuda_check(pad(self, stream, operands[1], workspace), err, "weight of a picture") : BETON_OK;
	if (status == BETON_OK)
		status = self->inner.run(&self->inner, stream, inner, workspace, err);
	if (status == BETON_OK && !forward)
		status = cuda_check(crop(self, stream, operands[2], workspace), err, "gradient of a picture's weight");
	return status;
}

static void destroy(void *state)
{
	padded_conv *self = state;
	if (self->inner.destroy)
		self->inner.destroy(self->inner.state);
	free(self);
}

int cuda_build_padded_conv(dtrain_op *op, dtrain_op_desc *desc,
			   int (*builder)(dtrain_op *op, dtrain_op_desc *desc, beton_error *err), beton_error *err)
{
	bool forward = desc->kind == DTRAIN_OP_CONV2D;
	padded_conv *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	dtrain_op_desc inner = cuda_padded_conv(desc);
	inner.inputs[0].layout = cuda_nhwc;
	if (forward)
		inner.inputs[1].layout = cuda_nhwc;
	self->inner.device = op->device;
	int status = builder(&self->inner, &inner, err);
	self->inner.desc = inner;
	if (status != BETON_OK) {
		destroy(self);
		return status;
	}
	const dtrain_operand *weight = forward ? &inner.inputs[1] : &inner.outputs[0];
	desc->workspace_bytes = 0;
	(void)cuda_reserve(&desc->workspace_bytes, inner.workspace_bytes);
	self->padded = cuda_reserve(&desc->workspace_bytes, weight->bytes);
	self->weight = forward ? desc->inputs[1] : desc->outputs[0];
	self->turns = forward && !cuda_is_nhwc(&self->weight);
	if (forward)
		desc->outputs[0] = inner.outputs[0];
	if (self->turns)
		self->turned = cuda_reserve(&desc->workspace_bytes, weight->bytes);
	op->run = run;
	op->destroy = destroy;
	op->state = self;
	return BETON_OK;
}
