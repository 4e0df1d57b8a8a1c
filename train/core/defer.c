/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves the gradients of weights after the gradients of activations. A pipeline schedule without bubbles computes them
 * while a rank waits for another stage ("zero bubble").
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "graph.h"
#include "op.h"

/* Whether only gradients of parameters depend on the node. read: roots that nodes of the phase before read. */
static bool is_deferred(const dtrain_graph *graph, const dtrain__node *node, const bool *read)
{
	for (int i = 0; i < node->num_outputs; i++) {
		dtrain_tensor root = dtrain__graph_root(graph, node->outputs[i]);
		const dtrain__tensor *tensor = &graph->tensors[root];
		bool kind = tensor->role == DTRAIN__GRAD || tensor->role == DTRAIN__ACTIVATION;
		if (!kind || tensor->keep || read[root])
			return false;
	}
	const dtrain__op_rules *rules = dtrain__op_rules_of(node->kind);
	return !rules->updates && (!rules->collective || node->is_repeated);
}

static void mark(dtrain_graph *graph, bool *read)
{
	for (int32_t i = graph->num_nodes - 1; i >= 0 && graph->nodes[i].is_backward; i--) {
		dtrain__node *node = &graph->nodes[i];
		node->is_deferred = is_deferred(graph, node, read);
		for (int k = 0; k < node->num_inputs && !node->is_deferred; k++)
			read[dtrain__graph_root(graph, node->inputs[k])] = true;
	}
}

/* A gradient that is complete earlier would be overwritten by the next micro-batch's before it is added up: it stays in
 * the arena, and a deferred node copies it. */
static void copy_early_gradients(dtrain_graph *graph)
{
	const int32_t tensors = graph->num_tensors, nodes = graph->num_nodes, block = graph->block;
	graph->in_backward = true;
	for (dtrain_tensor i = 0; i < tensors && !dtrain__graph_failed(graph); i++) {
		const dtrain__tensor grad = graph->tensors[i];
		if (grad.role != DTRAIN__GRAD || grad.producer < 0 || graph->nodes[grad.producer].is_deferred)
			continue;
		dtrain__node copy = {
			.kind = DTRAIN_OP_SCALE, .attrs.factor = 1, .num_inputs = 1, .num_outputs = 1, .inputs = {i}};
		graph->block = graph->nodes[grad.producer].block;
		copy.outputs[0] = dtrain__graph_activation(graph, grad.dtype, &grad.shape);
		if (dtrain__graph_node(graph, &copy) < 0)
			break;
		graph->nodes[graph->num_nodes - 1].is_deferred = true;
		graph->tensors[i].role = DTRAIN__ACTIVATION;
		graph->tensors[copy.outputs[0]].role = DTRAIN__GRAD;
		graph->tensors[copy.outputs[0]].index = grad.index;
		for (dtrain_tensor k = 0; k < tensors; k++)
			if (graph->tensors[k].role == DTRAIN__PARAM && graph->tensors[k].grad == i)
				graph->tensors[k].grad = copy.outputs[0];
	}
	graph->in_backward = false;
	graph->block = block;
	/* Units are reduced in the order of blocks, the last one first. */
	for (int32_t i = nodes; i < graph->num_nodes; i++) {
		const dtrain__node copy = graph->nodes[i];
		int32_t place = i;
		for (int32_t k = i - 1; k >= 0 && graph->nodes[k].is_backward; k--)
			if (!graph->nodes[k].is_deferred || graph->nodes[k].block < copy.block)
				place = k;
			else
				break;
		memmove(&graph->nodes[place + 1], &graph->nodes[place], (size_t)(i - place) * sizeof(copy));
		graph->nodes[place] = copy;
	}
}

/* Keeps the order of the others, and that of the deferred nodes. */
static void move_to_the_end(dtrain_graph *graph)
{
	int32_t kept = 0, count = 0;
	dtrain__node *deferred = calloc((size_t)graph->num_nodes, sizeof(*deferred));
	if (!deferred) {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d nodes", graph->num_nodes);
		return;
	}
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		if (graph->nodes[i].is_deferred)
			deferred[count++] = graph->nodes[i];
		else
			graph->nodes[kept++] = graph->nodes[i];
	}
	memcpy(graph->nodes + kept, deferred, (size_t)count * sizeof(*deferred));
	free(deferred);
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_outputs; k++)
			graph->tensors[graph->nodes[i].outputs[k]].producer = i;
}

void dtrain_graph_defer_weights(dtrain_graph *graph)
{
	if (!graph || dtrain__graph_failed(graph))
		return;
	if (!graph->has_backward) {
		dtrain__graph_fail(graph, BETON_STATE, "defer weights: the graph has no backward");
		return;
	}
	bool *read = calloc((size_t)graph->num_tensors, sizeof(*read));
	if (!read) {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d tensors", graph->num_tensors);
		return;
	}
	mark(graph, read);
	free(read);
	copy_early_gradients(graph);
	if (!dtrain__graph_failed(graph))
		move_to_the_end(graph);
}
