/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by cuDNN's fused engines, if it has one that is not slower than our kernel; all else uses our kernel. Both
 * directions have the same lse, so each is chosen alone.
 */
#include "devices/cuda/autotune.h"
#include "devices/cuda/cudnn/dnn_run.h"

static int by_cudnn(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	return cuda_build_by_cudnn(op, desc, NULL, err);
}

int cuda_build_fused_attention(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	static const cuda_way ways[] = {{{by_cudnn}, true}, {{cuda_build_attention}}};
	/* No note tells whether an engine adds to the gradient of queries in any order. */
	bool any_order = desc->kind == DTRAIN_OP_ATTENTION_BWD && op->device->deterministic;
	if (any_order || !dnn_attention_is_suitable(desc) ||
	    cuda_second_wins(op->device, op->device->attention, desc, NULL, ways))
		return cuda_build_attention(op, desc, err);
	int status = by_cudnn(op, desc, err);
	return status == BETON_UNSUPPORTED ? cuda_build_attention(op, desc, err) : status;
}
