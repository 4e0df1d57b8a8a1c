/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph's collectives: a call after each of these nodes changes the node's output in place, or makes it of the
 * node's input, and is waited for before the first node that reads it.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/group/group.h"
#include "common/error.h"
#include "core/params.h"
#include "core/program.h"
#include "parallel/data/sync.h"
#include "parallel/mesh.h"

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	sync_exchange *exchange = context;
	if (!exchange->group || dtrain_group_size(exchange->group) == 1)
		return BETON_OK;
	/* A rank's part of the model gives other results; its own batch norm is one. */
	if (!exchange->operation.sync->started && exchange->operation.within_model)
		return bt_fail(err, BETON_STATE, "%s: a program of a divided model runs before the sync is started",
			       exchange->operation.label);
	if (!exchange->operation.sync->started)
		return BETON_OK;
	const dtrain__place *places = run->instance->program->places;
	char *output = dtrain__address(run->instance, places[exchange->tensor]);
	char *input = exchange->input < 0 ? output : dtrain__address(run->instance, places[exchange->input]);
	if (exchange->input < 0 && exchange->kind == SYNC_ALL_GATHER)
		input += (size_t)exchange->count * dtrain_dtype_size(exchange->dtype) *
			 (size_t)dtrain_group_rank(exchange->group);
	const sync_transfer transfer = {.kind = exchange->kind,
					.group = exchange->group,
					.output = output,
					.input = input,
					.count = exchange->count,
					.dtype = exchange->dtype};
	return dtrain__operation_issue(&exchange->operation, run->state, &transfer, run->stream, false, err);
}

static int wait(void *context, const dtrain__run *run, beton_error *err)
{
	sync_exchange *exchange = context;
	return dtrain__operation_wait(&exchange->operation, run->state, run->stream, err);
}

static void abandon(void *context, void *state)
{
	(void)context;
	dtrain__flight_abandon(state);
}

/* The first node that reads the tensor or a view of it; the number of nodes: none. */
static int32_t first_reader(const dtrain_graph *graph, dtrain_tensor tensor)
{
	for (int32_t i = 0; i < graph->num_nodes; i++)
		for (int k = 0; k < graph->nodes[i].num_inputs; k++)
			if (dtrain__graph_root(graph, graph->nodes[i].inputs[k]) == tensor)
				return i;
	return graph->num_nodes;
}

/* "all_reduce 3 of linear": the third node of its kind. */
static void name_operation(const dtrain_graph *graph, int32_t node, char *out, size_t size)
{
	int number = 0;
	for (int32_t i = 0; i <= node; i++)
		number += graph->nodes[i].kind == graph->nodes[node].kind;
	int32_t producer = graph->tensors[dtrain__graph_root(graph, graph->nodes[node].inputs[0])].producer;
	snprintf(out, size, "%s %d%s%s", dtrain__op_name(graph->nodes[node].kind), number, producer < 0 ? "" : " of ",
		 producer < 0 ? "" : dtrain__op_name(graph->nodes[producer].kind));
}

static sync_collective kind_of(dtrain_op_kind kind)
{
	return kind == DTRAIN_OP_ALL_GATHER       ? SYNC_ALL_GATHER
	       : kind == DTRAIN_OP_REDUCE_SCATTER ? SYNC_REDUCE_SCATTER
						  : SYNC_ALLREDUCE;
}

static bool same_phase(const dtrain__node *a, const dtrain__node *b)
{
	return a->is_backward == b->is_backward && a->is_deferred == b->is_deferred;
}

/* The node that the call follows. A collective in place changes what its own node has copied. Others begin when their
 * input is complete; rows that are gathered again, for which it is long before, one op ahead of their reader. An
 * activation that returns from the host is there when the node itself may run, not before. */
static int32_t issue_behind(const dtrain_graph *graph, int32_t index, bool in_place)
{
	const dtrain__node *node = &graph->nodes[index];
	const dtrain__tensor *input = &graph->tensors[dtrain__graph_root(graph, node->inputs[0])];
	int32_t after = node->is_repeated && index - 2 > input->producer ? index - 2 : input->producer;
	bool waits = in_place || input->returns >= 0;
	return waits || after < 0 || !same_phase(&graph->nodes[after], node) ? index : after;
}

/* The call is waited for before this node, its first reader. In a pipeline another stage reads what is kept when the
 * phase has ended. */
static int32_t wait_before(const dtrain_graph *graph, int32_t index, bool *ends_in_phase)
{
	const dtrain_tensor tensor = graph->nodes[index].outputs[0];
	int32_t reader = first_reader(graph, tensor), end = index + 1;
	while (end < graph->num_nodes && same_phase(&graph->nodes[end], &graph->nodes[index]))
		end++;
	*ends_in_phase = graph->interleaves && graph->tensors[tensor].keep && reader >= end;
	return *ends_in_phase ? end : reader;
}

static int add_call(dtrain_sync *sync, sync_exchange *exchange, dtrain__schedule *schedule, int32_t index,
		    beton_error *err)
{
	const dtrain_graph *graph = schedule->graph;
	const dtrain__node *node = &graph->nodes[index];
	const dtrain__tensor *tensor = &graph->tensors[node->outputs[0]];
	int64_t count = dtrain_shape_count(&tensor->shape);
	bool in_place = count == dtrain_shape_count(&graph->tensors[node->inputs[0]].shape);
	exchange->kind = kind_of(node->kind);
	exchange->group = sync->mesh ? dtrain__mesh_line(sync->mesh, node->attrs.collective.axes) : NULL;
	exchange->ranks = node->attrs.collective.ranks;
	exchange->operation.within_model = node->attrs.collective.axes != graph->params->lines.data_axes;
	exchange->tensor = node->outputs[0];
	exchange->input = in_place ? -1 : node->inputs[0];
	exchange->count = count / (exchange->kind == SYNC_ALL_GATHER ? exchange->ranks : 1);
	exchange->dtype = tensor->dtype;
	name_operation(graph, index, exchange->operation.label, sizeof(exchange->operation.label));
	if (sync->mesh && !exchange->group)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the mesh has no group for the set of axes %#x",
			       exchange->operation.label, node->attrs.collective.axes);
	const dtrain__state flight = {
		.bytes = sizeof(sync_flight), .events = {offsetof(sync_flight, ready)}, .num_events = 1};
	dtrain__call call = {.name = exchange->operation.label,
			     .issue = issue,
			     .wait = wait,
			     .abandon = abandon,
			     .context = exchange,
			     .tensors = {exchange->tensor, exchange->input},
			     .num_tensors = in_place ? 1 : 2};
	const int32_t before = wait_before(graph, index, &call.ends_in_phase);
	int status = dtrain__schedule_state(schedule, &flight, &call.state, err);
	if (status == BETON_OK)
		status = dtrain__operation_open(&exchange->operation, sync, -1, false, err);
	if (status == BETON_OK && exchange->group)
		status = dtrain__group_use_device(exchange->group, sync->device, err);
	return status == BETON_OK
		       ? dtrain__schedule_add(schedule, &call, issue_behind(graph, index, in_place), before, err)
		       : status;
}

static bool is_collective(const dtrain_graph *graph, int32_t node)
{
	return dtrain__op_rules_of(graph->nodes[node].kind)->collective;
}

int dtrain__sync_plan_collectives(dtrain_sync *sync, sync_program *program, dtrain__schedule *schedule,
				  beton_error *err)
{
	const dtrain_graph *graph = schedule->graph;
	int count = 0, status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes; i++)
		count += is_collective(graph, i);
	if (count == 0)
		return BETON_OK;
	program->exchanges = calloc((size_t)count, sizeof(*program->exchanges));
	if (!program->exchanges)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++)
		if (is_collective(graph, i))
			status = add_call(sync, &program->exchanges[program->num_exchanges++], schedule, i, err);
	return status;
}
