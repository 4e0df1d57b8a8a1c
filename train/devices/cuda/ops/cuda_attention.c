/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and its gradients, by our own kernels in every type.
 */
#include <math.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/kernels/kernels.h"
#include "kernel_op.h"

/* Without the tensors. y: the op's operand. */
static cuda_attention attention_of(const dtrain_op_desc *desc, const dtrain_shape *y)
{
	const dtrain_attention_attrs *attrs = &desc->attrs.attention;
	int64_t dim = y->dim[2] / attrs->heads;
	return (cuda_attention){.dtype = desc->inputs[0].dtype,
				.batch = y->dim[0],
				.queries = y->dim[1],
				.keys = desc->inputs[1].shape.dim[1],
				.heads = attrs->heads,
				.kv_heads = attrs->kv_heads,
				.dim = dim,
				.q_step = desc->inputs[0].shape.dim[2],
				.k_step = desc->inputs[1].shape.dim[2],
				.y_step = y->dim[2],
				.k_batch = desc->inputs[1].shape.dim[1],
				.causal = attrs->causal,
				.chunks = attrs->chunks,
				.scale = attrs->scale > 0 ? attrs->scale : 1 / sqrt((double)dim)};
}

/* Packed keys and values follow the queries in a row. */
static char *part_of(const cuda_attention *a, void *packed, int64_t heads)
{
	return (char *)packed + (size_t)(heads * a->dim) * dtrain_dtype_size(a->dtype);
}

static void set_inputs(cuda_attention *a, const dtrain_op_desc *desc, void *const *operands)
{
	bool packed = desc->attrs.attention.packed;
	a->q = operands[0];
	a->k = packed ? part_of(a, operands[0], a->heads) : operands[1];
	a->v = packed ? part_of(a, operands[0], a->heads + a->kv_heads) : operands[2];
}

/* Sets the inputs after the first `count`. */
static void set_rest(cuda_attention *a, const dtrain_op_desc *desc, void *const *operands, int count)
{
	if (desc->kind == DTRAIN_OP_ATTENTION_DROPOUT || desc->kind == DTRAIN_OP_ATTENTION_DROPOUT_BWD)
		a->random = operands[count++];
	a->dropout = desc->attrs.attention.dropout;
	a->layer = desc->attrs.attention.layer;
	a->all_heads = desc->attrs.attention.all_heads ? desc->attrs.attention.all_heads : a->heads;
	a->first_head = desc->attrs.attention.first_head;
	a->segment = desc->num_inputs > count ? operands[count] : NULL;
}

static cudaError_t forward(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_attention a = attention_of(desc, &desc->outputs[0].shape);
	set_inputs(&a, desc, operands);
	set_rest(&a, desc, operands, 3);
	a.y = operands[desc->num_inputs];
	a.lse = operands[desc->num_inputs + 1];
	return cuda_kernel_attention(stream, &a);
}

static cudaError_t forward_cached(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				  void *const *operands, void *workspace)
{
	(void)workspace;
	cuda_attention a = attention_of(desc, &desc->outputs[0].shape);
	cudaError_t answer = cudaSuccess;
	a.keys = a.k_batch = desc->inputs[3].shape.dim[1];
	a.k = operands[3];
	a.v = operands[4];
	a.q = operands[0];
	a.past = operands[5];
	a.y = operands[6];
	for (int part = 0; part < 2 && answer == cudaSuccess; part++)
		answer = cuda_kernel_cache_rows(stream, operands[1 + part], operands[3 + part], a.batch, a.queries,
						a.keys, a.k_step * (int64_t)dtrain_dtype_size(a.dtype), a.past,
						k->fault);
	return answer == cudaSuccess ? cuda_kernel_attention(stream, &a) : answer;
}

static cudaError_t backward(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	void *const *outputs = operands + desc->num_inputs;
	bool packed = desc->attrs.attention.packed;
	cuda_attention a = attention_of(desc, &desc->inputs[3].shape);
	set_inputs(&a, desc, operands);
	a.y = operands[3];
	a.d_y = operands[4];
	a.lse = operands[5];
	set_rest(&a, desc, operands, 6);
	a.d_q = outputs[0];
	a.d_k = packed ? part_of(&a, outputs[0], a.heads) : outputs[1];
	a.d_v = packed ? part_of(&a, outputs[0], a.heads + a.kv_heads) : outputs[2];
	return cuda_kernel_attention_bwd(stream, &a, workspace);
}

int cuda_build_attention(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	bool gradients = desc->kind == DTRAIN_OP_ATTENTION_BWD || desc->kind == DTRAIN_OP_ATTENTION_DROPOUT_BWD;
	const cuda_attention a = attention_of(desc, gradients ? &desc->inputs[3].shape : &desc->outputs[0].shape);
	if (a.dim > CUDA_ATTENTION_LARGEST_DIM)
		return bt_fail(err, BETON_UNSUPPORTED, "device 'cuda': op %s: heads of %lld elements, of %d at most",
			       dtrain__op_name(desc->kind), (long long)a.dim, CUDA_ATTENTION_LARGEST_DIM);
	cuda_kernel_op k = {.launch = gradients                                  ? backward
				      : desc->kind == DTRAIN_OP_ATTENTION_CACHED ? forward_cached
										 : forward,
			    .own_bytes = gradients ? (size_t)(a.batch * a.heads * a.queries) * sizeof(float) : 0};
	return cuda_kernel_op_create(op, desc, &k, err);
}
