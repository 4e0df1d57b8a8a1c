/* SPDX-License-Identifier: Apache-2.0 */
#include "gradients.h"

/* q, k and v among the forward op's inputs; the backward op has all others, too. */
#define OPERANDS 3

static void add_gradient(dtrain_graph *graph, const dtrain__node *node, dtrain_op_kind kind)
{
	int gradients = node->attrs.attention.packed ? 1 : OPERANDS;
	dtrain__node backward = {.kind = kind,
				 .attrs = node->attrs,
				 .num_inputs = 6,
				 .num_outputs = gradients,
				 .inputs = {node->inputs[0], node->inputs[1], node->inputs[2], node->outputs[0],
					    dtrain_graph_grad(graph, node->outputs[0]), node->outputs[1]}};
	for (int i = OPERANDS; i < node->num_inputs; i++)
		backward.inputs[backward.num_inputs++] = node->inputs[i];
	bool needed = false;
	for (int i = 0; i < gradients; i++) {
		dtrain_shape shape = *dtrain_graph_shape(graph, node->inputs[i]);
		backward.outputs[i] = dtrain__graph_activation(graph, graph->dtype, &shape);
		needed = needed || dtrain__needs_grad(graph, node->inputs[i]);
	}
	if (!needed)
		return;
	dtrain__graph_node(graph, &backward);
	for (int i = 0; i < gradients; i++)
		if (dtrain__needs_grad(graph, node->inputs[i]))
			dtrain__add_grad(graph, node->inputs[i], backward.outputs[i]);
}

void dtrain__attention_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	add_gradient(graph, node, DTRAIN_OP_ATTENTION_BWD);
}

void dtrain__attention_dropout_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	add_gradient(graph, node, DTRAIN_OP_ATTENTION_DROPOUT_BWD);
}

void dtrain__rotary_gradient(dtrain_graph *graph, const dtrain__node *node)
{
	dtrain_op_attrs back = node->attrs;
	back.rotary.inverse = !back.rotary.inverse;
	dtrain__append_grad(graph, node->inputs[0], DTRAIN_OP_ROTARY, &back, node->num_inputs,
			    (dtrain_tensor[]){dtrain_graph_grad(graph, node->outputs[0]), node->inputs[1]});
}
