/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on a stream, each between two events of its handle. Handles and their events are reused, so nothing is
 * allocated once there are as many as a step needs.
 */
#include "group_stream.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/error.h"
#include "common/system.h"

/* Time for aborted operations to end. */
#define DRAIN_MS 5000

static void free_work(group_streams *streams, dtrain_work *work)
{
	if (work->begun)
		streams->api->event_destroy(work->begun);
	if (work->ended)
		streams->api->event_destroy(work->ended);
	free(work);
}

/* With the mutex held; unlocks it. */
static void drop_reference(group_streams *streams)
{
	bool last = --streams->references == 0;
	pthread_mutex_unlock(&streams->mutex);
	if (!last)
		return;
	while (streams->idle) {
		dtrain_work *work = streams->idle;
		streams->idle = work->next;
		free_work(streams, work);
	}
	pthread_cond_destroy(&streams->changed);
	pthread_mutex_destroy(&streams->mutex);
	dtrain__sequence_free(&streams->sequence);
	dtrain__history_destroy(streams->history);
	free(streams->machines);
	free(streams->calls);
	free(streams->name);
	free(streams);
}

static int take_lane(group_streams *streams, const group_streams *parent, beton_error *err)
{
	group_lane *lane = parent ? parent->lane : calloc(1, sizeof(*lane));
	if (!lane)
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", streams->member.name);
	if (!parent) {
		int status = streams->backend ? streams->backend->stream_create(streams->device, &lane->stream, err)
					      : streams->api->stream_create(streams->device, &lane->stream, err);
		if (status != BETON_OK) {
			free(lane);
			return status;
		}
		pthread_mutex_init(&lane->order, NULL);
	}
	atomic_fetch_add(&lane->users, 1);
	streams->lane = lane;
	return BETON_OK;
}

static void drop_lane(group_streams *streams)
{
	group_lane *lane = streams->lane;
	streams->lane = NULL;
	if (!lane || atomic_fetch_sub(&lane->users, 1) > 1)
		return;
	streams->api->stream_destroy(lane->stream);
	pthread_mutex_destroy(&lane->order);
	free(lane);
}

int dtrain__streams_create(dtrain_group *group, const dtrain_group_backend *backend, const group_streams *parent,
			   group_streams **out, beton_error *err)
{
	group_streams *streams = calloc(1, sizeof(*streams));
	char *name = strdup(group->name);
	if (!streams || !name || !dtrain__sequence_init(&streams->sequence, group->member.size)) {
		free(streams);
		free(name);
		return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", group->name);
	}
	streams->member = group->member;
	streams->member.name = streams->name = name;
	streams->api = group->api;
	streams->device = group->device;
	streams->backend = backend;
	streams->references = 1;
	pthread_mutex_init(&streams->mutex, NULL);
	bt_condition_init(&streams->changed);
	int status = take_lane(streams, parent, err);
	if (status != BETON_OK)
		dtrain__streams_destroy(&streams);
	else
		streams->history = group->history;
	*out = streams;
	return status;
}

static bool is_complete(const group_streams *streams, dtrain_event *event)
{
	bool complete = false;
	/* A device that failed runs nothing any more, so its work counts as complete. */
	return streams->backend->event_query(event, &complete, NULL) != BETON_OK || complete;
}

static bool is_drained(group_streams *streams)
{
	bool drained = true;
	pthread_mutex_lock(&streams->mutex);
	for (const dtrain_work *work = streams->first; work; work = work->next)
		drained = drained && is_complete(streams, work->ended);
	for (const stream_watch *watch = streams->watches; watch; watch = watch->next)
		drained = drained && is_complete(streams, watch->event);
	pthread_mutex_unlock(&streams->mutex);
	return drained;
}

static void *take_state(group_streams *streams)
{
	pthread_mutex_lock(&streams->mutex);
	void *state = streams->state;
	streams->state = NULL;
	pthread_mutex_unlock(&streams->mutex);
	return state;
}

/* Aborts operations that are in flight when the group is destroyed. Only threads that wait for a handle still use the
 * group. */
static void cancel(group_streams *streams)
{
	pthread_mutex_lock(&streams->mutex);
	bool idle = dtrain__streams_are_idle(streams);
	if (streams->health == GROUP_WORKS)
		bt_fail(&streams->failure, BETON_CANCELLED, "group \"%s\": the group was destroyed",
			streams->member.name);
	else if (streams->health == GROUP_FAILING) /* too late for the thread to handle it */
		bt_prefix(&streams->failure, "group \"%s\": %s", streams->member.name, streams->failed_in);
	streams->health = GROUP_FAILED;
	pthread_cond_broadcast(&streams->changed);
	pthread_mutex_unlock(&streams->mutex);
	if (idle || !streams->state)
		return;
	if (!streams->aborted)
		streams->backend->abort(&streams->state, 1, NULL);
	/* If operations do not end in time, the communicator is leaked, since no caller is left to be told. */
	for (int waited_ms = 0; !is_drained(streams); waited_ms++) {
		if (waited_ms == DRAIN_MS) {
			take_state(streams);
			return;
		}
		poll(NULL, 0, 1);
	}
}

void dtrain__streams_destroy(group_streams **out)
{
	group_streams *streams = *out;
	*out = NULL;
	if (!streams)
		return;
	dtrain__streams_unwatch(streams);
	cancel(streams);
	dtrain__streams_close_windows(streams);
	void *state = take_state(streams);
	if (state)
		streams->backend->close(state);
	drop_lane(streams);
	pthread_mutex_lock(&streams->mutex);
	while (streams->first) {
		dtrain_work *work = streams->first;
		streams->first = work->next;
		work->in_flight = false;
		dtrain__streams_retire(streams, work);
	}
	while (streams->watches) {
		stream_watch *watch = streams->watches;
		streams->watches = watch->next;
		free(watch);
	}
	drop_reference(streams);
}

/* With the mutex held. */
static int take_work(group_streams *streams, dtrain_work **out, beton_error *err)
{
	dtrain_work *work = streams->idle;
	int status = BETON_OK;
	*out = NULL;
	if (work) {
		streams->idle = work->next;
	} else {
		work = calloc(1, sizeof(*work));
		if (!work)
			return bt_fail(err, BETON_NO_MEMORY, "group \"%s\": out of memory", streams->member.name);
		work->streams = streams;
		status = streams->api->event_create(streams->device, &work->begun, err);
		if (status == BETON_OK)
			status = streams->api->event_create(streams->device, &work->ended, err);
		if (status != BETON_OK) {
			free_work(streams, work);
			return status;
		}
	}
	work->next = NULL;
	work->first_ns = work->since_ns = 0;
	work->held = true;
	work->in_flight = work->captured = work->complete = false;
	work->label[0] = '\0';
	streams->references++;
	*out = work;
	return BETON_OK;
}

void dtrain__streams_retire(group_streams *streams, dtrain_work *work)
{
	if (work->held || work->in_flight)
		return;
	work->next = streams->idle;
	streams->idle = work;
}

/* With the mutex held; unlocks it. */
static void release(dtrain_work **out)
{
	dtrain_work *work = *out;
	*out = NULL;
	work->held = false;
	dtrain__streams_retire(work->streams, work);
	drop_reference(work->streams);
}

static int put_alone(group_streams *streams, const dtrain_group_call *call, beton_error *err)
{
	if (call->op == DTRAIN_GROUP_BARRIER || call->output == call->input)
		return BETON_OK;
	return streams->api->copy(streams->lane->stream, call->output, call->input,
				  (size_t)call->count * dtrain_dtype_size(call->dtype), DTRAIN_DEVICE_TO_DEVICE, err);
}

static int put_calls(group_streams *streams, const dtrain_group_call *calls, int count, beton_error *err)
{
	int status = BETON_OK;
	if (streams->state)
		return count ? streams->backend->enqueue(streams->state, calls, count, streams->lane->stream, err)
			     : BETON_OK;
	for (int i = 0; i < count && status == BETON_OK; i++)
		status = put_alone(streams, &calls[i], err);
	return status;
}

static int reserve_calls(group_streams *streams, int count, beton_error *err)
{
	if (count <= streams->calls_capacity)
		return BETON_OK;
	dtrain_group_call *calls = realloc(streams->calls, (size_t)count * sizeof(*calls));
	if (!calls)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a batch of %d operations", count);
	streams->calls = calls;
	streams->calls_capacity = count;
	return BETON_OK;
}

/* Skips operations without elements. */
static int put_items(group_streams *streams, const work_item *items, int count, beton_error *err)
{
	int used = 0, status = reserve_calls(streams, count, err);
	for (int i = 0; i < count && status == BETON_OK; i++)
		if (items[i].call.count > 0 || items[i].call.op == DTRAIN_GROUP_BARRIER)
			streams->calls[used++] = items[i].call;
	return status == BETON_OK ? put_calls(streams, streams->calls, used, err) : status;
}

static int put(group_streams *streams, dtrain_work *work, const work_item *items, const work_notes *notes,
	       beton_error *err)
{
	const dtrain_device_api *api = streams->api;
	dtrain_stream *stream = streams->lane->stream;
	int status = BETON_OK;
	for (int i = 0; i < work->count && status == BETON_OK; i++)
		if (items[i].after)
			status = api->stream_wait(stream, items[i].after, err);
	if (status == BETON_OK && streams->backend)
		status = streams->backend->stream_capturing(stream, &work->captured, err);
	if (status == BETON_OK && streams->state && !work->captured)
		status = api->event_record(work->begun, stream, err);
	if (status == BETON_OK && notes && notes->begin)
		status = api->event_mark(notes->begin, stream, err);
	if (status == BETON_OK)
		status = put_items(streams, items, work->count, err);
	if (status == BETON_OK && notes && notes->end)
		status = api->event_mark(notes->end, stream, err);
	return status == BETON_OK ? api->event_record(work->ended, stream, err) : status;
}

/* With the mutex held. */
static void watch_work(group_streams *streams, dtrain_work *work)
{
	work->in_flight = true;
	work->next = NULL;
	if (streams->first)
		streams->last->next = work;
	else
		streams->first = work;
	streams->last = work;
	if (streams->idle_thread)
		pthread_cond_broadcast(&streams->changed);
}

int dtrain__streams_check_types(const group_streams *streams, const dtrain_group_call *call, bool reduces,
				beton_error *err)
{
	if (!streams->state || call->op == DTRAIN_GROUP_BARRIER)
		return BETON_OK;
	uint32_t types = reduces ? streams->backend->reductions : streams->backend->dtypes;
	if (types & 1u << call->dtype)
		return BETON_OK;
	return bt_fail(err, BETON_UNSUPPORTED, "group \"%s\": %s with %s does not take elements of type %s",
		       streams->member.name, dtrain__group_op_name(call->op), streams->backend->name,
		       dtrain_dtype_name(call->dtype));
}

/* With the lane's lock held. */
static void note(group_streams *streams, dtrain_work *work, work_item *items, int count, bool in_batch,
		 const char *label)
{
	work->count = count;
	work->op = count ? items[0].call.op : DTRAIN_GROUP_BARRIER;
	snprintf(work->label, sizeof(work->label), "%s", label);
	for (int i = 0; i < count; i++)
		items[i].call.sequence = dtrain__sequence_next(&streams->sequence, &items[i].call);
	work->record = dtrain__history_add(streams->history, items, count, in_batch, label);
}

/* Records the state after the operation was put on the stream. A group of one rank waits for no rank, and is not
 * watched. */
static void note_put(group_streams *streams, const dtrain_work *work, int status)
{
	if (status == BETON_OK && !work->captured && streams->state)
		return;
	dtrain__history_set(streams->history, work->record, work->count,
			    status != BETON_OK ? DTRAIN_RECORD_FAILED
			    : work->captured   ? DTRAIN_RECORD_CAPTURED
					       : DTRAIN_RECORD_COMPLETED,
			    bt_now_ns());
}

int dtrain__streams_submit(group_streams *streams, work_item *items, int count, bool in_batch, const work_notes *notes,
			   const char *label, dtrain_work **out, beton_error *err)
{
	dtrain_work *work = NULL;
	beton_error failure = {0};
	pthread_mutex_lock(&streams->lane->order);
	pthread_mutex_lock(&streams->mutex);
	int status = dtrain__streams_check(streams, err);
	if (status != BETON_OK && err)
		dtrain__group_not_begun(items, count, label, err);
	if (status == BETON_OK)
		status = take_work(streams, &work, err);
	pthread_mutex_unlock(&streams->mutex);
	if (status != BETON_OK) {
		pthread_mutex_unlock(&streams->lane->order);
		return status;
	}
	note(streams, work, items, count, in_batch, label);
	status = put(streams, work, items, notes, &failure);
	note_put(streams, work, status);
	pthread_mutex_lock(&streams->mutex);
	if (status == BETON_OK && streams->state && !work->captured)
		watch_work(streams, work);
	if (status != BETON_OK && streams->state) {
		char where[WORK_LABEL_SIZE + 32];
		/* The group must fail: otherwise the next operation of this rank would match the others' present one.
		 */
		dtrain__work_describe(work, where, sizeof(where));
		dtrain__streams_fail(streams, where, &failure);
		status = dtrain__streams_check(streams, &failure);
	}
	pthread_mutex_unlock(&streams->lane->order);
	if (status != BETON_OK && err)
		*err = failure;
	*out = work;
	if (status != BETON_OK)
		release(out);
	else
		pthread_mutex_unlock(&streams->mutex);
	return status;
}

void dtrain__streams_observe(group_streams *streams, dtrain_work *work)
{
	const dtrain_group_backend *backend = streams->backend;
	beton_error failure = {0};
	bool complete = false;
	if (work->complete || streams->health != GROUP_WORKS)
		return;
	int status = backend->event_query(work->ended, &complete, &failure);
	/* The backend may end an operation that failed, so ask it. */
	if (status == BETON_OK && complete && streams->state)
		status = backend->poll(streams->state, &failure);
	if (status != BETON_OK) {
		char where[WORK_LABEL_SIZE + 32];
		dtrain__work_describe(work, where, sizeof(where));
		dtrain__streams_fail(streams, where, &failure);
		return;
	}
	work->complete = complete;
	if (complete)
		dtrain__history_set(streams->history, work->record, work->count, DTRAIN_RECORD_COMPLETED, bt_now_ns());
}

/* With the mutex held. In a group of one rank only the device is waited for. */
static int wait_alone(group_streams *streams, dtrain_work *work, beton_error *err)
{
	pthread_mutex_unlock(&streams->mutex);
	int status = streams->api->event_synchronize(work->ended, err);
	pthread_mutex_lock(&streams->mutex);
	work->complete = status == BETON_OK;
	return status;
}

int dtrain__stream_work_wait(dtrain_work **out, beton_error *err)
{
	dtrain_work *work = *out;
	group_streams *streams = work->streams;
	uint64_t pause = 10000;
	int status = BETON_OK;
	pthread_mutex_lock(&streams->mutex);
	if (work->captured)
		status = bt_fail(err, BETON_STATE,
				 "group \"%s\": %s is part of a capture, and can only be waited for by a stream",
				 streams->member.name, dtrain__group_op_name(work->op));
	else if (!streams->state && streams->health == GROUP_WORKS)
		status = wait_alone(streams, work, err);
	/* Not event_synchronize, which might wait for ever if the device cannot end the operation. */
	while (status == BETON_OK && !work->complete && streams->health == GROUP_WORKS) {
		dtrain__streams_observe(streams, work);
		if (work->complete || streams->health != GROUP_WORKS)
			break;
		bt_wait_ns(&streams->changed, &streams->mutex, pause);
		pause = pause < 500000 ? pause * 2 : 1000000;
	}
	if (status == BETON_OK && !work->complete)
		status = dtrain__streams_check(streams, err);
	release(out);
	return status;
}

int dtrain__stream_work_order(dtrain_work **out, dtrain_stream *stream, beton_error *err)
{
	dtrain_work *work = *out;
	group_streams *streams = work->streams;
	pthread_mutex_lock(&streams->mutex);
	int status = work->complete ? BETON_OK : dtrain__streams_check(streams, err);
	if (status == BETON_OK)
		status = streams->api->stream_wait(stream, work->ended, err);
	release(out);
	return status;
}

bool dtrain__stream_work_done(dtrain_work *work)
{
	group_streams *streams = work->streams;
	pthread_mutex_lock(&streams->mutex);
	/* In a group of one rank on a device without event_query, waiting is short. */
	if (!streams->backend && !work->complete && streams->health == GROUP_WORKS)
		wait_alone(streams, work, NULL);
	else if (!work->captured)
		dtrain__streams_observe(streams, work);
	bool done = work->complete || streams->health == GROUP_FAILED;
	pthread_mutex_unlock(&streams->mutex);
	return done;
}

int dtrain__streams_split(group_streams *parent, int color, const dtrain_group_place *place, void **state,
			  beton_error *err)
{
	pthread_mutex_lock(&parent->lane->order);
	int status = parent->backend->split(parent->state, color, place, parent->member.join_timeout_ms, state, err);
	pthread_mutex_unlock(&parent->lane->order);
	return status;
}
