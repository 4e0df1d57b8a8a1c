/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

void dtrain__max_pool_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_MAX_POOL_BWD, &node->attrs, 2,
			    (dtrain_tensor[]){dtrain_graph_grad(graph, node->outputs[0]), node->outputs[1]});
}

void dtrain__global_avg_pool_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_GLOBAL_AVG_POOL_BWD, NULL, 1, &d_y);
}

void dtrain__flatten_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_FLATTEN_BWD, NULL, 1, &d_y);
}
