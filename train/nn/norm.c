/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "common/sized.h"
#include "core/graph.h"
#include "core/params.h"
#include "core/shape.h"
#include "nn/norm.h"

/* Inputs of the forward ops before the moments and the residual. */
#define NORM_INPUTS 5

static dtrain_batch_norm_options default_options(bool relu)
{
	return (dtrain_batch_norm_options){
		.struct_size = sizeof(dtrain_batch_norm_options), .relu = relu, .epsilon = 1e-5, .momentum = 0.1};
}

static bool is_synced(const dtrain_graph *graph)
{
	return graph->params->sync_norms && graph->params->lines.data.size > 1;
}

static void add_training_outputs(dtrain_graph *graph, dtrain__node *node, const dtrain_shape *shape,
				 const dtrain_shape *channels)
{
	dtrain_dtype dtype = dtrain_params_dtype(graph->params);
	node->outputs[1] = dtrain__graph_activation(graph, dtype, channels);
	node->outputs[2] = dtrain__graph_activation(graph, dtype, channels);
	node->num_outputs = 3;
	if (node->attrs.relu)
		node->outputs[node->num_outputs++] = dtrain__graph_activation(graph, DTRAIN_U8, shape);
	node->kind = is_synced(graph) ? DTRAIN_OP_BATCH_NORM_SYNC : DTRAIN_OP_BATCH_NORM_TRAIN;
}

/* The moments of all data ranks' batches. */
static dtrain_tensor moments_of(dtrain_graph *graph, dtrain_tensor x, const dtrain_shape *channels)
{
	const dtrain_params *params = graph->params;
	const dtrain__lines *lines = &params->lines;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){lines->data.size, 2 * channels->dim[0] + 1});
	dtrain__node node = {.kind = DTRAIN_OP_BATCH_NORM_MOMENTS,
			     .attrs.norm.rank = lines->data.rank,
			     .num_inputs = 1,
			     .num_outputs = 1,
			     .inputs = {x}};
	node.outputs[0] = dtrain__graph_activation(graph, dtrain_params_dtype(params), &shape);
	return dtrain__graph_collective(graph, DTRAIN_OP_ALL_GATHER, dtrain__graph_node(graph, &node),
					lines->data_axes);
}

static bool has_frozen_statistics(dtrain_graph *graph, const dtrain__node *node)
{
	bool frozen = false;
	for (int i = 3; i <= 4; i++) {
		const dtrain__tensor *tensor = dtrain__graph_tensor(graph, node->inputs[i]);
		frozen = frozen || (tensor && dtrain_params_buffer_at(graph->params, tensor->index)->fixed);
	}
	return frozen;
}

static dtrain__node begin_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, const dtrain_shape *channels,
			       const dtrain_batch_norm_options *options)
{
	dtrain__node node = {
		.kind = DTRAIN_OP_BATCH_NORM_EVAL,
		.attrs = {.relu = options->relu, .norm = {.epsilon = options->epsilon, .momentum = options->momentum}},
		.num_inputs = NORM_INPUTS,
		.num_outputs = 1};
	node.inputs[0] = x;
	node.inputs[1] = options->fixed_weight
				 ? dtrain__graph_fixed(graph, name, "weight", channels, DTRAIN_INIT_ONE)
				 : dtrain__graph_param(graph, name, "weight", channels, DTRAIN_INIT_ONE, 0);
	node.inputs[2] = dtrain__graph_param(graph, name, "bias", channels, DTRAIN_INIT_ZERO, 0);
	node.inputs[3] = dtrain__graph_buffer(graph, name, "running_mean", channels, DTRAIN_INIT_ZERO);
	node.inputs[4] = dtrain__graph_buffer(graph, name, "running_var", channels, DTRAIN_INIT_ONE);
	return node;
}

/* residual: -1 for none. */
static dtrain_tensor finish_norm(dtrain_graph *graph, dtrain__node *node, const dtrain_shape *shape,
				 const dtrain_shape *channels, dtrain_tensor residual)
{
	bool trains = graph->training && !has_frozen_statistics(graph, node);
	if (trains && is_synced(graph))
		node->inputs[node->num_inputs++] = moments_of(graph, node->inputs[0], channels);
	if (residual >= 0)
		node->inputs[node->num_inputs++] = residual;
	node->outputs[0] = dtrain__graph_activation(graph, graph->dtype, shape);
	if (trains)
		add_training_outputs(graph, node, shape, channels);
	return dtrain__graph_node(graph, node);
}

/* residual: -1 for none. */
static dtrain_tensor batch_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, dtrain_tensor residual,
				const dtrain_batch_norm_options *options)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim != 2 && shape.ndim != 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "batch norm '%s': %d dimensions; needs [n, c] or [n, c, h, w]", name,
					  shape.ndim);
	dtrain_shape channels = dtrain_shape_of(1, &shape.dim[1]);
	dtrain__node node = begin_norm(graph, name, x, &channels, options);
	return finish_norm(graph, &node, &shape, &channels, residual);
}

dtrain_tensor dtrain_batch_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, bool relu)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	dtrain_batch_norm_options options = default_options(relu);
	return batch_norm(graph, name, x, -1, &options);
}

void dtrain_batch_norm_options_init_sized(dtrain_batch_norm_options *options, size_t size)
{
	const dtrain_batch_norm_options defaults = default_options(false);
	bt_sized_init(options, size, &defaults);
}

dtrain_tensor dtrain_batch_norm_with(dtrain_graph *graph, const char *name, dtrain_tensor x,
				     const dtrain_batch_norm_options *given)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	dtrain_batch_norm_options options = default_options(false);
	beton_error fault;
	if (bt_sized_take(&options, given, "options", &fault) != BETON_OK)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "batch norm '%s': %s", name, fault.message);
	if (!(options.epsilon > 0) || !isfinite(options.epsilon))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "batch norm '%s': epsilon %g", name,
					  options.epsilon);
	if (!(options.momentum >= 0 && options.momentum <= 1))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "batch norm '%s': momentum %g is not in [0, 1]", name, options.momentum);
	return batch_norm(graph, name, x, -1, &options);
}

dtrain_tensor dtrain_batch_norm_add(dtrain_graph *graph, const char *name, dtrain_tensor x, dtrain_tensor residual)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	const dtrain__tensor *left = dtrain__graph_operand(graph, name, x);
	const dtrain__tensor *right = dtrain__graph_operand(graph, name, residual);
	char text[2][DTRAIN__SHAPE_TEXT];
	if (!left || !right)
		return -1;
	if (!dtrain__shape_equal(&left->shape, &right->shape))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT, "batch norm '%s': shapes %s and %s", name,
					  dtrain__shape_text(&left->shape, text[0]),
					  dtrain__shape_text(&right->shape, text[1]));
	dtrain_device *device = dtrain_params_device(graph->params);
	dtrain_device_caps caps;
	dtrain_device_get_api(device)->caps(device, &caps);
	dtrain_batch_norm_options options = default_options(caps.batch_norm_add);
	if (caps.batch_norm_add)
		return batch_norm(graph, name, x, residual, &options);
	return dtrain_add(graph, batch_norm(graph, name, x, -1, &options), residual, true);
}

static bool has_pair(const dtrain_graph *graph)
{
	dtrain_device *device = dtrain_params_device(graph->params);
	dtrain_device_caps caps;
	dtrain_device_get_api(device)->caps(device, &caps);
	return caps.batch_norm_pair && graph->training && !is_synced(graph);
}

dtrain_tensor dtrain__batch_norm_pair(dtrain_graph *graph, const char *name, dtrain_tensor x, const char *second,
				      dtrain_tensor x2)
{
	const dtrain__tensor *left = dtrain__graph_operand(graph, name, x);
	const dtrain__tensor *right = dtrain__graph_operand(graph, second, x2);
	if (!left || !right)
		return -1;
	if (!has_pair(graph) || left->shape.ndim != 4 || !dtrain__shape_equal(&left->shape, &right->shape))
		return dtrain_batch_norm_add(graph, name, x, dtrain_batch_norm(graph, second, x2, false));
	dtrain_batch_norm_options alone = default_options(false), with_relu = default_options(true);
	dtrain_shape shape = left->shape, channels = dtrain_shape_of(1, &shape.dim[1]);
	/* The order of parameters is that of two norms. */
	dtrain__node other = begin_norm(graph, second, x2, &channels, &alone);
	dtrain__node node = begin_norm(graph, name, x, &channels, &with_relu);
	if (has_frozen_statistics(graph, &other) || has_frozen_statistics(graph, &node))
		return finish_norm(graph, &node, &shape, &channels, finish_norm(graph, &other, &shape, &channels, -1));
	node.kind = DTRAIN_OP_BATCH_NORM_PAIR;
	for (int i = 0; i < NORM_INPUTS; i++)
		node.inputs[node.num_inputs++] = other.inputs[i];
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &shape);
	for (; node.num_outputs < 5; node.num_outputs++)
		node.outputs[node.num_outputs] =
			dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &channels);
	node.outputs[node.num_outputs++] = dtrain__graph_activation(graph, DTRAIN_U8, &shape);
	return dtrain__graph_node(graph, &node);
}

/* The norm of rows, with one or two parameters, and as many statistics of a row as LAYER_NORM or RMS_NORM have. */
static dtrain_tensor row_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, double epsilon,
			      dtrain_op_kind kind, bool biased)
{
	const char *what = kind == DTRAIN_OP_RMS_NORM ? "rms norm" : "layer norm";
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim < 2 || !(epsilon > 0) || !isfinite(epsilon))
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "%s '%s': %d dimensions, epsilon %g; needs [n, ..., c]", what, name,
					  shape.ndim, epsilon);
	int64_t columns = shape.dim[shape.ndim - 1], rows = dtrain_shape_count(&shape) / columns;
	dtrain_shape row = dtrain_shape_of(1, &columns), statistics = dtrain_shape_of(1, &rows);
	dtrain_dtype dtype = dtrain_params_dtype(graph->params);
	dtrain__node node = {.kind = kind, .attrs.norm.epsilon = epsilon, .num_inputs = 2, .num_outputs = 2};
	node.inputs[0] = x;
	node.inputs[1] = dtrain__graph_param(graph, name, "weight", &row, DTRAIN_INIT_ONE, 0);
	if (biased)
		node.inputs[node.num_inputs++] = dtrain__graph_param(graph, name, "bias", &row, DTRAIN_INIT_ZERO, 0);
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &shape);
	node.outputs[1] = dtrain__graph_activation(graph, dtype, &statistics);
	if (kind == DTRAIN_OP_LAYER_NORM)
		node.outputs[node.num_outputs++] = dtrain__graph_activation(graph, dtype, &statistics);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_layer_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, double epsilon)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return row_norm(graph, name, x, epsilon, DTRAIN_OP_LAYER_NORM, true);
}

dtrain_tensor dtrain_layer_norm_without_bias(dtrain_graph *graph, const char *name, dtrain_tensor x, double epsilon)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return row_norm(graph, name, x, epsilon, DTRAIN_OP_LAYER_NORM, false);
}

dtrain_tensor dtrain_rms_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, double epsilon)
{
	if (DTRAIN__MISSING(graph, name))
		return -1;
	return row_norm(graph, name, x, epsilon, DTRAIN_OP_RMS_NORM, false);
}

dtrain_tensor dtrain_normalize(dtrain_graph *graph, dtrain_tensor x, const float *mean, const float *std)
{
	if (DTRAIN__MISSING(graph, mean, std))
		return -1;
	const dtrain__tensor *source = dtrain__graph_tensor(graph, x);
	if (!source)
		return -1;
	dtrain_shape in = source->shape;
	if (source->dtype != DTRAIN_U8 || in.ndim != 4 || in.dim[3] > 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "normalize: a %s tensor of %d dimensions; needs u8 [n, h, w, c] with at most "
					  "4 channels",
					  dtrain_dtype_name(source->dtype), in.ndim);
	dtrain__node node = {.kind = DTRAIN_OP_NORMALIZE, .num_inputs = 1, .num_outputs = 1, .inputs = {x}};
	for (int64_t c = 0; c < in.dim[3]; c++) {
		if (!isfinite(mean[c]) || !isfinite(std[c]) || !(std[c] > 0))
			return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
						  "normalize: mean %g and deviation %g of channel %lld",
						  (double)mean[c], (double)std[c], (long long)c);
		node.attrs.pixels.scale[c] = 1 / std[c];
		node.attrs.pixels.shift[c] = -mean[c] / std[c];
	}
	dtrain_shape out = dtrain_shape_of(4, (int64_t[]){in.dim[0], in.dim[3], in.dim[1], in.dim[2]});
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &out);
	return dtrain__graph_node(graph, &node);
}
