/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* A table that is also the weight of the last layer has a gradient already, to which the op adds. */
void dtrain__embedding_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor w = dtrain__graph_original(graph, node->inputs[0]), before = dtrain_graph_grad(graph, w);
	if (!dtrain__needs_grad(graph, w))
		return;
	dtrain_shape shape = *dtrain_graph_shape(graph, w);
	dtrain_tensor d_w = dtrain__graph_activation(graph, dtrain_params_dtype(graph->params), &shape);
	dtrain__graph_node(
		graph, &(dtrain__node){.kind = DTRAIN_OP_EMBEDDING_BWD,
				       .attrs = node->attrs,
				       .num_inputs = before < 0 ? 2 : 3,
				       .num_outputs = 1,
				       .inputs = {dtrain_graph_grad(graph, node->outputs[0]), node->inputs[1], before},
				       .outputs = {d_w}});
	dtrain__replace_grad(graph, w, d_w);
}
