/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes and transfers of a step, and when each of them ran.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/graph.h"
#include "core/program.h"
#include "sync.h"

/* The context of a call that marks where a node ends. */
typedef struct trace_node {
	dtrain_sync *sync;
	int32_t node;
} trace_node;

int dtrain__timeline_create(dtrain_sync *sync, beton_error *err)
{
	sync->timeline = calloc(1, sizeof(*sync->timeline));
	return sync->timeline ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
}

static void clear(sync_timeline *timeline)
{
	free(timeline->overlap.nodes);
	free(timeline->overlap.transfers);
	free(timeline->costs);
	free(timeline->operations);
	*timeline = (sync_timeline){0};
}

void dtrain__timeline_destroy(dtrain_sync *sync)
{
	if (sync->timeline)
		clear(sync->timeline);
	free(sync->timeline);
	sync->timeline = NULL;
}

/* ---- planning ---- */

/* A node that reads a parameter in backward may write its gradient, too: the parameter is the same. */
static int32_t param_of(const dtrain_graph *graph, const dtrain__node *node)
{
	for (int i = 0; i < node->num_outputs; i++) {
		dtrain_tensor tensor = node->outputs[i] < 0 ? -1 : dtrain__graph_root(graph, node->outputs[i]);
		if (tensor >= 0 && graph->tensors[tensor].role == DTRAIN__GRAD)
			return graph->tensors[tensor].index;
	}
	for (int i = 0; i < node->num_inputs; i++) {
		dtrain_tensor tensor = node->inputs[i] < 0 ? -1 : dtrain__graph_root(graph, node->inputs[i]);
		if (tensor >= 0 &&
		    (graph->tensors[tensor].role == DTRAIN__PARAM || graph->tensors[tensor].role == DTRAIN__COPY))
			return graph->tensors[tensor].index;
	}
	return -1;
}

static int trace_node_end(void *context, const dtrain__run *run, beton_error *err)
{
	const trace_node *self = context;
	dtrain_sync *sync = self->sync;
	return sync->trace && dtrain__run_is_last(run)
		       ? sync->api->event_mark(sync->trace->nodes[self->node], run->stream, err)
		       : BETON_OK;
}

int dtrain__timeline_begin(dtrain_sync *sync, sync_program *program, dtrain__schedule *schedule, beton_error *err)
{
	const dtrain_graph *graph = schedule->graph;
	if (!sync->timeline)
		return BETON_OK;
	clear(sync->timeline);
	dtrain_overlap *overlap = &sync->timeline->overlap;
	overlap->nodes = calloc((size_t)graph->num_nodes + 1, sizeof(*overlap->nodes));
	sync->timeline->costs = calloc((size_t)graph->num_nodes + 1, sizeof(*sync->timeline->costs));
	program->trace_nodes = calloc((size_t)graph->num_nodes, sizeof(*program->trace_nodes));
	if (!overlap->nodes || !sync->timeline->costs || !program->trace_nodes)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory for the times of %d nodes", graph->num_nodes);
	overlap->num_nodes = graph->num_nodes;
	for (int32_t i = 0; i < graph->num_nodes; i++) {
		overlap->nodes[i].param = param_of(graph, &graph->nodes[i]);
		sync->timeline->costs[i] = dtrain__node_cost(graph, &graph->nodes[i]);
	}
	int status = BETON_OK;
	/* A program that is only planned never runs. */
	for (int32_t i = 0; i < graph->num_nodes && !sync->options.plan_ranks && status == BETON_OK; i++) {
		program->trace_nodes[i] = (trace_node){.sync = sync, .node = i};
		const dtrain__call call = {
			.name = "trace event of a node", .issue = trace_node_end, .context = &program->trace_nodes[i]};
		status = dtrain__schedule_add(schedule, &call, i, i + 1, err);
	}
	return status;
}

int dtrain__timeline_add(dtrain_sync *sync, const dtrain_overlap_transfer *transfer, const sync_operation *operation,
			 beton_error *err)
{
	sync_timeline *self = sync->timeline;
	if (!self)
		return BETON_OK;
	size_t count = (size_t)self->overlap.num_transfers + 1;
	dtrain_overlap_transfer *transfers = realloc(self->overlap.transfers, count * sizeof(*transfers));
	self->overlap.transfers = transfers ? transfers : self->overlap.transfers;
	int *operations = realloc(self->operations, count * sizeof(*operations));
	self->operations = operations ? operations : self->operations;
	if (!transfers || !operations)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory for the times of %zu transfers", count);
	transfers[count - 1] = *transfer;
	operations[count - 1] = operation->index;
	self->overlap.num_transfers++;
	return BETON_OK;
}

/* ---- reading ---- */

int dtrain_sync_get_overlap(const dtrain_sync *sync, dtrain_overlap **out, beton_error *err)
{
	if (BT_MISSING(err, sync, out))
		return BETON_INVALID_ARGUMENT;
	const sync_timeline *from = sync->timeline;
	*out = NULL;
	if (!from || !from->overlap.num_nodes)
		return bt_fail(err, BETON_STATE, "sync: %s",
			       from ? "no graph with backward was compiled" : "it has not the option overlap");
	dtrain_overlap *copy = calloc(1, sizeof(*copy));
	size_t nodes = (size_t)from->overlap.num_nodes * sizeof(*copy->nodes);
	size_t transfers = (size_t)from->overlap.num_transfers * sizeof(*copy->transfers);
	if (copy) {
		*copy = from->overlap;
		copy->nodes = malloc(nodes);
		copy->transfers = malloc(transfers + 1);
	}
	if (!copy || !copy->nodes || !copy->transfers) {
		dtrain_overlap_destroy(&copy);
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory for the times of a step");
	}
	memcpy(copy->nodes, from->overlap.nodes, nodes);
	if (transfers)
		memcpy(copy->transfers, from->overlap.transfers, transfers);
	*out = copy;
	return BETON_OK;
}

int dtrain_sync_estimate_overlap(const dtrain_sync *sync, double flops, double bandwidth, dtrain_overlap *overlap,
				 beton_error *err)
{
	const sync_timeline *timeline = sync->timeline;
	if (!timeline || overlap->num_nodes != timeline->overlap.num_nodes)
		return bt_fail(err, BETON_STATE, "sync: it has no costs of %d nodes", overlap->num_nodes);
	for (int32_t i = 0; i < overlap->num_nodes; i++) {
		double products = timeline->costs[i].flops / flops, memory = timeline->costs[i].bytes / bandwidth;
		overlap->nodes[i].ms = 1e3 * (products > memory ? products : memory);
	}
	return BETON_OK;
}

static void read_transfers(const dtrain_sync_trace *trace, dtrain_overlap *overlap)
{
	const dtrain_sync *sync = trace->sync;
	double began = dtrain__group_is_stream_ordered(sync->group) ? 0 : trace->began_ms;
	for (int32_t i = 0; i < overlap->num_transfers; i++) {
		const sync_trace_event *trace_event = &trace->operations[sync->timeline->operations[i]];
		dtrain_overlap_transfer *transfer = &overlap->transfers[i];
		transfer->begin_ms = trace_event->used ? trace_event->begin_ms - began : 0;
		transfer->end_ms = trace_event->used ? trace_event->end_ms - began : 0;
		transfer->exposed_ms = trace_event->used ? trace_event->exposed_ms : 0;
	}
}

/* The time from the end of one node to the end of the next one includes the waits between them. */
int dtrain_sync_read_overlap(const dtrain_sync_trace *trace, dtrain_overlap *overlap, beton_error *err)
{
	if (BT_MISSING(err, trace))
		return BETON_INVALID_ARGUMENT;
	const dtrain_sync *sync = trace->sync;
	double before = 0;
	int status = BETON_OK;
	if (!sync->timeline || !trace->recorded || overlap->num_nodes != trace->num_nodes ||
	    overlap->num_transfers != sync->timeline->overlap.num_transfers)
		return bt_fail(err, BETON_STATE, "sync: the trace has no times of %d nodes and %d transfers",
			       overlap->num_nodes, overlap->num_transfers);
	read_transfers(trace, overlap);
	for (int32_t i = 0; i < overlap->num_nodes && status == BETON_OK; i++) {
		double ended = before;
		status = sync->api->event_elapsed_ms(trace->began, trace->nodes[i], &ended, err);
		overlap->nodes[i].ms = ended - before;
		before = ended;
	}
	for (int32_t i = 0; i < overlap->num_transfers; i++) {
		int32_t wait = overlap->transfers[i].wait;
		if (wait < overlap->num_nodes)
			overlap->nodes[wait].ms -= overlap->transfers[i].exposed_ms;
	}
	for (int32_t i = 0; i < overlap->num_nodes; i++)
		overlap->nodes[i].ms = overlap->nodes[i].ms > 0 ? overlap->nodes[i].ms : 0;
	return status;
}
