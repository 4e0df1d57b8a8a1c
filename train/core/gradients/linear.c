/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Index of the bias among the forward op's inputs. */
#define BIAS 2

void dtrain__linear_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], w = node->inputs[1], b = node->num_inputs > BIAS ? node->inputs[BIAS] : -1;
	dtrain_tensor d_y = dtrain__grad_before_relu(graph, node);
	if (dtrain__needs_grad(graph, w) || dtrain__needs_grad(graph, b)) {
		dtrain__node weight = {.kind = DTRAIN_OP_LINEAR_BWD_WEIGHT,
				       .num_inputs = 2,
				       .num_outputs = 1,
				       .inputs = {x, d_y},
				       .outputs = {dtrain__param_grad(graph, w)}};
		if (b >= 0)
			weight.outputs[weight.num_outputs++] = dtrain__param_grad(graph, b);
		dtrain__graph_node(graph, &weight);
	}
	dtrain__append_grad(graph, x, DTRAIN_OP_LINEAR_BWD_DATA, NULL, 2, (dtrain_tensor[]){d_y, w});
}
