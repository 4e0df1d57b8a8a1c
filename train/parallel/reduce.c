/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of units and figures while backward goes on, and the waits for them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "comm/work.h"
#include "common/error.h"
#include "sync.h"

static int create_events(dtrain_sync *sync, beton_error *err)
{
	int status = sync->api->event_create(sync->device, &sync->packed_ready, err);
	for (int i = 0; i < sync->count && status == BETON_OK; i++)
		status = sync->api->event_create(sync->device, &sync->reductions[i].ready, err);
	return status;
}

int dtrain__sync_create_reductions(dtrain_sync *sync, beton_error *err)
{
	int units = dtrain_params_unit_count(sync->params);
	size_t element = dtrain_dtype_size(dtrain_params_dtype(sync->params));
	sync->reductions = calloc((size_t)units + 1, sizeof(*sync->reductions));
	if (!sync->reductions)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	/* These are the last ones. Frozen parameters in other units have zeros. */
	while (units > 0 && dtrain_params_unit_at(sync->params, units - 1)->frozen)
		units--;
	sync->count = units + 1;
	sync->reductions[0] = (sync_reduction){.sync = sync,
					       .memory = dtrain_params_figures(sync->params),
					       .count = DTRAIN_FIGURES,
					       .label = "figures"};
	for (int i = 0; i < units; i++) {
		const dtrain_unit *unit = dtrain_params_unit_at(sync->params, i);
		sync_reduction *reduction = &sync->reductions[i + 1];
		*reduction = (sync_reduction){.sync = sync,
					      .memory = (char *)dtrain_params_grads(sync->params) +
							(size_t)unit->offset * element,
					      .count = unit->count};
		snprintf(reduction->label, sizeof(reduction->label), "%s %d of %d", sync->kind->unit, i + 1, units);
	}
	return create_events(sync, err);
}

void dtrain__sync_drain(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++)
		if (sync->reductions[i].work)
			dtrain_work_wait(&sync->reductions[i].work, NULL);
}

void dtrain__sync_destroy_reductions(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++)
		if (sync->reductions[i].ready)
			sync->api->event_destroy(sync->reductions[i].ready);
	if (sync->packed_ready)
		sync->api->event_destroy(sync->packed_ready);
	free(sync->reductions);
	sync->reductions = NULL;
	sync->count = 0;
	sync->packed_ready = NULL;
}

static int index_of(const sync_reduction *reduction)
{
	return (int)(reduction - reduction->sync->reductions);
}

static bool sends(const dtrain_sync *sync, const dtrain__run *run)
{
	return !run->more && sync->started && dtrain_group_size(sync->group) > 1;
}

static int begin_run(dtrain_sync *sync, const dtrain__run *run, beton_error *err)
{
	int status = dtrain__sync_begin_sums(sync, run, err);
	return status == BETON_OK && !run->more ? dtrain__sync_mark_forward(sync, run->stream, sends(sync, run), err)
						: status;
}

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	dtrain_sync *sync = reduction->sync;
	dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	int index = index_of(reduction);
	int status = index == 0 ? begin_run(sync, run, err) : BETON_OK;
	if (status == BETON_OK)
		status = dtrain__sync_accumulate(reduction, run, err);
	if (status != BETON_OK || !sends(sync, run))
		return status;
	work_notes notes = {.label = reduction->label};
	if (sync->marks) {
		notes.begin = sync->marks->reductions[index].begin;
		notes.end = sync->marks->reductions[index].end;
		sync->marks->step.bytes += (uint64_t)reduction->count * dtrain_dtype_size(dtype);
	}
	status = sync->api->event_record(reduction->ready, run->stream, err);
	return status == BETON_OK ? dtrain__allreduce_noted(sync->group, reduction->memory, reduction->count, dtype,
							    DTRAIN_SUM, reduction->ready, &notes, &reduction->work, err)
				  : status;
}

static int wait_on_host(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = reduction->sync;
	uint64_t start, end;
	int index = index_of(reduction), status = BETON_OK;
	if (index == 0)
		status = sync->api->stream_synchronize(run->stream, err);
	if (status == BETON_OK && index == 0)
		status = dtrain__sync_time_begin(sync, err);
	if (status == BETON_OK)
		status = dtrain__work_wait_timed(&reduction->work, &start, &end, err);
	if (status == BETON_OK)
		dtrain__sync_time_passed(sync, index, start, end);
	return status;
}

static int wait_on_stream(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = reduction->sync;
	int index = index_of(reduction);
	int status = index == 0 ? dtrain__sync_mark_passed(sync, 0, run->stream, err) : BETON_OK;
	if (status == BETON_OK)
		status = dtrain_work_stream_wait(&reduction->work, run->stream, err);
	return status == BETON_OK && index > 0 ? dtrain__sync_mark_passed(sync, index, run->stream, err) : status;
}

static int wait(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	dtrain_sync *sync = reduction->sync;
	if (!sends(sync, run))
		return BETON_OK;
	return dtrain__group_is_stream_ordered(sync->group) ? wait_on_stream(reduction, run, err)
							    : wait_on_host(reduction, run, err);
}

static void abandon(void *context)
{
	sync_reduction *reduction = context;
	if (reduction->work)
		dtrain_work_wait(&reduction->work, NULL);
	dtrain__sync_give_up_step(reduction->sync);
}

dtrain__call dtrain__sync_reduce_call(dtrain_sync *sync, int index)
{
	return (dtrain__call){.name = sync->reductions[index].label,
			      .issue = issue,
			      .wait = wait,
			      .abandon = abandon,
			      .context = &sync->reductions[index]};
}
