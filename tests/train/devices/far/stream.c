/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"
#include "far.h"

static void wait_a_little(dtrain_stream *stream)
{
	if (!stream->device->delay_us)
		return;
	stream->random = stream->random * 6364136223846793005u + 1442695040888963407u;
	usleep((useconds_t)((stream->random >> 33) % (2 * stream->device->delay_us + 1)));
}

static int work(const struct far_task *task, beton_error *err)
{
	switch (task->kind) {
	case FAR_OP:
		return far_op_execute(task->op, task->operands, task->to, err);
	case FAR_COPY:
		memmove(task->to, task->from, task->bytes);
		return BETON_OK;
	case FAR_ZERO:
		memset(task->to, 0, task->bytes);
		return BETON_OK;
	case FAR_FUNCTION:
		return task->function(task->context, task->call, err);
	default:
		return BETON_OK;
	}
}

/* Events go on after a failure, or others would wait for ever. */
static void execute(dtrain_stream *stream, const struct far_task *task)
{
	wait_a_little(stream);
	if (task->kind == FAR_WAIT)
		far_event_await(task->event, task->sequence);
	pthread_mutex_lock(&stream->mutex);
	beton_error failure = stream->failure;
	pthread_mutex_unlock(&stream->mutex);
	if (task->kind == FAR_RECORD || task->kind == FAR_MARK)
		far_event_complete(task->event, task->sequence, &failure);
	else if (!failure.code && work(task, &failure) != BETON_OK) {
		pthread_mutex_lock(&stream->mutex);
		stream->failure = failure;
		pthread_mutex_unlock(&stream->mutex);
	}
}

static void free_task(struct far_task *task)
{
	far_event_destroy(task->event);
	free(task->call);
	free(task);
}

static void *run(void *context)
{
	dtrain_stream *stream = context;
	pthread_mutex_lock(&stream->mutex);
	while (stream->head || !stream->stopping) {
		struct far_task *task = stream->head;
		if (!task) {
			pthread_cond_wait(&stream->changed, &stream->mutex);
			continue;
		}
		stream->head = task->next;
		stream->busy = true;
		pthread_mutex_unlock(&stream->mutex);
		execute(stream, task);
		free_task(task);
		pthread_mutex_lock(&stream->mutex);
		stream->busy = false;
		pthread_cond_broadcast(&stream->changed);
	}
	pthread_mutex_unlock(&stream->mutex);
	return NULL;
}

int far_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err)
{
	*out = NULL;
	dtrain_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a stream");
	stream->device = device;
	stream->random = bt_now_ns();
	pthread_mutex_init(&stream->mutex, NULL);
	pthread_cond_init(&stream->changed, NULL);
	sigset_t before;
	bt_block_signals(&before);
	int failed = pthread_create(&stream->thread, NULL, run, stream);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (failed) {
		free(stream);
		return bt_fail_errno(err, failed, "device 'far': a thread");
	}
	pthread_mutex_lock(&device->mutex);
	stream->next = device->streams;
	device->streams = stream;
	pthread_mutex_unlock(&device->mutex);
	*out = stream;
	return BETON_OK;
}

void far_stream_destroy(dtrain_stream *stream)
{
	if (!stream)
		return;
	dtrain_device *device = stream->device;
	pthread_mutex_lock(&device->mutex);
	dtrain_stream **link = &device->streams;
	while (*link != stream)
		link = &(*link)->next;
	*link = stream->next;
	pthread_mutex_unlock(&device->mutex);
	pthread_mutex_lock(&stream->mutex);
	stream->stopping = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->mutex);
	pthread_join(stream->thread, NULL);
	pthread_cond_destroy(&stream->changed);
	pthread_mutex_destroy(&stream->mutex);
	free(stream);
}

static void settle(dtrain_stream *stream)
{
	while (stream->head || stream->busy)
		pthread_cond_wait(&stream->changed, &stream->mutex);
}

int far_stream_synchronize(dtrain_stream *stream, beton_error *err)
{
	if (stream->capture)
		return bt_fail(err, BETON_STATE, "device 'far': the host waits for a stream that is being captured");
	pthread_mutex_lock(&stream->mutex);
	settle(stream);
	beton_error failure = stream->failure;
	stream->failure = (beton_error){0};
	pthread_mutex_unlock(&stream->mutex);
	return failure.code ? bt_fail(err, failure.code, "%s", failure.message) : BETON_OK;
}

void far_settle(dtrain_device *device)
{
	pthread_mutex_lock(&device->mutex);
	for (dtrain_stream *stream = device->streams; stream; stream = stream->next) {
		pthread_mutex_lock(&stream->mutex);
		settle(stream);
		pthread_mutex_unlock(&stream->mutex);
	}
	pthread_mutex_unlock(&device->mutex);
}

int far_push(dtrain_stream *stream, const struct far_task *task, beton_error *err)
{
	struct far_task *copy = malloc(sizeof(*copy));
	void *call = task->call ? malloc(task->bytes) : NULL;
	if (!copy || (task->call && !call)) {
		free(copy);
		free(call);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a task");
	}
	*copy = *task;
	copy->next = NULL;
	copy->call = call;
	if (call)
		memcpy(call, task->call, task->bytes);
	if (task->event)
		far_event_retain(task->event);
	if (task->kind == FAR_MARK)
		copy->sequence = far_event_next(task->event);
	pthread_mutex_lock(&stream->mutex);
	if (stream->head)
		stream->tail->next = copy;
	else
		stream->head = copy;
	stream->tail = copy;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->mutex);
	return BETON_OK;
}

int far_enqueue(dtrain_stream *stream, const struct far_task *task, beton_error *err)
{
	struct far_task placed = *task;
	placed.lane = stream->lane;
	return stream->capture ? far_capture_add(stream->capture, &placed, err) : far_push(stream, task, err);
}

int far_copy(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
	     beton_error *err)
{
	bool to_device = kind != DTRAIN_DEVICE_TO_HOST, from_device = kind != DTRAIN_HOST_TO_DEVICE;
	if (bytes == 0)
		return BETON_OK;
	if (far_is_device(destination) != to_device || far_is_device(source) != from_device)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "device 'far': copy of %zu bytes: %s memory was given as the %s", bytes,
			       far_is_device(destination) != to_device ? (to_device ? "host" : "device")
								       : (from_device ? "host" : "device"),
			       far_is_device(destination) != to_device ? "destination" : "source");
	if (far_fails(stream->device, FAR_COPY_CALL, NULL, err))
		return BETON_DEVICE;
	return far_enqueue(
		stream,
		&(struct far_task){
			.kind = FAR_COPY, .to = far_to_host(destination), .from = far_to_host(source), .bytes = bytes},
		err);
}

int far_zero(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err)
{
	if (bytes == 0)
		return BETON_OK;
	if (!far_is_device(memory))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "device 'far': zero of %zu bytes of host memory", bytes);
	return far_enqueue(stream, &(struct far_task){.kind = FAR_ZERO, .to = far_to_host(memory), .bytes = bytes},
			   err);
}

struct host_call {
	void (*function)(void *context);
};

static int call_function(void *context, const void *call, beton_error *err)
{
	(void)err;
	((const struct host_call *)call)->function(context);
	return BETON_OK;
}

int far_call_host(dtrain_stream *stream, void (*function)(void *context), void *context, beton_error *err)
{
	struct host_call call = {function};
	return far_enqueue(stream,
			   &(struct far_task){.kind = FAR_FUNCTION,
					      .function = call_function,
					      .context = context,
					      .call = &call,
					      .bytes = sizeof(call)},
			   err);
}
