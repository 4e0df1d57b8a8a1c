/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops on rows that are our own kernels: norms, gates, tables, rotation and dropout. Their operands are plain.
 */
#include "common/error.h"
#include "core/chunks.h"
#include "core/op.h"
#include "devices/cuda/kernels/kernels.h"
#include "kernel_op.h"

static int64_t count_of(const dtrain_operand *operand)
{
	return dtrain_shape_count(&operand->shape);
}

static cudaError_t swiglu(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			  void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_swiglu(stream, desc->inputs[0].dtype, operands[0], operands[1], operands[2],
				  count_of(&desc->inputs[0]));
}

static cudaError_t swiglu_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			      void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_swiglu_bwd(stream, desc->inputs[0].dtype, operands[0], operands[1], operands[2], operands[3],
				      operands[4], count_of(&desc->inputs[0]));
}

/* ---- norms ---- */

/* gamma: its number among the inputs. */
static cuda_row_norm norm_of(const dtrain_op_desc *desc, int gamma)
{
	int64_t columns = desc->inputs[gamma].shape.dim[0];
	return (cuda_row_norm){.dtype = desc->inputs[0].dtype,
			       .rows = count_of(&desc->inputs[0]) / columns,
			       .columns = columns,
			       .epsilon = desc->attrs.norm.epsilon,
			       .centered =
				       desc->kind == DTRAIN_OP_LAYER_NORM || desc->kind == DTRAIN_OP_LAYER_NORM_BWD};
}

static cudaError_t norm(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	(void)workspace;
	const cuda_row_norm n = norm_of(desc, 1);
	void *const *outputs = operands + desc->num_inputs;
	return cuda_kernel_row_norm(stream, &n, operands[0], operands[1], desc->num_inputs > 2 ? operands[2] : NULL,
				    outputs[0], outputs[1], n.centered ? outputs[2] : NULL);
}

static cudaError_t norm_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	const cuda_row_norm n = norm_of(desc, 2);
	void *const *outputs = operands + desc->num_inputs;
	const int last = n.centered ? 5 : 4;
	const cuda_row_norm_bwd b = {.x = operands[0],
				     .d_y = operands[1],
				     .addend = desc->num_inputs > last ? operands[last] : NULL,
				     .gamma = operands[2],
				     .first = operands[3],
				     .var = n.centered ? operands[4] : NULL,
				     .d_x = outputs[0],
				     .d_gamma = outputs[1],
				     .d_beta = desc->num_outputs > 2 ? outputs[2] : NULL};
	return cuda_kernel_row_norm_bwd(stream, &n, &b, workspace);
}

/* ---- tables ---- */

static cuda_table table_of(const cuda_kernel_op *k, const dtrain_op_desc *desc, const dtrain_operand *w)
{
	bool forward = desc->kind == DTRAIN_OP_EMBEDDING;
	return (cuda_table){.dtype = forward ? desc->outputs[0].dtype : desc->inputs[0].dtype,
			    .weight = w->dtype,
			    .index = desc->inputs[1].dtype,
			    .table_rows = w->shape.dim[0],
			    .columns = w->shape.dim[1],
			    .count = count_of(&desc->inputs[1]),
			    .fault = k->fault,
			    .first = desc->attrs.table.first,
			    .all = desc->attrs.table.all ? desc->attrs.table.all : w->shape.dim[0]};
}

static cudaError_t embedding(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			     void *const *operands, void *workspace)
{
	(void)workspace;
	const cuda_table table = table_of(k, desc, &desc->inputs[0]);
	return cuda_kernel_embedding(stream, &table, operands[0], operands[1], operands[2]);
}

static cudaError_t embedding_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				 void *const *operands, void *workspace)
{
	const cuda_table table = table_of(k, desc, &desc->outputs[0]);
	return cuda_kernel_embedding_bwd(stream, &table, operands[0], operands[1],
					 desc->num_inputs > 2 ? operands[2] : NULL, operands[desc->num_inputs],
					 workspace);
}

/* ---- positions and random numbers ---- */

static cudaError_t rotary(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			  void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	const dtrain_shape *x = &desc->inputs[0].shape;
	bool given = desc->num_inputs > 1;
	const cuda_rotary r = {.dtype = desc->inputs[0].dtype,
			       .batch = x->dim[0],
			       .tokens = x->dim[1],
			       .heads = x->dim[2] / desc->attrs.rotary.head_dim,
			       .position = given ? operands[1] : NULL,
			       .per_row = given && desc->inputs[1].shape.ndim == 2};
	return cuda_kernel_rotary(stream, &r, &desc->attrs.rotary, operands[0], operands[desc->num_inputs]);
}

static cudaError_t dropout(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	int64_t rows = dtrain__dropout_pieces(desc->attrs.dropout, desc->inputs[0].shape.dim[0]);
	return cuda_kernel_dropout(stream, desc->inputs[0].dtype, operands[0], operands[1], operands[2], rows,
				   count_of(&desc->inputs[0]) / rows, &desc->attrs.dropout);
}

static cuda_kernel_launch *const launches[DTRAIN_OP_KIND_COUNT] = {
	[DTRAIN_OP_SWIGLU] = swiglu,       [DTRAIN_OP_SWIGLU_BWD] = swiglu_bwd,
	[DTRAIN_OP_LAYER_NORM] = norm,     [DTRAIN_OP_LAYER_NORM_BWD] = norm_bwd,
	[DTRAIN_OP_RMS_NORM] = norm,       [DTRAIN_OP_RMS_NORM_BWD] = norm_bwd,
	[DTRAIN_OP_EMBEDDING] = embedding, [DTRAIN_OP_EMBEDDING_BWD] = embedding_bwd,
	[DTRAIN_OP_ROTARY] = rotary,       [DTRAIN_OP_DROPOUT] = dropout,
};

/* The sort of an index counts in 32 bits. */
static int check_table(const dtrain_op_desc *desc, beton_error *err)
{
	const cuda_table table = table_of(&(cuda_kernel_op){.nhwc = false}, desc, &desc->outputs[0]);
	if (table.table_rows < INT32_MAX && table.count < INT32_MAX)
		return BETON_OK;
	return bt_fail(err, BETON_UNSUPPORTED, "device 'cuda': op %s: %lld indices into %lld rows",
		       dtrain__op_name(desc->kind), (long long)table.count, (long long)table.table_rows);
}

int cuda_build_rows(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	cuda_kernel_op k = {.launch = launches[desc->kind]};
	int status = BETON_OK;
	for (int i = 0; i < desc->num_outputs; i++)
		desc->outputs[i].layout = NULL;
	if (desc->kind == DTRAIN_OP_LAYER_NORM_BWD || desc->kind == DTRAIN_OP_RMS_NORM_BWD) {
		const cuda_row_norm n = norm_of(desc, 2);
		k.own_bytes = cuda_kernel_row_norm_workspace(&n);
	} else if (desc->kind == DTRAIN_OP_EMBEDDING_BWD) {
		const cuda_table table = table_of(&k, desc, &desc->outputs[0]);
		k.own_bytes = cuda_kernel_embedding_workspace(&table);
		status = check_table(desc, err);
	}
	return status == BETON_OK ? cuda_kernel_op_create(op, desc, &k, err) : status;
}
