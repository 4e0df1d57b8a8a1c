/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

void dtrain__relu_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor y = node->outputs[0];
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_RELU_BWD, NULL, 2,
			    (dtrain_tensor[]){y, dtrain_graph_grad(graph, y)});
}

void dtrain__gelu_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0];
	dtrain__append_grad(graph, x, DTRAIN_OP_GELU_BWD, &node->attrs, 2,
			    (dtrain_tensor[]){x, dtrain_graph_grad(graph, node->outputs[0])});
}

void dtrain__silu_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0];
	dtrain__append_grad(graph, x, DTRAIN_OP_SILU_BWD, NULL, 2,
			    (dtrain_tensor[]){x, dtrain_graph_grad(graph, node->outputs[0])});
}

void dtrain__swiglu_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain__node backward = {
		.kind = DTRAIN_OP_SWIGLU_BWD,
		.num_inputs = 3,
		.num_outputs = 2,
		.inputs = {node->inputs[0], node->inputs[1], dtrain_graph_grad(graph, node->outputs[0])}};
	dtrain_shape shape = *dtrain_graph_shape(graph, node->inputs[0]);
	for (int i = 0; i < 2; i++)
		backward.outputs[i] = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain__graph_node(graph, &backward);
	for (int i = 0; i < 2; i++)
		if (dtrain__needs_grad(graph, node->inputs[i]))
			dtrain__add_grad(graph, node->inputs[i], backward.outputs[i]);
}

/* The same elements are kept. */
void dtrain__dropout_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_DROPOUT, &node->attrs, 2,
			    (dtrain_tensor[]){dtrain_graph_grad(graph, node->outputs[0]), node->inputs[1]});
}

/* Both terms have the gradient of the sum, and share one tensor. */
void dtrain__add_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	if (!dtrain__needs_grad(graph, node->outputs[0]))
		return;
	dtrain_tensor d = dtrain__grad_before_relu(graph, node);
	for (int i = 0; i < 2; i++)
		if (dtrain__needs_grad(graph, node->inputs[i]))
			dtrain__add_grad(graph, node->inputs[i], d);
}

void dtrain__scale_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	/* In the type of x, which may be a parameter's. */
	if (dtrain__needs_grad(graph, node->inputs[0]))
		dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_SCALE,
							  .attrs = node->attrs,
							  .num_inputs = 1,
							  .num_outputs = 1,
							  .inputs = {dtrain_graph_grad(graph, node->outputs[0])},
							  .outputs = {dtrain__param_grad(graph, node->inputs[0])}});
}

void dtrain__channel_bias_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	if (dtrain__needs_grad(graph, node->inputs[1]))
		dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_CHANNEL_BIAS_BWD,
							  .num_inputs = 1,
							  .num_outputs = 1,
							  .inputs = {d_y},
							  .outputs = {dtrain__param_grad(graph, node->inputs[1])}});
	/* Both inputs share one gradient tensor. */
	if (dtrain__needs_grad(graph, x))
		dtrain__add_grad(graph, x, d_y);
}
