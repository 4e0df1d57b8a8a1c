/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of units and figures while backward goes on, and the waits for them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "sync.h"

static int open_unit(dtrain_sync *sync, int index, int unit, beton_error *err)
{
	sync_reduction *reduction = &sync->reductions[index];
	const dtrain_params *params = sync->params;
	const dtrain__unit_memory *memory = &params->memory[unit];
	const dtrain_range kept = dtrain__unit_range(params, unit);
	bool divided = sync->num_shards > 1 && !params->units[unit].shared;
	reduction->count = params->units[unit].count;
	reduction->memory = memory->whole_grads ? memory->grads : NULL;
	reduction->leaves = memory->leaves;
	if (divided) {
		int64_t first = memory->whole_grads ? kept.offset - params->units[unit].offset : 0;
		reduction->shard =
			dtrain__params_place(memory->grads, (size_t)first * dtrain_dtype_size(params->dtype));
		reduction->shard_count = kept.count;
		reduction->each_run = !sync->kind->whole_grads && !sync->options.sum_runs_locally;
	}
	snprintf(reduction->sum.label, sizeof(reduction->sum.label), "%s %d of %d", sync->kind->unit, unit + 1,
		 params->unit_count);
	snprintf(reduction->replicas.label, sizeof(reduction->replicas.label), "%s %d's replicas", sync->kind->unit,
		 unit + 1);
	int status = dtrain__operation_open(&reduction->sum, sync, unit, true, err);
	if (status == BETON_OK && memory->leaves)
		status = sync->api->event_create(sync->device, &reduction->complete, err);
	if (status == BETON_OK && memory->leaves)
		status = sync->api->event_create(sync->device, &reduction->left, err);
	return status == BETON_OK && divided && sync->num_replicas > 1
		       ? dtrain__operation_open(&reduction->replicas, sync, unit, true, err)
		       : status;
}

static int open_figures(dtrain_sync *sync, beton_error *err)
{
	sync_reduction *figures = &sync->reductions[0];
	figures->memory = dtrain_params_figures(sync->params);
	figures->count = DTRAIN_FIGURES;
	snprintf(figures->sum.label, sizeof(figures->sum.label), "figures");
	snprintf(figures->replicas.label, sizeof(figures->replicas.label), "figures of one model");
	int status = dtrain__operation_open(&figures->sum, sync, -1, true, err);
	return status == BETON_OK && sync->model ? dtrain__operation_open(&figures->replicas, sync, -1, true, err)
						 : status;
}

/* A frozen unit has no gradients. */
int dtrain__sync_create_reductions(dtrain_sync *sync, beton_error *err)
{
	int units = dtrain_params_unit_count(sync->params);
	sync->reductions = calloc((size_t)units + 1, sizeof(*sync->reductions));
	if (!sync->reductions)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	sync->count = 1;
	int status = open_figures(sync, err);
	if (status == BETON_OK)
		status = sync->api->event_create(sync->device, &sync->packed_ready, err);
	if (status == BETON_OK)
		status = dtrain__operation_open(&sync->between_steps, sync, -1, false, err);
	for (int i = 0; i < units && status == BETON_OK; i++)
		if (!dtrain_params_unit_at(sync->params, i)->frozen)
			status = open_unit(sync, sync->count++, i, err);
	return status;
}

void dtrain__sync_drain(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++) {
		dtrain__operation_abandon(&sync->reductions[i].sum);
		dtrain__operation_abandon(&sync->reductions[i].replicas);
		dtrain__operation_abandon(&sync->reductions[i].second);
	}
	for (sync_program *program = sync->programs; program; program = program->next) {
		for (int i = 0; i < program->num_gathers; i++)
			dtrain__operation_abandon(&program->gathers[i].gather);
		for (int i = 0; i < program->num_exchanges; i++)
			dtrain__operation_abandon(&program->exchanges[i].operation);
	}
}

void dtrain__sync_destroy_reductions(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++) {
		dtrain__operation_close(&sync->reductions[i].sum);
		dtrain__operation_close(&sync->reductions[i].replicas);
		dtrain__operation_close(&sync->reductions[i].second);
		if (sync->reductions[i].complete)
			sync->api->event_destroy(sync->reductions[i].complete);
		if (sync->reductions[i].left)
			sync->api->event_destroy(sync->reductions[i].left);
	}
	dtrain__operation_close(&sync->between_steps);
	if (sync->packed_ready)
		sync->api->event_destroy(sync->packed_ready);
	free(sync->reductions);
	free(sync->operation_units);
	sync->reductions = NULL;
	sync->operation_units = NULL;
	sync->count = sync->num_operations = 0;
	sync->packed_ready = NULL;
}

static bool is_last(const sync_reduction *reduction)
{
	const dtrain_sync *sync = reduction->sum.sync;
	return reduction == &sync->reductions[sync->count - 1];
}

static bool is_alone(const dtrain_sync *sync)
{
	return (!sync->group || dtrain_group_size(sync->group) == 1) && !sync->model;
}

bool dtrain__sync_sends(const sync_reduction *reduction, const dtrain__run *run)
{
	const dtrain_sync *sync = reduction->sum.sync;
	bool stays = sync->apart && reduction != sync->reductions;
	return (!run->more || reduction->each_run) && !stays && sync->started && dtrain_group_size(sync->group) > 1;
}

int dtrain__sync_begin_run(dtrain_sync *sync, const dtrain__run *run, beton_error *err)
{
	if (sync->within_run)
		return BETON_OK;
	if (!sync->started && !is_alone(sync))
		return bt_fail(err, BETON_STATE,
			       "sync: a program with backward runs before the sync is started, which would sum nothing "
			       "over the %d ranks",
			       dtrain_group_size(sync->group) * (sync->model ? dtrain_group_size(sync->model) : 1));
	sync->within_run = true;
	int status = dtrain__sync_begin_sums(sync, run, err);
	return status == BETON_OK && !run->more ? dtrain__sync_mark_began(sync, run->stream, err) : status;
}

void dtrain__sync_end_run(dtrain_sync *sync, const dtrain__run *run)
{
	sync->within_run = false;
	sync->within_step = run->more;
	sync->run = run->more ? sync->run + 1 : 0;
	if (run->more)
		return;
	sync->sums_open = false;
	if (sync->marks)
		sync->marks->recorded = sync->marks->operations[0].used;
}

int dtrain__sync_begin_reduction(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = reduction->sum.sync;
	bool figures = reduction == sync->reductions;
	int status = figures ? dtrain__sync_begin_run(sync, run, err) : BETON_OK;
	if (status == BETON_OK && figures && !run->more)
		status = dtrain__sync_mark_forward(sync, run->stream, dtrain__sync_sends(reduction, run), err);
	return status == BETON_OK && !reduction->each_run ? dtrain__sync_accumulate(reduction, run, err) : status;
}

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	dtrain_sync *sync = reduction->sum.sync;
	int status = dtrain__sync_begin_reduction(reduction, run, err);
	/* The times of a step apart have its end of backward from there. */
	if (status == BETON_OK && sync->apart && is_last(reduction))
		status = sync->api->event_record(reduction->sum.ready, run->stream, err);
	if (status != BETON_OK || !dtrain__sync_sends(reduction, run))
		return status;
	sync_transfer transfer = {.kind = SYNC_ALLREDUCE,
				  .group = sync->group,
				  .output = reduction->memory,
				  .count = reduction->count,
				  .dtype = dtrain_params_dtype(sync->params)};
	if (sync->kind->has_rounds && reduction != sync->reductions)
		transfer.op = DTRAIN_AVG;
	if (reduction->state && !reduction->shard)
		transfer = dtrain__sync_hook_transfer(reduction, 0);
	if (reduction->shard) {
		transfer.kind = SYNC_REDUCE_SCATTER;
		transfer.group = sync->shards;
		transfer.input = reduction->memory;
		transfer.output = reduction->shard;
		transfer.count = reduction->shard_count;
	}
	if (reduction->rounding.narrow)
		status = dtrain__sync_round(reduction, run->stream, &transfer, err);
	return status != BETON_OK ? status
				  : dtrain__operation_issue(&reduction->sum, &transfer, run->stream, !run->more, err);
}

/* The replicas add up what is complete: the sum over the shards' ranks and the runs. The ranks of one model have the
 * same figures but for the request to stop, so the maximum keeps the figures' bits and gives all of them the request.
 */
static int issue_replicas(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = reduction->sum.sync;
	bool figures = reduction == sync->reductions;
	sync_transfer transfer = {.kind = SYNC_ALLREDUCE,
				  .group = figures ? sync->model : sync->replicas,
				  .output = figures ? reduction->memory : reduction->shard,
				  .count = figures ? reduction->count : reduction->shard_count,
				  .dtype = dtrain_params_dtype(sync->params),
				  .op = figures ? DTRAIN_MAX : DTRAIN_SUM};
	if (reduction->state)
		transfer = dtrain__sync_hook_transfer(reduction, 0);
	return dtrain__operation_issue(&reduction->replicas, &transfer, run->stream, true, err);
}

/* The first round of all units is waited for in front of the second one of any, so that operations overlap. */
static int issue_second_round(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	const sync_transfer transfer = dtrain__sync_hook_transfer(reduction, 1);
	return reduction->sum.sync->hook.rounds > 1
		       ? dtrain__operation_issue(&reduction->second, &transfer, run->stream, true, err)
		       : BETON_OK;
}

/* Of the figures, and before the last run of a step, nobody is told. */
int dtrain__sync_tell(const sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = reduction->sum.sync;
	if (!sync->listener || run->more || reduction == sync->reductions)
		return BETON_OK;
	return sync->listener(sync->listener_context, sync->operation_units[reduction->sum.index], run->stream, err);
}

static int wait(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	dtrain_sync *sync = reduction->sum.sync;
	int status = dtrain__operation_wait(&reduction->sum, run->stream, err);
	if (status == BETON_OK && reduction->rounding.widen && dtrain__sync_sends(reduction, run))
		status = dtrain__sync_unround(reduction, run->stream, err);
	if (status == BETON_OK && reduction->each_run)
		status = dtrain__sync_accumulate(reduction, run, err);
	if (status == BETON_OK && reduction->replicas.sync && sync->started && !run->more)
		status = issue_replicas(reduction, run, err);
	else if (status == BETON_OK && reduction->state && !reduction->shard && dtrain__sync_sends(reduction, run))
		status = issue_second_round(reduction, run, err);
	else if (status == BETON_OK && !reduction->state)
		status = reduction->leaves ? dtrain__sync_leave(reduction, run, err)
					   : dtrain__sync_tell(reduction, run, err);
	if (status == BETON_OK && is_last(reduction))
		dtrain__sync_end_run(sync, run);
	return status;
}

void dtrain__sync_abandon(void *context)
{
	sync_reduction *reduction = context;
	dtrain__operation_abandon(&reduction->sum);
	dtrain__operation_abandon(&reduction->replicas);
	dtrain__operation_abandon(&reduction->second);
	dtrain__sync_give_up_step(reduction->sum.sync);
}

dtrain__call dtrain__sync_reduce_call(dtrain_sync *sync, int index)
{
	return (dtrain__call){.name = sync->reductions[index].sum.label,
			      .issue = issue,
			      .wait = wait,
			      .abandon = dtrain__sync_abandon,
			      .context = &sync->reductions[index]};
}

static int wait_for_replicas(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	int status = dtrain__operation_wait(&reduction->replicas, run->stream, err);
	if (status != BETON_OK)
		return status;
	if (reduction->state)
		return dtrain__sync_sends(reduction, run) && !run->more ? issue_second_round(reduction, run, err)
									: BETON_OK;
	return dtrain__sync_tell(reduction, run, err);
}

static int finish(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	dtrain_sync *sync = reduction->sum.sync;
	int status = dtrain__operation_wait(&reduction->second, run->stream, err);
	bool sends = !run->more && dtrain__sync_sends(reduction, run);
	if (status == BETON_OK && sends && !reduction->called)
		status = bt_fail(err, BETON_STATE,
				 "sync: hook '%s' called no operation for %s: the ranks would train apart",
				 sync->hook.name, reduction->sum.label);
	if (status == BETON_OK && sends)
		status = sync->hook.finish(reduction->state, run->stream, err);
	return status == BETON_OK ? dtrain__sync_tell(reduction, run, err) : status;
}

dtrain__call dtrain__sync_finish_call(dtrain_sync *sync, int index)
{
	return (dtrain__call){.name = sync->reductions[index].second.label,
			      .issue = dtrain__sync_nothing,
			      .wait = finish,
			      .context = &sync->reductions[index]};
}

dtrain__call dtrain__sync_replicas_call(dtrain_sync *sync, int index)
{
	return (dtrain__call){.name = sync->reductions[index].replicas.label,
			      .issue = dtrain__sync_nothing,
			      .wait = wait_for_replicas,
			      .context = &sync->reductions[index]};
}
