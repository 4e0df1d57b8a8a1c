/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Index of beta among the forward op's inputs. */
#define BETA 2

void dtrain__layer_norm_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain_shape shape = *dtrain_graph_shape(graph, x);
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain__node backward = {.kind = DTRAIN_OP_LAYER_NORM_BWD,
				 .attrs = node->attrs,
				 .num_inputs = 5,
				 .num_outputs = 2,
				 .inputs = {x, d_y, node->inputs[1], node->outputs[1], node->outputs[2]},
				 .outputs = {d_x, dtrain__param_grad(graph, node->inputs[1])}};
	if (node->num_inputs > BETA)
		backward.outputs[backward.num_outputs++] = dtrain__param_grad(graph, node->inputs[BETA]);
	dtrain__graph_node(graph, &backward);
	if (dtrain__needs_grad(graph, x))
		dtrain__add_grad(graph, x, d_x);
}

void dtrain__rms_norm_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain_shape shape = *dtrain_graph_shape(graph, x);
	dtrain_tensor d_x = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_RMS_NORM_BWD,
						  .attrs = node->attrs,
						  .num_inputs = 4,
						  .num_outputs = 2,
						  .inputs = {x, d_y, node->inputs[1], node->outputs[1]},
						  .outputs = {d_x, dtrain__param_grad(graph, node->inputs[1])}});
	if (dtrain__needs_grad(graph, x))
		dtrain__add_grad(graph, x, d_x);
}
