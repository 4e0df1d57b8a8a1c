/* SPDX-License-Identifier: Apache-2.0 */
#include "dnn_record.h"

#include <stdlib.h>

#include <dtrain/model.h>

#include "devices/cuda/ops/space_to_depth.h"

struct dtrain_device {
	const dtrain_device_api *api;
	record *record;
};

static void caps(const dtrain_device *device, dtrain_device_caps *out)
{
	(void)device;
	*out = (dtrain_device_caps){.batch_norm_add = true,
				    .batch_norm_pair = true,
				    .conv_bwd_add = true,
				    .weight_copies = true,
				    .dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 |
					      1u << DTRAIN_I32 | 1u << DTRAIN_I64 | 1u << DTRAIN_U8,
				    .alignment = 256};
}

/* The memory is never used. */
static int take(dtrain_device *device, size_t bytes, void **out, beton_error *err)
{
	(void)device;
	(void)bytes;
	(void)err;
	*out = malloc(1);
	return *out ? BETON_OK : BETON_NO_MEMORY;
}

static void give(dtrain_device *device, void *memory)
{
	(void)device;
	free(memory);
}

static int stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err)
{
	return take(device, 1, (void **)out, err);
}

static void stream_destroy(dtrain_stream *stream)
{
	free(stream);
}

static int stream_synchronize(dtrain_stream *stream, beton_error *err)
{
	(void)stream;
	(void)err;
	return BETON_OK;
}

static int copy(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
		beton_error *err)
{
	(void)stream;
	(void)destination;
	(void)source;
	(void)bytes;
	(void)kind;
	(void)err;
	return BETON_OK;
}

/* Marks a picture that is stored as cells. */
static const char picture_of_cells[] = "cells";

static int add(record *made, const dtrain_op_desc *desc)
{
	if (made->count == RECORD_MAX)
		return BETON_NO_MEMORY;
	made->ops[made->count++] = *desc;
	return BETON_OK;
}

/* A convolution that a batch norm follows may run with that one's sums or without. */
static int add_both(record *made, const dtrain_op_desc *desc)
{
	dtrain_op_desc alone = *desc;
	int status = add(made, desc);
	if (status != BETON_OK || desc->kind != DTRAIN_OP_CONV2D || desc->attrs.window.fusion == DTRAIN_FUSION_NONE)
		return status;
	alone.attrs.window.fusion = DTRAIN_FUSION_NONE;
	return add(made, &alone);
}

static int op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	for (int i = 0; i < desc->num_outputs; i++)
		desc->outputs[i].bytes =
			(size_t)dtrain_shape_count(&desc->outputs[i].shape) * dtrain_dtype_size(desc->outputs[i].dtype);
	if (desc->kind == DTRAIN_OP_NORMALIZE && desc->outputs[0].dtype != DTRAIN_F32 &&
	    cuda_window_fits_cells(&desc->attrs.pixels.convolution, desc->outputs[0].shape.dim[1]))
		desc->outputs[0].layout = picture_of_cells;
	const dtrain_op_desc as_run = desc->inputs[0].layout == picture_of_cells ? cuda_conv_of_cells(desc) : *desc;
	int status = add_both(device->record, &as_run);
	return status == BETON_OK ? take(device, 1, (void **)out, err) : status;
}

static void op_destroy(dtrain_op *op)
{
	free(op);
}

static const dtrain_device_api api = {.api_version = DTRAIN_DEVICE_API_VERSION,
				      .name = "record",
				      .caps = caps,
				      .alloc = take,
				      .free = give,
				      .stream_create = stream_create,
				      .stream_destroy = stream_destroy,
				      .stream_synchronize = stream_synchronize,
				      .copy = copy,
				      .op_create = op_create,
				      .op_destroy = op_destroy};

static void build(dtrain_graph *graph, const char *model, dtrain_dtype dtype, int64_t batch, int64_t side)
{
	static const float mean[] = {120, 120, 120}, std[] = {60, 60, 60};
	dtrain_graph_set_dtype(graph, dtype);
	dtrain_shape pixels = dtrain_shape_of(4, (int64_t[]){batch, side, side, 3});
	dtrain_shape labels = dtrain_shape_of(1, &batch);
	dtrain_tensor image = dtrain_graph_input(graph, "image", DTRAIN_U8, &pixels);
	dtrain_tensor label = dtrain_graph_input(graph, "label", DTRAIN_I64, &labels);
	dtrain_tensor logits = dtrain_model_build(graph, model, dtrain_normalize(graph, image, mean, std), 1000);
	dtrain_tensor loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, label, 0.1));
	if (dtrain_graph_training(graph))
		dtrain_graph_backward(graph, loss);
	else
		dtrain_graph_keep(graph, loss);
}

int record_model(record *out, const char *model, bool training, dtrain_dtype dtype, int64_t batch, int64_t side,
		 beton_error *err)
{
	dtrain_device device = {.api = &api, .record = out};
	dtrain_params *params = NULL;
	dtrain_graph *graph = NULL;
	dtrain_program *program = NULL;
	int status = dtrain_params_create(&device, DTRAIN_F32, &params, err);
	if (status == BETON_OK)
		status = dtrain_graph_create(params, training, &graph, err);
	if (status == BETON_OK) {
		build(graph, model, dtype, batch, side);
		status = dtrain_graph_compile(&graph, &program, err);
	}
	dtrain_program_destroy(&program);
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&params);
	return status;
}
