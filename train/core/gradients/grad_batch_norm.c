/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Indices of the residual and of the mask among the forward op's inputs and outputs. */
#define RESIDUAL 5
#define MASK 3

/* The op always has this output. */
static dtrain_tensor gamma_grad(dtrain_graph *graph, dtrain_tensor gamma)
{
	return dtrain__needs_grad(graph, gamma) ? dtrain__param_grad(graph, gamma)
						: dtrain__graph_activation(graph, dtrain_params_dtype(graph->params),
									   dtrain_graph_shape(graph, gamma));
}

void dtrain__batch_norm_train_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], residual = node->num_inputs > RESIDUAL ? node->inputs[RESIDUAL] : -1;
	dtrain_tensor gamma = node->inputs[1];
	dtrain_shape shape = *dtrain_graph_shape(graph, x);
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain_tensor d_gamma = gamma_grad(graph, gamma);
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

void dtrain__batch_norm_pair_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	const dtrain_tensor *of = node->inputs, *out = node->outputs;
	dtrain_shape shape = *dtrain_graph_shape(graph, of[0]);
	dtrain__node backward = {.kind = DTRAIN_OP_BATCH_NORM_PAIR_BWD,
				 .attrs = node->attrs,
				 .num_inputs = 10,
				 .num_outputs = 6,
				 .inputs = {of[0], dtrain_graph_grad(graph, out[0]), of[1], out[1], out[2], out[5],
					    of[5], of[6], out[3], out[4]}};
	for (int k = 0; k < 2; k++) {
		backward.outputs[3 * k] = dtrain__graph_activation(graph, graph->dtype, &shape);
		backward.outputs[3 * k + 1] = gamma_grad(graph, of[5 * k + 1]);
		backward.outputs[3 * k + 2] = dtrain__param_grad(graph, of[5 * k + 2]);
	}
	dtrain__graph_node(graph, &backward);
	for (int k = 0; k < 2; k++)
		if (dtrain__needs_grad(graph, of[5 * k]))
			dtrain__add_grad(graph, of[5 * k], backward.outputs[3 * k]);
}
