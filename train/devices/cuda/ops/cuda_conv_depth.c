/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of pictures that NORMALIZE wrote as cells (space_to_depth.h). The weight is rearranged in the workspace
 * at each run, and its gradient is rearranged back: both are small, because there are at most four channels.
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/cuda.h"
#include "devices/cuda/kernels/kernels.h"

typedef struct depth_conv {
	dtrain_op inner;
	cuda_cell_weight weight;
	dtrain_dtype dtype; /* of the outer op's weight */
	size_t inside;      /* offset of the inner op's weight in the workspace */
} depth_conv;

static int run_forward(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	depth_conv *self = op->state;
	void *weight = (char *)workspace + self->inside;
	int status = cuda_check(cuda_kernel_weight_to_cells(stream, &self->weight, operands[1], self->dtype, weight,
							    self->inner.desc.inputs[1].dtype),
				err, "weight of a picture");
	if (status != BETON_OK)
		return status;
	return self->inner.run(&self->inner, stream, (void *[]){operands[0], weight, operands[2]}, workspace, err);
}

static int run_backward(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	depth_conv *self = op->state;
	void *gradient = (char *)workspace + self->inside;
	int status =
		self->inner.run(&self->inner, stream, (void *[]){operands[0], operands[1], gradient}, workspace, err);
	if (status != BETON_OK)
		return status;
	return cuda_check(cuda_kernel_weight_from_cells(stream, &self->weight, self->dtype, gradient, operands[2]), err,
			  "gradient of a picture's weight");
}

static void destroy(void *state)
{
	depth_conv *self = state;
	if (self->inner.destroy)
		self->inner.destroy(self->inner.state);
	free(self);
}

int cuda_build_depth_conv(dtrain_op *op, dtrain_op_desc *desc,
			  int (*builder)(dtrain_op *op, dtrain_op_desc *desc, beton_error *err), beton_error *err)
{
	bool forward = desc->kind == DTRAIN_OP_CONV2D;
	depth_conv *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	dtrain_op_desc inner = cuda_conv_of_cells(desc);
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
	const dtrain_operand *outer = forward ? &desc->inputs[1] : &desc->outputs[0];
	const int64_t *dim = outer->shape.dim;
	self->weight = (cuda_cell_weight){.filters = dim[0],
					  .channels = dim[1],
					  .kernel = {dim[2], dim[3]},
					  .krsc = forward && cuda_is_nhwc(outer)};
	self->dtype = outer->dtype;
	desc->workspace_bytes = 0;
	(void)cuda_reserve(&desc->workspace_bytes, inner.workspace_bytes);
	self->inside = cuda_reserve(&desc->workspace_bytes, forward ? inner.inputs[1].bytes : inner.outputs[0].bytes);
	if (forward)
		desc->outputs[0] = inner.outputs[0];
	op->run = forward ? run_forward : run_backward;
	op->destroy = destroy;
	op->state = self;
	return BETON_OK;
}
