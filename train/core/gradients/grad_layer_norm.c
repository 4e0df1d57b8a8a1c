/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* Index of beta among the forward op's inputs. */
#define BETA 2

/* Appends the op, whose first output is the gradient of x. It adds the previous gradient of x itself: x is usually also
 * what a residual connection adds. */
static void append(dtrain_graph *graph, dtrain_tensor x, dtrain__node *backward)
{
	dtrain_tensor before = dtrain_graph_grad(graph, x);
	bool needed = dtrain__needs_grad(graph, x);
	dtrain_shape shape = *dtrain_graph_shape(graph, x);
	if (needed && before >= 0)
		backward->inputs[backward->num_inputs++] = before;
	backward->outputs[0] = dtrain__graph_activation(graph, graph->dtype, &shape);
	dtrain__graph_node(graph, backward);
	if (needed)
		dtrain__replace_grad(graph, x, backward->outputs[0]);
}

void dtrain__layer_norm_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], gamma = node->inputs[1], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	dtrain__node backward = {.kind = DTRAIN_OP_LAYER_NORM_BWD,
				 .attrs = node->attrs,
				 .num_inputs = 5,
				 .num_outputs = 2,
				 .inputs = {x, d_y, gamma, node->outputs[1], node->outputs[2]},
				 .outputs = {-1, dtrain__param_grad(graph, gamma)}};
	if (node->num_inputs > BETA)
		backward.outputs[backward.num_outputs++] = dtrain__param_grad(graph, node->inputs[BETA]);
	append(graph, x, &backward);
}

void dtrain__rms_norm_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_tensor x = node->inputs[0], gamma = node->inputs[1], d_y = dtrain_graph_grad(graph, node->outputs[0]);
	append(graph, x,
	       &(dtrain__node){.kind = DTRAIN_OP_RMS_NORM_BWD,
			       .attrs = node->attrs,
			       .num_inputs = 4,
			       .num_outputs = 2,
			       .inputs = {x, d_y, gamma, node->outputs[1]},
			       .outputs = {-1, dtrain__param_grad(graph, gamma)}});
}
