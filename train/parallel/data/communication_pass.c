/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that puts a strategy's communication into a schedule. Step metrics are added up from the end of forward on,
 * a unit from its last gradient on. What is not kept whole is gathered some time before its first reader, and its
 * memory is free after the last one; gradients that are not kept whole have memory from the first to the end of their
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

/* A part of a run while ops read a unit's values or copies. */
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
	/* For each unit, the nodes that write its first and its last gradient; -1: none. */
	int32_t *first_grads, *last_grads;
} plan_state;

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

static bool is_leased(const sync_reduction *reduction)
{
	return reduction->unit >= 0 && !reduction->sync->params->memory[reduction->unit].whole_grads;
}

/* Lists what no op of the graph writes in a unit's gradients. */
static int find_gaps(const plan_state *state, sync_planned *out, beton_error *err)
{
	int unit = out->reduction->unit;
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

/* Adds the call that begins the memory of a unit's gradients. after: the node that completes them. */
static int add_grads(plan_state *state, sync_planned *planned, int32_t after, int32_t *begins, beton_error *err)
{
	int unit = planned->reduction->unit, status = find_gaps(state, planned, err);
	/* A unit without gradients in this graph has zeros. */
	int32_t first = state->first_grads[unit] < 0 ? after + 1 : state->first_grads[unit];
	const dtrain__call call = dtrain__sync_grads_call(planned);
	*begins = state->schedule->num_calls;
	return status == BETON_OK ? dtrain__schedule_add(state->schedule, &call, first - 1, first, err) : status;
}

/* Reserves arena memory for a unit's data in flight, from one call to the wait for another one. */
static int add_transient(plan_state *state, const char *what, const sync_planned *planned, dtrain__transient transient,
			 int32_t *out, beton_error *err)
{
	char name[80];
	snprintf(name, sizeof(name), "%s of %s", what, planned->reduction->label);
	transient.name = name;
	transient.last_node = -1;
	*out = state->schedule->num_transients;
	return dtrain__schedule_transient(state->schedule, &transient, err);
}

static int add_grads_transient(plan_state *state, sync_planned *planned, int32_t begins, int32_t ends, beton_error *err)
{
	const sync_reduction *reduction = planned->reduction;
	const dtrain__transient transient = {.base = dtrain__base_of_grads(reduction->unit),
					     .bytes = (size_t)reduction->count *
						      dtrain_dtype_size(state->sync->params->dtype),
					     .begin = begins,
					     .end = ends};
	return add_transient(state, "gradients", planned, transient, &planned->grads, err);
}

/* Memory of a stage, which no op reads. */
static int add_stage_transient(plan_state *state, sync_planned *planned, int stage, int32_t begins, int32_t ends,
			       beton_error *err)
{
	const sync_stage *of = &planned->reduction->stages[stage];
	const dtrain__transient transient = {.base = dtrain__base_of_grads(0),
					     .bytes = of->kind->bytes ? of->kind->bytes(of) : 0,
					     .begin = begins,
					     .end = ends};
	return transient.bytes
		       ? add_transient(state, "exchanged data", planned, transient, &planned->transients[stage], err)
		       : BETON_OK;
}

/* The last copy of a unit from the host is waited for before this node; 0: there is none. */
static int32_t last_prefetch(const plan_state *state, int index)
{
	int unit = state->sync->reductions[index].unit;
	bool prefetched = unit >= 0 && state->sync->params->memory[unit].prefetched;
	int32_t last = 0;
	for (int i = 0; i < state->count && prefetched; i++)
		if (state->readings[i].unit == unit && state->readings[i].first > last)
			last = state->readings[i].first;
	return last;
}

/* A unit's reduction is waited for before this node. Memory in the arena is wanted back soon, and the host waits
 * for the gradients of offloaded parameters. It then changes the values, so no copy of them may be on its way. units:
 * how many later ones' gradients begin before that. */
static int32_t wait_before(const plan_state *state, int index, int units, int32_t after)
{
	const dtrain_sync *sync = state->sync;
	int32_t end = state->schedule->graph->num_nodes, prefetch = last_prefetch(state, index);
	int later = index + units;
	const sync_reduction *reduction = &sync->reductions[index];
	bool wants_memory = is_leased(reduction) || reduction->narrow ||
			    (index > 0 && (reduction->tree || dtrain_params_host(sync->params)));
	if (!wants_memory || later >= sync->count || state->first_grads[sync->reductions[later].unit] < 0)
		return end;
	/* Calls are issued before waits, and that memory begins with a call before its node. */
	int32_t before = state->first_grads[sync->reductions[later].unit] - 1;
	before = before > after ? before : after + 1;
	before = before > prefetch ? before : prefetch;
	return before < end ? before : end;
}

/* before: the reduction is waited for before this node. */
static int note_reduction(const plan_state *state, int index, int32_t after, int32_t before, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	const sync_reduction *reduction = &sync->reductions[index];
	const sync_stage *first = &reduction->stages[dtrain__stage_after(reduction, -1)];
	int unit = reduction->unit;
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
	int status = dtrain__timeline_add(sync, &transfer, &first->operation, err);
	if (status != BETON_OK || !reduction->shard_count || sync->num_replicas == 1 || !sync->timeline)
		return status;
	transfer.kind = DTRAIN_OVERLAP_REPLICAS;
	transfer.bytes = (uint64_t)reduction->shard_count * element;
	transfer.wait = state->schedule->graph->num_nodes;
	transfer.behind = sync->timeline->overlap.num_transfers - 1;
	const sync_stage *replicas = &reduction->stages[dtrain__stage_after(reduction, first->index)];
	while (replicas->of_parts)
		replicas++;
	return dtrain__timeline_add(sync, &transfer, &replicas->operation, err);
}

/* Adds the call that waits for a stage, and the transient buffers that end there: of the stage, and of those before it
 * that are not waited for. */
static int add_stage(plan_state *state, sync_planned *planned, const dtrain__call *call, int stage, int32_t after,
		     int32_t before, beton_error *err)
{
	dtrain__schedule *schedule = state->schedule;
	int32_t ends = schedule->num_calls;
	int status = dtrain__schedule_add(schedule, call, after, before, err);
	for (int i = stage; i >= 0 && status == BETON_OK; i--) {
		if (i < stage && planned->reduction->stages[i].kind->wait)
			break;
		status = add_stage_transient(state, planned, i, planned->issued, ends, err);
	}
	return status;
}

/* Another stage of the rank has the unit, or sends the step metrics. */
static bool is_elsewhere(const plan_state *state, int index)
{
	const dtrain_graph *graph = state->schedule->graph;
	const int unit = state->sync->reductions[index].unit;
	return unit < 0 ? !dtrain__graph_is_last(graph)
			: !dtrain__graph_has_unit(graph, &state->sync->params->units[unit]);
}

/* before: the first stage is waited for before this node. */
static int add_reduction(plan_state *state, int index, int32_t after, int32_t before, beton_error *err)
{
	sync_planned *planned = &state->program->planned[index];
	const sync_reduction *reduction = planned->reduction;
	const dtrain__state arrays = dtrain__sync_arrays_state();
	int32_t grads_begin = -1;
	int status = dtrain__schedule_state(state->schedule, &arrays, &planned->state, err);
	if (status == BETON_OK && is_leased(reduction))
		status = add_grads(state, planned, after, &grads_begin, err);
	planned->issued = state->schedule->num_calls;
	int first = dtrain__stage_after(reduction, -1), next = dtrain__stage_after(reduction, first);
	int32_t ends = planned->issued;
	const dtrain__call call = dtrain__sync_reduce_call(planned);
	if (status == BETON_OK)
		status = add_stage(state, planned, &call, first, after, before, err);
	if (status == BETON_OK)
		status = note_reduction(state, index, after, before, err);
	if (status == BETON_OK && next < reduction->num_stages &&
	    reduction->stages[next].kind->end == SYNC_END_LEAVING) {
		const dtrain__call leave = dtrain__sync_stage_call(planned, next);
		int32_t wanted = wait_before(state, index, UNITS_LEAVING, after);
		ends = state->schedule->num_calls;
		status = add_stage(state, planned, &leave, next, after, wanted > before ? wanted : before, err);
	}
	return status == BETON_OK && is_leased(reduction) ? add_grads_transient(state, planned, grads_begin, ends, err)
							  : status;
}

/* After backward each later stage is waited for unit by unit, before the stage after it begins for any unit, so that
 * operations overlap. */
static int add_later_stages(plan_state *state, int32_t after, beton_error *err)
{
	int status = BETON_OK;
	for (int place = 1; place < SYNC_STAGES && status == BETON_OK; place++) {
		for (int i = 0; i < state->sync->count && status == BETON_OK; i++) {
			sync_planned *planned = &state->program->planned[i];
			const sync_reduction *reduction = planned->reduction;
			int stage = -1;
			if (is_elsewhere(state, i))
				continue;
			for (int k = 0; k <= place && stage < reduction->num_stages; k++)
				stage = dtrain__stage_after(reduction, stage);
			if (stage >= reduction->num_stages || reduction->stages[stage].kind->end != SYNC_END_OF_RUN)
				continue;
			const dtrain__call call = dtrain__sync_stage_call(planned, stage);
			status = add_stage(state, planned, &call, stage, after, state->schedule->graph->num_nodes, err);
		}
	}
	return status;
}

static int open_planned(plan_state *state, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	sync_planned *planned = state->program->planned = calloc((size_t)sync->count, sizeof(*planned));
	if (!planned)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int i = 0; i < sync->count; i++) {
		planned[i].reduction = &sync->reductions[i];
		planned[i].grads = -1;
		for (int k = 0; k < SYNC_STAGES; k++) {
			planned[i].steps[k] = (sync_step){&planned[i], k};
			planned[i].transients[k] = -1;
		}
	}
	return BETON_OK;
}

/* All ranks must reduce the units in the same order, so a unit that is complete early waits for those before it. */
static int add_reductions(plan_state *state, beton_error *err)
{
	dtrain_sync *sync = state->sync;
	int32_t after = dtrain__graph_forward_nodes(state->schedule->graph) - 1, before = -1;
	int32_t end = state->schedule->graph->num_nodes;
	int status = open_planned(state, err);
	if (status == BETON_OK)
		status = find_gradients(state, err);
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		if (is_elsewhere(state, i))
			continue;
		int32_t last = i > 0 ? state->last_grads[sync->reductions[i].unit] : -1;
		after = last > after ? last : after;
		/* Units are waited for in order, the step metrics at the end. */
		int32_t wanted = wait_before(state, i, UNITS_IN_REDUCTION, after);
		before = i > 0 && wanted > before ? wanted : before;
		status = add_reduction(state, i, after, i > 0 ? before : end, err);
	}
	return status == BETON_OK ? add_later_stages(state, after, err) : status;
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

/* Where a gather begins: as far ahead of its reader as the memory for prefetched units allows, and before another
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

/* The last micro-batch of several, which has trace events, finds gathered what is kept whole. What is not divided comes
 * from the host alone. */
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
	bool whole = gather->form.is_whole;
	int32_t begins = schedule->num_calls, after = whole ? -1 : issue_behind(state, index);
	status = dtrain__sync_add_gather(gather, schedule, after, of->first, err);
	if (status == BETON_OK)
		status = note_gather(state, gather, of, after, err);
	if (status != BETON_OK || whole)
		return status;
	const dtrain__transient transient = {.name = gather->gather.label,
					     .base = of->copies ? dtrain__base_of_copies(of->unit)
								: dtrain__base_of_values(of->unit),
					     .bytes = whole_bytes(state->sync, &gather->form),
					     .begin = begins,
					     .end = begins,
					     .last_node = of->last};
	gather->transient = schedule->num_transients;
	return dtrain__schedule_transient(schedule, &transient, err);
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

int dtrain__sync_plan(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err)
{
	plan_state state = {.sync = sync,
			    .schedule = schedule,
			    .trains = schedule->graph->has_backward,
			    .program = calloc(1, sizeof(*state.program))};
	if (!state.program)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	state.program->next = sync->programs;
	sync->programs = state.program;
	int32_t execution = 0;
	int status = state.trains ? dtrain__sync_plan_begin(sync, schedule, &execution, err) : BETON_OK;
	/* A node ends before the calls that follow it. */
	if (status == BETON_OK && state.trains)
		status = dtrain__timeline_begin(sync, state.program, schedule, err);
	/* Before reductions at the same place, since the next op waits for them. */
	if (status == BETON_OK)
		status = dtrain__sync_plan_collectives(sync, state.program, schedule, err);
	if (status == BETON_OK && state.trains && sync->part_buffers)
		status = dtrain__tree_plan_buffers(sync, schedule, err);
	if (status == BETON_OK)
		status = add_gathers(&state, err);
	if (status == BETON_OK && state.trains)
		status = add_reductions(&state, err);
	if (status == BETON_OK && state.trains)
		status = dtrain__sync_plan_end(sync, schedule, execution, err);
	free(state.first_grads);
	free(state.readings);
	return status;
}

void dtrain__sync_destroy_programs(dtrain_sync *sync, const sync_program *until)
{
	while (sync->programs != until) {
		sync_program *program = sync->programs;
		sync->programs = program->next;
		for (int i = 0; program->planned && i < sync->count; i++)
			free(program->planned[i].gaps);
		free(program->planned);
		free(program->gathers);
		free(program->exchanges);
		free(program->trace_nodes);
		free(program);
	}
}
