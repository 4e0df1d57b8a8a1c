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
	return !dtrain__op_rules_of(node->kind)->updates && !dtrain__op_rules_of(node->kind)->collective;
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

/* Keeps the order of the others, and that of the deferred nodes. */
static void move_to_the_end(dtrain_graph *graph, dtrain__node *deferred)
{
	int32_t kept = 0, count = 0;
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		if (graph->nodes[i].is_deferred)
			deferred[count++] = graph->nodes[i];
		else
			graph->nodes[kept++] = graph->nodes[i];
	}
	memcpy(graph->nodes + kept, deferred, (size_t)count * sizeof(*deferred));
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
	dtrain__node *deferred = calloc((size_t)graph->num_nodes, sizeof(*deferred));
	if (read && deferred) {
		mark(graph, read);
		move_to_the_end(graph, deferred);
	} else {
		dtrain__graph_fail(graph, BETON_NO_MEMORY, "graph: out of memory for %d nodes", graph->num_nodes);
	}
	free(read);
	free(deferred);
}
