/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "far.h"

int far_event_create(dtrain_device *device, dtrain_event **out, beton_error *err)
{
	(void)device;
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an event");
	(*out)->references = 1;
	pthread_mutex_init(&(*out)->mutex, NULL);
	pthread_cond_init(&(*out)->changed, NULL);
	return BETON_OK;
}

void far_event_retain(dtrain_event *event)
{
	pthread_mutex_lock(&event->mutex);
	event->references++;
	pthread_mutex_unlock(&event->mutex);
}

/* The owner's reference, or a task's. */
void far_event_destroy(dtrain_event *event)
{
	if (!event)
		return;
	pthread_mutex_lock(&event->mutex);
	bool last = --event->references == 0;
	pthread_mutex_unlock(&event->mutex);
	if (!last)
		return;
	pthread_cond_destroy(&event->changed);
	pthread_mutex_destroy(&event->mutex);
	free(event);
}

uint64_t far_event_next(dtrain_event *event)
{
	pthread_mutex_lock(&event->mutex);
	uint64_t sequence = ++event->recorded;
	pthread_mutex_unlock(&event->mutex);
	return sequence;
}

uint64_t far_event_recorded(dtrain_event *event)
{
	pthread_mutex_lock(&event->mutex);
	uint64_t sequence = event->recorded;
	pthread_mutex_unlock(&event->mutex);
	return sequence;
}

void far_event_complete(dtrain_event *event, uint64_t sequence, const beton_error *failure)
{
	pthread_mutex_lock(&event->mutex);
	if (sequence > event->completed) {
		event->completed = sequence;
		event->time_ns = bt_now_ns();
		event->failure = *failure;
	}
	pthread_cond_broadcast(&event->changed);
	pthread_mutex_unlock(&event->mutex);
}

void far_event_await(dtrain_event *event, uint64_t sequence)
{
	pthread_mutex_lock(&event->mutex);
	while (event->completed < sequence)
		pthread_cond_wait(&event->changed, &event->mutex);
	pthread_mutex_unlock(&event->mutex);
}

int far_event_record(dtrain_event *event, dtrain_stream *stream, beton_error *err)
{
	if (stream->capture)
		return far_capture_record(stream, event, err);
	event->capture = 0;
	return far_push(stream,
			&(struct far_task){.kind = FAR_RECORD, .event = event, .sequence = far_event_next(event)}, err);
}

int far_event_mark(dtrain_event *event, dtrain_stream *stream, beton_error *err)
{
	event->capture = 0;
	return far_enqueue(stream, &(struct far_task){.kind = FAR_MARK, .event = event}, err);
}

int far_stream_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err)
{
	if (event->capture)
		return far_capture_wait(stream, event, err);
	uint64_t sequence = far_event_recorded(event);
	if (stream->capture && sequence)
		return bt_fail(err, BETON_STATE, "device 'far': a captured stream waits for an event from outside");
	return sequence ? far_push(stream, &(struct far_task){.kind = FAR_WAIT, .event = event, .sequence = sequence},
				   err)
			: BETON_OK;
}

int far_event_synchronize(dtrain_event *event, beton_error *err)
{
	if (event->capture)
		return bt_fail(err, BETON_STATE, "device 'far': the host waits for an event that was captured");
	pthread_mutex_lock(&event->mutex);
	uint64_t sequence = event->recorded;
	while (event->completed < sequence)
		pthread_cond_wait(&event->changed, &event->mutex);
	beton_error failure = event->failure;
	pthread_mutex_unlock(&event->mutex);
	return failure.code ? bt_fail(err, failure.code, "%s", failure.message) : BETON_OK;
}

static int time_of(dtrain_event *event, uint64_t *out)
{
	pthread_mutex_lock(&event->mutex);
	bool complete = event->recorded && event->completed == event->recorded;
	*out = event->time_ns;
	pthread_mutex_unlock(&event->mutex);
	return complete ? BETON_OK : BETON_STATE;
}

int far_event_elapsed_ms(dtrain_event *start, dtrain_event *end, double *out, beton_error *err)
{
	uint64_t began, ended;
	if (time_of(start, &began) != BETON_OK || time_of(end, &ended) != BETON_OK)
		return bt_fail(err, BETON_STATE, "device 'far': elapsed time of an event that is not complete");
	*out = ((double)ended - (double)began) * 1e-6;
	return BETON_OK;
}
