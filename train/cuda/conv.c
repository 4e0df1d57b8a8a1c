/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions, by cuDNN. Weights come as F32 in KCRS and are rounded and turned into KRSC in the workspace each time:
 * 25 million of them cost a thousandth of ResNet-50's step, and a copy that is kept would have to be kept up to date.
 */
#include "dnn_run.h"

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	return dnn_op_run(op->state, stream, operands, workspace, err);
}

int cuda_build_conv(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	dnn_op *conv;
	int status = dnn_op_create(op->device, desc, &conv, err);
	if (status != BETON_OK)
		return status;
	desc->workspace_bytes = conv->bytes;
	op->run = run;
	op->destroy = dnn_op_destroy;
	op->state = conv;
	return BETON_OK;
}
