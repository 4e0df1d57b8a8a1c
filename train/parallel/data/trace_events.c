/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of a step: when its operations ran, and how long it waited for each. The times of a stream-ordered group
 * are events, which a captured step records at each launch; the host measures its own waits.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "sync.h"

enum { EVENTS = 4 };

static void events_of(sync_trace_event *trace_event, dtrain_event **events[EVENTS])
{
	events[0] = &trace_event->begin;
	events[1] = &trace_event->end;
	events[2] = &trace_event->waiting;
	events[3] = &trace_event->passed;
}

static int create_events(dtrain_sync_trace *trace, beton_error *err)
{
	const dtrain_sync *sync = trace->sync;
	int status = sync->api->event_create(sync->device, &trace->began, err);
	if (status == BETON_OK)
		status = sync->api->event_create(sync->device, &trace->forward, err);
	if (status == BETON_OK)
		status = sync->api->event_create(sync->device, &trace->backward, err);
	for (int i = 0; i < trace->count && status == BETON_OK; i++) {
		dtrain_event **events[EVENTS];
		events_of(&trace->operations[i], events);
		for (int k = 0; k < EVENTS && status == BETON_OK; k++)
			status = sync->api->event_create(sync->device, events[k], err);
	}
	for (int i = 0; i < trace->num_nodes && status == BETON_OK; i++)
		status = sync->api->event_create(sync->device, &trace->nodes[i], err);
	return status;
}

static int allocate(const dtrain_sync *sync, dtrain_sync_trace **out, beton_error *err)
{
	dtrain_sync_trace *trace = *out = calloc(1, sizeof(*trace));
	if (!trace)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	trace->count = sync->num_operations;
	trace->num_nodes = sync->timeline ? sync->timeline->overlap.num_nodes : 0;
	trace->operations = calloc((size_t)trace->count, sizeof(*trace->operations));
	trace->nodes = sync->timeline ? calloc((size_t)trace->num_nodes + 1, sizeof(*trace->nodes)) : NULL;
	if (trace->operations && (trace->nodes || !sync->timeline))
		return BETON_OK;
	free(trace->operations);
	free(trace->nodes);
	free(trace);
	*out = NULL;
	return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
}

int dtrain_sync_trace_create(dtrain_sync *sync, dtrain_sync_trace **out, beton_error *err)
{
	if (BT_MISSING(err, sync, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	if (!sync->reductions)
		return bt_fail(err, BETON_STATE, "sync: a trace needs a compiled graph");
	dtrain_sync_trace *trace;
	int status = allocate(sync, &trace, err);
	if (status != BETON_OK)
		return status;
	trace->sync = sync;
	status = create_events(trace, err);
	if (status != BETON_OK) {
		dtrain_sync_trace_destroy(&trace);
		return status;
	}
	*out = trace;
	return BETON_OK;
}

static void destroy_event(const dtrain_sync *sync, dtrain_event *event)
{
	if (event)
		sync->api->event_destroy(event);
}

void dtrain_sync_trace_destroy(dtrain_sync_trace **out)
{
	if (!out)
		return;
	dtrain_sync_trace *trace = *out;
	if (!trace)
		return;
	dtrain_sync *sync = trace->sync;
	if (sync->trace == trace)
		sync->trace = NULL;
	destroy_event(sync, trace->began);
	destroy_event(sync, trace->forward);
	destroy_event(sync, trace->backward);
	for (int i = 0; i < trace->count; i++) {
		dtrain_event **events[EVENTS];
		events_of(&trace->operations[i], events);
		for (int k = 0; k < EVENTS; k++)
			destroy_event(sync, *events[k]);
	}
	for (int i = 0; i < trace->num_nodes; i++)
		destroy_event(sync, trace->nodes[i]);
	free(trace->nodes);
	free(trace->operations);
	free(trace);
	*out = NULL;
}

void dtrain_sync_set_trace(dtrain_sync *sync, dtrain_sync_trace *trace)
{
	if (!sync)
		return;
	sync->trace = trace;
}

sync_trace_event *dtrain__sync_trace_event_of(const dtrain_sync *sync, const sync_operation *operation)
{
	return sync->trace && operation->index >= 0 && operation->index < sync->trace->count
		       ? &sync->trace->operations[operation->index]
		       : NULL;
}

int dtrain__sync_trace_began(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	dtrain_sync_trace *trace = sync->trace;
	if (!trace)
		return BETON_OK;
	trace->step = (dtrain_sync_step){0};
	trace->recorded = false;
	for (int i = 0; i < trace->count; i++) {
		trace->operations[i].used = false;
		trace->operations[i].exposed_ms = 0;
	}
	trace->began_ms = (double)bt_now_ns() / 1e6;
	return sync->api->event_mark(trace->began, stream, err);
}

static bool sends(const dtrain_sync *sync)
{
	return sync->model || (sync->group && dtrain_group_size(sync->group) > 1);
}

int dtrain__sync_trace_forward(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	return sync->trace && sends(sync) ? sync->api->event_mark(sync->trace->forward, stream, err) : BETON_OK;
}

int dtrain__sync_trace_backward(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	return sync->trace && sends(sync) ? sync->api->event_mark(sync->trace->backward, stream, err) : BETON_OK;
}

void dtrain__sync_trace_ended(dtrain_sync *sync)
{
	if (sync->trace)
		sync->trace->recorded = sync->trace->operations[0].used;
}

static int read_event_times(const dtrain_sync_trace *trace, sync_trace_event *trace_event, beton_error *err)
{
	const dtrain_device_api *api = trace->sync->api;
	int status = api->event_elapsed_ms(trace->began, trace_event->begin, &trace_event->begin_ms, err);
	if (status == BETON_OK)
		status = api->event_elapsed_ms(trace->began, trace_event->end, &trace_event->end_ms, err);
	return status == BETON_OK
		       ? api->event_elapsed_ms(trace_event->waiting, trace_event->passed, &trace_event->exposed_ms, err)
		       : status;
}

static int compare_begins(const void *a, const void *b)
{
	const sync_trace_event *left = *(sync_trace_event *const *)a, *right = *(sync_trace_event *const *)b;
	return left->begin_ms < right->begin_ms ? -1 : left->begin_ms > right->begin_ms;
}

/* The time while at least one operation was running. Two lanes run at the same time. */
static int add_union(const dtrain_sync_trace *trace, double *out, beton_error *err)
{
	sync_trace_event **order = calloc((size_t)trace->count, sizeof(*order));
	int count = 0;
	if (!order)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int i = 0; i < trace->count; i++)
		if (trace->operations[i].used)
			order[count++] = &trace->operations[i];
	qsort(order, (size_t)count, sizeof(sync_trace_event *), compare_begins);
	double until = 0;
	for (int i = 0; i < count; i++) {
		double begin = i > 0 && order[i]->begin_ms < until ? until : order[i]->begin_ms;
		*out += order[i]->end_ms > begin ? order[i]->end_ms - begin : 0;
		until = i == 0 || order[i]->end_ms > until ? order[i]->end_ms : until;
	}
	free(order);
	return BETON_OK;
}

static int read_times(dtrain_sync_trace *trace, dtrain_sync_step *out, beton_error *err)
{
	bool events = dtrain__group_is_stream_ordered(trace->sync->group);
	int status = trace->sync->api->event_elapsed_ms(trace->forward, trace->backward, &out->backward_ms, err);
	for (int i = 0; i < trace->count && status == BETON_OK; i++) {
		sync_trace_event *trace_event = &trace->operations[i];
		if (trace_event->used && events)
			status = read_event_times(trace, trace_event, err);
		out->exposed_ms += trace_event->exposed_ms;
	}
	return status == BETON_OK ? add_union(trace, &out->comm_ms, err) : status;
}

int dtrain_sync_get_step(dtrain_sync_trace *trace, dtrain_sync_step *out, beton_error *err)
{
	if (BT_MISSING(err, trace, out))
		return BETON_INVALID_ARGUMENT;
	*out = trace->step;
	int status = trace->sync->started ? dtrain_group_check(trace->sync->group, err) : BETON_OK;
	return status == BETON_OK && trace->recorded ? read_times(trace, out, err) : status;
}

double dtrain_sync_unit_exposed_ms(const dtrain_sync_trace *trace, int unit)
{
	if (!trace)
		return 0;
	const dtrain_sync *sync = trace->sync;
	double exposed = unit == 0 && trace->count ? trace->operations[0].exposed_ms : 0;
	for (int i = 1; i < trace->count; i++)
		if (sync->operation_units[i] == unit)
			exposed += trace->operations[i].exposed_ms;
	return unit >= 0 ? exposed : 0;
}

double dtrain_sync_model_waited_ms(const dtrain_sync *sync)
{
	return sync ? (double)sync->model_waited_ns / 1e6 : 0;
}
