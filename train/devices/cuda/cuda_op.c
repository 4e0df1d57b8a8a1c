/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda device: creates and runs ops. The builders' files implement them.
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "cuda.h"
#include "tuner.h"

const char cuda_nhwc[] = "NHWC";
const char cuda_nhwc_sums[] = "NHWC with sums of channels";
const char cuda_cells_layout[] = "NHWC of cells of 2 x 2 pixels";
const char cuda_dnn_private[] = "cuDNN's own";

/* Between two ops activations may have 4 dimensions, and are channels-last; a weight's gradient belongs to the
 * caller. */
static bool is_weight_gradient(const dtrain_op_desc *desc)
{
	return desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT;
}

static void lay_out(dtrain_op_desc *desc)
{
	for (int i = 0; i < desc->num_outputs; i++) {
		dtrain_operand *output = &desc->outputs[i];
		bool nhwc = output->shape.ndim == 4 && !desc->plain_output[i] && !is_weight_gradient(desc);
		output->layout = nhwc ? cuda_nhwc : NULL;
		output->bytes = (size_t)dtrain_shape_count(&output->shape) * dtrain_dtype_size(output->dtype);
	}
	desc->workspace_bytes = 0;
}

static bool is_ours(const dtrain_op_desc *desc, int index)
{
	const dtrain_operand *input = &desc->inputs[index];
	if (cuda_is_nhwc(input))
		return input->shape.ndim == 4;
	if (cuda_is_cells(input))
		return index == 0 && (desc->kind == DTRAIN_OP_CONV2D || desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT);
	/* If the mask is cuDNN's, var's place has the inverse deviation of the same op. */
	bool mask = input->dtype == DTRAIN_U8;
	bool deviation = desc->kind == DTRAIN_OP_BATCH_NORM_BWD && index == 4 && desc->num_inputs > 5 &&
			 desc->inputs[5].layout == cuda_dnn_private;
	return input->layout == cuda_dnn_private && (mask || deviation);
}

typedef int builder(dtrain_op *op, dtrain_op_desc *desc, beton_error *err);

/* NULL: cuda_build_simple, which has a table of its own. */
static builder *const builders[DTRAIN_OP_KIND_COUNT] = {
	[DTRAIN_OP_CONV2D] = cuda_build_conv,
	[DTRAIN_OP_CONV2D_BWD_DATA] = cuda_build_conv,
	[DTRAIN_OP_CONV2D_BWD_WEIGHT] = cuda_build_conv,
	[DTRAIN_OP_LINEAR] = cuda_build_linear,
	[DTRAIN_OP_LINEAR_BWD_DATA] = cuda_build_linear,
	[DTRAIN_OP_LINEAR_BWD_WEIGHT] = cuda_build_linear,
	[DTRAIN_OP_BATCH_NORM_TRAIN] = cuda_build_batch_norm,
	[DTRAIN_OP_BATCH_NORM_EVAL] = cuda_build_batch_norm,
	[DTRAIN_OP_BATCH_NORM_BWD] = cuda_build_batch_norm,
	[DTRAIN_OP_BATCH_NORM_PAIR] = cuda_build_batch_norm_pair,
	[DTRAIN_OP_BATCH_NORM_PAIR_BWD] = cuda_build_batch_norm_pair,
	[DTRAIN_OP_BATCH_NORM_MOMENTS] = cuda_build_batch_norm_sync,
	[DTRAIN_OP_BATCH_NORM_SYNC] = cuda_build_batch_norm_sync,
	[DTRAIN_OP_BATCH_NORM_SUMS] = cuda_build_batch_norm_sync,
	[DTRAIN_OP_BATCH_NORM_SYNC_BWD] = cuda_build_batch_norm_sync,
	[DTRAIN_OP_MAX_POOL] = cuda_build_max_pool,
	[DTRAIN_OP_MAX_POOL_BWD] = cuda_build_max_pool,
	[DTRAIN_OP_SWIGLU] = cuda_build_rows,
	[DTRAIN_OP_SWIGLU_BWD] = cuda_build_rows,
	[DTRAIN_OP_LAYER_NORM] = cuda_build_rows,
	[DTRAIN_OP_LAYER_NORM_BWD] = cuda_build_rows,
	[DTRAIN_OP_RMS_NORM] = cuda_build_rows,
	[DTRAIN_OP_RMS_NORM_BWD] = cuda_build_rows,
	[DTRAIN_OP_EMBEDDING] = cuda_build_rows,
	[DTRAIN_OP_EMBEDDING_BWD] = cuda_build_rows,
	[DTRAIN_OP_ROTARY] = cuda_build_rows,
	[DTRAIN_OP_DROPOUT] = cuda_build_rows,
	[DTRAIN_OP_ATTENTION] = cuda_build_fused_attention,
	[DTRAIN_OP_ATTENTION_BWD] = cuda_build_fused_attention,
	[DTRAIN_OP_ATTENTION_CACHED] = cuda_build_attention,
	[DTRAIN_OP_ATTENTION_DROPOUT] = cuda_build_attention,
	[DTRAIN_OP_ATTENTION_DROPOUT_BWD] = cuda_build_attention,
	[DTRAIN_OP_LINEAR_XENT] = cuda_build_linear_loss,
	[DTRAIN_OP_LINEAR_XENT_EVAL] = cuda_build_linear_loss,
	[DTRAIN_OP_LINEAR_XENT_BIAS] = cuda_build_linear_loss,
	[DTRAIN_OP_LINEAR_XENT_BIAS_EVAL] = cuda_build_linear_loss,
	[DTRAIN_OP_MATMUL] = cuda_build_linear,
	[DTRAIN_OP_SLICE] = cuda_build_move,
	[DTRAIN_OP_JOIN_CHUNKS] = cuda_build_move,
	[DTRAIN_OP_SPLIT_CHUNKS] = cuda_build_move,
	[DTRAIN_OP_SLICE_BWD] = cuda_build_move,
	[DTRAIN_OP_PERMUTE] = cuda_build_move,
	[DTRAIN_OP_PREPEND] = cuda_build_move,
	[DTRAIN_OP_PREPEND_BWD] = cuda_build_move,
	[DTRAIN_OP_CAST] = cuda_build_cast,
	[DTRAIN_OP_MUON] = cuda_build_muon,
	[DTRAIN_OP_QUANTIZE] = cuda_build_compress,
	[DTRAIN_OP_DEQUANTIZE] = cuda_build_compress,
	[DTRAIN_OP_TOP_K] = cuda_build_compress,
	[DTRAIN_OP_SPREAD] = cuda_build_compress,
	[DTRAIN_OP_ORTHONORMALIZE] = cuda_build_compress,
};

static int check(const dtrain_op_desc *desc, beton_error *err)
{
	int status = dtrain__op_check(desc, err);
	if (status != BETON_OK)
		return status;
	dtrain_dtype dtype = dtrain__op_compute_type(desc);
	if (dtype == DTRAIN_F64)
		return bt_fail(err, BETON_UNSUPPORTED, "device 'cuda': op %s in %s", dtrain__op_name(desc->kind),
			       dtrain_dtype_name(dtype));
	for (int i = 0; i < desc->num_inputs; i++)
		if (desc->inputs[i].layout && !is_ours(desc, i))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "device 'cuda': op %s: operand %d has the layout of another device",
				       dtrain__op_name(desc->kind), i);
	return BETON_OK;
}

int cuda_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	*out = NULL;
	int status = check(desc, err);
	if (status == BETON_OK)
		status = cuda_enter(device, err);
	if (status != BETON_OK)
		return status;
	dtrain_op *op = calloc(1, sizeof(*op));
	if (!op)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	op->device = device;
	const dtrain_op_desc given = *desc;
	lay_out(desc);
	pthread_mutex_lock(&device->lock);
	device->untuned = false;
	status = (builders[desc->kind] ? builders[desc->kind] : cuda_build_simple)(op, desc, err);
	if (status == BETON_OK && device->untuned)
		cuda_tuner_add(device->tuner, &given);
	pthread_mutex_unlock(&device->lock);
	if (status != BETON_OK) {
		cuda_op_destroy(op);
		return status;
	}
	op->desc = *desc;
	*out = op;
	return BETON_OK;
}

void cuda_op_destroy(dtrain_op *op)
{
	if (!op)
		return;
	if (op->destroy) {
		(void)cuda_enter(op->device, NULL);
		pthread_mutex_lock(&op->device->lock);
		op->destroy(op->state);
		pthread_mutex_unlock(&op->device->lock);
	}
	free(op);
}

int cuda_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	int status = cuda_enter(op->device, err);
	if (status != BETON_OK)
		return status;
	pthread_mutex_lock(&op->device->lock);
	status = op->run(op, stream->stream, operands, workspace, err);
	pthread_mutex_unlock(&op->device->lock);
	return status;
}
