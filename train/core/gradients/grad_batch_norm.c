/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Indices of the residual and of the mask among the forward op's inputs and outputs. */
#define RESIDUAL 5
#define MASK 3

void dtrain__batch_norm_train_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], residual = node->num_inputs > RESIDUAL ? node->inputs[RESIDUAL] : -1;
	dtrain_tensor gamma = node->inputs[1];
	dtrain_shape shape = *dtrain_graph_shape(graph, x);
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, &shape);
	/* The op always has this output. */
	dtrain_tensor d_gamma = dtrain__needs_grad(graph, gamma)
					? dtrain__param_grad(graph, gamma)
					: dtrain__graph_activation(graph, dtrain_params_dtype(graph->params),
								   dtrain_graph_shape(graph, gamma));
	dtrain__node backward = {
		.kind = DTRAIN_OP_BATCH_NORM_BWD,
		.attrs = node->attrs,
		.num_inputs = 5,
		.num_outputs = 3,
		.inputs = {x, dtrain_graph_grad(graph, node->outputs[0]), gamma, node->outputs[1], node->outputs[2]},
		.outputs = {d_x, d_gamma, dtrain__param_grad(graph, node->inputs[2])}};
	if (node->attrs.relu)
		backward.inputs[backward.num_inputs++] = node->outputs[MASK];
	bool residual_needs = dtrain__needs_grad(graph, residual);
	if (residual_needs)
		backward.outputs[backward.num_outputs++] = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain__graph_node(graph, &backward);
	if (residual_needs)
		dtrain__add_grad(graph, residual, backward.outputs[3]);
	if (dtrain__needs_grad(graph, x))
		dtrain__add_grad(graph, x, d_x);
}
