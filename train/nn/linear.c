/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

/* The place of the bias among the inputs of the forward op. */
#define BIAS 2

static void linear_backward(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], w = node->inputs[1];
	dtrain_tensor y = node->outputs[0];
	dtrain_tensor d_y = node->attrs.relu ? dtrain__relu_gradient(graph, y) : dtrain_graph_grad(graph, y);
	dtrain__node weight = {.kind = DTRAIN_OP_LINEAR_BWD_WEIGHT,
			       .num_inputs = 2,
			       .num_outputs = 1,
			       .inputs = {x, d_y},
			       .outputs = {dtrain__graph_param_grad(graph, w)}};
	if (node->num_inputs > BIAS)
		weight.outputs[weight.num_outputs++] = dtrain__graph_param_grad(graph, node->inputs[BIAS]);
	dtrain__graph_node(graph, &weight);
	if (!dtrain__graph_needs_grad(graph, x))
		return;
	const dtrain_shape *shape = dtrain_graph_shape(graph, x);
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, shape);
	dtrain__graph_accumulate(graph, x,
				 dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_LINEAR_BWD_DATA,
									   .num_inputs = 2,
									   .num_outputs = 1,
									   .inputs = {d_y, w},
									   .outputs = {d_x}}));
}

static dtrain_tensor linear(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features, bool biased,
			    bool relu)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape in = source->shape;
	if (in.ndim != 2 || out_features < 1)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "linear '%s': %lld features from %d dimensions; needs [n, in]", name,
					  (long long)out_features, in.ndim);
	dtrain_shape weight = dtrain_shape_of(2, (int64_t[]){out_features, in.dim[1]});
	dtrain_tensor w = dtrain__graph_param(graph, name, "weight", &weight, DTRAIN_INIT_LINEAR_UNIFORM, in.dim[1]);
	dtrain__node node = {.kind = DTRAIN_OP_LINEAR,
			     .attrs.relu = relu,
			     .num_inputs = 2,
			     .num_outputs = 1,
			     .inputs = {x, w},
			     .backward = linear_backward};
	if (biased) {
		dtrain_shape bias = dtrain_shape_of(1, &out_features);
		node.inputs[node.num_inputs++] =
			dtrain__graph_param(graph, name, "bias", &bias, DTRAIN_INIT_LINEAR_UNIFORM, in.dim[1]);
	}
	dtrain_shape out = dtrain_shape_of(2, (int64_t[]){in.dim[0], out_features});
	node.outputs[0] = dtrain__graph_activation(graph, graph->dtype, &out);
	return dtrain__graph_node(graph, &node);
}

dtrain_tensor dtrain_linear(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	return linear(graph, name, x, out_features, true, false);
}

dtrain_tensor dtrain_linear_relu(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	return linear(graph, name, x, out_features, true, true);
}

dtrain_tensor dtrain_linear_without_bias(dtrain_graph *graph, const char *name, dtrain_tensor x, int64_t out_features)
{
	return linear(graph, name, x, out_features, false, false);
}
