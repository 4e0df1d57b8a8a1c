/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm and max pool by our own kernels. Both work on NHWC; plain operands are transposed.
 */
#include "common/error.h"
#include "devices/cuda/kernels/dnn_kernels.h"
#include "devices/cuda/kernels/kernels.h"
#include "kernel_op.h"

/* ---- batch norm ---- */

static cuda_batch_norm norm_of(const dtrain_op_desc *desc)
{
	cuda_extent x = cuda_extent_of(&desc->inputs[0]);
	return (cuda_batch_norm){.dtype = desc->inputs[0].dtype,
				 .rows = x.n * x.area,
				 .channels = x.channels,
				 .epsilon = desc->attrs.norm.epsilon,
				 .momentum = desc->attrs.norm.momentum,
				 .relu = desc->attrs.relu};
}

/* By a pass over x, or from the sums that a convolution wrote after x. */
static cudaError_t find_statistics(const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
				   void *workspace)
{
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	if (!cuda_has_sums(&desc->inputs[0]))
		return cuda_kernel_batch_norm_statistics(stream, &g, operands[0], outputs[1], outputs[2], operands[3],
							 operands[4], workspace);
	const cuda_statistics all = {.channels = g.channels, .count = g.rows, .momentum = g.momentum};
	const char *sums = (const char *)operands[0] + cuda_sums_offset(&desc->inputs[0]);
	return cuda_kernel_statistics_of_sums(stream, &all, (const float *)sums, outputs[1], outputs[2], operands[3],
					      operands[4]);
}

static cudaError_t train(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			 void *const *operands, void *workspace)
{
	(void)k;
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	cudaError_t status = find_statistics(desc, stream, operands, workspace);
	if (status != cudaSuccess)
		return status;
	return cuda_kernel_batch_norm_apply(stream, &g, operands[0], operands[1], operands[2], outputs[1], outputs[2],
					    desc->num_inputs > 5 ? operands[5] : NULL, outputs[0],
					    desc->num_outputs > 3 ? outputs[3] : NULL);
}

static cudaError_t evaluate(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_batch_norm g = norm_of(desc);
	return cuda_kernel_batch_norm_apply(stream, &g, operands[0], operands[1], operands[2], operands[3], operands[4],
					    desc->num_inputs > 5 ? operands[5] : NULL, operands[desc->num_inputs],
					    NULL);
}

static cudaError_t norm_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	return cuda_kernel_batch_norm_bwd(stream, &g, operands[0], operands[1], operands[2], operands[3], operands[4],
					  desc->num_inputs > 5 ? operands[5] : NULL, outputs[0], outputs[1], outputs[2],
					  desc->num_outputs > 3 ? outputs[3] : NULL, workspace);
}

int cuda_batch_norm_kernels(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	bool trains = desc->kind == DTRAIN_OP_BATCH_NORM_TRAIN, evaluates = desc->kind == DTRAIN_OP_BATCH_NORM_EVAL;
	cuda_batch_norm g = norm_of(desc);
	cuda_kernel_op k = {.launch = trains      ? train
				      : evaluates ? evaluate
						  : norm_bwd,
			    .nhwc = true,
			    .own_bytes = evaluates ? 0 : cuda_kernel_batch_norm_workspace(&g)};
	if (trains && desc->num_outputs > 3)
		desc->outputs[3].bytes = cuda_kernel_mask_bytes(g.rows, g.channels);
	return cuda_kernel_op_create(op, desc, &k, err);
}

/* ---- the sum of two batch norms ---- */

/* x, gamma, beta, running_mean, running_var, and the same of the second -> y, mean, var, mean2, var2, mask */
static cudaError_t train_pair(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			      void *const *operands, void *workspace)
{
	(void)k;
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	cuda_norm_side sides[2];
	cudaError_t status = cudaSuccess;
	for (int i = 0; i < 2; i++) {
		void *const *of = operands + 5 * i;
		float *mean = outputs[1 + 2 * i], *var = outputs[2 + 2 * i];
		sides[i] = (cuda_norm_side){.x = of[0], .gamma = of[1], .beta = of[2], .mean = mean, .var = var};
		if (status == cudaSuccess)
			status = cuda_kernel_batch_norm_statistics(stream, &g, of[0], mean, var, of[3], of[4],
								   workspace);
	}
	return status == cudaSuccess ? cuda_kernel_batch_norm_pair_apply(stream, &g, sides, outputs[0], outputs[5])
				     : status;
}

/* x, d_y, gamma, mean, var, mask, x2, gamma2, mean2, var2 -> d_x, d_gamma, d_beta, d_x2, d_gamma2, d_beta2 */
static cudaError_t pair_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	cuda_norm_side sides[2];
	for (int i = 0; i < 2; i++) {
		void *const *of = operands + (i == 0 ? 2 : 7), *const *to = outputs + 3 * i;
		sides[i] = (cuda_norm_side){.x = operands[6 * i],
					    .gamma = of[0],
					    .mean = of[1],
					    .var = of[2],
					    .d_x = to[0],
					    .d_gamma = to[1],
					    .d_beta = to[2]};
	}
	return cuda_kernel_batch_norm_pair_bwd(stream, &g, sides, operands[1], operands[5], workspace);
}

int cuda_build_batch_norm_pair(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	bool trains = desc->kind == DTRAIN_OP_BATCH_NORM_PAIR;
	cuda_batch_norm g = norm_of(desc);
	cuda_kernel_op k = {.launch = trains ? train_pair : pair_bwd,
			    .nhwc = true,
			    .own_bytes = cuda_kernel_batch_norm_pair_workspace(&g)};
	if (trains)
		desc->outputs[5].bytes = cuda_kernel_mask_bytes(g.rows, g.channels);
	return cuda_kernel_op_create(op, desc, &k, err);
}

/* ---- batch norm with the statistics of several ranks' batches ---- */

/* x -> moments */
static cudaError_t moments(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	(void)k;
	cuda_batch_norm g = norm_of(desc);
	return cuda_kernel_batch_norm_moments(stream, &g, operands[0], operands[1], desc->outputs[0].shape.dim[0],
					      desc->attrs.norm.rank, workspace);
}

/* x, gamma, beta, running_mean, running_var, moments, [residual] -> y, mean, var, [mask] */
static cudaError_t train_together(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				  void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	cudaError_t status = cuda_kernel_batch_norm_join(stream, &g, operands[5], desc->inputs[5].shape.dim[0],
							 outputs[1], outputs[2], operands[3], operands[4]);
	if (status != cudaSuccess)
		return status;
	return cuda_kernel_batch_norm_apply(stream, &g, operands[0], operands[1], operands[2], outputs[1], outputs[2],
					    desc->num_inputs > 6 ? operands[6] : NULL, outputs[0],
					    desc->num_outputs > 3 ? outputs[3] : NULL);
}

/* x, d_y, mean, var, [mask] -> sums, d_gamma, d_beta */
static cudaError_t sums(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	return cuda_kernel_batch_norm_sums(stream, &g, operands[0], operands[1], operands[2], operands[3],
					   desc->num_inputs > 4 ? operands[4] : NULL, outputs[0], outputs[1],
					   outputs[2], workspace);
}

/* x, d_y, gamma, mean, var, sums, [mask] -> d_x, [d_residual] */
static cudaError_t gradient_together(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				     void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_batch_norm g = norm_of(desc);
	void *const *outputs = operands + desc->num_inputs;
	return cuda_kernel_batch_norm_sync_bwd(stream, &g, operands[0], operands[1], operands[2], operands[3],
					       operands[4], operands[5], desc->num_inputs > 6 ? operands[6] : NULL,
					       outputs[0], desc->num_outputs > 1 ? outputs[1] : NULL);
}

int cuda_build_batch_norm_sync(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	bool measures = desc->kind == DTRAIN_OP_BATCH_NORM_MOMENTS, adds = desc->kind == DTRAIN_OP_BATCH_NORM_SUMS;
	bool trains = desc->kind == DTRAIN_OP_BATCH_NORM_SYNC;
	cuda_batch_norm g = norm_of(desc);
	cuda_kernel_op k = {.launch = measures ? moments
				      : trains ? train_together
				      : adds   ? sums
					       : gradient_together,
			    .nhwc = true,
			    .own_bytes = measures || adds ? cuda_kernel_batch_norm_workspace(&g) : 0};
	if (trains && desc->num_outputs > 3)
		desc->outputs[3].bytes = cuda_kernel_mask_bytes(g.rows, g.channels);
	return cuda_kernel_op_create(op, desc, &k, err);
}

/* ---- max pool ---- */

static cuda_pool pool_of(const dtrain_op_desc *desc, const dtrain_operand *x, const dtrain_operand *y)
{
	const dtrain_window_attrs *a = &desc->attrs.window;
	return (cuda_pool){.dtype = x->dtype,
			   .n = x->shape.dim[0],
			   .height = x->shape.dim[2],
			   .width = x->shape.dim[3],
			   .channels = x->shape.dim[1],
			   .out_height = y->shape.dim[2],
			   .out_width = y->shape.dim[3],
			   .kernel = {a->kernel[0], a->kernel[1]},
			   .stride = {a->stride[0], a->stride[1]},
			   .padding = {a->padding[0], a->padding[1]}};
}

static cudaError_t max_pool(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_pool g = pool_of(desc, &desc->inputs[0], &desc->outputs[0]);
	return cuda_kernel_max_pool(stream, &g, operands[0], operands[1], operands[2]);
}

static cudaError_t max_pool_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_pool g = pool_of(desc, &desc->outputs[0], &desc->inputs[0]);
	return cuda_kernel_max_pool_bwd(stream, &g, operands[0], operands[1], operands[2]);
}

int cuda_max_pool_kernels(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	cuda_kernel_op k = {.launch = desc->kind == DTRAIN_OP_MAX_POOL ? max_pool : max_pool_bwd, .nhwc = true};
	return cuda_kernel_op_create(op, desc, &k, err);
}
