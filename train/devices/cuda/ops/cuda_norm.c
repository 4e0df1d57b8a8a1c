/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm. Training uses cuDNN if it has engines for both directions and is not slower than our kernels; all else
 * uses our kernels. A mask's layout tells which of them made it. After a convolution that left the sums of channels,
 * our kernels use these sums.
 *
 * cuDNN uses 1 / sqrt(var + epsilon) where our ops have var. The forward op writes it into var's place, and our kernel
 * then updates the running statistics like PyTorch (the running variance is the unbiased one). If there is a mask,
 * which only cuDNN's backward op can read, the inverse stays there for that op; otherwise the kernel converts it to
 * var, and the backward op converts it back.
 */
#include <stdlib.h>

#include "common/error.h"
#include "devices/cuda/autotune.h"
#include "devices/cuda/cudnn/dnn_run.h"
#include "devices/cuda/kernels/dnn_kernels.h"
#include "devices/cuda/kernels/kernels.h"

typedef struct norm {
	dnn_op *dnn;
	cuda_statistics statistics;
	size_t inverse; /* offset in the workspace of the backward op */
} norm;

/* Operands, as in <dtrain/ops.def>. */
enum { RUNNING_MEAN = 3, RUNNING_VAR = 4, OUT_MEAN = 1, OUT_VAR = 2, OUT_MASK = 3, BWD_VAR = 4, BWD_MASK = 5 };

static int run_forward(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	const norm *self = op->state;
	void *const *outputs = operands + op->desc.num_inputs;
	int status = dnn_op_run(self->dnn, stream, operands, workspace, err);
	if (status != BETON_OK)
		return status;
	return cuda_check(cuda_kernel_statistics(stream, &self->statistics, outputs[OUT_MEAN], outputs[OUT_VAR],
						 operands[RUNNING_MEAN], operands[RUNNING_VAR]),
			  err, "running statistics");
}

static int run_backward(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	const norm *self = op->state;
	void *local[DNN_MAX_OPERANDS];
	int count = op->desc.num_inputs + op->desc.num_outputs;
	for (int i = 0; i < count; i++)
		local[i] = operands[i];
	int status = BETON_OK;
	if (!self->statistics.keeps_inverse) {
		local[BWD_VAR] = (char *)workspace + self->inverse;
		status = cuda_check(
			cuda_kernel_inverse_deviation(stream, &self->statistics, operands[BWD_VAR], local[BWD_VAR]),
			err, "inverse deviation");
	}
	return status == BETON_OK ? dnn_op_run(self->dnn, stream, local, workspace, err) : status;
}

static void destroy(void *state)
{
	norm *self = state;
	if (!self)
		return;
	dnn_op_destroy(self->dnn);
	free(self);
}

static int build_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, const dtrain_op_desc *backward, beton_error *err)
{
	norm *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for batch norm");
	int status = dnn_op_create(op->device, desc, backward, &self->dnn, err);
	if (status != BETON_OK) {
		destroy(self);
		return status;
	}
	int64_t channels = desc->inputs[0].shape.dim[1];
	bool forward = desc->kind == DTRAIN_OP_BATCH_NORM_TRAIN;
	bool keeps_inverse = forward ? desc->attrs.relu && !desc->plain_output[OUT_VAR]
				     : desc->inputs[BWD_VAR].layout == cuda_dnn_private;
	self->statistics = (cuda_statistics){.channels = channels,
					     .count = dtrain_shape_count(&desc->inputs[0].shape) / channels,
					     .epsilon = desc->attrs.norm.epsilon,
					     .momentum = desc->attrs.norm.momentum,
					     .keeps_inverse = keeps_inverse};
	desc->workspace_bytes = self->dnn->bytes;
	if (forward && keeps_inverse)
		desc->outputs[OUT_VAR].layout = cuda_dnn_private;
	if (!forward && !keeps_inverse)
		self->inverse = cuda_reserve(&desc->workspace_bytes, (size_t)channels * sizeof(float));
	op->run = forward ? run_forward : run_backward;
	op->destroy = destroy;
	op->state = self;
	return BETON_OK;
}

/* x, d_y, gamma, mean, var, [mask] -> d_x, d_gamma, d_beta, [d_residual] */
dtrain_op_desc cuda_batch_norm_backward_of(const dtrain_op_desc *desc)
{
	const dtrain_operand *x = &desc->inputs[0], *channels = &desc->inputs[1];
	bool relu = desc->attrs.relu, residual = desc->num_inputs > 5;
	dtrain_operand gradient = *x;
	if (cuda_has_sums(x)) {
		gradient.layout = cuda_nhwc;
		gradient.bytes = (size_t)dtrain_shape_count(&x->shape) * dtrain_dtype_size(x->dtype);
	}
	dtrain_op_desc backward = {.kind = DTRAIN_OP_BATCH_NORM_BWD,
				   .attrs = desc->attrs,
				   .num_inputs = relu ? 6 : 5,
				   .num_outputs = residual ? 4 : 3,
				   .inputs = {*x, gradient, *channels, *channels, *channels},
				   .outputs = {gradient, *channels, *channels, gradient}};
	backward.inputs[BWD_VAR].layout = desc->outputs[OUT_VAR].layout;
	if (relu)
		backward.inputs[BWD_MASK] = desc->outputs[OUT_MASK];
	return backward;
}

static int train_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	dtrain_op_desc backward = cuda_batch_norm_backward_of(desc);
	int status = build_by_cudnn(op, desc, &backward, err);
	if (status == BETON_OK && desc->attrs.relu) {
		dtrain_operand *mask = &desc->outputs[OUT_MASK];
		mask->layout = cuda_dnn_private;
		mask->bytes =
			(size_t)dtrain_shape_count(&mask->shape) / 8; /* one bit each; channels are a multiple of 8 */
	}
	return status;
}

static int backward_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return build_by_cudnn(op, desc, NULL, err);
}

static int build_training(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	static const cuda_way ways[] = {{{train_by_cudnn, backward_by_cudnn}, true},
					{{cuda_batch_norm_kernels, cuda_batch_norm_kernels}}};
	if (cuda_has_sums(&desc->inputs[0]))
		return cuda_batch_norm_kernels(op, desc, err);
	if (cuda_second_wins(op->device, op->device->batch_norm, desc,
			     desc->attrs.relu ? cuda_batch_norm_backward_of : NULL, ways))
		return cuda_batch_norm_kernels(op, desc, err);
	int status = train_by_cudnn(op, desc, err);
	return status == BETON_UNSUPPORTED ? cuda_batch_norm_kernels(op, desc, err) : status;
}

static int build_backward(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	static const cuda_way ways[] = {{{backward_by_cudnn}, true}, {{cuda_batch_norm_kernels}}};
	if (desc->attrs.relu)
		return desc->inputs[BWD_MASK].layout == cuda_dnn_private ? backward_by_cudnn(op, desc, err)
									 : cuda_batch_norm_kernels(op, desc, err);
	if (cuda_second_wins(op->device, op->device->batch_norm, desc, NULL, ways))
		return cuda_batch_norm_kernels(op, desc, err);
	int status = backward_by_cudnn(op, desc, err);
	return status == BETON_UNSUPPORTED ? cuda_batch_norm_kernels(op, desc, err) : status;
}

int cuda_build_batch_norm(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	switch (desc->kind) {
	case DTRAIN_OP_BATCH_NORM_TRAIN:
		return build_training(op, desc, err);
	case DTRAIN_OP_BATCH_NORM_BWD:
		return build_backward(op, desc, err);
	default:
		return cuda_batch_norm_kernels(op, desc, err);
	}
}
