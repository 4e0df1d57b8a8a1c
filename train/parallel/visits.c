/* SPDX-License-Identifier: Apache-2.0
 *
 * Units in host memory: how their values come to a run's memory, and how their gradients leave it. Each direction has a
 * stream of its own beside that of the run.
 */
#include "common/error.h"
#include "core/params.h"
#include "sync.h"

int dtrain__sync_open_visits(dtrain_sync *sync, beton_error *err)
{
	if (!sync->params->offload.units || sync->leaves)
		return BETON_OK;
	int status = sync->visits ? BETON_OK : sync->api->stream_create(sync->device, &sync->visits, err);
	return status == BETON_OK ? sync->api->stream_create(sync->device, &sync->leaves, err) : status;
}

void dtrain__sync_close_visits(dtrain_sync *sync)
{
	if (sync->visits)
		sync->api->stream_destroy(sync->visits);
	if (sync->leaves)
		sync->api->stream_destroy(sync->leaves);
}

/* Makes one stream wait for all that is on another. */
static int follow(const dtrain_sync *sync, dtrain_stream *stream, dtrain_event *event, dtrain_stream *other,
		  beton_error *err)
{
	int status = sync->api->event_record(event, other, err);
	return status == BETON_OK ? sync->api->stream_wait(stream, event, err) : status;
}

int dtrain__sync_visit(sync_gather *gather, void *place, dtrain_stream *stream, beton_error *err)
{
	const dtrain_sync *sync = gather->gather.sync;
	const sync_form *form = &gather->form;
	int status = follow(sync, sync->visits, gather->begun, stream, err);
	if (status == BETON_OK)
		status = dtrain__offload_visit(sync->params, form->unit, form->copies, place, sync->visits, err);
	/* A gather over the ranks records it, too. */
	return status == BETON_OK ? sync->api->event_record(gather->gather.ready, sync->visits, err) : status;
}

void dtrain__sync_place_grads(sync_reduction *reduction, void *memory)
{
	const dtrain_sync *sync = reduction->sum.sync;
	int unit = sync->operation_units[reduction->sum.index];
	int64_t first = dtrain__unit_range(sync->params, unit).offset - sync->params->units[unit].offset;
	void *part = dtrain__params_place(memory, (size_t)first * dtrain_dtype_size(sync->params->dtype));
	sync->params->memory[unit].grads = part;
	reduction->shard = reduction->shard_count ? part : NULL;
}

int dtrain__sync_leave(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	const dtrain_sync *sync = reduction->sum.sync;
	int unit = sync->operation_units[reduction->sum.index];
	if (run->more)
		return BETON_OK;
	int status = follow(sync, sync->leaves, reduction->complete, run->stream, err);
	if (status == BETON_OK)
		status = dtrain__offload_fetch(sync->params, unit, sync->leaves, err);
	return status == BETON_OK ? sync->api->event_record(reduction->left, sync->leaves, err) : status;
}

/* The copy began when the reduction was waited for. */
static int wait_for_leave(void *context, const dtrain__run *run, beton_error *err)
{
	const sync_reduction *reduction = context;
	const dtrain_sync *sync = reduction->sum.sync;
	int status = run->more ? BETON_OK : sync->api->stream_wait(run->stream, reduction->left, err);
	return status == BETON_OK ? dtrain__sync_tell(reduction, run, err) : status;
}

static void abandon(void *context)
{
	const sync_reduction *reduction = context;
	const dtrain_sync *sync = reduction->sum.sync;
	sync->api->stream_synchronize(sync->leaves, NULL);
}

dtrain__call dtrain__sync_leave_call(dtrain_sync *sync, int index)
{
	return (dtrain__call){.name = "gradients to the host",
			      .issue = dtrain__sync_nothing,
			      .wait = wait_for_leave,
			      .abandon = abandon,
			      .context = &sync->reductions[index]};
}
