/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of units and step metrics while backward goes on. A reduction is a list of stages; the strategy, and the
 * options of the sync, decide which (list_stages). A stage with `wait` runs beside backward; the next stage is issued
 * when it is waited for.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "core/program.h"
#include "sync.h"
#include "tree.h"

/* ---- sums over ranks ---- */

static int issue_sum(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	const sync_transfer transfer = {.kind = SYNC_ALLREDUCE,
					.group = stage->group,
					.output = stage->of_shard ? arrays->shard : arrays->memory,
					.count = stage->of_shard ? reduction->shard_count : reduction->count,
					.dtype = dtrain_params_dtype(reduction->sync->params),
					.op = stage->op};
	return dtrain__operation_issue(&stage->operation, &arrays->flights[stage->index], &transfer, run->stream,
				       arrays->last, err);
}

static int issue_scatter(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	void *rounded = reduction->narrow ? arrays->transient[stage->index - 1] : NULL;
	const sync_transfer transfer = {
		.kind = SYNC_REDUCE_SCATTER,
		.group = stage->group,
		.input = rounded ? rounded : arrays->memory,
		.output = rounded ? dtrain__sync_rounded_part(reduction, rounded) : arrays->shard,
		.count = reduction->shard_count,
		.dtype = rounded ? reduction->sync->sent : dtrain_params_dtype(reduction->sync->params)};
	return dtrain__operation_issue(&stage->operation, &arrays->flights[stage->index], &transfer, run->stream,
				       arrays->last, err);
}

static int wait_for_operation(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	return dtrain__operation_wait(&stage->operation, &arrays->flights[stage->index], run->stream, err);
}

const sync_stage_kind dtrain__stage_sum = {
	.sends = true, .end = SYNC_END_OF_RUN, .issue = issue_sum, .wait = wait_for_operation};

const sync_stage_kind dtrain__stage_scatter = {.sends = true, .issue = issue_scatter, .wait = wait_for_operation};

/* ---- the lists ---- */

sync_stage *dtrain__stage_add(sync_reduction *reduction, const sync_stage_kind *kind, dtrain_group *group)
{
	sync_stage *stage = &reduction->stages[reduction->num_stages];
	*stage = (sync_stage){.kind = kind, .reduction = reduction, .index = reduction->num_stages++, .group = group};
	return stage;
}

/* One stage of a pipeline has step metrics, the others have zeros. Along other model axes they are the same but for the
 * request to stop, so the maximum keeps their bits and gives all ranks the request. The pipeline comes first: its sum
 * begins in forward, and the ranks of all other axes are at the same point of the schedule. */
static void list_step_metrics(sync_reduction *step_metrics)
{
	dtrain_sync *sync = step_metrics->sync;
	dtrain__stage_add(step_metrics, &dtrain__stage_accumulate, NULL);
	if (sync->pipeline)
		dtrain__stage_add(step_metrics, &dtrain__stage_sum, sync->pipeline);
	for (dtrain_axis axis = 0; sync->mesh && axis < DTRAIN_AXES; axis++) {
		dtrain_group *line = dtrain_mesh_group(sync->mesh, dtrain__axis_name(axis));
		bool same = !dtrain__axis_adds_up(axis) && axis != DTRAIN_AXIS_PIPELINE;
		if (same && line && dtrain_group_size(line) > 1)
			dtrain__stage_add(step_metrics, &dtrain__stage_sum, line)->op = DTRAIN_MAX;
	}
	dtrain__stage_add(step_metrics, &dtrain__stage_sum, sync->group);
}

static void list_hook(sync_reduction *reduction, dtrain_group *group)
{
	for (int round = 0; round < reduction->sync->hook.rounds; round++)
		dtrain__stage_add(reduction, &dtrain__stage_hook, group)->round = round;
	dtrain__stage_add(reduction, &dtrain__stage_finish, group);
}

/* Once a step the ranks of one model add up the parts of gradients that they have computed. */
static void list_parts(sync_reduction *reduction, bool of_shard)
{
	const dtrain_sync *sync = reduction->sync;
	uint32_t axes = sync->params->units[reduction->unit].partial_axes;
	for (dtrain_axis axis = 0; sync->mesh && axis < DTRAIN_AXES; axis++) {
		dtrain_group *line = dtrain_mesh_group(sync->mesh, dtrain__axis_name(axis));
		if (!(axes >> axis & 1) || !line || dtrain_group_size(line) == 1)
			continue;
		sync_stage *stage = dtrain__stage_add(reduction, &dtrain__stage_sum, line);
		stage->of_shard = of_shard;
		stage->of_parts = true;
	}
}

/* Where every micro-batch is reduced, the sum over the micro-batches is that of shards. */
static void list_shard(sync_reduction *reduction)
{
	dtrain_sync *sync = reduction->sync;
	if (!reduction->each_micro_batch)
		dtrain__stage_add(reduction, &dtrain__stage_accumulate, NULL);
	if (reduction->narrow)
		dtrain__stage_add(reduction, &dtrain__stage_round, NULL);
	dtrain__stage_add(reduction, &dtrain__stage_scatter, sync->shards);
	if (reduction->narrow)
		dtrain__stage_add(reduction, &dtrain__stage_unround, NULL);
	if (reduction->each_micro_batch)
		dtrain__stage_add(reduction, &dtrain__stage_accumulate, NULL);
	list_parts(reduction, true);
	if (reduction->state)
		list_hook(reduction, sync->replicas);
	else if (sync->num_replicas > 1)
		dtrain__stage_add(reduction, &dtrain__stage_sum, sync->replicas)->of_shard = true;
}

static void list_unit(sync_reduction *reduction)
{
	dtrain_sync *sync = reduction->sync;
	dtrain__stage_add(reduction, &dtrain__stage_accumulate, NULL);
	list_parts(reduction, false);
	if (reduction->state)
		list_hook(reduction, sync->group);
	else
		dtrain__stage_add(reduction, &dtrain__stage_sum, sync->group)->op =
			sync->kind->has_rounds ? DTRAIN_AVG : DTRAIN_SUM;
}

static void list_stages(sync_reduction *reduction)
{
	if (reduction->sync->options.deterministic_shards)
		dtrain__tree_list(reduction);
	else if (reduction->unit < 0)
		list_step_metrics(reduction);
	else if (reduction->shard_count)
		list_shard(reduction);
	else
		list_unit(reduction);
	if (reduction->offloaded_grads)
		dtrain__stage_add(reduction, &dtrain__stage_offload, NULL);
}

static int open_stages(sync_reduction *reduction, beton_error *err)
{
	int status = BETON_OK;
	list_stages(reduction);
	for (int i = 0; i < reduction->num_stages && status == BETON_OK; i++) {
		sync_stage *stage = &reduction->stages[i];
		const char *of = stage->of_parts                                                 ? "'s parts"
				 : stage->of_shard                                               ? "'s replicas"
				 : reduction->unit < 0 && stage->group != reduction->sync->group ? " of one model"
												 : "";
		if (!stage->kind->sends || !stage->kind->wait)
			continue;
		snprintf(stage->operation.label, sizeof(stage->operation.label), "%.32s%s", reduction->label, of);
		status = dtrain__operation_open(&stage->operation, reduction->sync, reduction->unit, true, err);
	}
	return status;
}

static int open_unit(dtrain_sync *sync, sync_reduction *reduction, int unit, beton_error *err)
{
	const dtrain_params *params = sync->params;
	const dtrain__unit_memory *memory = &params->memory[unit];
	const dtrain_range kept = dtrain__unit_range(params, unit);
	reduction->count = params->units[unit].count;
	reduction->memory = memory->whole_grads ? memory->grads : NULL;
	reduction->offloaded_grads = memory->offloaded_grads;
	if (sync->num_shards > 1 && !params->units[unit].shared) {
		int64_t first = memory->whole_grads ? kept.offset - params->units[unit].offset : 0;
		reduction->shard =
			dtrain__params_place(memory->grads, (size_t)first * dtrain_dtype_size(params->dtype));
		reduction->shard_count = kept.count;
		reduction->each_micro_batch = !sync->kind->whole_grads && !sync->options.sum_micro_batches_locally;
	}
	snprintf(reduction->label, sizeof(reduction->label), "%s %d of %d", sync->kind->unit, unit + 1,
		 params->unit_count);
	return memory->offloaded_grads ? sync->api->event_create(sync->device, &reduction->offload_done, err)
				       : BETON_OK;
}

static void open_step_metrics(const dtrain_sync *sync, sync_reduction *step_metrics)
{
	step_metrics->memory = dtrain_params_step_metrics(sync->params);
	step_metrics->count = DTRAIN_STEP_METRICS;
	snprintf(step_metrics->label, sizeof(step_metrics->label), "metrics");
}

/* A frozen unit has no gradients. */
static int open_reductions(dtrain_sync *sync, beton_error *err)
{
	int status = BETON_OK;
	for (int unit = -1; unit < dtrain_params_unit_count(sync->params) && status == BETON_OK; unit++) {
		if (unit >= 0 && dtrain_params_unit_at(sync->params, unit)->frozen)
			continue;
		sync_reduction *reduction = &sync->reductions[sync->count++];
		reduction->sync = sync;
		reduction->unit = unit;
		if (unit < 0)
			open_step_metrics(sync, reduction);
		else
			status = open_unit(sync, reduction, unit, err);
	}
	return status;
}

int dtrain__sync_create_reductions(dtrain_sync *sync, beton_error *err)
{
	int units = dtrain_params_unit_count(sync->params);
	sync->reductions = calloc((size_t)units + 1, sizeof(*sync->reductions));
	if (!sync->reductions)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	int status = sync->api->event_create(sync->device, &sync->packed_ready, err);
	if (status == BETON_OK)
		status = dtrain__flight_open(sync, &sync->between, err);
	if (status == BETON_OK)
		status = dtrain__operation_open(&sync->between_steps, sync, -1, false, err);
	return status == BETON_OK ? open_reductions(sync, err) : status;
}

int dtrain__sync_open_stages(dtrain_sync *sync, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < sync->count && status == BETON_OK; i++)
		status = open_stages(&sync->reductions[i], err);
	return status;
}

void dtrain__sync_destroy_reductions(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++)
		if (sync->reductions[i].offload_done)
			sync->api->event_destroy(sync->reductions[i].offload_done);
	dtrain__flight_close(sync, &sync->between);
	if (sync->packed_ready)
		sync->api->event_destroy(sync->packed_ready);
	free(sync->reductions);
	free(sync->operation_units);
	sync->reductions = NULL;
	sync->operation_units = NULL;
	sync->count = sync->num_operations = 0;
	sync->packed_ready = NULL;
}

/* ---- executions ---- */

static bool is_skipped(const sync_stage *stage)
{
	const sync_reduction *reduction = stage->reduction;
	bool stays = reduction->sync->unsynchronized && reduction->unit >= 0 && !stage->of_parts;
	return stage->kind->sends && (stays || !stage->group || dtrain_group_size(stage->group) == 1);
}

/* The listener hears about units only, with the last execution that adds to them. */
static int tell(const sync_reduction *reduction, const sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = reduction->sync;
	return sync->listener && arrays->last && reduction->unit >= 0
		       ? sync->listener(sync->listener_context, reduction->unit, run->stream, err)
		       : BETON_OK;
}

/* Issues stages until one has to be waited for. A stage may end the execution's part by setting `at`. */
static int advance(const sync_reduction *reduction, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	int status = BETON_OK;
	while (arrays->at < reduction->num_stages && status == BETON_OK) {
		const sync_stage *stage = &reduction->stages[arrays->at];
		bool skipped = is_skipped(stage);
		if (!skipped)
			status = stage->kind->issue(stage, arrays, run, err);
		if (!skipped && stage->kind->wait)
			return status;
		arrays->at++;
	}
	return status == BETON_OK ? tell(reduction, arrays, run, err) : status;
}

static void take_memory(const sync_planned *planned, sync_arrays *arrays, const dtrain__run *run)
{
	sync_reduction *reduction = planned->reduction;
	arrays->last = dtrain__run_is_last(run) && --reduction->left == 0;
	if (planned->grads < 0)
		arrays->memory = reduction->memory;
	if (!reduction->offloaded_grads)
		arrays->shard = reduction->shard;
	for (int i = 0; i < reduction->num_stages; i++)
		arrays->transient[i] = planned->transients[i] < 0
					       ? NULL
					       : dtrain__instance_transient(run->instance, planned->transients[i]);
	arrays->at = 0;
}

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	const sync_step *step = context;
	const sync_reduction *reduction = step->planned->reduction;
	const sync_arrays *arrays = run->state;
	dtrain_sync *sync = reduction->sync;
	int status = BETON_OK;
	take_memory(step->planned, run->state, run);
	if (arrays->last && reduction->unit < 0)
		status = dtrain__sync_trace_forward(sync, run->stream, err);
	if (status == BETON_OK && arrays->last && reduction == &sync->reductions[sync->count - 1])
		status = dtrain__sync_trace_backward(sync, run->stream, err);
	return status == BETON_OK ? advance(reduction, run->state, run, err) : status;
}

/* Another stage is under way if this one was skipped. */
static int wait(void *context, const dtrain__run *run, beton_error *err)
{
	const sync_step *step = context;
	const sync_stage *stage = &step->planned->reduction->stages[step->stage];
	sync_arrays *arrays = run->state;
	if (arrays->at != step->stage)
		return BETON_OK;
	int status = stage->kind->wait(stage, arrays, run, err);
	arrays->at++;
	return status == BETON_OK ? advance(stage->reduction, arrays, run, err) : status;
}

static void abandon(void *context, void *state)
{
	const sync_step *step = context;
	const sync_reduction *reduction = step->planned->reduction;
	sync_arrays *arrays = state;
	for (int i = 0; i < reduction->num_stages; i++) {
		dtrain__flight_abandon(&arrays->flights[i]);
		if (reduction->stages[i].kind->abandon)
			reduction->stages[i].kind->abandon(&reduction->stages[i]);
	}
}

int dtrain__stage_after(const sync_reduction *reduction, int stage)
{
	do
		stage++;
	while (stage < reduction->num_stages && !reduction->stages[stage].kind->wait);
	return stage;
}

dtrain__state dtrain__sync_arrays_state(void)
{
	dtrain__state state = {.bytes = sizeof(sync_arrays), .num_events = SYNC_STAGES};
	for (size_t i = 0; i < SYNC_STAGES; i++)
		state.events[i] =
			offsetof(sync_arrays, flights) + i * sizeof(sync_flight) + offsetof(sync_flight, ready);
	return state;
}

dtrain__call dtrain__sync_reduce_call(sync_planned *planned)
{
	int first = dtrain__stage_after(planned->reduction, -1);
	return (dtrain__call){.name = planned->reduction->label,
			      .issue = issue,
			      .wait = wait,
			      .abandon = abandon,
			      .context = &planned->steps[first],
			      .state = planned->state};
}

dtrain__call dtrain__sync_stage_call(sync_planned *planned, int stage)
{
	const sync_operation *operation = &planned->reduction->stages[stage].operation;
	return (dtrain__call){.name = operation->sync ? operation->label : "gradients to the host",
			      .wait = wait,
			      .context = &planned->steps[stage],
			      .state = planned->state};
}

/* ---- gradients in the arena ---- */

static int begin_grads(void *context, const dtrain__run *run, beton_error *err)
{
	const sync_planned *planned = context;
	const sync_reduction *reduction = planned->reduction;
	const dtrain_params *params = reduction->sync->params;
	sync_arrays *arrays = run->state;
	int status = BETON_OK;
	arrays->memory = dtrain__instance_transient(run->instance, planned->grads);
	dtrain__instance_use_transient(run->instance, planned->grads);
	if (reduction->offloaded_grads)
		arrays->shard = dtrain__unit_kept(params, reduction->unit, arrays->memory, true, params->dtype);
	for (int i = 0; i < planned->num_gaps && status == BETON_OK; i++)
		status = reduction->sync->api->zero(run->stream, (char *)arrays->memory + planned->gaps[i].begin,
						    planned->gaps[i].count, err);
	return status;
}

dtrain__call dtrain__sync_grads_call(sync_planned *planned)
{
	return (dtrain__call){
		.name = "gradients' memory", .issue = begin_grads, .context = planned, .state = planned->state};
}
