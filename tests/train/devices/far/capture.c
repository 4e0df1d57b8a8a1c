/* SPDX-License-Identifier: Apache-2.0
 *
 * Captures, as CUDA's: tasks put on the stream, and on streams that an event of the capture draws into it, are noted
 * down, and each launch puts them onto as many streams again. A stream that was drawn in has to be joined again before
 * the end.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "far.h"

#define MAX_LANES 12

struct far_capture {
	dtrain_device *device;
	uint64_t number;
	struct far_task *tasks; /* in the order of the calls */
	size_t count, capacity;
	dtrain_event **events; /* one for each record */
	int *lane_of_event;
	size_t *place_of_event; /* how many tasks there were */
	int num_events, event_capacity;
	dtrain_stream *members[MAX_LANES]; /* while it is recorded */
	dtrain_stream *lanes[MAX_LANES];   /* for launches; 0 is the caller's */
	int num_lanes;
	bool joined[MAX_LANES]; /* nothing came to the lane since the origin waited for it */
};

int far_capture_begin(dtrain_stream *stream, beton_error *err)
{
	dtrain_device *device = stream->device;
	if (far_fails(device, FAR_CAPTURE, NULL, err))
		return BETON_DEVICE;
	struct far_capture *capture = calloc(1, sizeof(*capture));
	if (!capture)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a capture");
	pthread_mutex_lock(&device->mutex);
	bool busy = device->capture != NULL;
	if (!busy) {
		device->capture = capture;
		capture->number = ++device->captures;
	}
	pthread_mutex_unlock(&device->mutex);
	if (busy) {
		free(capture);
		return bt_fail(err, BETON_STATE, "device 'far': a capture is going on already");
	}
	capture->device = device;
	capture->members[0] = stream;
	capture->num_lanes = 1;
	stream->capture = capture;
	stream->lane = 0;
	return BETON_OK;
}

int far_capture_add(struct far_capture *capture, const struct far_task *task, beton_error *err)
{
	if (capture->count == capture->capacity) {
		size_t capacity = capture->capacity ? 2 * capture->capacity : 256;
		struct far_task *grown = realloc(capture->tasks, capacity * sizeof(*grown));
		if (!grown)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for a capture of %zu tasks", capacity);
		capture->tasks = grown;
		capture->capacity = capacity;
	}
	struct far_task *copy = &capture->tasks[capture->count];
	*copy = *task;
	if (task->call) {
		copy->call = malloc(task->bytes);
		if (!copy->call)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for a captured call");
		memcpy(copy->call, task->call, task->bytes);
	}
	if (task->event)
		far_event_retain(task->event);
	capture->count++;
	capture->joined[task->lane] = false;
	return BETON_OK;
}

static int reserve_event(struct far_capture *capture, beton_error *err)
{
	if (capture->num_events < capture->event_capacity)
		return BETON_OK;
	int capacity = capture->event_capacity ? 2 * capture->event_capacity : 32;
	dtrain_event **events = realloc(capture->events, (size_t)capacity * sizeof(*events));
	capture->events = events ? events : capture->events;
	int *lanes = realloc(capture->lane_of_event, (size_t)capacity * sizeof(*lanes));
	capture->lane_of_event = lanes ? lanes : capture->lane_of_event;
	size_t *places = realloc(capture->place_of_event, (size_t)capacity * sizeof(*places));
	capture->place_of_event = places ? places : capture->place_of_event;
	if (!events || !lanes || !places)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a capture of %d events", capacity);
	capture->event_capacity = capacity;
	return BETON_OK;
}

int far_capture_record(dtrain_stream *stream, dtrain_event *event, beton_error *err)
{
	struct far_capture *capture = stream->capture;
	dtrain_event *own = NULL;
	int status = reserve_event(capture, err);
	if (status == BETON_OK)
		status = far_event_create(stream->device, &own, err);
	if (status != BETON_OK)
		return status;
	bool joined = capture->joined[stream->lane];
	status = far_capture_add(capture, &(struct far_task){.kind = FAR_RECORD, .event = own, .lane = stream->lane},
				 err);
	capture->joined[stream->lane] = joined;
	far_event_destroy(own); /* the task has it */
	if (status != BETON_OK)
		return status;
	event->capture = capture->number;
	event->captured_as = capture->num_events;
	capture->events[capture->num_events] = own;
	capture->lane_of_event[capture->num_events] = stream->lane;
	capture->place_of_event[capture->num_events++] = capture->count;
	return BETON_OK;
}

static bool is_last_of_lane(const struct far_capture *capture, int lane, size_t place)
{
	for (size_t i = place; i < capture->count; i++)
		if (capture->tasks[i].lane == lane)
			return false;
	return true;
}

int far_capture_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err)
{
	pthread_mutex_lock(&stream->device->mutex);
	struct far_capture *capture = stream->device->capture;
	pthread_mutex_unlock(&stream->device->mutex);
	if (!capture || capture->number != event->capture)
		return bt_fail(err, BETON_STATE, "device 'far': a wait for an event of a capture that has ended");
	if (!stream->capture && capture->num_lanes == MAX_LANES)
		return bt_fail(err, BETON_UNSUPPORTED, "device 'far': a capture of more than %d streams", MAX_LANES);
	if (!stream->capture) {
		stream->capture = capture;
		stream->lane = capture->num_lanes;
		capture->members[capture->num_lanes++] = stream;
	}
	int lane = capture->lane_of_event[event->captured_as];
	int status = far_capture_add(capture,
				     &(struct far_task){.kind = FAR_WAIT,
							.event = capture->events[event->captured_as],
							.lane = stream->lane},
				     err);
	if (status == BETON_OK && stream->lane == 0 &&
	    is_last_of_lane(capture, lane, capture->place_of_event[event->captured_as]))
		capture->joined[lane] = true;
	return status;
}

static int make_lanes(struct far_capture *capture, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 1; i < capture->num_lanes && status == BETON_OK; i++) {
		if (!capture->joined[i])
			return bt_fail(err, BETON_STATE,
				       "device 'far': a capture ends with a stream that was not joined");
		status = far_stream_create(capture->device, &capture->lanes[i], err);
	}
	return status;
}

int far_capture_end(dtrain_stream *stream, void **captured, beton_error *err)
{
	struct far_capture *capture = stream->capture;
	*captured = NULL;
	if (!capture || stream->lane != 0)
		return bt_fail(err, BETON_STATE, "device 'far': no capture was begun on this stream");
	for (int i = 0; i < capture->num_lanes; i++) {
		capture->members[i]->capture = NULL;
		capture->members[i]->lane = 0;
	}
	pthread_mutex_lock(&capture->device->mutex);
	capture->device->capture = NULL;
	pthread_mutex_unlock(&capture->device->mutex);
	int status = make_lanes(capture, err);
	if (status != BETON_OK) {
		far_capture_destroy(capture);
		return status;
	}
	*captured = capture;
	return BETON_OK;
}

int far_capture_launch(void *captured, dtrain_stream *stream, beton_error *err)
{
	struct far_capture *capture = captured;
	if (stream->capture)
		return bt_fail(err, BETON_STATE, "device 'far': a launch within a capture");
	if (far_fails(stream->device, FAR_LAUNCH, NULL, err))
		return BETON_DEVICE;
	int status = BETON_OK;
	for (size_t i = 0; i < capture->count && status == BETON_OK; i++) {
		struct far_task task = capture->tasks[i];
		if (task.kind == FAR_RECORD)
			task.sequence = far_event_next(task.event);
		else if (task.kind == FAR_WAIT)
			task.sequence = far_event_recorded(task.event);
		status = far_push(task.lane ? capture->lanes[task.lane] : stream, &task, err);
	}
	return status;
}

void far_capture_destroy(void *captured)
{
	struct far_capture *capture = captured;
	if (!capture)
		return;
	for (int i = 1; i < capture->num_lanes; i++)
		far_stream_destroy(capture->lanes[i]);
	for (size_t i = 0; i < capture->count; i++) {
		far_event_destroy(capture->tasks[i].event);
		free(capture->tasks[i].call);
	}
	free(capture->tasks);
	free(capture->events);
	free(capture->lane_of_event);
	free(capture->place_of_event);
	free(capture);
}
