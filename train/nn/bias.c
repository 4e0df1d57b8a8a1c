/* SPDX-License-Identifier: Apache-2.0 */
#include "core/graph.h"

static void channel_bias_backward(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_CHANNEL_BIAS_BWD,
						  .num_inputs = 1,
						  .num_outputs = 1,
						  .inputs = {d_y},
						  .outputs = {dtrain__graph_param_grad(graph, node->inputs[1])}});
	/* One tensor is the gradient of both. */
	if (dtrain__graph_needs_grad(graph, x))
		dtrain__graph_accumulate(graph, x, d_y);
}

dtrain_tensor dtrain_channel_bias(dtrain_graph *graph, const char *name, dtrain_tensor x)
{
	const dtrain__tensor *source = dtrain__graph_operand(graph, name, x);
	if (!source)
		return -1;
	dtrain_shape shape = source->shape;
	if (shape.ndim != 4)
		return dtrain__graph_fail(graph, BETON_INVALID_ARGUMENT,
					  "channel bias '%s': %d dimensions; needs [n, c, h, w]", name, shape.ndim);
	dtrain_shape channels = dtrain_shape_of(1, &shape.dim[1]);
	dtrain_tensor b = dtrain__graph_param(graph, name, "bias", &channels, DTRAIN_INIT_ZERO, 0);
	dtrain_tensor y = dtrain__graph_activation(graph, graph->dtype, &shape);
	return dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_CHANNEL_BIAS,
							 .num_inputs = 2,
							 .num_outputs = 1,
							 .inputs = {x, b},
							 .outputs = {y},
							 .backward = channel_bias_backward});
}
