/* SPDX-License-Identifier: Apache-2.0
 *
 * The begin and the end of an execution that trains, and the step to which its micro-batch belongs.
 */
#include "common/error.h"
#include "core/program.h"
#include "tree.h"

static bool is_alone(const dtrain_sync *sync)
{
	return (!sync->group || dtrain_group_size(sync->group) == 1) && !sync->model;
}

static int check(const dtrain_sync *sync, const dtrain__run *run, beton_error *err)
{
	if (!sync->started && !is_alone(sync))
		return bt_fail(err, BETON_STATE,
			       "sync: a program with backward runs before the sync is started, which would sum nothing "
			       "over the %d ranks",
			       dtrain_group_size(dtrain_mesh_data_group(sync->mesh)) *
				       (sync->model ? dtrain_group_size(sync->model) : 1));
	if (run->micro_batches > 1 && !sync->options.accumulates && !sync->options.deterministic_shards)
		return bt_fail(err, BETON_STATE, "sync: a step of %d micro-batches, which need the option accumulates",
			       run->micro_batches);
	if (sync->options.deterministic_shards && run->micro_batches != dtrain__tree_micro_batches(sync))
		return bt_fail(err, BETON_STATE,
			       "sync: a step of %d micro-batches, and each rank has %d deterministic shards",
			       run->micro_batches, dtrain__tree_micro_batches(sync));
	return run->micro_batch == 0 || (sync->steps_open & sync_bit(run->instance->program->graph))
		       ? BETON_OK
		       : bt_fail(err, BETON_STATE, "sync: micro-batch %d of %d, and the step has no first one",
				 run->micro_batch, run->micro_batches);
}

/* Bits of the programs that have begun a step. */
static uint64_t find_open(const dtrain_sync *sync)
{
	uint64_t open = sync->steps_open;
	for (const sync_execution *at = sync->executions; at; at = at->next)
		open |= sync_bit(at->instance->program->graph);
	return open;
}

static int32_t count_stages(const dtrain_sync *sync, const sync_reduction *reduction)
{
	const dtrain_params *params = sync->params;
	if (reduction->unit < 0 || !params->own_stages)
		return 1;
	return __builtin_popcountll(params->units[reduction->unit].stages & params->own_stages);
}

/* A step that was not completed has left its sums. */
static int begin_step(dtrain_sync *sync, const dtrain__run *run, beton_error *err)
{
	bool clears = sync->sums_open;
	for (int i = 0; i < sync->count; i++)
		sync->reductions[i].left = count_stages(sync, &sync->reductions[i]);
	sync->sums_open = sync->sums != NULL;
	return clears ? sync->api->zero(run->stream, sync->sums, sync->sums_bytes, err) : BETON_OK;
}

static int begin(void *context, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = context;
	sync_execution *execution = run->state;
	int status = check(sync, run, err);
	if (status != BETON_OK)
		return status;
	const dtrain_graph *graph = run->instance->program->graph;
	const uint64_t bit = sync_bit(graph);
	/* Another stage has begun the step. */
	bool first = run->micro_batch == 0 && !(find_open(sync) & ~bit);
	execution->instance = run->instance;
	execution->next = sync->executions;
	sync->executions = execution;
	sync->steps_open = (sync->steps_open & ~bit) | (dtrain__run_is_last(run) ? 0 : bit);
	status = first ? begin_step(sync, run, err) : BETON_OK;
	bool traced = dtrain__run_is_last(run) && dtrain__graph_is_first(graph);
	return status == BETON_OK && traced ? dtrain__sync_trace_began(sync, run->stream, err) : status;
}

static void leave(dtrain_sync *sync, sync_execution *execution)
{
	for (sync_execution **link = &sync->executions; *link; link = &(*link)->next) {
		if (*link != execution)
			continue;
		*link = execution->next;
		execution->instance = NULL;
		return;
	}
}

static int end(void *context, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = context;
	(void)err;
	leave(sync, run->state);
	if (!dtrain__run_is_last(run))
		return BETON_OK;
	sync->sums_open = find_open(sync) != 0;
	if (!sync->sums_open)
		dtrain__sync_trace_ended(sync);
	return BETON_OK;
}

static void abandon(void *context, void *state)
{
	dtrain_sync *sync = context;
	leave(sync, state);
	dtrain__sync_give_up_step(sync);
}

void dtrain__sync_give_up_step(dtrain_sync *sync)
{
	sync->steps_open = 0;
}

void dtrain__sync_drain(dtrain_sync *sync)
{
	while (sync->executions) {
		sync_execution *execution = sync->executions;
		dtrain_instance_abandon(execution->instance);
		leave(sync, execution);
	}
}

int dtrain__sync_plan_begin(dtrain_sync *sync, dtrain__schedule *schedule, int32_t *state, beton_error *err)
{
	const dtrain__state execution = {.bytes = sizeof(sync_execution)};
	int status = dtrain__schedule_state(schedule, &execution, state, err);
	const dtrain__call call = {
		.name = "begin of a micro-batch", .issue = begin, .abandon = abandon, .context = sync, .state = *state};
	return status == BETON_OK ? dtrain__schedule_add(schedule, &call, -1, 0, err) : status;
}

int dtrain__sync_plan_end(dtrain_sync *sync, dtrain__schedule *schedule, int32_t state, beton_error *err)
{
	int32_t nodes = schedule->graph->num_nodes;
	const dtrain__call call = {.name = "end of a micro-batch", .wait = end, .context = sync, .state = state};
	return dtrain__schedule_add(schedule, &call, nodes - 1, nodes, err);
}
