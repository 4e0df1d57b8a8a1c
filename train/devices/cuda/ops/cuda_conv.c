/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, by cuDNN, or by cuBLASLt where they are matrix products and that is faster. One that a batch norm
 * follows may also write the sums of its channels, which that one then does not read all of y for: if cuDNN has an
 * engine for it, and if convolution and batch norm, in both directions, are faster so.
 */
#include "devices/cuda/autotune.h"
#include "devices/cuda/cudnn/dnn_run.h"
#include "devices/cuda/kernels/kernels.h"

static int build_engine(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_build_by_cudnn(op, desc, NULL, err);
}

static int build_alone(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	static const cuda_way ways[] = {{{build_engine}}, {{cuda_build_conv_product}}};
	int status = BETON_UNSUPPORTED;
	if (cuda_conv_is_product(desc) && cuda_second_wins(op->device, op->device->conv_1x1, desc, NULL, ways))
		status = cuda_build_conv_product(op, desc, err);
	return status == BETON_UNSUPPORTED ? build_engine(op, desc, err) : status;
}

static int build_separate(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	dtrain_op_desc alone = *desc;
	if (desc->kind == DTRAIN_OP_CONV2D)
		alone.attrs.window.fusion = DTRAIN_FUSION_NONE;
	int status = build_alone(op, &alone, err);
	desc->workspace_bytes = alone.workspace_bytes;
	return status;
}

static int run_fused(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	const dnn_op *self = op->state;
	const dtrain_operand *y = &op->desc.outputs[0];
	char *sums = (char *)operands[op->desc.num_inputs] + cuda_sums_offset(y);
	const cuda_box all = {.ndim = 1, .dim = {2 * y->shape.dim[1]}, .to = {1}};
	int status = BETON_OK;
	/* An engine without a workspace adds up in the memory of the sums, and it is not documented who clears that. */
	if (self->plan->workspace_bytes == 0)
		status = cuda_check(cuda_kernel_copy_box(stream, sizeof(float), NULL, sums, &all), err, "sums");
	return status == BETON_OK ? dnn_op_run(op->state, stream, operands, workspace, err) : status;
}

static int build_fused(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	dtrain_operand *y = &desc->outputs[0];
	const dtrain_operand plain = *y;
	y->layout = cuda_nhwc_sums;
	y->bytes = cuda_sums_offset(y) + 2 * (size_t)y->shape.dim[1] * sizeof(float);
	int status = cuda_build_by_cudnn(op, desc, NULL, err);
	if (status == BETON_OK)
		op->run = run_fused;
	else
		*y = plain;
	return status;
}

/* x, gamma, beta, running_mean, running_var, [residual] -> y, mean, var, [mask] */
static dtrain_op_desc norm_of(const dtrain_op_desc *conv)
{
	dtrain_fusion fusion = conv->attrs.window.fusion;
	const dtrain_operand *x = &conv->outputs[0];
	const dtrain_operand channels = {.dtype = DTRAIN_F32,
					 .shape = dtrain_shape_of(1, &x->shape.dim[1]),
					 .bytes = (size_t)x->shape.dim[1] * sizeof(float)};
	dtrain_operand y = *x, mask = *x;
	int64_t count = dtrain_shape_count(&x->shape);
	y.layout = mask.layout = cuda_nhwc;
	y.bytes = (size_t)count * dtrain_dtype_size(y.dtype);
	mask.dtype = DTRAIN_U8;
	mask.bytes = (size_t)count;
	return (dtrain_op_desc){
		.kind = DTRAIN_OP_BATCH_NORM_TRAIN,
		.attrs = {.relu = fusion != DTRAIN_FUSION_NORM, .norm = {.epsilon = 1e-5, .momentum = 0.1}},
		.num_inputs = fusion == DTRAIN_FUSION_NORM_ADD_RELU ? 6 : 5,
		.num_outputs = fusion == DTRAIN_FUSION_NORM ? 3 : 4,
		.inputs = {*x, channels, channels, channels, channels, y},
		.outputs = {y, channels, channels, mask}};
}

static dtrain_op_desc next_of(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_CONV2D ? norm_of(desc) : cuda_batch_norm_backward_of(desc);
}

/* Whether the sums may be there: the type is checked before anything is timed. */
static bool may_fuse(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_CONV2D && desc->attrs.window.fusion != DTRAIN_FUSION_NONE &&
	       desc->outputs[0].layout == cuda_nhwc && dnn_conv_has_sums(desc);
}

static int build(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	static const cuda_way ways[] = {{{build_separate, cuda_build_batch_norm, cuda_build_batch_norm}},
					{{build_fused, cuda_build_batch_norm, cuda_build_batch_norm}, true}};
	if (!may_fuse(desc) || !cuda_second_wins(op->device, op->device->conv_statistics, desc, next_of, ways))
		return build_separate(op, desc, err);
	int status = build_fused(op, desc, err);
	return status == BETON_UNSUPPORTED ? build_separate(op, desc, err) : status;
}

int cuda_build_conv(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_is_cells(&desc->inputs[0]) ? cuda_build_depth_conv(op, desc, build, err) : build(op, desc, err);
}
