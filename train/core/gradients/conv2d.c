/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

void dtrain__conv2d_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], w = node->inputs[1];
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	/* The weight's gradient first: its reduction over the ranks can start while d_x is computed. */
	if (dtrain__needs_grad(graph, w))
		dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_CONV2D_BWD_WEIGHT,
							  .attrs = node->attrs,
							  .num_inputs = 2,
							  .num_outputs = 1,
							  .inputs = {x, d_y},
							  .outputs = {dtrain__param_grad(graph, w)}});
	dtrain__append_grad(graph, x, DTRAIN_OP_CONV2D_BWD_DATA, &node->attrs, 2, (dtrain_tensor[]){d_y, w});
}
