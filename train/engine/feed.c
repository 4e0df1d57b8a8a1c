/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

void *engine_network_data(const engine_network *network, dtrain_tensor tensor)
{
	return network->instance ? dtrain_instance_data(network->instance, tensor)
				 : dtrain_program_data(network->program, tensor);
}

/* The address to free is stored before the memory that the loader gets. */
static void *allocate_pinned(void *context, size_t bytes, size_t alignment)
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

static void release_pinned(void *context, void *memory, size_t bytes)
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

beton_dtype engine_batch_type(dtrain_dtype dtype)
{
	static const beton_dtype types[] = {
		[DTRAIN_F32] = BETON_FLOAT32,   [DTRAIN_F64] = BETON_FLOAT64, [DTRAIN_F16] = BETON_FLOAT16,
		[DTRAIN_BF16] = BETON_BFLOAT16, [DTRAIN_I64] = BETON_INT64,   [DTRAIN_U8] = BETON_UINT8,
		[DTRAIN_I32] = BETON_INT32};
	return types[dtype];
}

const beton_tensor *engine_find_tensor(const beton_batch *batch, const char *name, beton_dtype dtype)
{
	for (uint32_t i = 0; i < batch->num_tensors; i++)
		if (strcmp(batch->tensors[i].name, name) == 0 && batch->tensors[i].dtype == dtype)
			return &batch->tensors[i];
	return NULL;
}

static int open_buffer(engine_feed *feed, engine_feed_buffer *buffer, beton_error *err)
{
	const dtrain_device_api *api = feed->api;
	int status = BETON_OK;
	for (int i = 0; i < ENGINE_INPUTS && status == BETON_OK; i++)
		if (feed->row_bytes[i])
			status = api->alloc(feed->device, (size_t)feed->rows * feed->row_bytes[i], &buffer->data[i],
					    err);
	if (status == BETON_OK)
		status = api->event_create(feed->device, &buffer->copied, err);
	if (status == BETON_OK)
		status = api->event_create(feed->device, &buffer->taken, err);
	return status;
}

static void note_inputs(engine_feed *feed, const engine_network *network)
{
	for (int i = 0; i < network->num_inputs; i++) {
		dtrain_tensor tensor = network->inputs[i].tensor;
		if (tensor < 0)
			continue;
		const dtrain_shape *shape = dtrain_program_shape(network->program, tensor);
		feed->rows = shape->dim[0];
		feed->row_bytes[i] = (size_t)(dtrain_shape_count(shape) / feed->rows) *
				     dtrain_dtype_size(dtrain_program_dtype(network->program, tensor));
	}
}

int engine_feed_open(engine_feed *feed, dtrain_device *device, dtrain_stream *stream, const engine_network *network,
		     beton_error *err)
{
	dtrain_device_caps caps = {0};
	*feed = (engine_feed){.device = device, .api = dtrain_device_get_api(device), .stream = stream};
	feed->api->caps(device, &caps);
	for (const engine_network *at = network; at; at = at->next)
		note_inputs(feed, at);
	bool staged = !caps.host_memory;
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
		for (int k = 0; k < ENGINE_INPUTS; k++)
			feed->api->free(feed->device, buffer->data[k]);
		if (buffer->copied)
			feed->api->event_destroy(buffer->copied);
		if (buffer->taken)
			feed->api->event_destroy(buffer->taken);
	}
	if (feed->copies)
		feed->api->stream_destroy(feed->copies);
	*feed = (engine_feed){0};
}

/* A batch's tensors and their destinations; inputs[i] NULL: the network has no such input. */
struct copying {
	int count;
	uint32_t rows;
	const void *from[ENGINE_INPUTS];
	void *inputs[ENGINE_INPUTS];
};

static int find(const engine_network *network, const beton_batch *batch, struct copying *out, beton_error *err)
{
	*out = (struct copying){.count = network->num_inputs, .rows = batch->count};
	for (int i = 0; i < network->num_inputs; i++) {
		const engine_input *input = &network->inputs[i];
		if (input->tensor < 0)
			continue;
		dtrain_dtype dtype = dtrain_program_dtype(network->program, input->tensor);
		const beton_tensor *tensor = engine_find_tensor(batch, input->name, engine_batch_type(dtype));
		if (!tensor)
			return bt_fail(err, BETON_FILE_CHANGED,
				       "the data file's fields changed while training started");
		out->from[i] = tensor->data;
		out->inputs[i] = engine_network_data(network, input->tensor);
	}
	return BETON_OK;
}

/* Runs on the network's stream. */
static int copy_to_inputs(engine_feed *feed, const struct copying *copying, dtrain_copy kind, beton_error *err)
{
	const dtrain_device_api *api = feed->api;
	size_t rows = copying->rows, missing = (size_t)feed->rows - rows;
	int status = BETON_OK;
	for (int i = 0; i < copying->count && status == BETON_OK; i++) {
		if (!copying->inputs[i])
			continue;
		size_t bytes = rows * feed->row_bytes[i];
		status = api->copy(feed->stream, copying->inputs[i], copying->from[i], bytes, kind, err);
		if (status == BETON_OK && missing)
			status = api->zero(feed->stream, (char *)copying->inputs[i] + bytes,
					   missing * feed->row_bytes[i], err);
	}
	return status;
}

int engine_feed_put(engine_feed *feed, const engine_network *network, const beton_batch *batch, beton_error *err)
{
	const dtrain_device_api *api = feed->api;
	struct copying copying;
	int status = find(network, batch, &copying, err);
	if (status != BETON_OK || !feed->copies)
		return status == BETON_OK ? copy_to_inputs(feed, &copying, DTRAIN_HOST_TO_DEVICE, err) : status;
	engine_feed_buffer *buffer = &feed->buffers[feed->count++ % ENGINE_FEED_BUFFERS];
	status = api->stream_wait(feed->copies, buffer->taken, err);
	for (int i = 0; i < copying.count && status == BETON_OK; i++) {
		if (!copying.inputs[i])
			continue;
		status = api->copy(feed->copies, buffer->data[i], copying.from[i], copying.rows * feed->row_bytes[i],
				   DTRAIN_HOST_TO_DEVICE, err);
		copying.from[i] = buffer->data[i];
	}
	if (status == BETON_OK)
		status = api->event_record(buffer->copied, feed->copies, err);
	if (status == BETON_OK)
		status = api->stream_wait(feed->stream, buffer->copied, err);
	if (status == BETON_OK)
		status = copy_to_inputs(feed, &copying, DTRAIN_DEVICE_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->event_record(buffer->taken, feed->stream, err);
	/* The caller gives the batch back, which must not be read any more. */
	if (status != BETON_OK)
		api->stream_synchronize(feed->copies, NULL);
	return status;
}
