/* SPDX-License-Identifier: Apache-2.0 */
#include "core/params.h"
#include "gradients.h"

/* Indices of the residual and of the mask among the forward op's inputs and outputs. */
#define RESIDUAL 6
#define MASK 3

/* The sums of this rank, whose gradients of parameters the data ranks add up with all others. */
static dtrain_tensor append_sums(dtrain_graph *graph, const dtrain__node *node, dtrain_tensor d_y)
{
	dtrain_tensor gamma = node->inputs[1];
	dtrain_dtype dtype = dtrain_params_dtype(graph->params);
	dtrain_shape channels = *dtrain_graph_shape(graph, gamma);
	dtrain_shape length = dtrain_shape_of(1, (int64_t[]){2 * channels.dim[0] + 1});
	dtrain__node sums = {.kind = DTRAIN_OP_BATCH_NORM_SUMS,
			     .attrs = node->attrs,
			     .num_inputs = 4,
			     .num_outputs = 3,
			     .inputs = {node->inputs[0], d_y, node->outputs[1], node->outputs[2]}};
	if (node->attrs.relu)
		sums.inputs[sums.num_inputs++] = node->outputs[MASK];
	sums.outputs[0] = dtrain__graph_activation(graph, dtype, &length);
	/* The op always has this output. */
	sums.outputs[1] = dtrain__needs_grad(graph, gamma) ? dtrain__param_grad(graph, gamma)
							   : dtrain__graph_activation(graph, dtype, &channels);
	sums.outputs[2] = dtrain__param_grad(graph, node->inputs[2]);
	return dtrain__graph_node(graph, &sums);
}

void dtrain__batch_norm_sync_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], residual = node->num_inputs > RESIDUAL ? node->inputs[RESIDUAL] : -1;
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain_tensor sums = append_sums(graph, node, d_y);
	bool residual_needs = dtrain__needs_grad(graph, residual);
	if (dtrain__graph_failed(graph) || (!dtrain__needs_grad(graph, x) && !residual_needs))
		return;
	sums = dtrain__graph_collective(graph, DTRAIN_OP_ALL_REDUCE, sums, graph->params->lines.data_axes);
	dtrain_shape shape = *dtrain_graph_shape(graph, x);
	dtrain__node backward = {
		.kind = DTRAIN_OP_BATCH_NORM_SYNC_BWD,
		.attrs = node->attrs,
		.num_inputs = 6,
		.num_outputs = 1,
		.inputs = {x, d_y, node->inputs[1], node->outputs[1], node->outputs[2], sums},
		.outputs = {dtrain__graph_activation(graph, graph->dtype, &shape)},
	};
	if (node->attrs.relu)
		backward.inputs[backward.num_inputs++] = node->outputs[MASK];
	if (residual_needs)
		backward.outputs[backward.num_outputs++] = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain__graph_node(graph, &backward);
	if (residual_needs)
		dtrain__add_grad(graph, residual, backward.outputs[1]);
	if (dtrain__needs_grad(graph, x))
		dtrain__add_grad(graph, x, backward.outputs[0]);
}
