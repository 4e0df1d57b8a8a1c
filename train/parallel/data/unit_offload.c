/* SPDX-License-Identifier: Apache-2.0
 *
 * Units in host memory: how their values come to a run's memory, and how their gradients leave it. Each direction has a
 * stream of its own beside that of the run.
 */
#include "common/error.h"
#include "core/params.h"
#include "sync.h"

int dtrain__sync_open_unit_offload(dtrain_sync *sync, beton_error *err)
{
	if (!sync->params->offload.units || sync->offloaded_grads)
		return BETON_OK;
	int status = sync->prefetched ? BETON_OK : sync->api->stream_create(sync->device, &sync->prefetched, err);
	return status == BETON_OK ? sync->api->stream_create(sync->device, &sync->offloaded_grads, err) : status;
}

void dtrain__sync_close_unit_offload(dtrain_sync *sync)
{
	if (sync->prefetched)
		sync->api->stream_destroy(sync->prefetched);
	if (sync->offloaded_grads)
		sync->api->stream_destroy(sync->offloaded_grads);
}

/* Makes one stream wait for all that is on another. */
static int follow(const dtrain_sync *sync, dtrain_stream *stream, dtrain_event *event, dtrain_stream *other,
		  beton_error *err)
{
	int status = sync->api->event_record(event, other, err);
	return status == BETON_OK ? sync->api->stream_wait(stream, event, err) : status;
}

int dtrain__sync_prefetch(const sync_gather *gather, dtrain_event *begun, dtrain_event *ready, void *place,
			  dtrain_stream *stream, beton_error *err)
{
	const dtrain_sync *sync = gather->gather.sync;
	const sync_form *form = &gather->form;
	int status = follow(sync, sync->prefetched, begun, stream, err);
	if (status == BETON_OK)
		status = dtrain__offload_prefetch(sync->params, form->unit, form->copies, place, sync->prefetched, err);
	/* A gather over the ranks records it, too. */
	return status == BETON_OK ? sync->api->event_record(ready, sync->prefetched, err) : status;
}

/* The optimizer finds the gradients there until the listener has heard of the unit. */
static int issue_offload(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = stage->reduction;
	const dtrain_sync *sync = reduction->sync;
	sync->params->memory[reduction->unit].grads = arrays->shard;
	int status = follow(sync, sync->offloaded_grads, arrays->flights[stage->index].ready, run->stream, err);
	if (status == BETON_OK)
		status = dtrain__offload_fetch(sync->params, reduction->unit, sync->offloaded_grads, err);
	return status == BETON_OK ? sync->api->event_record(reduction->offload_done, sync->offloaded_grads, err)
				  : status;
}

static int wait_for_leave(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err)
{
	(void)arrays;
	return stage->reduction->sync->api->stream_wait(run->stream, stage->reduction->offload_done, err);
}

static void abandon_leave(const sync_stage *stage)
{
	const dtrain_sync *sync = stage->reduction->sync;
	sync->api->stream_synchronize(sync->offloaded_grads, NULL);
}

const sync_stage_kind dtrain__stage_offload = {
	.end = SYNC_END_LEAVING, .issue = issue_offload, .wait = wait_for_leave, .abandon = abandon_leave};
