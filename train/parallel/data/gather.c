/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers of sharded units before the ops that read them.
 */
#include <stddef.h>
#include <stdio.h>

#include "comm/group/group.h"
#include "common/error.h"
#include "core/params.h"
#include "core/program.h"
#include "parallel/mesh.h"
#include "sync.h"

bool dtrain__sync_form_of(const dtrain_sync *sync, int unit, bool copies, sync_form *out)
{
	const dtrain_params *params = sync->params;
	const dtrain__unit_memory *memory = &params->memory[unit];
	const dtrain_range kept = dtrain__unit_range(params, unit);
	*out = (sync_form){.unit = unit,
			   .copies = copies,
			   .is_whole = copies ? memory->whole_copies : memory->whole_values,
			   .prefetched = memory->prefetched,
			   .memory = copies ? memory->copies : memory->values,
			   .first = kept.offset - params->units[unit].offset,
			   .count = kept.count,
			   .dtype = copies ? params->copies.dtype : params->dtype};
	return memory->prefetched || (sync->num_shards > 1 && !params->units[unit].shared);
}

int dtrain__sync_open_gather(sync_gather *gather, const sync_form *form, dtrain_sync *sync, bool trains,
			     beton_error *err)
{
	*gather = (sync_gather){.form = *form, .trains = trains, .transient = -1};
	snprintf(gather->gather.label, sizeof(gather->gather.label), "%s of %s %d%s",
		 sync->num_shards > 1 ? "gather" : "copy", sync->kind->unit, form->unit + 1,
		 form->copies ? "" : " in f32");
	return dtrain__operation_open(&gather->gather, sync, form->unit, trains, err);
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
			       .input = form->is_whole || form->prefetched ? place_of(form, unit) : form->memory,
			       .output = unit,
			       .count = form->count,
			       .dtype = form->dtype};
}

/* The state of a gather's call. */
typedef struct gather_state {
	sync_flight flight;
	dtrain_event *begun; /* of a prefetched unit: its memory is free */
} gather_state;

static int issue_gather(void *context, const dtrain__run *run, beton_error *err)
{
	sync_gather *gather = context;
	gather_state *state = run->state;
	dtrain_sync *sync = gather->gather.sync;
	const sync_form *form = &gather->form;
	if (sync->num_shards > 1 && !sync->started)
		return bt_fail(err, BETON_STATE,
			       "sync: a program of sharded parameters runs before the sync is started");
	/* No update has come between the micro-batches of a step. */
	if (form->is_whole && run->micro_batch > 0)
		return BETON_OK;
	void *unit = form->is_whole ? form->memory : dtrain__instance_transient(run->instance, gather->transient);
	const sync_transfer transfer = transfer_of(sync, form, unit);
	int status = form->prefetched ? dtrain__sync_prefetch(gather, state->begun, state->flight.ready,
							      place_of(form, unit), run->stream, err)
				      : BETON_OK;
	return status == BETON_OK && sync->shards
		       ? dtrain__operation_issue(&gather->gather, &state->flight, &transfer,
						 form->prefetched ? sync->prefetched : run->stream,
						 gather->trains && dtrain__run_is_last(run), err)
		       : status;
}

static int wait_for_gather(void *context, const dtrain__run *run, beton_error *err)
{
	sync_gather *gather = context;
	gather_state *state = run->state;
	const dtrain_sync *sync = gather->gather.sync;
	/* Not earlier: ops between issue and wait may read what was gathered before. */
	if (!gather->form.is_whole)
		dtrain__instance_use_transient(run->instance, gather->transient);
	/* A capture ends with its own stream alone, so that waits for the copy, too. */
	int status = gather->form.prefetched ? sync->api->stream_wait(run->stream, state->flight.ready, err) : BETON_OK;
	return status == BETON_OK ? dtrain__operation_wait(&gather->gather, &state->flight, run->stream, err) : status;
}

static void abandon_gather(void *context, void *state)
{
	const sync_gather *gather = context;
	const dtrain_sync *sync = gather->gather.sync;
	dtrain__flight_abandon(&((gather_state *)state)->flight);
	if (gather->form.prefetched)
		sync->api->stream_synchronize(sync->prefetched, NULL);
}

int dtrain__sync_add_gather(sync_gather *gather, dtrain__schedule *schedule, int32_t after, int32_t before,
			    beton_error *err)
{
	const dtrain__state state = {
		.bytes = sizeof(gather_state),
		.events = {offsetof(gather_state, flight.ready), offsetof(gather_state, begun)},
		.num_events = gather->form.prefetched ? 2 : 1,
	};
	dtrain__call call = {.name = gather->gather.label,
			     .issue = issue_gather,
			     .wait = wait_for_gather,
			     .abandon = abandon_gather,
			     .context = gather};
	int status = dtrain__schedule_state(schedule, &state, &call.state, err);
	return status == BETON_OK ? dtrain__schedule_add(schedule, &call, after, before, err) : status;
}

static int gather_whole(dtrain_sync *sync, const sync_form *form, dtrain_stream *stream, beton_error *err)
{
	sync_operation *operation = &sync->between_steps;
	const sync_transfer transfer = transfer_of(sync, form, form->memory);
	int status = dtrain__operation_issue(operation, &sync->between, &transfer, stream, false, err);
	return status == BETON_OK ? dtrain__operation_wait(operation, &sync->between, stream, err) : status;
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

/* An operation of the optimizer, on the stream. */
static int run_between_steps(dtrain_sync *sync, const char *name, const sync_transfer *transfer, dtrain_stream *stream,
			     beton_error *err)
{
	snprintf(sync->between_steps.label, sizeof(sync->between_steps.label), "%s", name);
	int status = dtrain__operation_issue(&sync->between_steps, &sync->between, transfer, stream, false, err);
	return status == BETON_OK ? dtrain__operation_wait(&sync->between_steps, &sync->between, stream, err) : status;
}

static int add_on_stream(dtrain_sync *sync, dtrain_group *group, void *memory, int64_t count, dtrain_stream *stream,
			 beton_error *err)
{
	const sync_transfer transfer = {
		.kind = SYNC_ALLREDUCE, .group = group, .output = memory, .count = count, .dtype = DTRAIN_F32};
	return run_between_steps(sync, "norms of gradients", &transfer, stream, err);
}

int dtrain_sync_gather_axis(void *context, dtrain_axis axis, void *out, const void *in, int64_t count,
			    dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, context, out, in, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_sync *sync = context;
	dtrain_group *group = sync->mesh && axis < DTRAIN_AXES ? dtrain__mesh_line(sync->mesh, 1u << axis) : NULL;
	if (!group || !sync->started)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sync: no ranks along axis %d", (int)axis);
	const sync_transfer transfer = {.kind = SYNC_ALL_GATHER,
					.group = group,
					.output = out,
					.input = in,
					.count = count,
					.dtype = dtrain_params_dtype(sync->params)};
	int status = dtrain__group_use_device(group, sync->device, err);
	return status == BETON_OK ? run_between_steps(sync, "whole parameters", &transfer, stream, err) : status;
}

int dtrain_sync_add_model(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_sync *sync = context;
	return sync->started && sync->model ? add_on_stream(sync, sync->model, memory, count, stream, err) : BETON_OK;
}

int dtrain_sync_add_shards(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_sync *sync = context;
	return sync->started && sync->shards ? add_on_stream(sync, sync->shards, memory, count, stream, err) : BETON_OK;
}
