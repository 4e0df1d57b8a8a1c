/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Gradients never change once written, so x may share that of y. */
static void pass_on(dtrain_graph *graph, const dtrain__node *node)
{
	if (dtrain__needs_grad(graph, node->inputs[0]))
		dtrain__add_grad(graph, node->inputs[0], dtrain_graph_grad(graph, node->outputs[0]));
}

void dtrain__all_reduce_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	pass_on(graph, node);
}

void dtrain__all_gather_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	pass_on(graph, node);
}
