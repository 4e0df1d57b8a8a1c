/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, streams, events and copies of a synchronous device in host memory. The functions fit the slots of
 * dtrain_device_api.
 */
#ifndef DTRAIN_CORE_HOST_H
#define DTRAIN_CORE_HOST_H

#include <dtrain/device.h>

/* A cache line, and the widest vector register. */
#define DTRAIN__HOST_ALIGNMENT 64

int dtrain__host_alloc(dtrain_device *device, size_t bytes, void **out, beton_error *err);
void dtrain__host_free(dtrain_device *device, void *memory);

int dtrain__host_stream_create(dtrain_device *device, dtrain_stream **out, beton_error *err);
void dtrain__host_stream_destroy(dtrain_stream *stream);
int dtrain__host_stream_synchronize(dtrain_stream *stream, beton_error *err);
uint64_t dtrain__host_free_memory(dtrain_device *device);
int dtrain__host_stream_wait(dtrain_stream *stream, dtrain_event *event, beton_error *err);

int dtrain__host_event_create(dtrain_device *device, dtrain_event **out, beton_error *err);
void dtrain__host_event_destroy(dtrain_event *event);
int dtrain__host_event_record(dtrain_event *event, dtrain_stream *stream, beton_error *err);
int dtrain__host_event_synchronize(dtrain_event *event, beton_error *err);
int dtrain__host_event_elapsed_ms(dtrain_event *start, dtrain_event *end, double *out, beton_error *err);

int dtrain__host_copy(dtrain_stream *stream, void *destination, const void *source, size_t bytes, dtrain_copy kind,
		      beton_error *err);
int dtrain__host_zero(dtrain_stream *stream, void *memory, size_t bytes, beton_error *err);

/* All slots above, for a device's table. Host memory and device memory are the same. */
#define DTRAIN__HOST_SLOTS                                                                                             \
	.free_memory = dtrain__host_free_memory, .alloc = dtrain__host_alloc, .free = dtrain__host_free,               \
	.host_alloc = dtrain__host_alloc, .host_free = dtrain__host_free, .stream_create = dtrain__host_stream_create, \
	.stream_destroy = dtrain__host_stream_destroy, .stream_synchronize = dtrain__host_stream_synchronize,          \
	.stream_wait = dtrain__host_stream_wait, .event_create = dtrain__host_event_create,                            \
	.event_destroy = dtrain__host_event_destroy, .event_record = dtrain__host_event_record,                        \
	.event_synchronize = dtrain__host_event_synchronize, .event_elapsed_ms = dtrain__host_event_elapsed_ms,        \
	.event_mark = dtrain__host_event_record, .copy = dtrain__host_copy, .zero = dtrain__host_zero

#endif
