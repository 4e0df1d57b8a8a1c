/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that compress gradients, except elementwise ones.
 */
#include "devices/cuda/kernels/kernels.h"
#include "kernel_op.h"

static cudaError_t quantize(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_quantize(stream, operands[0], desc->inputs[0].shape.dim[0], operands[1],
				    dtrain_shape_count(&desc->outputs[0].shape) / DTRAIN_CODE_BYTES);
}

static cudaError_t dequantize(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			      void *const *operands, void *workspace)
{
	const int64_t *codes = desc->inputs[0].shape.dim;
	(void)k;
	(void)workspace;
	return cuda_kernel_dequantize(stream, operands[0], codes[0], codes[1], operands[1],
				      desc->outputs[0].shape.dim[0]);
}

static cudaError_t top_k(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			 void *const *operands, void *workspace)
{
	(void)k;
	return cuda_kernel_top_k(stream, operands[0], desc->inputs[0].shape.dim[0], operands[1],
				 dtrain_shape_count(&desc->outputs[0].shape) / DTRAIN_PAIR_BYTES, workspace);
}

static cudaError_t spread(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			  void *const *operands, void *workspace)
{
	const int64_t *pairs = desc->inputs[0].shape.dim;
	(void)workspace;
	return cuda_kernel_add_pairs(stream, operands[0], pairs[0], pairs[1], operands[1],
				     desc->outputs[0].shape.dim[0], k->fault);
}

static cudaError_t orthonormalize(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				  void *const *operands, void *workspace)
{
	const int64_t *x = desc->inputs[0].shape.dim;
	(void)k;
	(void)workspace;
	return cuda_kernel_orthonormalize(stream, operands[0], x[0], x[1], operands[1]);
}

static cuda_kernel_launch *const launches[DTRAIN_OP_KIND_COUNT] = {
	[DTRAIN_OP_QUANTIZE] = quantize, [DTRAIN_OP_DEQUANTIZE] = dequantize,         [DTRAIN_OP_TOP_K] = top_k,
	[DTRAIN_OP_SPREAD] = spread,     [DTRAIN_OP_ORTHONORMALIZE] = orthonormalize,
};

int cuda_build_compress(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	cuda_kernel_op k = {.launch = launches[desc->kind]};
	for (int i = 0; i < desc->num_outputs; i++)
		desc->outputs[i].layout = NULL;
	if (desc->kind == DTRAIN_OP_TOP_K)
		k.own_bytes = cuda_kernel_top_k_workspace(desc->inputs[0].shape.dim[0]);
	return cuda_kernel_op_create(op, desc, &k, err);
}
