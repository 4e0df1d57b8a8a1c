/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

/* PyTorch's defaults. */
#define EPSILON 1e-5
#define MOMENTUM 0.1

static void batch_norm_backward(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], gamma = node->inputs[1], beta = node->inputs[2];
	dtrain_tensor d_x =
		dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), dtrain_graph_shape(graph, x));
	dtrain_tensor d_gamma = dtrain__graph_param_grad(graph, gamma);
	dtrain_tensor d_beta = dtrain__graph_param_grad(graph, beta);
	dtrain__node backward = {
		.kind = DTRAIN_OP_BATCH_NORM_BWD,
		.attrs = node->attrs,
		.num_inputs = 5,
		.num_outputs = 3,
		.inputs = {x, dtrain_graph_grad(graph, node->outputs[0]), gamma, node->outputs[1], node->outputs[2]},
		.outputs = {d_x, d_gamma, d_beta}};
	if (node->attrs.relu)
		backward.inputs[backward.num_inputs++] = node->outputs[3];
	dtrain__graph_node(graph, &backward);
	if (dtrain__graph_needs_grad(graph, x))
		dtrain__graph_accumulate(graph, x, d_x);
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
	node->kind = DTRAIN_OP_BATCH_NORM_TRAIN;
	node->backward = batch_norm_backward;
}

dtrain_tensor dtrain_batch_norm(dtrain_graph *graph, const char *name, dtrain_tensor x, bool relu)
{
	const dtrain__tensor *source = dtrain__graph_tensor(graph, x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim != 2 && shape.ndim != 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "batch norm '%s': %d dimensions; needs [n, c] or [n, c, h, w]", name,
					  shape.ndim);
	dtrain_shape channels = dtrain_shape_of(1, &shape.dim[1]);
	dtrain__node node = {.kind = DTRAIN_OP_BATCH_NORM_EVAL,
			     .attrs = {.relu = relu, .epsilon = EPSILON, .momentum = MOMENTUM},
			     .num_inputs = 5,
			     .num_outputs = 1};
	node.inputs[0] = x;
	node.inputs[1] = dtrain__graph_param(graph, name, "weight", &channels, DTRAIN_INIT_ONE, 0);
	node.inputs[2] = dtrain__graph_param(graph, name, "bias", &channels, DTRAIN_INIT_ZERO, 0);
	node.inputs[3] = dtrain__graph_buffer(graph, name, "running_mean", &channels, DTRAIN_INIT_ZERO);
	node.inputs[4] = dtrain__graph_buffer(graph, name, "running_var", &channels, DTRAIN_INIT_ONE);
	node.outputs[0] = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &shape);
	if (graph->training)
		add_training_outputs(graph, &node, &shape, &channels);
	return dtrain__graph_node(graph, &node);
}
