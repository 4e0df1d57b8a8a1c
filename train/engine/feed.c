/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

/* The memory's true address stands in front of the one that the loader gets. */
static void *allocate_pinned(size_t bytes, size_t alignment, void *context)
{
	dtrain_device *device = context;
	void *memory;
	size_t room = alignment > sizeof(memory) ? alignment : sizeof(memory);
	if (bytes > SIZE_MAX - 2 * room ||
	    dtrain_device_get_api(device)->host_alloc(device, bytes + 2 * room, &memory, NULL) != BETON_OK)
		return NULL;
	uintptr_t aligned = ((uintptr_t)memory + sizeof(memory) + room - 1) & ~(uintptr_t)(room - 1);
	memcpy((char *)aligned - sizeof(memory), &memory, sizeof(memory));
	return (void *)aligned;
}

static void release_pinned(void *memory, size_t bytes, void *context)
{
	dtrain_device *device = context;
	void *whole;
	(void)bytes;
	memcpy(&whole, (char *)memory - sizeof(whole), sizeof(whole));
	dtrain_device_get_api(device)->host_free(device, whole);
}

void engine_feed_allocator(dtrain_device *device, beton_allocator *out)
{
	*out = (beton_allocator){.allocate = allocate_pinned, .release = release_pinned, .context = device};
}

static int open_buffer(engine_feed *feed, engine_feed_buffer *buffer, beton_error *err)
{
	const dtrain_device_api *api = feed->api;
	int status = api->alloc(feed->device, (size_t)feed->rows * feed->row_bytes, &buffer->pixels, err);
	if (status == BETON_OK)
		status = api->alloc(feed->device, (size_t)feed->rows * sizeof(int64_t), &buffer->labels, err);
	if (status == BETON_OK)
		status = api->event_create(feed->device, &buffer->copied, err);
	if (status == BETON_OK)
		status = api->event_create(feed->device, &buffer->taken, err);
	return status;
}

int engine_feed_open(engine_feed *feed, dtrain_device *device, dtrain_stream *stream, bool staged, int64_t rows,
		     size_t row_bytes, beton_error *err)
{
	*feed = (engine_feed){.device = device,
			      .api = dtrain_device_get_api(device),
			      .stream = stream,
			      .rows = rows,
			      .row_bytes = row_bytes};
	int status = staged ? feed->api->stream_create(device, &feed->copies, err) : BETON_OK;
	for (int i = 0; staged && i < ENGINE_FEED_BUFFERS && status == BETON_OK; i++)
		status = open_buffer(feed, &feed->buffers[i], err);
	if (status != BETON_OK)
		engine_feed_close(feed);
	return status;
}

void engine_feed_close(engine_feed *feed)
{
	for (int i = 0; feed->copies && i < ENGINE_FEED_BUFFERS; i++) {
		engine_feed_buffer *buffer = &feed->buffers[i];
		feed->api->free(feed->device, buffer->pixels);
		feed->api->free(feed->device, buffer->labels);
		if (buffer->copied)
			feed->api->event_destroy(buffer->copied);
		if (buffer->taken)
			feed->api->event_destroy(buffer->taken);
	}
	if (feed->copies)
		feed->api->stream_destroy(feed->copies);
	*feed = (engine_feed){0};
}

static int zero_rest(engine_feed *feed, void *input, uint32_t rows, size_t row_bytes, beton_error *err)
{
	if (rows >= feed->rows)
		return BETON_OK;
	return feed->api->zero(feed->stream, (char *)input + rows * row_bytes, ((size_t)feed->rows - rows) * row_bytes,
			       err);
}

/* From `pixels` and `labels` to the inputs, on the network's stream. */
static int copy_to_inputs(engine_feed *feed, const engine_feed_batch *batch, const void *pixels, const void *labels,
			  dtrain_copy kind, beton_error *err)
{
	const dtrain_device_api *api = feed->api;
	int status = api->copy(feed->stream, batch->pixels_input, pixels, batch->rows * feed->row_bytes, kind, err);
	if (status == BETON_OK)
		status = zero_rest(feed, batch->pixels_input, batch->rows, feed->row_bytes, err);
	if (status == BETON_OK)
		status = api->copy(feed->stream, batch->labels_input, labels, batch->rows * sizeof(int64_t), kind, err);
	if (status == BETON_OK)
		status = zero_rest(feed, batch->labels_input, batch->rows, sizeof(int64_t), err);
	return status;
}

int engine_feed_put(engine_feed *feed, const engine_feed_batch *batch, beton_error *err)
{
	const dtrain_device_api *api = feed->api;
	if (!feed->copies)
		return copy_to_inputs(feed, batch, batch->pixels, batch->labels, DTRAIN_HOST_TO_DEVICE, err);
	engine_feed_buffer *buffer = &feed->buffers[feed->count++ % ENGINE_FEED_BUFFERS];
	int status = api->stream_wait(feed->copies, buffer->taken, err);
	if (status == BETON_OK)
		status = api->copy(feed->copies, buffer->pixels, batch->pixels, batch->rows * feed->row_bytes,
				   DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->copy(feed->copies, buffer->labels, batch->labels, batch->rows * sizeof(int64_t),
				   DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->event_record(buffer->copied, feed->copies, err);
	if (status == BETON_OK)
		status = api->stream_wait(feed->stream, buffer->copied, err);
	if (status == BETON_OK)
		status = copy_to_inputs(feed, batch, buffer->pixels, buffer->labels, DTRAIN_DEVICE_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->event_record(buffer->taken, feed->stream, err);
	return status;
}
