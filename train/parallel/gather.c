/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers of sharded units in front of the ops that read them, and the memory of gradients that are not kept whole.
 */
#include <stdio.h>

#include "common/error.h"
#include "core/params.h"
#include "core/program.h"
#include "sync.h"

bool dtrain__sync_form_of(const dtrain_sync *sync, int unit, bool copies, sync_form *out)
{
	const dtrain_params *params = sync->params;
	const dtrain__unit_memory *memory = &params->memory[unit];
	const dtrain_range kept = dtrain__unit_range(params, unit);
	*out = (sync_form){.unit = unit,
			   .copies = copies,
			   .is_whole = copies ? memory->whole_copies : memory->whole_values,
			   .visits = memory->visits,
			   .memory = copies ? memory->copies : memory->values,
			   .first = kept.offset - params->units[unit].offset,
			   .count = kept.count,
			   .dtype = copies ? params->copies.dtype : params->dtype};
	return memory->visits || (sync->num_shards > 1 && !params->units[unit].shared);
}

int dtrain__sync_open_gather(sync_gather *gather, const sync_form *form, dtrain_sync *sync, bool trains,
			     beton_error *err)
{
	*gather = (sync_gather){.form = *form, .lease = -1};
	snprintf(gather->gather.label, sizeof(gather->gather.label), "%s of %s %d%s",
		 sync->num_shards > 1 ? "gather" : "copy", sync->kind->unit, form->unit + 1,
		 form->copies ? "" : " in f32");
	int status = dtrain__operation_open(&gather->gather, sync, form->unit, trains, err);
	return status == BETON_OK && form->visits ? sync->api->event_create(sync->device, &gather->begun, err) : status;
}

void dtrain__sync_close_gather(sync_gather *gather)
{
	if (gather->begun)
		gather->gather.sync->api->event_destroy(gather->begun);
	dtrain__operation_close(&gather->gather);
}

/* Where the shard is in the unit's memory. */
static void *place_of(const sync_form *form, void *unit)
{
	return dtrain__params_place(unit, (size_t)form->first * dtrain_dtype_size(form->dtype));
}

/* unit: its memory, which has the shard unless the rank keeps that apart. */
static sync_transfer transfer_of(const dtrain_sync *sync, const sync_form *form, void *unit)
{
	return (sync_transfer){.kind = SYNC_ALL_GATHER,
			       .group = sync->gathers,
			       .input = form->is_whole || form->visits ? place_of(form, unit) : form->memory,
			       .output = unit,
			       .count = form->count,
			       .dtype = form->dtype};
}

static int issue_gather(void *context, const dtrain__run *run, beton_error *err)
{
	sync_gather *gather = context;
	dtrain_sync *sync = gather->gather.sync;
	const sync_form *form = &gather->form;
	bool trains = gather->gather.index >= 0;
	int status = trains ? dtrain__sync_begin_run(sync, run, err) : BETON_OK;
	if (status == BETON_OK && sync->num_shards > 1 && !sync->started)
		status = bt_fail(err, BETON_STATE,
				 "sync: a program of sharded parameters runs before the sync is started");
	/* No update has come between the runs of a step. */
	if (status != BETON_OK || (form->is_whole && sync->within_step))
		return status;
	void *unit = form->is_whole ? form->memory : dtrain__instance_lease(run->instance, gather->lease);
	const sync_transfer transfer = transfer_of(sync, form, unit);
	if (form->visits)
		status = dtrain__sync_visit(gather, place_of(form, unit), run->stream, err);
	return status == BETON_OK && sync->shards
		       ? dtrain__operation_issue(&gather->gather, &transfer, form->visits ? sync->visits : run->stream,
						 trains && !run->more, err)
		       : status;
}

static int wait_for_gather(void *context, const dtrain__run *run, beton_error *err)
{
	sync_gather *gather = context;
	const dtrain_sync *sync = gather->gather.sync;
	/* Not earlier: ops between issue and wait may read what was gathered before. */
	if (!gather->form.is_whole)
		dtrain__instance_use_lease(run->instance, gather->lease);
	/* A capture ends with its own stream alone, so that waits for the copy, too. */
	int status = gather->form.visits ? sync->api->stream_wait(run->stream, gather->gather.ready, err) : BETON_OK;
	return status == BETON_OK ? dtrain__operation_wait(&gather->gather, run->stream, err) : status;
}

static void abandon_gather(void *context)
{
	sync_gather *gather = context;
	const dtrain_sync *sync = gather->gather.sync;
	dtrain__operation_abandon(&gather->gather);
	if (gather->form.visits)
		sync->api->stream_synchronize(sync->visits, NULL);
	dtrain__sync_give_up_step(gather->gather.sync);
}

dtrain__call dtrain__sync_gather_call(sync_gather *gather)
{
	return (dtrain__call){.name = gather->gather.label,
			      .issue = issue_gather,
			      .wait = wait_for_gather,
			      .abandon = abandon_gather,
			      .context = gather};
}

static int begin_grads(void *context, const dtrain__run *run, beton_error *err)
{
	sync_grads *grads = context;
	const dtrain_device_api *api = grads->sync->api;
	char *memory = dtrain__instance_lease(run->instance, grads->lease);
	int status = BETON_OK;
	dtrain__instance_use_lease(run->instance, grads->lease);
	grads->reduction->memory = memory;
	if (grads->reduction->leaves)
		dtrain__sync_place_grads(grads->reduction, memory);
	for (int i = 0; i < grads->num_gaps && status == BETON_OK; i++)
		status = api->zero(run->stream, memory + grads->gaps[i].begin, grads->gaps[i].count, err);
	return status;
}

dtrain__call dtrain__sync_grads_call(sync_grads *grads)
{
	return (dtrain__call){
		.name = "gradients' memory", .issue = begin_grads, .wait = dtrain__sync_nothing, .context = grads};
}

static int gather_whole(dtrain_sync *sync, const sync_form *form, dtrain_stream *stream, beton_error *err)
{
	sync_operation *operation = &sync->between_steps;
	const sync_transfer transfer = transfer_of(sync, form, form->memory);
	int status = dtrain__operation_issue(operation, &transfer, stream, false, err);
	return status == BETON_OK ? dtrain__operation_wait(operation, stream, err) : status;
}

int dtrain_sync_gather(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, sync, stream))
		return BETON_INVALID_ARGUMENT;
	int status = BETON_OK;
	if (!sync->started || !sync->shards)
		return BETON_OK;
	for (int unit = 0; unit < dtrain_params_unit_count(sync->params) && status == BETON_OK; unit++) {
		sync_form form;
		if (!dtrain__sync_form_of(sync, unit, false, &form))
			continue;
		if (form.is_whole)
			status = gather_whole(sync, &form, stream, err);
		if (status == BETON_OK && sync->params->memory[unit].copies &&
		    dtrain__sync_form_of(sync, unit, true, &form) && form.is_whole)
			status = gather_whole(sync, &form, stream, err);
	}
	return status;
}

static int add_on_stream(dtrain_group *group, sync_operation *operation, void *memory, int64_t count,
			 dtrain_stream *stream, beton_error *err)
{
	const sync_transfer transfer = {
		.kind = SYNC_ALLREDUCE, .group = group, .output = memory, .count = count, .dtype = DTRAIN_F32};
	int status = dtrain__operation_issue(operation, &transfer, stream, false, err);
	return status == BETON_OK ? dtrain__operation_wait(operation, stream, err) : status;
}

int dtrain_sync_add_model(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_sync *sync = context;
	return sync->started && sync->model
		       ? add_on_stream(sync->model, &sync->between_steps, memory, count, stream, err)
		       : BETON_OK;
}

int dtrain_sync_add_shards(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_sync *sync = context;
	return sync->started && sync->shards
		       ? add_on_stream(sync->shards, &sync->between_steps, memory, count, stream, err)
		       : BETON_OK;
}
