/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks: when a step's operations ran, and how long it waited for each. The times of a stream-ordered group are events,
 * which a captured step records at each launch; the host measures its own waits.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "sync.h"

enum { EVENTS = 4 };

static void events_of(sync_mark *mark, dtrain_event **events[EVENTS])
{
	events[0] = &mark->begin;
	events[1] = &mark->end;
	events[2] = &mark->waiting;
	events[3] = &mark->passed;
}

static int create_events(dtrain_sync_marks *marks, beton_error *err)
{
	const dtrain_sync *sync = marks->sync;
	int status = sync->api->event_create(sync->device, &marks->began, err);
	if (status == BETON_OK)
		status = sync->api->event_create(sync->device, &marks->forward, err);
	if (status == BETON_OK)
		status = sync->api->event_create(sync->device, &marks->backward, err);
	for (int i = 0; i < marks->count && status == BETON_OK; i++) {
		dtrain_event **events[EVENTS];
		events_of(&marks->operations[i], events);
		for (int k = 0; k < EVENTS && status == BETON_OK; k++)
			status = sync->api->event_create(sync->device, events[k], err);
	}
	for (int i = 0; i < marks->num_nodes && status == BETON_OK; i++)
		status = sync->api->event_create(sync->device, &marks->nodes[i], err);
	return status;
}

static int allocate(const dtrain_sync *sync, dtrain_sync_marks **out, beton_error *err)
{
	dtrain_sync_marks *marks = *out = calloc(1, sizeof(*marks));
	if (!marks)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	marks->count = sync->num_operations;
	marks->num_nodes = sync->timeline ? sync->timeline->overlap.num_nodes : 0;
	marks->operations = calloc((size_t)marks->count, sizeof(*marks->operations));
	marks->nodes = sync->timeline ? calloc((size_t)marks->num_nodes + 1, sizeof(*marks->nodes)) : NULL;
	if (marks->operations && (marks->nodes || !sync->timeline))
		return BETON_OK;
	free(marks->operations);
	free(marks->nodes);
	free(marks);
	*out = NULL;
	return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
}

int dtrain_sync_marks_create(dtrain_sync *sync, dtrain_sync_marks **out, beton_error *err)
{
	if (BT_MISSING(err, sync, out))
		return BETON_INVALID_ARGUMENT;
	*out = NULL;
	if (!sync->reductions)
		return bt_fail(err, BETON_STATE, "sync: marks, and no graph was compiled");
	dtrain_sync_marks *marks;
	int status = allocate(sync, &marks, err);
	if (status != BETON_OK)
		return status;
	marks->sync = sync;
	status = create_events(marks, err);
	if (status != BETON_OK) {
		dtrain_sync_marks_destroy(&marks);
		return status;
	}
	*out = marks;
	return BETON_OK;
}

static void destroy_event(const dtrain_sync *sync, dtrain_event *event)
{
	if (event)
		sync->api->event_destroy(event);
}

void dtrain_sync_marks_destroy(dtrain_sync_marks **out)
{
	if (!out)
		return;
	dtrain_sync_marks *marks = *out;
	if (!marks)
		return;
	dtrain_sync *sync = marks->sync;
	if (sync->marks == marks)
		sync->marks = NULL;
	destroy_event(sync, marks->began);
	destroy_event(sync, marks->forward);
	destroy_event(sync, marks->backward);
	for (int i = 0; i < marks->count; i++) {
		dtrain_event **events[EVENTS];
		events_of(&marks->operations[i], events);
		for (int k = 0; k < EVENTS; k++)
			destroy_event(sync, *events[k]);
	}
	for (int i = 0; i < marks->num_nodes; i++)
		destroy_event(sync, marks->nodes[i]);
	free(marks->nodes);
	free(marks->operations);
	free(marks);
	*out = NULL;
}

void dtrain_sync_set_marks(dtrain_sync *sync, dtrain_sync_marks *marks)
{
	if (!sync)
		return;
	sync->marks = marks;
}

sync_mark *dtrain__sync_mark_of(const dtrain_sync *sync, const sync_operation *operation)
{
	return sync->marks && operation->index >= 0 && operation->index < sync->marks->count
		       ? &sync->marks->operations[operation->index]
		       : NULL;
}

int dtrain__sync_mark_began(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	dtrain_sync_marks *marks = sync->marks;
	if (!marks)
		return BETON_OK;
	marks->step = (dtrain_sync_step){0};
	marks->recorded = false;
	for (int i = 0; i < marks->count; i++) {
		marks->operations[i].used = false;
		marks->operations[i].exposed_ms = 0;
	}
	marks->began_ms = (double)bt_now_ns() / 1e6;
	return sync->api->event_mark(marks->began, stream, err);
}

static bool sends(const dtrain_sync *sync)
{
	return sync->group && dtrain_group_size(sync->group) > 1;
}

int dtrain__sync_mark_forward(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	return sync->marks && sends(sync) ? sync->api->event_mark(sync->marks->forward, stream, err) : BETON_OK;
}

int dtrain__sync_mark_backward(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	return sync->marks && sends(sync) ? sync->api->event_mark(sync->marks->backward, stream, err) : BETON_OK;
}

void dtrain__sync_mark_ended(dtrain_sync *sync)
{
	if (sync->marks)
		sync->marks->recorded = sync->marks->operations[0].used;
}

static int read_event_times(const dtrain_sync_marks *marks, sync_mark *mark, beton_error *err)
{
	const dtrain_device_api *api = marks->sync->api;
	int status = api->event_elapsed_ms(marks->began, mark->begin, &mark->begin_ms, err);
	if (status == BETON_OK)
		status = api->event_elapsed_ms(marks->began, mark->end, &mark->end_ms, err);
	return status == BETON_OK ? api->event_elapsed_ms(mark->waiting, mark->passed, &mark->exposed_ms, err) : status;
}

static int compare_begins(const void *a, const void *b)
{
	const sync_mark *left = *(sync_mark *const *)a, *right = *(sync_mark *const *)b;
	return left->begin_ms < right->begin_ms ? -1 : left->begin_ms > right->begin_ms;
}

/* The time while at least one operation was running. Two lanes run at the same time. */
static int add_union(const dtrain_sync_marks *marks, double *out, beton_error *err)
{
	sync_mark **order = calloc((size_t)marks->count, sizeof(*order));
	int count = 0;
	if (!order)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	for (int i = 0; i < marks->count; i++)
		if (marks->operations[i].used)
			order[count++] = &marks->operations[i];
	qsort(order, (size_t)count, sizeof(sync_mark *), compare_begins);
	double until = 0;
	for (int i = 0; i < count; i++) {
		double begin = i > 0 && order[i]->begin_ms < until ? until : order[i]->begin_ms;
		*out += order[i]->end_ms > begin ? order[i]->end_ms - begin : 0;
		until = i == 0 || order[i]->end_ms > until ? order[i]->end_ms : until;
	}
	free(order);
	return BETON_OK;
}

static int read_times(dtrain_sync_marks *marks, dtrain_sync_step *out, beton_error *err)
{
	bool events = dtrain__group_is_stream_ordered(marks->sync->group);
	int status = marks->sync->api->event_elapsed_ms(marks->forward, marks->backward, &out->backward_ms, err);
	for (int i = 0; i < marks->count && status == BETON_OK; i++) {
		sync_mark *mark = &marks->operations[i];
		if (mark->used && events)
			status = read_event_times(marks, mark, err);
		out->exposed_ms += mark->exposed_ms;
	}
	return status == BETON_OK ? add_union(marks, &out->comm_ms, err) : status;
}

int dtrain_sync_get_step(dtrain_sync_marks *marks, dtrain_sync_step *out, beton_error *err)
{
	if (BT_MISSING(err, marks, out))
		return BETON_INVALID_ARGUMENT;
	*out = marks->step;
	int status = marks->sync->started ? dtrain_group_check(marks->sync->group, err) : BETON_OK;
	return status == BETON_OK && marks->recorded ? read_times(marks, out, err) : status;
}

double dtrain_sync_unit_exposed_ms(const dtrain_sync_marks *marks, int unit)
{
	if (!marks)
		return 0;
	const dtrain_sync *sync = marks->sync;
	double exposed = unit == 0 && marks->count ? marks->operations[0].exposed_ms : 0;
	for (int i = 1; i < marks->count; i++)
		if (sync->operation_units[i] == unit)
			exposed += marks->operations[i].exposed_ms;
	return unit >= 0 ? exposed : 0;
}
