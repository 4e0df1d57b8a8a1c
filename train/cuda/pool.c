/* SPDX-License-Identifier: Apache-2.0
 *
 * Max pools: by cuDNN where it has engines for both directions, else by our kernels. The index says who made it.
 */
#include "dnn_run.h"
#include "kernels.h"

static dtrain_op_desc backward_of(const dtrain_op_desc *desc)
{
	dtrain_op_desc backward = {
		.kind = DTRAIN_OP_MAX_POOL_BWD, .attrs = desc->attrs, .num_inputs = 2, .num_outputs = 1};
	backward.inputs[0] = desc->outputs[0];
	backward.inputs[1] = desc->outputs[1];
	backward.outputs[0] = desc->inputs[0];
	return backward;
}

int cuda_build_max_pool(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	if (desc->kind == DTRAIN_OP_MAX_POOL_BWD)
		return desc->inputs[1].layout == cuda_dnn_private ? cuda_build_by_cudnn(op, desc, NULL, err)
								  : cuda_max_pool_kernels(op, desc, err);
	dtrain_op_desc backward = backward_of(desc);
	int status = cuda_build_by_cudnn(op, desc, &backward, err);
	if (status == BETON_UNSUPPORTED)
		return cuda_max_pool_kernels(op, desc, err);
	if (status == BETON_OK)
		desc->outputs[1].layout = cuda_dnn_private; /* its bytes are those of U8 */
	return status;
}
