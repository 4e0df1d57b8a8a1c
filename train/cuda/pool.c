/* SPDX-License-Identifier: Apache-2.0
 *
 * Max pools: by cuDNN where it has engines for both directions, else by our kernels. The index says who made it.
 */
#include "dnn_run.h"
#include "kernels.h"

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	return dnn_op_run(op->state, stream, operands, workspace, err);
}

static dtrain_op_desc backward_of(const dtrain_op_desc *desc)
{
	dtrain_op_desc backward = {
		.kind = DTRAIN_OP_MAX_POOL_BWD, .attrs = desc->attrs, .num_inputs = 2, .num_outputs = 1};
	backward.inputs[0] = desc->outputs[0];
	backward.inputs[1] = desc->outputs[1];
	backward.outputs[0] = desc->inputs[0];
	return backward;
}

static int build_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	dnn_op *pool;
	int status = dnn_op_create(op->device, desc, &pool, err);
	if (status != BETON_OK)
		return status;
	desc->workspace_bytes = pool->bytes;
	op->run = run;
	op->destroy = dnn_op_destroy;
	op->state = pool;
	return BETON_OK;
}

int cuda_build_max_pool(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	if (desc->kind == DTRAIN_OP_MAX_POOL_BWD)
		return desc->inputs[1].layout == cuda_dnn_private ? build_by_cudnn(op, desc, err)
								  : cuda_max_pool_kernels(op, desc, err);
	dtrain_op_desc backward = backward_of(desc);
	if (!dnn_op_exists(op->device, &backward))
		return cuda_max_pool_kernels(op, desc, err);
	int status = build_by_cudnn(op, desc, err);
	if (status == BETON_UNSUPPORTED)
		return cuda_max_pool_kernels(op, desc, err);
	if (status == BETON_OK)
		desc->outputs[1].layout = cuda_dnn_private; /* its bytes are those of U8 */
	return status;
}
