/* SPDX-License-Identifier: Apache-2.0
 *
 * Max pools: with cuDNN if it has engines for both directions and is not slower than our kernels, else with our
 * kernels. The index's layout tells which of them made it.
 */
#include "devices/cuda/autotune.h"
#include "devices/cuda/cudnn/dnn_run.h"
#include "devices/cuda/kernels/kernels.h"

static dtrain_op_desc backward_of(const dtrain_op_desc *desc)
{
	dtrain_op_desc backward = {
		.kind = DTRAIN_OP_MAX_POOL_BWD, .attrs = desc->attrs, .num_inputs = 2, .num_outputs = 1};
	backward.inputs[0] = desc->outputs[0];
	backward.inputs[1] = desc->outputs[1];
	backward.outputs[0] = desc->inputs[0];
	return backward;
}

static int pool_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	dtrain_op_desc backward = backward_of(desc);
	int status = cuda_build_by_cudnn(op, desc, &backward, err);
	if (status == BETON_OK)
		desc->outputs[1].layout = cuda_dnn_private; /* has as many bytes as U8 */
	return status;
}

static int backward_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_build_by_cudnn(op, desc, NULL, err);
}

int cuda_build_max_pool(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	static const cuda_way ways[] = {{{pool_by_cudnn, backward_by_cudnn}, true},
					{{cuda_max_pool_kernels, cuda_max_pool_kernels}}};
	if (desc->kind == DTRAIN_OP_MAX_POOL_BWD)
		return desc->inputs[1].layout == cuda_dnn_private ? backward_by_cudnn(op, desc, err)
								  : cuda_max_pool_kernels(op, desc, err);
	if (cuda_second_wins(op->device, op->device->max_pool, desc, backward_of, ways))
		return cuda_max_pool_kernels(op, desc, err);
	int status = pool_by_cudnn(op, desc, err);
	return status == BETON_UNSUPPORTED ? cuda_max_pool_kernels(op, desc, err) : status;
}
