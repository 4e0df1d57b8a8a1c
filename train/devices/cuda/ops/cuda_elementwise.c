/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that are one or two of our kernels and have no file of their own.
 */
#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/kernels/kernels.h"
#include "kernel_op.h"

static bool is_any_nhwc(const dtrain_operand *operands, int count)
{
	for (int i = 0; i < count; i++)
		if (cuda_is_nhwc(&operands[i]))
			return true;
	return false;
}

/* ---- element by element ---- */

static cudaError_t relu(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_relu(stream, desc->inputs[0].dtype, operands[0], operands[1],
				dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t relu_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_relu_bwd(stream, desc->inputs[0].dtype, operands[0], operands[1], operands[2],
				    dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t gelu(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	(void)workspace;
	return (desc->attrs.gelu.tanh ? cuda_kernel_gelu_tanh : cuda_kernel_gelu)(
		stream, desc->inputs[0].dtype, operands[0], operands[1], dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t gelu_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return (desc->attrs.gelu.tanh ? cuda_kernel_gelu_tanh_bwd
				      : cuda_kernel_gelu_bwd)(stream, desc->inputs[0].dtype, operands[0], operands[1],
							      operands[2], dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t silu(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_silu(stream, desc->inputs[0].dtype, operands[0], operands[1],
				dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t silu_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			    void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_silu_bwd(stream, desc->inputs[0].dtype, operands[0], operands[1], operands[2],
				    dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t add(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
		       void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_add(stream, desc->inputs[0].dtype, operands[0], operands[1], operands[2], desc->attrs.relu,
			       dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t scale(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			 void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_scale(stream, operands[0], desc->inputs[0].dtype, operands[1], desc->outputs[0].dtype,
				 desc->attrs.factor, dtrain_shape_count(&desc->inputs[0].shape));
}

static cudaError_t carry(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			 void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_carry(stream, operands[0], operands[1], operands[2], desc->attrs.factor,
				 dtrain_shape_count(&desc->inputs[0].shape));
}

/* Elementwise kernels accept any order of elements that all operands share. */
static bool order_elements(const dtrain_device *device, dtrain_op_desc *desc)
{
	(void)device;
	bool nhwc = is_any_nhwc(desc->inputs, desc->num_inputs);
	if (!nhwc)
		desc->outputs[0].layout = NULL;
	return nhwc;
}

/* ---- pooling and flattening: any layout, without transposition ---- */

static cudaError_t global_avg_pool(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				   void *const *operands, void *workspace)
{
	cuda_extent x = cuda_extent_of(&desc->inputs[0]);
	dtrain_dtype dtype = desc->inputs[0].dtype;
	double share = 1.0 / (double)x.area;
	if (k->nhwc)
		return cuda_kernel_column_sums(stream, operands[0], dtype, operands[1], dtype, x.n, x.area, x.channels,
					       share, workspace);
	return cuda_kernel_column_sums(stream, operands[0], dtype, operands[1], dtype, x.n * x.channels, x.area, 1,
				       share, workspace);
}

static cudaError_t global_avg_pool_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				       void *const *operands, void *workspace)
{
	(void)workspace;
	cuda_extent x = cuda_extent_of(&desc->outputs[0]);
	dtrain_dtype dtype = desc->inputs[0].dtype;
	double share = 1.0 / (double)x.area;
	if (k->nhwc)
		return cuda_kernel_spread(stream, dtype, operands[0], operands[1], x.n, x.area, x.channels, share);
	return cuda_kernel_spread(stream, dtype, operands[0], operands[1], x.n * x.channels, x.area, 1, share);
}

static cudaError_t flatten(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	(void)workspace;
	cuda_extent x = cuda_extent_of(&desc->inputs[0]);
	dtrain_dtype dtype = desc->inputs[0].dtype;
	if (k->nhwc)
		return cuda_kernel_transpose(stream, operands[0], dtype, operands[1], dtype, x.n, x.area, x.channels);
	return cuda_kernel_cast(stream, operands[0], dtype, operands[1], dtype, x.n * x.channels * x.area);
}

static cudaError_t flatten_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			       void *const *operands, void *workspace)
{
	(void)workspace;
	cuda_extent x = cuda_extent_of(&desc->outputs[0]);
	dtrain_dtype dtype = desc->inputs[0].dtype;
	if (k->nhwc)
		return cuda_kernel_transpose(stream, operands[0], dtype, operands[1], dtype, x.n, x.channels, x.area);
	return cuda_kernel_cast(stream, operands[0], dtype, operands[1], dtype, x.n * x.channels * x.area);
}

/* ---- biases: of NHWC channels; plain operands are transposed ---- */

static cudaError_t channel_bias(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_extent x = cuda_extent_of(&desc->inputs[0]);
	return cuda_kernel_row_bias(stream, desc->inputs[0].dtype, operands[0], operands[1], operands[2], x.n * x.area,
				    x.channels);
}

static cudaError_t channel_bias_bwd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				    void *const *operands, void *workspace)
{
	(void)k;
	cuda_extent x = cuda_extent_of(&desc->inputs[0]);
	return cuda_kernel_column_sums(stream, operands[0], desc->inputs[0].dtype, operands[1], desc->outputs[0].dtype,
				       1, x.n * x.area, x.channels, 1, workspace);
}

static size_t bias_workspace(const dtrain_op_desc *desc, bool nhwc)
{
	(void)nhwc;
	cuda_extent x = cuda_extent_of(&desc->inputs[0]);
	return cuda_kernel_column_sums_workspace(1, x.n * x.area, x.channels);
}

static size_t pool_workspace(const dtrain_op_desc *desc, bool nhwc)
{
	cuda_extent x = cuda_extent_of(&desc->inputs[0]);
	return nhwc ? cuda_kernel_column_sums_workspace(x.n, x.area, x.channels)
		    : cuda_kernel_column_sums_workspace(x.n * x.channels, x.area, 1);
}

static cudaError_t normalize(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			     void *const *operands, void *workspace)
{
	(void)workspace;
	cuda_extent y = cuda_extent_of(&desc->outputs[0]);
	if (cuda_is_cells(&desc->outputs[0])) {
		const dtrain_shape *shape = &desc->outputs[0].shape;
		const dtrain_window_attrs *window = &desc->attrs.pixels.convolution;
		dtrain_shape cells = cuda_cells_of(shape, window);
		const cuda_cell_pictures p = {.n = y.n,
					      .height = shape->dim[2],
					      .width = shape->dim[3],
					      .channels = y.channels,
					      .rows = cells.dim[2],
					      .columns = cells.dim[3],
					      .padding = {window->padding[0], window->padding[1]}};
		return cuda_kernel_normalize_cells(stream, &p, operands[0], operands[1], desc->outputs[0].dtype,
						   desc->attrs.pixels.scale, desc->attrs.pixels.shift);
	}
	return cuda_kernel_normalize(stream, operands[0], operands[1], desc->outputs[0].dtype, k->nhwc, y.n, y.area,
				     (int)y.channels, desc->attrs.pixels.scale, desc->attrs.pixels.shift);
}

/* ---- loss and optimizer ---- */

/* Both kinds of loss: SOFTMAX_XENT_MIXED has a second label and lambda before the scaler. workspace: the number of rows
 * that count, with a label to be ignored. */
static cudaError_t softmax_xent(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				void *const *operands, void *workspace)
{
	bool mixed = desc->kind == DTRAIN_OP_SOFTMAX_XENT_MIXED;
	int scaler = mixed ? 4 : 2;
	void *const *outputs = operands + desc->num_inputs;
	const cuda_loss loss = {.label = operands[1],
				.mixed = mixed ? operands[2] : NULL,
				.lambda = mixed ? operands[3] : NULL,
				.scaler = desc->num_inputs > scaler ? operands[scaler] : NULL,
				.loss = outputs[0],
				.hits = desc->num_outputs > 2 ? outputs[2] : NULL,
				.fault = k->fault,
				.rows = desc->inputs[0].shape.dim[0],
				.classes = desc->inputs[0].shape.dim[1],
				.ignored = k->own_bytes ? desc->attrs.loss.ignored : 0,
				.counted = k->own_bytes ? workspace : NULL};
	cudaError_t status = loss.counted
				     ? cuda_kernel_count_labels(stream, loss.label, loss.ignored, loss.rows, workspace)
				     : cudaSuccess;
	if (status != cudaSuccess)
		return status;
	return cuda_kernel_softmax_xent(stream, &loss, operands[0], desc->inputs[0].dtype, outputs[1],
					desc->outputs[1].dtype, desc->attrs.loss.label_smoothing);
}

/* workspace: as of softmax_xent. */
static cudaError_t xent_part(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			     void *const *operands, void *workspace)
{
	bool joins = desc->kind == DTRAIN_OP_XENT_JOIN;
	void *const *outputs = operands + desc->num_inputs;
	const dtrain_loss_attrs *attrs = &desc->attrs.loss;
	const dtrain_operand *part = joins                               ? &desc->inputs[0]
				     : desc->kind == DTRAIN_OP_XENT_PART ? &desc->outputs[0]
									 : &desc->inputs[2];
	const cuda_xent_part a = {.label = operands[1],
				  .scaler = joins && desc->num_inputs > 2 ? operands[2] : NULL,
				  .fault = k->fault,
				  .ranks = part->shape.dim[0],
				  .rank = attrs->rank,
				  .rows = part->shape.dim[2],
				  .classes = joins ? attrs->classes : desc->inputs[0].shape.dim[1],
				  .first = attrs->first,
				  .ignored = attrs->ignored,
				  .counted = k->own_bytes ? workspace : NULL,
				  .smoothing = attrs->label_smoothing};
	if (desc->kind == DTRAIN_OP_XENT_PART)
		return cuda_kernel_xent_part(stream, &a, operands[0], desc->inputs[0].dtype, outputs[0]);
	if (!joins)
		return cuda_kernel_xent_part_bwd(stream, &a, operands[0], desc->inputs[0].dtype, operands[2],
						 operands[3], outputs[0]);
	cudaError_t status =
		a.counted ? cuda_kernel_count_labels(stream, a.label, a.ignored, a.rows, workspace) : cudaSuccess;
	return status == cudaSuccess ? cuda_kernel_xent_join(stream, &a, operands[0], outputs[0], outputs[1]) : status;
}

static cudaError_t one_hot(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			   void *const *operands, void *workspace)
{
	(void)workspace;
	bool mixed = desc->num_inputs > 1;
	const dtrain_shape *target = &desc->outputs[0].shape;
	return cuda_kernel_one_hot(stream, operands[0], mixed ? operands[1] : NULL, mixed ? operands[2] : NULL,
				   operands[desc->num_inputs], target->dim[0], target->dim[1], k->fault);
}

static cudaError_t target_loss(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			       void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	void *const *outputs = operands + desc->num_inputs;
	const cuda_target_loss loss = {.kind = desc->kind,
				       .target = operands[1],
				       .scaler = desc->num_inputs > 2 ? operands[2] : NULL,
				       .loss = outputs[0],
				       .hits = desc->num_outputs > 2 ? outputs[2] : NULL,
				       .rows = desc->inputs[0].shape.dim[0],
				       .classes = desc->inputs[0].shape.dim[1],
				       .smoothing = desc->attrs.loss.label_smoothing,
				       .threshold = desc->attrs.loss.threshold};
	return cuda_kernel_target_loss(stream, &loss, operands[0], outputs[1], desc->inputs[0].dtype);
}

static cudaError_t mean(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	int64_t count = desc->inputs[0].shape.dim[0];
	if (desc->num_inputs > 1)
		return cuda_kernel_labelled_mean(stream, operands[0], operands[1], desc->attrs.loss.ignored, count,
						 operands[2]);
	return cuda_kernel_column_sums(stream, operands[0], desc->inputs[0].dtype, operands[1], desc->outputs[0].dtype,
				       1, count, 1, 1.0 / (double)count, workspace);
}

static cudaError_t sgd(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
		       void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_sgd(stream, operands[0], operands[1], operands[2], operands[3], operands[4],
			       desc->num_inputs > 5 ? operands[5] : NULL, dtrain_shape_count(&desc->inputs[0].shape),
			       desc->attrs.sgd.grad_divisor, desc->attrs.sgd.momentum, desc->attrs.sgd.nesterov);
}

static cudaError_t count_step(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			      void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_count_step(stream, operands[0], desc->num_inputs > 1 ? operands[1] : NULL,
				      operands[desc->num_inputs], &desc->attrs.adam);
}

/* Operands that ADAM, LAMB, LION and LARS share; moments: 2 for the first two. */
static cuda_update update_of(const dtrain_op_desc *desc, void *const *operands, int moments)
{
	return (cuda_update){.w = operands[0],
			     .g = operands[1],
			     .m = operands[2],
			     .v = moments > 1 ? operands[3] : NULL,
			     .scalars = operands[2 + moments],
			     .group = operands[3 + moments],
			     .count = dtrain_shape_count(&desc->inputs[0].shape)};
}

static cudaError_t adam(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_update update = update_of(desc, operands, 2);
	update.scaler = operands[6];
	update.most = desc->attrs.adam.amsgrad ? operands[7] : NULL;
	return cuda_kernel_adam(stream, &update, &desc->attrs.adam);
}

static cudaError_t lion(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	(void)workspace;
	cuda_update update = update_of(desc, operands, 1);
	update.scaler = desc->num_inputs > 5 ? operands[5] : NULL;
	return cuda_kernel_lion(stream, &update, &desc->attrs.lion);
}

static cudaError_t lamb(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	cuda_update update = update_of(desc, operands, 2);
	update.scaler = operands[6];
	update.pieces = operands[7];
	update.num_pieces = desc->inputs[7].shape.dim[0];
	return cuda_kernel_lamb(stream, &update, &desc->attrs.adam, workspace);
}

static cudaError_t lars(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	cuda_update update = update_of(desc, operands, 1);
	update.pieces = operands[5];
	update.num_pieces = desc->inputs[5].shape.dim[0];
	update.scaler = desc->num_inputs > 6 ? operands[6] : NULL;
	return cuda_kernel_lars(stream, &update, &desc->attrs.lars, workspace);
}

static cudaError_t lookahead(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			     void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_lookahead(stream, operands[0], operands[1], operands[2],
				     dtrain_shape_count(&desc->inputs[0].shape), desc->num_outputs > 1);
}

static cudaError_t scaler_inspect(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				  void *const *operands, void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_scaler_inspect(stream, operands[0], operands[1], dtrain_shape_count(&desc->inputs[0].shape),
					  desc->attrs.inspect.more);
}

static cudaError_t scaler_update(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				 void *const *operands, void *workspace)
{
	(void)k;
	(void)desc;
	(void)workspace;
	return cuda_kernel_scaler_update(stream, operands[0]);
}

static cudaError_t grad_norm(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
			     void *const *operands, void *workspace)
{
	(void)k;
	return cuda_kernel_grad_norm(stream, desc->attrs.clip.norm, operands[0], operands[1],
				     desc->num_inputs > 2 ? operands[2] : NULL, operands[desc->num_inputs],
				     dtrain_shape_count(&desc->inputs[0].shape), desc->attrs.clip.grad_divisor,
				     workspace);
}

static cudaError_t clip(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream, void *const *operands,
			void *workspace)
{
	(void)k;
	(void)workspace;
	return cuda_kernel_clip(stream, desc->attrs.clip.norm, operands[0], desc->num_inputs > 1 ? operands[1] : NULL,
				operands[desc->num_inputs], desc->attrs.clip.max_norm);
}

/* ---- choosing ---- */

static bool of_input(const dtrain_device *device, dtrain_op_desc *desc)
{
	(void)device;
	return cuda_is_nhwc(&desc->inputs[0]);
}

static bool of_output(const dtrain_device *device, dtrain_op_desc *desc)
{
	(void)device;
	return cuda_is_nhwc(&desc->outputs[0]);
}

static bool always(const dtrain_device *device, dtrain_op_desc *desc)
{
	(void)device;
	(void)desc;
	return true;
}

static void lay_out_cells(const dtrain_device *device, dtrain_op_desc *desc)
{
	dtrain_operand *y = &desc->outputs[0];
	const dtrain_window_attrs *window = &desc->attrs.pixels.convolution;
	bool half = y->dtype == DTRAIN_F16 || y->dtype == DTRAIN_BF16;
	if (device->plain_pictures || !half || !cuda_is_nhwc(y) || !cuda_window_fits_cells(window, y->shape.dim[1]))
		return;
	dtrain_shape cells = cuda_cells_of(&y->shape, window);
	y->layout = cuda_cells_layout;
	y->bytes = (size_t)dtrain_shape_count(&cells) * dtrain_dtype_size(y->dtype);
}

static bool of_pictures(const dtrain_device *device, dtrain_op_desc *desc)
{
	lay_out_cells(device, desc);
	return of_output(device, desc);
}

static size_t count_workspace(const dtrain_op_desc *desc, bool nhwc)
{
	(void)nhwc;
	return desc->attrs.loss.ignored < 0 ? sizeof(float) : 0;
}

static size_t mean_workspace(const dtrain_op_desc *desc, bool nhwc)
{
	(void)nhwc;
	return cuda_kernel_column_sums_workspace(1, desc->inputs[0].shape.dim[0], 1);
}

static size_t norm_workspace(const dtrain_op_desc *desc, bool nhwc)
{
	(void)nhwc;
	return cuda_kernel_grad_norm_workspace(dtrain_shape_count(&desc->inputs[0].shape));
}

static size_t lamb_workspace(const dtrain_op_desc *desc, bool nhwc)
{
	(void)nhwc;
	return cuda_kernel_trust_workspace(desc->inputs[7].shape.dim[0]);
}

static size_t lars_workspace(const dtrain_op_desc *desc, bool nhwc)
{
	(void)nhwc;
	return cuda_kernel_trust_workspace(desc->inputs[5].shape.dim[0]);
}

/* The kinds of this file: their kernel; whether it takes its operands as NHWC, which may set the output's layout (NULL:
 * no); bytes of scratch memory (NULL: none). */
static const struct {
	cuda_kernel_launch *launch;
	bool (*order)(const dtrain_device *device, dtrain_op_desc *desc);
	size_t (*workspace)(const dtrain_op_desc *desc, bool nhwc);
} kinds[DTRAIN_OP_KIND_COUNT] = {
	[DTRAIN_OP_RELU] = {relu, order_elements},
	[DTRAIN_OP_RELU_BWD] = {relu_bwd, order_elements},
	[DTRAIN_OP_GELU] = {gelu, order_elements},
	[DTRAIN_OP_GELU_BWD] = {gelu_bwd, order_elements},
	[DTRAIN_OP_SILU] = {silu, order_elements},
	[DTRAIN_OP_SILU_BWD] = {silu_bwd, order_elements},
	[DTRAIN_OP_CHANNEL_BIAS] = {channel_bias, always},
	[DTRAIN_OP_CHANNEL_BIAS_BWD] = {channel_bias_bwd, always, bias_workspace},
	[DTRAIN_OP_ADD] = {add, order_elements},
	[DTRAIN_OP_SCALE] = {scale, order_elements},
	[DTRAIN_OP_GLOBAL_AVG_POOL] = {global_avg_pool, of_input, pool_workspace},
	[DTRAIN_OP_GLOBAL_AVG_POOL_BWD] = {global_avg_pool_bwd, of_output},
	[DTRAIN_OP_FLATTEN] = {flatten, of_input},
	[DTRAIN_OP_FLATTEN_BWD] = {flatten_bwd, of_output},
	[DTRAIN_OP_SOFTMAX_XENT] = {softmax_xent, NULL, count_workspace},
	[DTRAIN_OP_SOFTMAX_XENT_MIXED] = {softmax_xent},
	[DTRAIN_OP_XENT_PART] = {xent_part},
	[DTRAIN_OP_XENT_PART_BWD] = {xent_part},
	[DTRAIN_OP_XENT_JOIN] = {xent_part, NULL, count_workspace},
	[DTRAIN_OP_ONE_HOT] = {one_hot},
	[DTRAIN_OP_SOFTMAX_XENT_SOFT] = {target_loss},
	[DTRAIN_OP_SIGMOID_XENT] = {target_loss},
	[DTRAIN_OP_SQUARED_ERROR] = {target_loss},
	[DTRAIN_OP_MEAN] = {mean, NULL, mean_workspace},
	[DTRAIN_OP_SGD] = {sgd},
	[DTRAIN_OP_NORMALIZE] = {normalize, of_pictures},
	[DTRAIN_OP_SCALER_INSPECT] = {scaler_inspect},
	[DTRAIN_OP_SCALER_UPDATE] = {scaler_update},
	[DTRAIN_OP_LOOKAHEAD] = {lookahead},
	[DTRAIN_OP_COUNT_STEP] = {count_step},
	[DTRAIN_OP_ADAM] = {adam},
	[DTRAIN_OP_LION] = {lion},
	[DTRAIN_OP_LAMB] = {lamb, NULL, lamb_workspace},
	[DTRAIN_OP_LARS] = {lars, NULL, lars_workspace},
	[DTRAIN_OP_GRAD_NORM] = {grad_norm, NULL, norm_workspace},
	[DTRAIN_OP_CLIP] = {clip},
	[DTRAIN_OP_NARROW] = {scale},
	[DTRAIN_OP_WIDEN] = {scale},
	[DTRAIN_OP_CARRY] = {carry},
};

int cuda_build_simple(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	cuda_kernel_op k = {.launch = kinds[desc->kind].launch};
	if (!k.launch)
		return bt_fail(err, BETON_UNSUPPORTED, "device 'cuda': no kernel for op %s",
			       dtrain__op_name(desc->kind));
	if (kinds[desc->kind].order)
		k.nhwc = kinds[desc->kind].order(op->device, desc);
	if (kinds[desc->kind].workspace)
		k.own_bytes = kinds[desc->kind].workspace(desc, k.nhwc);
	return cuda_kernel_op_create(op, desc, &k, err);
}
