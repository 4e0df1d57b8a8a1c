/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation of the node list.
 */
#include <stdlib.h>

#include "graph.h"

void dtrain_graph_require_grad(dtrain_graph *graph, dtrain_tensor tensor)
{
	if (!dtrain__graph_tensor(graph, tensor))
		return;
	if (graph->has_backward)
		dtrain__graph_fail(graph, BETON_STATE, "graph: a gradient is asked for after backward");
	graph->tensors[tensor].want_grad = true;
}

dtrain_tensor dtrain_graph_grad(const dtrain_graph *graph, dtrain_tensor tensor)
{
	return tensor >= 0 && tensor < graph->num_tensors ? graph->tensors[tensor].grad : -1;
}

bool dtrain__graph_needs_grad(const dtrain_graph *graph, dtrain_tensor tensor)
{
	return tensor >= 0 && graph->tensors[tensor].needs_grad;
}

dtrain_tensor dtrain__graph_param_grad(dtrain_graph *graph, dtrain_tensor param)
{
	const dtrain__tensor *tensor = dtrain__graph_tensor(graph, param);
	if (!tensor)
		return -1;
	dtrain_tensor grad = dtrain__graph_activation(graph, tensor->dtype, &tensor->shape);
	if (grad < 0)
		return -1;
	graph->tensors[grad].role = DTRAIN__GRAD;
	graph->tensors[grad].index = graph->tensors[param].index;
	graph->tensors[param].grad = grad;
	return grad;
}

/* Gradients are never changed once written, so that tensors may share one. */
void dtrain__graph_accumulate(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor part)
{
	if (!dtrain__graph_tensor(graph, tensor) || !dtrain__graph_tensor(graph, part))
		return;
	dtrain_tensor before = graph->tensors[tensor].grad;
	if (before < 0) {
		graph->tensors[tensor].grad = part;
		return;
	}
	const dtrain__tensor *known = &graph->tensors[part];
	dtrain_tensor sum = dtrain__graph_activation(graph, known->dtype, &known->shape);
	graph->tensors[tensor].grad = dtrain__graph_node(graph, &(dtrain__node){.kind = DTRAIN_OP_ADD,
										.num_inputs = 2,
										.num_outputs = 1,
										.inputs = {before, part},
										.outputs = {sum}});
}

void dtrain__graph_replace_grad(dtrain_graph *graph, dtrain_tensor tensor, dtrain_tensor sum)
{
	if (dtrain__graph_tensor(graph, tensor) && dtrain__graph_tensor(graph, sum))
		graph->tensors[tensor].grad = sum;
}

/* A gradient is of use for parameters, for what was asked for, and for whatever depends on one of them. */
static void mark_needed(dtrain_graph *graph)
{
	for (int32_t i = 0; i < graph->num_tensors; i++)
		graph->tensors[i].needs_grad = graph->tensors[i].role == DTRAIN__PARAM || graph->tensors[i].want_grad;
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		const dtrain__node *node = &graph->nodes[i];
		bool needs = false;
		for (int k = 0; k < node->num_inputs; k++)
			needs = needs || graph->tensors[node->inputs[k]].needs_grad;
		for (int k = 0; k < node->num_outputs && needs; k++)
			graph->tensors[node->outputs[k]].needs_grad = true;
	}
}

/* The loss op makes the gradient of the mean loss itself, which is why backward starts there and nowhere else. */
static const dtrain__node *loss_node(dtrain_graph *graph, dtrain_tensor loss)
{
	const dtrain__tensor *tensor = dtrain__graph_tensor(graph, loss);
	if (!tensor)
		return NULL;
	const dtrain__node *mean = tensor->producer >= 0 ? &graph->nodes[tensor->producer] : NULL;
	const dtrain__node *node = NULL;
	if (mean && mean->kind == DTRAIN_OP_MEAN && graph->tensors[mean->inputs[0]].producer >= 0)
		node = &graph->nodes[graph->tensors[mean->inputs[0]].producer];
	if (!node || node->kind != DTRAIN_OP_SOFTMAX_XENT) {
		dtrain__graph_fail(graph, BETON_UNSUPPORTED,
				   "backward starts at the mean of a softmax cross entropy, and at nothing else");
		return NULL;
	}
	return node;
}

void dtrain_graph_backward(dtrain_graph *graph, dtrain_tensor loss)
{
	const dtrain__node *start = loss_node(graph, loss);
	if (!start)
		return;
	if (!graph->training || graph->has_backward) {
		dtrain__graph_fail(graph, BETON_STATE, "backward: %s",
				   graph->training ? "called twice" : "the graph is one for evaluation");
		return;
	}
	graph->has_backward = graph->in_backward = true;
	int32_t block = graph->block, last = (int32_t)(start - graph->nodes);
	mark_needed(graph);
	dtrain__graph_accumulate(graph, start->inputs[0], start->outputs[1]);
	for (int32_t i = last - 1; i >= 0 && !dtrain__graph_failed(graph); i--) {
		dtrain__node node = graph->nodes[i]; /* a copy: the list moves when it grows */
		if (!node.backward || graph->tensors[node.outputs[0]].grad < 0)
			continue;
		graph->block = node.block;
		node.backward(graph, &node);
	}
	graph->block = block;
	graph->in_backward = false;
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].want_grad && graph->tensors[i].grad >= 0)
			graph->tensors[graph->tensors[i].grad].keep = true;
}
