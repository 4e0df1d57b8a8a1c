/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda device: streams, events, copies, and the capture of what is put on a stream.
 */
#include <stdlib.h>

#include "common/error.h"
#include "cuda.h"

/* ---- streams ---- */

int cuda_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err)
{
	*out = NULL;
	dtrain_stream *stream = calloc(1, sizeof(*stream));
	if (!stream)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a stream");
	stream->device = device;
	int status = cuda_enter(device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking), err,
				    "device 'cuda' %d: cannot make a stream", device->index);
	if (status != BETON_OK) {
		free(stream);
		return status;
	}
	*out = stream;
	return BETON_OK;
}

void cuda_stream_destroy(dtrain_stream *stream)
{
	if (!stream)
		return;
	(void)cuda_enter(stream->device, NULL);
	cudaStreamDestroy(stream->stream);
	free(stream);
}

/* Reports a kernel's fault since the last report, to one caller. */
static int report_fault(const dtrain_device *device, beton_error *err)
{
	int64_t fault = __atomic_exchange_n(device->fault, 0, __ATOMIC_ACQ_REL);
	if (fault == 0)
		return BETON_OK;
	return bt_fail(
		err, BETON_INVALID_ARGUMENT,
		"index %d of row %d of a batch is outside: a label of the model's classes, a token of the table, "
		"a position of the cache, or a pair of compressed gradients",
		(int32_t)(fault >> 32), (int32_t)fault - 1);
}

int cuda_stream_synchronize(dtrain_stream *stream, beton_error *err)
{
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaStreamSynchronize(stream->stream), err,
				    "device 'cuda' %d: the work on a stream failed", stream->device->index);
	return status == BETON_OK ? report_fault(stream->device, err) : status;
}

int cuda_stream_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err)
{
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaStreamWaitEvent(stream->stream, event->event, cudaEventWaitDefault), err,
				    "device 'cuda' %d: a stream cannot wait for an event", stream->device->index);
	return status;
}

/* ---- events ---- */

int cuda_event_create(dtrain_device *device, dtrain_event **out, beton_error *err)
{
	*out = NULL;
	dtrain_event *event = calloc(1, sizeof(*event));
	if (!event)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for an event");
	event->device = device;
	int status = cuda_enter(device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaEventCreateWithFlags(&event->event, cudaEventBlockingSync), err,
				    "device 'cuda' %d: cannot make an event", device->index);
	if (status != BETON_OK) {
		free(event);
		return status;
	}
	*out = event;
	return BETON_OK;
}

void cuda_event_destroy(dtrain_event *event)
{
	if (!event)
		return;
	(void)cuda_enter(event->device, NULL);
	cudaEventDestroy(event->event);
	free(event);
}

static int record(dtrain_event *event, dtrain_stream *stream, unsigned flags, beton_error *err)
{
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaEventRecordWithFlags(event->event, stream->stream, flags), err,
				    "device 'cuda' %d: cannot record an event", stream->device->index);
	if (status == BETON_OK)
		event->recorded = true;
	return status;
}

int cuda_event_record(dtrain_event *event, dtrain_stream *stream, beton_error *err)
{
	return record(event, stream, cudaEventRecordDefault, err);
}

/* In a capture, an ordinary record only adds a dependency. A record that takes the time at each launch must be
 * external: a node of the graph, which is allowed only in captures. */
int cuda_event_mark(dtrain_event *event, dtrain_stream *stream, beton_error *err)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaStreamIsCapturing(stream->stream, &capture), err,
				    "device 'cuda' %d: cannot mark an event", stream->device->index);
	if (status != BETON_OK)
		return status;
	bool captures = capture == cudaStreamCaptureStatusActive;
	return record(event, stream, captures ? cudaEventRecordExternal : cudaEventRecordDefault, err);
}

int cuda_event_synchronize(dtrain_event *event, beton_error *err)
{
	int status = cuda_enter(event->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaEventSynchronize(event->event), err,
				    "device 'cuda' %d: the work before an event failed", event->device->index);
	return status == BETON_OK ? report_fault(event->device, err) : status;
}

int cuda_event_elapsed_ms(dtrain_event *start, dtrain_event *end, double *out, beton_error *err)
{
	float milliseconds = 0;
	*out = 0;
	if (!start->recorded || !end->recorded)
		return bt_fail(err, BETON_STATE, "elapsed time of an event that was not recorded");
	int status = cuda_enter(end->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaEventElapsedTime(&milliseconds, start->event, end->event), err,
				    "device 'cuda' %d: no time between two events", end->device->index);
	if (status == BETON_OK)
		*out = milliseconds;
	return status;
}

/* ---- memory ---- */

/* Enables access between two GPUs, because otherwise the driver copies through host memory. Done at the first copy:
 * when opening a device, it would give each rank a context on every GPU. */
static int reach(dtrain_device *device, int other, beton_error *err)
{
	uint64_t bit = other < 64 ? 1ull << other : 0;
	int pair[] = {device->index, other}, possible = 0;
	/* Host memory belongs to no GPU. */
	if (other < 0)
		return BETON_OK;
	if (__atomic_load_n(&device->peers, __ATOMIC_RELAXED) & bit)
		return BETON_OK;
	for (int i = 0; i < 2; i++) {
		int status = cuda_check(cudaDeviceCanAccessPeer(&possible, pair[i], pair[1 - i]), err,
					"device 'cuda' %d: access to GPU %d", pair[i], pair[1 - i]);
		if (status == BETON_OK && possible)
			status = cuda_check(cudaSetDevice(pair[i]), err, "device 'cuda' %d", pair[i]);
		/* If peer access is refused, copies go through the host. */
		if (status == BETON_OK && possible && cudaDeviceEnablePeerAccess(pair[1 - i], 0) != cudaSuccess)
			(void)cudaGetLastError();
		if (status != BETON_OK)
			return status;
	}
	__atomic_fetch_or(&device->peers, bit, __ATOMIC_RELAXED);
	return cuda_enter(device, err);
}

/* Does nothing during a capture, when access may neither be queried nor changed; the copy works without. */
static int reach_both(dtrain_stream *stream, const void *destination, const void *source, beton_error *err)
{
	enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
	struct cudaPointerAttributes to = {0}, from = {0};
	dtrain_device *device = stream->device;
	int status = cuda_check(cudaStreamIsCapturing(stream->stream, &capture), err,
				"device 'cuda' %d: cannot ask a stream", device->index);
	if (status != BETON_OK || capture != cudaStreamCaptureStatusNone)
		return status;
	status = cuda_check(cudaPointerGetAttributes(&to, destination), err,
			    "device 'cuda' %d: the destination of a copy", device->index);
	if (status == BETON_OK)
		status = cuda_check(cudaPointerGetAttributes(&from, source), err,
				    "device 'cuda' %d: the source of a copy", device->index);
	if (status != BETON_OK || to.device == from.device ||
	    (to.device != device->index && from.device != device->index))
		return status;
	return reach(device, to.device == device->index ? from.device : to.device, err);
}

int cuda_copy(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
	      beton_error *err)
{
	static const enum cudaMemcpyKind kinds[] = {[DTRAIN_HOST_TO_DEVICE] = cudaMemcpyHostToDevice,
						    [DTRAIN_DEVICE_TO_HOST] = cudaMemcpyDeviceToHost,
						    [DTRAIN_DEVICE_TO_DEVICE] = cudaMemcpyDeviceToDevice};
	if (!bytes || destination == source)
		return BETON_OK;
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK && kind == DTRAIN_DEVICE_TO_DEVICE)
		status = reach_both(stream, destination, source, err);
	if (status == BETON_OK)
		status = cuda_check(cudaMemcpyAsync(destination, source, bytes, kinds[kind], stream->stream), err,
				    "device 'cuda' %d: cannot copy %zu bytes", stream->device->index, bytes);
	return status;
}

int cuda_zero(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err)
{
	if (!bytes)
		return BETON_OK;
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaMemsetAsync(memory, 0, bytes, stream->stream), err,
				    "device 'cuda' %d: cannot clear %zu bytes", stream->device->index, bytes);
	return status;
}

int cuda_call_host(dtrain_stream *stream, void (*function)(void *context), void *context, beton_error *err)
{
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaLaunchHostFunc(stream->stream, function, context), err,
				    "device 'cuda' %d: a stream cannot call the host", stream->device->index);
	return status;
}

/* ---- capture ---- */

typedef struct capture {
	dtrain_device *device;
	cudaGraphExec_t graph;
} capture;

/* Thread-local, so that other threads (the loader's pinned memory, a group's) may allocate during the capture. */
int cuda_capture_begin(dtrain_stream *stream, beton_error *err)
{
	int status = cuda_enter(stream->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal), err,
				    "device 'cuda' %d: cannot begin a capture", stream->device->index);
	return status;
}

/* The graph of an invalidated capture is NULL, but ending the capture still releases the stream. Nodes captured on a
 * high-priority stream (a group's) keep that priority, instead of the launching stream's. */
int cuda_capture_end(dtrain_stream *stream, void **captured, beton_error *err)
{
	*captured = NULL;
	cudaGraph_t graph = NULL;
	int index = stream->device->index;
	(void)cuda_enter(stream->device, NULL);
	int status = cuda_check(cudaStreamEndCapture(stream->stream, &graph), err,
				"device 'cuda' %d: the capture failed", index);
	capture *result = status == BETON_OK ? calloc(1, sizeof(*result)) : NULL;
	if (status == BETON_OK && !result)
		status = bt_fail(err, BETON_NO_MEMORY, "out of memory for a capture");
	if (status == BETON_OK)
		status =
			cuda_check(cudaGraphInstantiate(&result->graph, graph, cudaGraphInstantiateFlagUseNodePriority),
				   err, "device 'cuda' %d: a capture cannot be made a graph", index);
	if (graph)
		cudaGraphDestroy(graph);
	if (status != BETON_OK) {
		free(result);
		return status;
	}
	result->device = stream->device;
	*captured = result;
	return BETON_OK;
}

int cuda_capture_launch(void *captured, dtrain_stream *stream, beton_error *err)
{
	const capture *unit = captured;
	int status = cuda_enter(unit->device, err);
	if (status == BETON_OK)
		status = cuda_check(cudaGraphLaunch(unit->graph, stream->stream), err,
				    "device 'cuda' %d: a captured graph cannot be launched", unit->device->index);
	return status;
}

void cuda_capture_destroy(void *captured)
{
	capture *unit = captured;
	if (!unit)
		return;
	(void)cuda_enter(unit->device, NULL);
	cudaGraphExecDestroy(unit->graph);
	free(unit);
}
