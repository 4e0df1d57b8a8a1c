/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include <dtrain/model.h>

#include "train/op_case.h"
#include "core/op.h"
#include "record.h"

struct dtrain_device {
	const dtrain_device_api *api;
	record *record;
};

static void caps(const dtrain_device *device, dtrain_device_caps *out)
{
	(void)device;
	*out = (dtrain_device_caps){.batch_norm_add = true,
				    .dtypes = 1u << DTRAIN_F32 | 1u << DTRAIN_F16 | 1u << DTRAIN_BF16 |
					      1u << DTRAIN_I64 | 1u << DTRAIN_U8,
				    .alignment = 256};
}

/* Nobody looks at the memory. */
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

static int op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	for (int i = 0; i < desc->num_outputs; i++)
		desc->outputs[i].bytes =
			(size_t)dtrain_shape_count(&desc->outputs[i].shape) * dtrain_dtype_size(desc->outputs[i].dtype);
	if (device->record->count == RECORD_MAX)
		return BETON_NO_MEMORY;
	device->record->ops[device->record->count++] = *desc;
	return take(device, 1, (void **)out, err);
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

/* ---- single layers ---- */

static dtrain_operand operand(dtrain_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
	dtrain_operand out = {.dtype = dtype, .shape = dtrain_shape_of(4, (int64_t[]){n, c, h, w})};
	out.bytes = (size_t)dtrain_shape_count(&out.shape) * dtrain_dtype_size(dtype);
	return out;
}

static dtrain_operand vector(int64_t count)
{
	return (dtrain_operand){
		.dtype = DTRAIN_F32, .shape = dtrain_shape_of(1, &count), .bytes = (size_t)count * sizeof(float)};
}

static void add(record *out, dtrain_op_kind kind, const op_case *layer, int num_inputs, const dtrain_operand *inputs,
		int num_outputs, const dtrain_operand *outputs)
{
	dtrain_op_desc *desc = &out->ops[out->count++];
	*desc = (dtrain_op_desc){.kind = kind, .num_inputs = num_inputs, .num_outputs = num_outputs};
	for (int i = 0; i < 2; i++) {
		desc->attrs.kernel[i] = layer->kernel[i];
		desc->attrs.stride[i] = layer->stride[i];
		desc->attrs.padding[i] = layer->padding[i];
	}
	desc->attrs.relu = layer->relu;
	desc->attrs.epsilon = 1e-5;
	desc->attrs.momentum = 0.1;
	for (int i = 0; i < num_inputs; i++)
		desc->inputs[i] = inputs[i];
	for (int i = 0; i < num_outputs; i++)
		desc->outputs[i] = outputs[i];
}

static int64_t sides(const op_case *layer, int i)
{
	return dtrain__window_count(layer->x[2 + i], layer->kernel[i], layer->stride[i], layer->padding[i]);
}

static void add_conv(record *out, const op_case *layer, dtrain_dtype dtype)
{
	const int64_t *d = layer->x;
	dtrain_operand x = operand(dtype, d[0], d[1], d[2], d[3]);
	dtrain_operand w = operand(DTRAIN_F32, layer->out, d[1], layer->kernel[0], layer->kernel[1]);
	dtrain_operand y = operand(dtype, d[0], layer->out, sides(layer, 0), sides(layer, 1));
	add(out, DTRAIN_OP_CONV2D, layer, 2, (dtrain_operand[]){x, w}, 1, &y);
	add(out, DTRAIN_OP_CONV2D_BWD_DATA, layer, 2, (dtrain_operand[]){y, w}, 1, &x);
	add(out, DTRAIN_OP_CONV2D_BWD_WEIGHT, layer, 2, (dtrain_operand[]){x, y}, 1, &w);
}

static void add_norm(record *out, const op_case *layer, dtrain_dtype dtype)
{
	const int64_t *d = layer->x;
	dtrain_operand x = operand(dtype, d[0], d[1], d[2], d[3]), c = vector(d[1]);
	dtrain_operand mask = operand(DTRAIN_U8, d[0], d[1], d[2], d[3]);
	int relu = layer->relu;
	for (int residual = 0; residual <= relu; residual++)
		add(out, DTRAIN_OP_BATCH_NORM_TRAIN, layer, 5 + residual, (dtrain_operand[]){x, c, c, c, c, x},
		    3 + relu, (dtrain_operand[]){x, c, c, mask});
	for (int residual = 0; residual <= relu; residual++)
		add(out, DTRAIN_OP_BATCH_NORM_BWD, layer, 5 + relu, (dtrain_operand[]){x, x, c, c, c, mask},
		    3 + residual, (dtrain_operand[]){x, c, c, x});
}

static void add_pool(record *out, const op_case *layer, dtrain_dtype dtype)
{
	const int64_t *d = layer->x;
	dtrain_operand x = operand(dtype, d[0], d[1], d[2], d[3]);
	dtrain_operand y = operand(dtype, d[0], d[1], sides(layer, 0), sides(layer, 1));
	dtrain_operand index = operand(DTRAIN_U8, d[0], d[1], sides(layer, 0), sides(layer, 1));
	add(out, DTRAIN_OP_MAX_POOL, layer, 1, &x, 2, (dtrain_operand[]){y, index});
	add(out, DTRAIN_OP_MAX_POOL_BWD, layer, 2, (dtrain_operand[]){y, index}, 1, &x);
}

void record_case(record *out, const struct op_case *layer, dtrain_dtype dtype)
{
	if (layer->family == CONV)
		add_conv(out, layer, dtype);
	else if (layer->family == BATCH_NORM && layer->x[2] > 0)
		add_norm(out, layer, dtype);
	else if (layer->family == MAX_POOL)
		add_pool(out, layer, dtype);
}
