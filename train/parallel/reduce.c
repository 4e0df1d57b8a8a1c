/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions of units and figures while backward goes on, the waits for them, and what they took.
 */
#include <stdio.h>
#include <stdlib.h>

#include "comm/work.h"
#include "common/error.h"
#include "common/system.h"
#include "sync.h"

static int create_events(dtrain_sync *sync, beton_error *err)
{
	dtrain_event **events[] = {&sync->first, &sync->own_marks[0], &sync->own_marks[1], &sync->packed_ready};
	int status = BETON_OK;
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]) && status == BETON_OK; i++)
		status = sync->api->event_create(sync->device, events[i], err);
	if (!sync->last)
		dtrain_sync_set_marks(sync, NULL, NULL);
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		sync_reduction *reduction = &sync->reductions[i];
		dtrain_event **own[] = {&reduction->ready, &reduction->begin, &reduction->end};
		for (size_t k = 0; k < sizeof(own) / sizeof(own[0]) && status == BETON_OK; k++)
			status = sync->api->event_create(sync->device, own[k], err);
	}
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

static void destroy_event(dtrain_sync *sync, dtrain_event *event)
{
	if (event)
		sync->api->event_destroy(event);
}

void dtrain__sync_destroy_reductions(dtrain_sync *sync)
{
	for (int i = 0; i < sync->count; i++) {
		destroy_event(sync, sync->reductions[i].ready);
		destroy_event(sync, sync->reductions[i].begin);
		destroy_event(sync, sync->reductions[i].end);
	}
	destroy_event(sync, sync->first);
	destroy_event(sync, sync->own_marks[0]);
	destroy_event(sync, sync->own_marks[1]);
	destroy_event(sync, sync->packed_ready);
	free(sync->reductions);
	sync->reductions = NULL;
	sync->count = 0;
	sync->first = sync->own_marks[0] = sync->own_marks[1] = sync->packed_ready = sync->last = sync->resumed = NULL;
}

static bool is_first(const sync_reduction *reduction)
{
	return reduction == reduction->sync->reductions;
}

static bool is_last(const sync_reduction *reduction)
{
	return reduction == &reduction->sync->reductions[reduction->sync->count - 1];
}

static bool sends(const dtrain_sync *sync, const dtrain__run *run)
{
	return !run->more && sync->group && dtrain_group_size(sync->group) > 1;
}

static int begin_run(dtrain_sync *sync, const dtrain__run *run, beton_error *err)
{
	int status = dtrain__sync_begin_sums(sync, run, err);
	if (status != BETON_OK)
		return status;
	sync->step = (dtrain_sync_step){0};
	sync->has_marks = false;
	for (int i = 0; i < sync->count; i++)
		sync->reductions[i].exposed_ms = 0;
	return sends(sync, run) ? sync->api->event_mark(sync->first, run->stream, err) : BETON_OK;
}

static int issue(void *context, const dtrain__run *run, beton_error *err)
{
	sync_reduction *reduction = context;
	dtrain_sync *sync = reduction->sync;
	dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	int status = is_first(reduction) ? begin_run(sync, run, err) : BETON_OK;
	if (status == BETON_OK)
		status = dtrain__sync_accumulate(reduction, run, err);
	if (status != BETON_OK || !sends(sync, run))
		return status;
	const work_notes notes = {reduction->begin, reduction->end, reduction->label};
	status = sync->api->event_record(reduction->ready, run->stream, err);
	if (status == BETON_OK)
		status = dtrain__allreduce_noted(sync->group, reduction->memory, reduction->count, dtype, DTRAIN_SUM,
						 reduction->ready, &notes, &reduction->work, err);
	if (status != BETON_OK)
		return status;
	sync->traffic.reductions++;
	sync->traffic.bytes += (uint64_t)reduction->count * dtrain_dtype_size(dtype);
	return BETON_OK;
}

static int wait_on_host(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = reduction->sync;
	uint64_t start, end;
	if (is_first(reduction)) {
		int status = sync->api->stream_synchronize(run->stream, err);
		if (status == BETON_OK)
			status = sync->api->event_elapsed_ms(sync->first, sync->reductions[sync->count - 1].ready,
							     &sync->step.backward_ms, err);
		if (status != BETON_OK)
			return status;
		sync->waiting_since = bt_now_ns();
		sync->comm_until = sync->comm_ns = 0;
	}
	int status = dtrain__work_wait_timed(&reduction->work, &start, &end, err);
	if (status != BETON_OK)
		return status;
	uint64_t now = bt_now_ns();
	reduction->exposed_ms = (double)(now - sync->waiting_since) / 1e6;
	sync->waiting_since = now;
	/* The group's thread runs one reduction at a time, in order, so the union of the times is their sum. */
	start = start > sync->comm_until ? start : sync->comm_until;
	sync->comm_ns += end > start ? end - start : 0;
	sync->comm_until = end > sync->comm_until ? end : sync->comm_until;
	sync->step.exposed_ms += reduction->exposed_ms;
	sync->step.comm_ms = (double)sync->comm_ns / 1e6;
	return BETON_OK;
}

static int wait_on_stream(sync_reduction *reduction, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = reduction->sync;
	int status = is_first(reduction) ? sync->api->event_mark(sync->last, run->stream, err) : BETON_OK;
	if (status == BETON_OK)
		status = dtrain_work_stream_wait(&reduction->work, run->stream, err);
	if (status == BETON_OK && is_last(reduction)) {
		status = sync->api->event_mark(sync->resumed, run->stream, err);
		sync->has_marks = status == BETON_OK;
	}
	return status;
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

int dtrain_sync_get_step(dtrain_sync *sync, dtrain_sync_step *out, beton_error *err)
{
	const dtrain_device_api *api = sync->api;
	*out = sync->step;
	int status = sync->group ? dtrain_group_check(sync->group, err) : BETON_OK;
	if (status != BETON_OK || !sync->has_marks)
		return status;
	status = api->event_elapsed_ms(sync->first, sync->last, &out->backward_ms, err);
	if (status == BETON_OK)
		status = api->event_elapsed_ms(sync->last, sync->resumed, &out->exposed_ms, err);
	/* One stream runs the reductions in order, so the union of the times is their sum. */
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		double one = 0;
		status = api->event_elapsed_ms(sync->reductions[i].begin, sync->reductions[i].end, &one, err);
		out->comm_ms += one;
	}
	return status;
}

void dtrain_sync_set_marks(dtrain_sync *sync, dtrain_event *computed, dtrain_event *reduced)
{
	sync->last = computed ? computed : sync->own_marks[0];
	sync->resumed = reduced ? reduced : sync->own_marks[1];
	sync->has_marks = false;
}

double dtrain_sync_unit_exposed_ms(const dtrain_sync *sync, int unit)
{
	return unit >= 0 && unit + 1 < sync->count ? sync->reductions[unit + 1].exposed_ms : 0;
}

dtrain_sync_traffic dtrain_sync_get_traffic(const dtrain_sync *sync)
{
	return sync->traffic;
}
