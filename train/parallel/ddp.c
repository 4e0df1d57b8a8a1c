/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed data parallel: every rank has all parameters. The figures are added up from the end of forward on, a unit
 * from its last gradient on, and all of them are waited for behind backward.
 */
#include "core/graph.h"
#include "sync.h"

static int32_t last_forward_node(const dtrain_graph *graph)
{
	int32_t node = -1;
	while (node + 1 < graph->num_nodes && !graph->nodes[node + 1].is_backward)
		node++;
	return node;
}

/* The node that completes the last gradient of a unit. A parameter without a gradient in this graph keeps zeros,
 * because no other program of the sync writes it either, and is not waited for. */
static int32_t last_gradient_node(const dtrain_graph *graph, int unit, int32_t least)
{
	int32_t node = least;
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		if (tensor->role == DTRAIN__GRAD && dtrain_params_at(graph->params, tensor->index)->unit == unit &&
		    tensor->producer > node)
			node = tensor->producer;
	}
	return node;
}

/* All ranks must reduce the units in the same order, so a unit that is complete early waits for those in front of
 * it. */
static int plan(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err)
{
	const dtrain_graph *graph = schedule->graph;
	int32_t after = last_forward_node(graph);
	int status = BETON_OK;
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		dtrain__call call = dtrain__sync_reduce_call(sync, i);
		after = i > 0 ? last_gradient_node(graph, i - 1, after) : after;
		status = dtrain__schedule_add(schedule, &call, after, graph->num_nodes, err);
	}
	return status;
}

const dtrain__sync_kind dtrain__sync_ddp = {.name = "ddp", .unit = "bucket", .plan = plan};
