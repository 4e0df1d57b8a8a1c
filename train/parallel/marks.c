/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks: when backward ended in a step, and when the wait for each reduction was over. The times of a stream-ordered
 * group are events, which a captured step records at each launch; the host measures its own waits.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "sync.h"

static int create_events(dtrain_sync_marks *marks, beton_error *err)
{
	const dtrain_sync *sync = marks->sync;
	int status = sync->api->event_create(sync->device, &marks->forward, err);
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		sync_mark *mark = &marks->reductions[i];
		dtrain_event **events[] = {&mark->begin, &mark->end, &mark->passed};
		for (size_t k = 0; k < sizeof(events) / sizeof(events[0]) && status == BETON_OK; k++)
			status = sync->api->event_create(sync->device, events[k], err);
	}
	return status;
}

int dtrain_sync_marks_create(dtrain_sync *sync, dtrain_sync_marks **out, beton_error *err)
{
	*out = NULL;
	if (!sync->reductions)
		return bt_fail(err, BETON_STATE, "sync: marks, and no graph was compiled");
	dtrain_sync_marks *marks = calloc(1, sizeof(*marks));
	if (marks)
		marks->reductions = calloc((size_t)sync->count, sizeof(*marks->reductions));
	if (!marks || !marks->reductions) {
		free(marks);
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	}
	marks->sync = sync;
	int status = create_events(marks, err);
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
	dtrain_sync_marks *marks = *out;
	if (!marks)
		return;
	dtrain_sync *sync = marks->sync;
	if (sync->marks == marks)
		sync->marks = NULL;
	destroy_event(sync, marks->forward);
	for (int i = 0; i < sync->count; i++) {
		destroy_event(sync, marks->reductions[i].begin);
		destroy_event(sync, marks->reductions[i].end);
		destroy_event(sync, marks->reductions[i].passed);
	}
	free(marks->reductions);
	free(marks);
	*out = NULL;
}

void dtrain_sync_set_marks(dtrain_sync *sync, dtrain_sync_marks *marks)
{
	sync->marks = marks;
}

int dtrain__sync_mark_forward(dtrain_sync *sync, dtrain_stream *stream, bool sends, beton_error *err)
{
	dtrain_sync_marks *marks = sync->marks;
	if (!marks)
		return BETON_OK;
	marks->step = (dtrain_sync_step){0};
	marks->recorded = false;
	for (int i = 0; i < sync->count; i++)
		marks->reductions[i].exposed_ms = 0;
	return sends ? sync->api->event_mark(marks->forward, stream, err) : BETON_OK;
}

int dtrain__sync_mark_passed(dtrain_sync *sync, int index, dtrain_stream *stream, beton_error *err)
{
	if (!sync->marks)
		return BETON_OK;
	int status = sync->api->event_mark(sync->marks->reductions[index].passed, stream, err);
	sync->marks->recorded = status == BETON_OK && index == sync->count - 1;
	return status;
}

int dtrain__sync_time_begin(dtrain_sync *sync, beton_error *err)
{
	dtrain_sync_marks *marks = sync->marks;
	sync->waiting_since = bt_now_ns();
	sync->comm_until = 0;
	return marks ? sync->api->event_elapsed_ms(marks->forward, sync->reductions[sync->count - 1].ready,
						   &marks->step.backward_ms, err)
		     : BETON_OK;
}

void dtrain__sync_time_passed(dtrain_sync *sync, int index, uint64_t start_ns, uint64_t end_ns)
{
	dtrain_sync_marks *marks = sync->marks;
	if (!marks)
		return;
	/* The group's thread runs one reduction at a time, in order, so the union of the times is their sum. */
	start_ns = start_ns > sync->comm_until ? start_ns : sync->comm_until;
	marks->step.comm_ms += end_ns > start_ns ? (double)(end_ns - start_ns) / 1e6 : 0;
	sync->comm_until = end_ns > sync->comm_until ? end_ns : sync->comm_until;
	if (index == 0)
		return;
	uint64_t now = bt_now_ns();
	marks->reductions[index].exposed_ms = (double)(now - sync->waiting_since) / 1e6;
	marks->step.exposed_ms += marks->reductions[index].exposed_ms;
	sync->waiting_since = now;
}

static int read_events(dtrain_sync_marks *marks, dtrain_sync_step *out, beton_error *err)
{
	const dtrain_sync *sync = marks->sync;
	sync_mark *all = marks->reductions;
	int status = sync->api->event_elapsed_ms(marks->forward, all[0].passed, &out->backward_ms, err);
	for (int i = 0; i < sync->count && status == BETON_OK; i++) {
		double one = 0;
		/* One stream runs the reductions in order, so the union of the times is their sum. */
		status = sync->api->event_elapsed_ms(all[i].begin, all[i].end, &one, err);
		out->comm_ms += one;
		if (status == BETON_OK && i > 0)
			status = sync->api->event_elapsed_ms(all[i - 1].passed, all[i].passed, &all[i].exposed_ms, err);
		out->exposed_ms += all[i].exposed_ms;
	}
	return status;
}

int dtrain_sync_get_step(dtrain_sync_marks *marks, dtrain_sync_step *out, beton_error *err)
{
	*out = marks->step;
	int status = marks->sync->started ? dtrain_group_check(marks->sync->group, err) : BETON_OK;
	return status == BETON_OK && marks->recorded ? read_events(marks, out, err) : status;
}

double dtrain_sync_unit_exposed_ms(const dtrain_sync_marks *marks, int unit)
{
	return unit >= 0 && unit + 1 < marks->sync->count ? marks->reductions[unit + 1].exposed_ms : 0;
}
