/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "host.h"
#include "shape.h"

struct dtrain_stream {
	dtrain_device *device;
};

struct dtrain_event {
	uint64_t recorded_ns; /* 0: never recorded */
};

/* Smaller sizes are not compared with what is free, which would take longer than to allocate them. */
#define LARGE_BYTES ((size_t)64 << 20)

uint64_t dtrain__host_free_memory(dtrain_device *device)
{
	(void)device;
	return bt_available_memory();
}

/* Linux promises more memory than it has, and kills a process that uses it. */
int dtrain__host_alloc(dtrain_device *device, size_t bytes, void **out, beton_error *err)
{
	uint64_t available = bytes >= LARGE_BYTES ? dtrain__host_free_memory(device) : UINT64_MAX;
	*out = NULL;
	if (bytes > available)
		return bt_fail(err, BETON_NO_MEMORY, "cannot allocate %.1f MiB: %.1f MiB are free",
			       (double)bytes * 0x1p-20, (double)available * 0x1p-20);
	if (bytes > SIZE_MAX - DTRAIN__HOST_ALIGNMENT)
		return bt_fail(err, BETON_NO_MEMORY, "cannot allocate %zu bytes", bytes);
	size_t rounded = dtrain__round_up(bytes ? bytes : 1, DTRAIN__HOST_ALIGNMENT);
	void *memory = aligned_alloc(DTRAIN__HOST_ALIGNMENT, rounded);
	if (!memory)
		return bt_fail(err, BETON_NO_MEMORY, "cannot allocate %zu bytes", bytes);
	memset(memory, 0, rounded);
	*out = memory;
	return BETON_OK;
}

void dtrain__host_free(dtrain_device *device, void *memory)
{
	(void)device;
	free(memory);
}

int dtrain__host_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err)
{
	*out = calloc(1, sizeof(**out));
	if (!*out)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a stream");
	(*out)->device = device;
	return BETON_OK;
}

void dtrain__host_stream_destroy(dtrain_stream *stream)
{
	free(stream);
}

int dtrain__host_stream_synchronize(dtrain_stream *stream, beton_error *err)
{
	(void)stream;
	(void)err;
	return BETON_OK;
}

int dtrain__host_stream_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err)
{
	(void)stream;
	(void)event;
	(void)err;
	return BETON_OK;
}

int dtrain__host_event_create(dtrain_device *device, dtrain_event **out, beton_error *err)
{
	(void)device;
	*out = calloc(1, sizeof(**out));
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for an event");
}

void dtrain__host_event_destroy(dtrain_event *event)
{
	free(event);
}

int dtrain__host_event_record(dtrain_event *event, dtrain_stream *stream, beton_error *err)
{
	(void)stream;
	(void)err;
	event->recorded_ns = bt_now_ns();
	return BETON_OK;
}

/* Does not read the event, because another thread may be recording it. */
int dtrain__host_event_synchronize(dtrain_event *event, beton_error *err)
{
	(void)event;
	(void)err;
	return BETON_OK;
}

int dtrain__host_event_elapsed_ms(dtrain_event *start, dtrain_event *end, double *out, beton_error *err)
{
	if (!start->recorded_ns || !end->recorded_ns)
		return bt_fail(err, BETON_STATE, "elapsed time of an event that was not recorded");
	*out = ((double)end->recorded_ns - (double)start->recorded_ns) * 1e-6;
	return BETON_OK;
}

int dtrain__host_copy(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
		      beton_error *err)
{
	(void)stream;
	(void)kind;
	(void)err;
	if (bytes && destination != source)
		memmove(destination, source, bytes);
	return BETON_OK;
}

int dtrain__host_zero(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err)
{
	(void)stream;
	(void)err;
	if (bytes)
		memset(memory, 0, bytes);
	return BETON_OK;
}
