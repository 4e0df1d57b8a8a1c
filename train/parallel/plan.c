/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that puts a strategy's communication into a schedule. Figures are added up from the end of forward on, a
 * unit from its last gradient on. What is not kept whole is gathered some time before its first reader, and its memory
 * is free behind the last one; gradients that are not kept whole have memory from the first to the end of their
 * reduction.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/graph.h"
#include "core/params.h"
#include "core/program.h"
#include "sync.h"
#include "tree.h"

/* How many later units' gradients begin before a unit's reduction is waited for, and before its copy to the host is. */
enum { UNITS_IN_REDUCTION = 2, UNITS_LEAVING = 3 };

/* A part of a run in which ops read a unit's values or copies. */
typedef struct reading {
	int unit;
	bool copies;
	int32_t first, last; /* nodes */
} reading;

typedef struct plan_state {
	dtrain_sync *sync;
	dtrain__schedule *schedule;
	sync_program *program;
	bool trains;
	reading *readings;
	int count, capacity;
	/* Of each unit: nodes that write its first and its last gradient; -1: none. */
	int32_t *first_grads, *last_grads;
} plan_state;

static int32_t last_forward_node(const dtrain_graph *graph)
{
	int32_t node = -1;
	while (node + 1 < graph->num_nodes && !graph->nodes[node + 1].is_backward)
		node++;
	return node;
}

/* ---- reductions ---- */

/* A parameter without a gradient in this graph keeps zeros, because no other program of the sync writes it either, and
 * is not waited for. */
static int find_gradients(plan_state *state, beton_error *err)
{
	const dtrain_graph *graph = state->schedule->graph;
	int units = dtrain_params_unit_count(state->sync->params);
	state->first_grads = malloc(2 * (size_t)(units + 1) * sizeof(*state->first_grads));
	if (!state->first_grads)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	state->last_grads = state->first_grads + units + 1;
	for (int i = 0; i < units; i++)
		state->first_grads[i] = state->last_grads[i] = -1;
	for (int32_t i = 0; i < graph->num_tensors; i++) {
		const dtrain__tensor *tensor = &graph->tensors[i];
		if (tensor->role != DTRAIN__GRAD || tensor->producer < 0)
			continue;
		int32_t *first = &state->first_grads[dtrain_params_at(graph->params, tensor->index)->unit];
		int32_t *last = &state->last_grads[dtrain_params_at(graph->params, tensor->index)->unit];
		*first = *first < 0 || tensor->producer < *first ? tensor->producer : *first;
		*last = tensor->producer > *last ? tensor->producer : *last;
	}
	return BETON_OK;
}

static int unit_of(const dtrain_sync *sync, int index)
{
	return index > 0 ? sync->operation_units[sync->reductions[index].sum.index] : -1;
}

static bool is_leased(const dtrain_sync *sync, int index)
{
	return index > 0 && !sync->params->memory[unit_of(sync, index)].whole_grads;
}

/* Lists what no op of the graph writes in a unit's gradients. */
static int find_gaps(const plan_state *state, int unit, sync_grads *out, beton_error *err)
{
	const dtrain_params *params = state->sync->params;
	const dtrain_graph *graph = state->schedule->graph;
	size_t element = dtrain_dtype_size(params->dtype);
	int64_t at = params->units[unit].offset, end = at + params->units[unit].count;
	bool *covered = calloc((size_t)params->count + 1, sizeof(*covered));
	out->gaps = calloc((size_t)params->count + 1, sizeof(*out->gaps));
	if (!covered || !out->gaps) {
		free(covered);
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	}
	for (int32_t i = 0; i < graph->num_tensors; i++)
		if (graph->tensors[i].role == DTRAIN__GRAD && graph->tensors[i].producer >= 0)
			covered[graph->tensors[i].index] = true;
	while (at < end) {
		const dtrain_param *next = NULL;
		for (int i = 0; i < params->count; i++) {
			const dtrain_param *param = &params->params[i];
			if (param->unit == unit && covered[i] && param->offset >= at &&
			    (!next || param->offset < next->offset))
				next = param;
		}
		int64_t until = next ? next->offset : end;
		if (until > at) {
			out->gaps[out->num_gaps].begin = (size_t)(at - params->units[unit].offset) * element;
			out->gaps[out->num_gaps++].count = (size_t)(until - at) * element;
		}
		at = next ? next->offset + next->count : end;
	}
	free(covered);
	return BETON_OK;
}

/* Adds the call that begins the memory of a unit's gradients. after: the node behind which they are complete. */
static int add_grads(plan_state *state, int index, int32_t after, int32_t *begins, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	int unit = unit_of(sync, index);
	sync_grads *grads = &state->program->grads[state->program->num_grads++];
	*grads = (sync_grads){.sync = sync, .reduction = &sync->reductions[index]};
	int status = find_gaps(state, unit, grads, err);
	/* A unit without gradients in this graph has zeros. */
	int32_t first = state->first_grads[unit] < 0 ? after + 1 : state->first_grads[unit];
	const dtrain__call call = dtrain__sync_grads_call(grads);
	*begins = state->schedule->num_calls;
	return status == BETON_OK ? dtrain__schedule_add(state->schedule, &call, first - 1, first, err) : status;
}

/* Memory in the arena for what of a unit is on its way; base: of the ops that use it. */
static int add_lease(plan_state *state, const char *what, const sync_reduction *reduction, dtrain__lease lease,
		     int32_t *out, beton_error *err)
{
	char name[80];
	snprintf(name, sizeof(name), "%s of %s", what, reduction->sum.label);
	lease.name = name;
	lease.last_node = -1;
	*out = state->schedule->num_leases;
	return dtrain__schedule_lease(state->schedule, &lease, err);
}

static int add_grads_lease(plan_state *state, int index, int32_t begins, int32_t ends, beton_error *err)
{
	const sync_reduction *reduction = &state->sync->reductions[index];
	const dtrain__lease lease = {.base = dtrain__base_of_grads(unit_of(state->sync, index)),
				     .bytes = (size_t)reduction->count * dtrain_dtype_size(state->sync->params->dtype),
				     .begin = begins,
				     .end = ends};
	sync_grads *grads = &state->program->grads[state->program->num_grads - 1];
	return add_lease(state, "gradients", reduction, lease, &grads->lease, err);
}

/* The node in front of which the last copy of a unit from the host is waited for; 0: there is none. */
static int32_t last_visit(const plan_state *state, int index)
{
	int unit = unit_of(state->sync, index);
	bool visits = unit >= 0 && state->sync->params->memory[unit].visits;
	int32_t last = 0;
	for (int i = 0; i < state->count && visits; i++)
		if (state->readings[i].unit == unit && state->readings[i].first > last)
			last = state->readings[i].first;
	return last;
}

/* In front of which node a unit's reduction is waited for. Memory in the arena is wanted back soon, and the host waits
 * for the gradients of offloaded parameters. It then changes the values, so no copy of them may be on its way. units:
 * how many later ones' gradients begin before that. */
static int32_t wait_before(const plan_state *state, int index, int units, int32_t after)
{
	const dtrain_sync *sync = state->sync;
	int32_t end = state->schedule->graph->num_nodes, visit = last_visit(state, index);
	int later = index + units;
	const sync_reduction *reduction = &sync->reductions[index];
	bool wants_memory = is_leased(sync, index) || reduction->rounding.narrow ||
			    (index > 0 && (reduction->tree || dtrain_params_host(sync->params)));
	if (!wants_memory || later >= sync->count || state->first_grads[unit_of(sync, later)] < 0)
		return end;
	/* Calls are issued in front of waits, and that memory begins with a call in front of its node. */
	int32_t before = state->first_grads[unit_of(sync, later)] - 1;
	before = before > after ? before : after + 1;
	before = before > visit ? before : visit;
	return before < end ? before : end;
}

/* Adds the call for the copy to the host, which begins when the reduction was waited for: in front of node `before`. */
static int add_leave(plan_state *state, int index, int32_t after, int32_t before, int32_t *ends, beton_error *err)
{
	const dtrain__call call = dtrain__sync_leave_call(state->sync, index);
	int32_t wanted = wait_before(state, index, UNITS_LEAVING, after);
	*ends = state->schedule->num_calls;
	return dtrain__schedule_add(state->schedule, &call, after, wanted > before ? wanted : before, err);
}

/* Hooks write their results behind all waits, because a unit's second round begins when its first is waited for. */
static int add_finishes(plan_state *state, int32_t after, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	int status = BETON_OK;
	for (int i = 1; i < sync->count && status == BETON_OK; i++) {
		if (!sync->reductions[i].state)
			continue;
		const dtrain__call call = dtrain__sync_finish_call(sync, i);
		status = dtrain__schedule_add(state->schedule, &call, after, state->schedule->graph->num_nodes, err);
	}
	return status;
}

/* Memory for parts of the ranks, which no op reads. */
static int add_parts_lease(plan_state *state, const sync_parts *parts, size_t bytes, int32_t ends, int32_t *out,
			   beton_error *err)
{
	const dtrain__lease lease = {
		.base = dtrain__base_of_grads(0), .bytes = bytes, .begin = parts->begins, .end = ends};
	return bytes ? add_lease(state, "parts", parts->reduction, lease, out, err) : BETON_OK;
}

/* Adds the call that begins the memory of a unit's rounded gradients. */
static int add_rounded(plan_state *state, int index, int32_t after, int32_t *begins, beton_error *err)
{
	sync_rounded *rounded = &state->program->rounded[state->program->num_rounded++];
	*rounded = (sync_rounded){.reduction = &state->sync->reductions[index]};
	const dtrain__call call = dtrain__sync_rounded_call(rounded);
	*begins = state->schedule->num_calls;
	return dtrain__schedule_add(state->schedule, &call, after, after + 1, err);
}

static int add_rounded_lease(plan_state *state, int32_t begins, int32_t ends, beton_error *err)
{
	sync_rounded *rounded = &state->program->rounded[state->program->num_rounded - 1];
	const dtrain__lease lease = {.base = dtrain__base_of_grads(0),
				     .bytes = dtrain__sync_rounded_bytes(rounded->reduction),
				     .begin = begins,
				     .end = ends};
	return add_lease(state, "rounded gradients", rounded->reduction, lease, &rounded->lease, err);
}

static int add_parts(plan_state *state, int index, int32_t after, beton_error *err)
{
	sync_parts *parts = &state->program->parts[index];
	*parts = (sync_parts){.reduction = &state->sync->reductions[index],
			      .begins = state->schedule->num_calls,
			      .lease = -1,
			      .replica_lease = -1};
	const dtrain__call call = dtrain__tree_memory_call(parts);
	return dtrain__schedule_add(state->schedule, &call, after, after + 1, err);
}

/* before: the node in front of which the reduction is waited for. */
static int note_reduction(const plan_state *state, int index, int32_t after, int32_t before, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	const sync_reduction *reduction = &sync->reductions[index];
	int unit = unit_of(sync, index);
	int32_t last = unit < 0 ? -1 : state->last_grads[unit];
	size_t element = dtrain_dtype_size(sync->params->dtype);
	dtrain_overlap_transfer transfer = {.kind = reduction->shard_count ? DTRAIN_OVERLAP_SCATTER
									   : DTRAIN_OVERLAP_SUM,
					    .unit = unit,
					    .bytes = (uint64_t)reduction->count * element,
					    .complete = last < 0 ? after : last,
					    .issue = after,
					    .wait = before,
					    .behind = -1};
	int status = dtrain__timeline_add(sync, &transfer, &reduction->sum, err);
	if (status != BETON_OK || !reduction->shard_count || sync->num_replicas == 1 || !sync->timeline)
		return status;
	transfer.kind = DTRAIN_OVERLAP_REPLICAS;
	transfer.bytes = (uint64_t)reduction->shard_count * element;
	transfer.wait = state->schedule->graph->num_nodes;
	transfer.behind = sync->timeline->overlap.num_transfers - 1;
	return dtrain__timeline_add(sync, &transfer, &reduction->replicas, err);
}

static dtrain__call reduce_call(const plan_state *state, int index)
{
	sync_reduction *reduction = &state->sync->reductions[index];
	return reduction->tree ? dtrain__tree_reduce_call(reduction) : dtrain__sync_reduce_call(state->sync, index);
}

/* What makes the sums complete is waited for behind all reductions. */
static int finish_trees(plan_state *state, int32_t after, beton_error *err)
{
	dtrain__schedule *schedule = state->schedule;
	int status = BETON_OK;
	for (int i = 0; i < state->sync->count && status == BETON_OK; i++) {
		sync_parts *parts = &state->program->parts[i];
		const dtrain__call call = dtrain__tree_finish_call(parts->reduction);
		int32_t ends = schedule->num_calls;
		status = dtrain__schedule_add(schedule, &call, after, schedule->graph->num_nodes, err);
		if (status == BETON_OK)
			status = add_parts_lease(state, parts, dtrain__tree_replica_bytes(parts->reduction), ends,
						 &parts->replica_lease, err);
	}
	return status;
}

/* Adds what follows a unit's reduction, whose call is `ends`: the memory that it was the last to use, and the sum over
 * the replicas. */
static int end_reduction(plan_state *state, int index, int32_t after, int32_t ends, int32_t rounded_begins,
			 beton_error *err)
{
	dtrain_sync *sync = state->sync;
	sync_reduction *reduction = &sync->reductions[index];
	sync_parts *parts = &state->program->parts[index];
	int status = BETON_OK;
	if (reduction->rounding.narrow)
		status = add_rounded_lease(state, rounded_begins, ends, err);
	if (status != BETON_OK)
		return status;
	if (sync->options.parts)
		return add_parts_lease(state, parts, dtrain__tree_parts_bytes(reduction), ends, &parts->lease, err);
	if (!reduction->replicas.sync)
		return BETON_OK;
	const dtrain__call replicas = dtrain__sync_replicas_call(sync, index);
	return dtrain__schedule_add(state->schedule, &replicas, after, state->schedule->graph->num_nodes, err);
}

/* before: in front of which node the reduction is waited for. */
static int add_reduction(plan_state *state, int index, int32_t after, int32_t before, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	int32_t grads_begin = -1, rounded_begins = -1;
	int status = is_leased(sync, index) ? add_grads(state, index, after, &grads_begin, err) : BETON_OK;
	if (status == BETON_OK && sync->options.parts)
		status = add_parts(state, index, after, err);
	if (status == BETON_OK && sync->reductions[index].rounding.narrow)
		status = add_rounded(state, index, after, &rounded_begins, err);
	const dtrain__call call = reduce_call(state, index);
	int32_t ends = state->schedule->num_calls;
	if (status == BETON_OK)
		status = dtrain__schedule_add(state->schedule, &call, after, before, err);
	if (status == BETON_OK)
		status = note_reduction(state, index, after, before, err);
	int32_t left = ends;
	if (status == BETON_OK && sync->reductions[index].leaves)
		status = add_leave(state, index, after, before, &left, err);
	if (status == BETON_OK && is_leased(sync, index))
		status = add_grads_lease(state, index, grads_begin, left, err);
	return status == BETON_OK ? end_reduction(state, index, after, ends, rounded_begins, err) : status;
}

/* All ranks must reduce the units in the same order, so a unit that is complete early waits for those in front of
 * it. */
static int add_reductions(plan_state *state, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	int32_t after = last_forward_node(state->schedule->graph), before = -1;
	int32_t end = state->schedule->graph->num_nodes;
	int status = find_gradients(state, err);
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		int32_t last = i > 0 ? state->last_grads[unit_of(sync, i)] : -1;
		after = last > after ? last : after;
		/* Units are waited for in order, the figures at the end. */
		int32_t wanted = wait_before(state, i, UNITS_IN_REDUCTION, after);
		before = i > 0 && wanted > before ? wanted : before;
		status = add_reduction(state, i, after, i > 0 ? before : end, err);
	}
	if (status == BETON_OK && sync->options.parts)
		status = finish_trees(state, after, err);
	return status == BETON_OK ? add_finishes(state, after, err) : status;
}

/* ---- gathers ---- */

/* The part of the run to which a reader belongs: the unit's last one, unless other units are read in between and it
 * pays to gather the unit again: ops of the same direction have read two, or any is read between forward and
 * backward. */
static bool continues(const plan_state *state, int index, bool backward)
{
	const reading *self = &state->readings[index];
	bool crosses = backward && !state->schedule->graph->nodes[self->last].is_backward;
	int others = 0;
	if (crosses && state->sync->options.keep_gathered)
		return true;
	for (int i = index + 1; i < state->count; i++)
		others += state->readings[i].unit != self->unit && state->readings[i].last > self->last;
	return others < (crosses ? 1 : 2);
}

static int add_reader(plan_state *state, int unit, bool copies, int32_t node, beton_error *err)
{
	sync_form form;
	/* Other programs read what dtrain_sync_gather has made whole. */
	if (!dtrain__sync_form_of(state->sync, unit, copies, &form) || (form.is_whole && !state->trains))
		return BETON_OK;
	for (int i = state->count - 1; i >= 0; i--) {
		reading *self = &state->readings[i];
		if (self->unit != unit || self->copies != copies)
			continue;
		if (form.is_whole || continues(state, i, state->schedule->graph->nodes[node].is_backward)) {
			self->last = node;
			return BETON_OK;
		}
		break;
	}
	if (state->count == state->capacity) {
		int grown = state->capacity ? 2 * state->capacity : 64;
		reading *readings = realloc(state->readings, (size_t)grown * sizeof(*readings));
		if (!readings)
			return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
		state->readings = readings;
		state->capacity = grown;
	}
	state->readings[state->count++] = (reading){.unit = unit, .copies = copies, .first = node, .last = node};
	return BETON_OK;
}

/* Lists the readings in the order of their first nodes. */
static int find_readings(plan_state *state, beton_error *err)
{
	const dtrain_graph *graph = state->schedule->graph;
	int status = BETON_OK;
	for (int32_t i = 0; i < graph->num_nodes && status == BETON_OK; i++) {
		for (int k = 0; k < graph->nodes[i].num_inputs && status == BETON_OK; k++) {
			const dtrain__tensor *tensor =
				&graph->tensors[dtrain__graph_root(graph, graph->nodes[i].inputs[k])];
			if (tensor->role == DTRAIN__PARAM || tensor->role == DTRAIN__COPY)
				status = add_reader(state, dtrain_params_at(graph->params, tensor->index)->unit,
						    tensor->role == DTRAIN__COPY, i, err);
		}
	}
	return status;
}

static size_t whole_bytes(const dtrain_sync *sync, const sync_form *form)
{
	return (size_t)form->count * (size_t)sync->params->sharding.shards * dtrain_dtype_size(form->dtype);
}

/* Where a gather begins: as far ahead of its reader as the memory for prefetched units allows, and in front of another
 * unit's first reader at least. */
static int32_t issue_behind(const plan_state *state, int index)
{
	const dtrain_sync *sync = state->sync;
	size_t ahead = 0;
	int at = index;
	while (at > 0 && sync->options.prefetch_bytes) {
		sync_form form;
		const reading *on_the_way = &state->readings[at];
		dtrain__sync_form_of(sync, on_the_way->unit, on_the_way->copies, &form);
		ahead += whole_bytes(sync, &form);
		if (at < index && ahead > sync->options.prefetch_bytes)
			break;
		at--;
	}
	return state->readings[at].first - 1;
}

/* The last run of several, which has marks, finds gathered what is kept whole. What is not divided comes from the host
 * alone. */
static int note_gather(const plan_state *state, const sync_gather *gather, const reading *of, int32_t after,
		       beton_error *err)
{
	const dtrain_overlap_transfer transfer = {.kind = DTRAIN_OVERLAP_GATHER,
						  .unit = of->unit,
						  .bytes = whole_bytes(state->sync, &gather->form),
						  .lane = 1,
						  .complete = -1,
						  .issue = after,
						  .wait = of->first,
						  .behind = -1};
	bool divided = state->sync->num_shards > 1 && !state->sync->params->units[of->unit].shared;
	bool noted = state->trains && divided && !(gather->form.is_whole && state->sync->options.accumulates);
	return noted ? dtrain__timeline_add(state->sync, &transfer, &gather->gather, err) : BETON_OK;
}

static int add_gather(plan_state *state, int index, beton_error *err)
{
	const reading *of = &state->readings[index];
	sync_gather *gather = &state->program->gathers[state->program->num_gathers++];
	dtrain__schedule *schedule = state->schedule;
	sync_form form;
	dtrain__sync_form_of(state->sync, of->unit, of->copies, &form);
	int status = dtrain__sync_open_gather(gather, &form, state->sync, state->trains, err);
	if (status != BETON_OK)
		return status;
	const dtrain__call call = dtrain__sync_gather_call(gather);
	bool whole = gather->form.is_whole;
	int32_t begins = schedule->num_calls, after = whole ? -1 : issue_behind(state, index);
	status = dtrain__schedule_add(schedule, &call, after, of->first, err);
	if (status == BETON_OK)
		status = note_gather(state, gather, of, after, err);
	if (status != BETON_OK || whole)
		return status;
	const dtrain__lease lease = {.name = gather->gather.label,
				     .base = of->copies ? dtrain__base_of_copies(of->unit)
							: dtrain__base_of_values(of->unit),
				     .bytes = whole_bytes(state->sync, &gather->form),
				     .begin = begins,
				     .end = begins,
				     .last_node = of->last};
	gather->lease = schedule->num_leases;
	return dtrain__schedule_lease(schedule, &lease, err);
}

static int add_gathers(plan_state *state, beton_error *err)
{
	int status = find_readings(state, err);
	if (status != BETON_OK || !state->count)
		return status;
	state->program->gathers = calloc((size_t)state->count, sizeof(*state->program->gathers));
	if (!state->program->gathers)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int i = 0; i < state->count && status == BETON_OK; i++)
		status = add_gather(state, i, err);
	return status;
}

static int add_buffers(plan_state *state, beton_error *err)
{
	const dtrain__call call = dtrain__tree_buffers_call(state->sync);
	return dtrain__schedule_add(state->schedule, &call, -1, state->schedule->graph->num_nodes, err);
}

int dtrain__sync_plan(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err)
{
	plan_state state = {.sync = sync,
			    .schedule = schedule,
			    .trains = schedule->graph->has_backward,
			    .program = calloc(1, sizeof(*state.program))};
	if (state.program) {
		state.program->grads = calloc((size_t)sync->count + 1, sizeof(*state.program->grads));
		state.program->parts = calloc((size_t)sync->count + 1, sizeof(*state.program->parts));
		state.program->rounded = calloc((size_t)sync->count + 1, sizeof(*state.program->rounded));
	}
	if (!state.program || !state.program->grads || !state.program->parts || !state.program->rounded) {
		if (state.program) {
			free(state.program->grads);
			free(state.program->parts);
			free(state.program->rounded);
		}
		free(state.program);
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	}
	state.program->next = sync->programs;
	sync->programs = state.program;
	/* A node ends in front of the calls behind it. */
	int status = state.trains ? dtrain__timeline_begin(sync, state.program, schedule, err) : BETON_OK;
	/* In front of reductions at the same place, since the next op waits for them. */
	if (status == BETON_OK)
		status = dtrain__sync_plan_collectives(sync, state.program, schedule, err);
	if (status == BETON_OK && state.trains && sync->part_buffers)
		status = add_buffers(&state, err);
	if (status == BETON_OK)
		status = add_gathers(&state, err);
	if (status == BETON_OK && state.trains)
		status = add_reductions(&state, err);
	free(state.first_grads);
	free(state.readings);
	return status;
}

void dtrain__sync_destroy_programs(dtrain_sync *sync, const sync_program *until)
{
	while (sync->programs != until) {
		sync_program *program = sync->programs;
		sync->programs = program->next;
		for (int i = 0; i < program->num_gathers; i++)
			dtrain__sync_close_gather(&program->gathers[i]);
		for (int i = 0; i < program->num_grads; i++)
			free(program->grads[i].gaps);
		dtrain__sync_close_collectives(program);
		free(program->gathers);
		free(program->grads);
		free(program->parts);
		free(program->rounded);
		free(program->node_marks);
		free(program);
	}
}
