/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

void *engine_network_data(const engine_network *network, dtrain_tensor tensor)
{
	return network->pipeline
		       ? dtrain_pipeline_input(network->pipeline, network->number, network->micro_batch, tensor)
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

/* In memory that the device copies from, as a batch is. */
static int make_numbers(engine_feed *feed, const engine_input *input, int index, beton_error *err)
{
	void *memory = NULL;
	int64_t columns = (int64_t)(feed->row_bytes[index] / sizeof(int64_t));
	int status = feed->api->host_alloc(feed->device, (size_t)feed->rows * feed->row_bytes[index], &memory, err);
	feed->numbers[index] = memory;
	for (int64_t i = 0; i < feed->rows * columns && status == BETON_OK; i++)
		feed->numbers[index][i] = dtrain_chunk_position(input->chunks, columns, i % columns);
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
	for (int i = 0; i < network->num_inputs && status == BETON_OK; i++)
		if (feed->row_bytes[i] && network->inputs[i].counts)
			status = make_numbers(feed, &network->inputs[i], i, err);
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
	for (int i = 0; i < ENGINE_INPUTS; i++)
		if (feed->numbers[i])
			feed->api->host_free(feed->device, feed->numbers[i]);
	*feed = (engine_feed){0};
}

/* A batch's tensors and their destinations; inputs[i] NULL: the network has no such input. */
struct copying {
	int count;
	uint32_t rows;
	const void *from[ENGINE_INPUTS];
	dtrain_chunk_attrs chunks[ENGINE_INPUTS]; /* of the samples there; ranks 0: all of each */
	void *inputs[ENGINE_INPUTS];
};

static int find(const engine_feed *feed, const engine_network *network, const beton_batch *batch, struct copying *out,
		beton_error *err)
{
	*out = (struct copying){.count = network->num_inputs, .rows = batch->count};
	for (int i = 0; i < network->num_inputs; i++) {
		const engine_input *input = &network->inputs[i];
		if (input->tensor < 0)
			continue;
		out->inputs[i] = engine_network_data(network, input->tensor);
		if (input->counts) {
			out->from[i] = feed->numbers[i];
			continue;
		}
		dtrain_dtype dtype = dtrain_program_dtype(network->program, input->tensor);
		const beton_tensor *tensor = engine_find_tensor(batch, input->name, engine_batch_type(dtype));
		if (!tensor)
			return bt_fail(err, BETON_FILE_CHANGED,
				       "the data file's fields changed while training started");
		out->from[i] = tensor->data;
		out->chunks[i] = input->chunks;
	}
	return BETON_OK;
}

/* An input's rows; of divided ones this rank's chunks, two for each sample. */
static int copy_rows(const engine_feed *feed, const struct copying *copying, int i, void *to, dtrain_stream *stream,
		     dtrain_copy kind, beton_error *err)
{
	const dtrain_chunk_attrs *chunks = &copying->chunks[i];
	size_t row = feed->row_bytes[i], half = row / 2, whole = row * (size_t)chunks->ranks;
	int status = BETON_OK;
	if (!chunks->ranks)
		return feed->api->copy(stream, to, copying->from[i], copying->rows * row, kind, err);
	for (size_t k = 0; k < 2 * (size_t)copying->rows && status == BETON_OK; k++) {
		size_t first = (size_t)dtrain_chunk_position(*chunks, 2, (int64_t)(k % 2)) * half;
		status = feed->api->copy(stream, (char *)to + k * half,
					 (const char *)copying->from[i] + k / 2 * whole + first, half, kind, err);
	}
	return status;
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
		status = copy_rows(feed, copying, i, copying->inputs[i], feed->stream, kind, err);
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
	int status = find(feed, network, batch, &copying, err);
	if (status != BETON_OK || !feed->copies)
		return status == BETON_OK ? copy_to_inputs(feed, &copying, DTRAIN_HOST_TO_DEVICE, err) : status;
	engine_feed_buffer *buffer = &feed->buffers[feed->count++ % ENGINE_FEED_BUFFERS];
	status = api->stream_wait(feed->copies, buffer->taken, err);
	for (int i = 0; i < copying.count && status == BETON_OK; i++) {
		if (!copying.inputs[i])
			continue;
		status = copy_rows(feed, &copying, i, buffer->data[i], feed->copies, DTRAIN_HOST_TO_DEVICE, err);
		copying.from[i] = buffer->data[i];
		copying.chunks[i].ranks = 0;
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
