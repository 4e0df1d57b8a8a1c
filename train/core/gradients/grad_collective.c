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
	const dtrain_collective_attrs *attrs = &node->attrs.collective;
	dtrain_tensor x = node->inputs[0], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	int64_t rows = dtrain_graph_shape(graph, x)->dim[0];
	bool of_part = rows != dtrain_graph_shape(graph, node->outputs[0])->dim[0];
	if (!of_part)
		pass_on(graph, node);
	else if (dtrain__needs_grad(graph, x))
		dtrain__add_grad(graph, x,
				 attrs->differ ? dtrain__graph_reduce_scatter(graph, d_y, attrs->axes)
					       : dtrain_slice(graph, d_y, 0, attrs->rank * rows, rows));
}

void dtrain__reduce_scatter_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor d_y = dtrain_graph_grad(graph, node->outputs[0]);
	if (dtrain__needs_grad(graph, node->inputs[0]))
		dtrain__add_grad(graph, node->inputs[0],
				 dtrain__graph_gather(graph, d_y, node->attrs.collective.axes, true));
}
