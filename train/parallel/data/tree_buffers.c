/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers that steps change (running statistics of batch norm), with deterministic shards. Every shard of a step has
 * buffers of its own, which follow only that shard's batches, so they do not depend on which rank computes it. A rank
 * that computes several shards keeps their buffers in an array, and puts a micro-batch's buffers in place while it runs
 * forward. The mean over the shards is made on the host, between steps.
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "tree.h"

static int64_t count_moving(const dtrain_sync *sync)
{
	int64_t count = 0;
	for (int i = 0; i < dtrain_params_buffer_count(sync->params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(sync->params, i);
		count += buffer->fixed ? 0 : dtrain_shape_count(&buffer->shape);
	}
	return count;
}

int dtrain__tree_create_buffers(dtrain_sync *sync, beton_error *err)
{
	size_t micro_batches = (size_t)dtrain__tree_micro_batches(sync);
	sync->moving_count = count_moving(sync);
	if (!sync->moving_count)
		return BETON_OK;
	if (dtrain_params_dtype(sync->params) != DTRAIN_F32)
		return bt_fail(err, BETON_UNSUPPORTED,
			       "sync: the mean of buffers over deterministic shards is of f32 alone");
	return dtrain__params_alloc(sync->params, micro_batches * (size_t)sync->moving_count * sizeof(float),
				    (void **)&sync->part_buffers, err);
}

/* Copies the moving buffers to an array, or the other way round. */
static int copy_buffers(dtrain_sync *sync, float *array, bool to_array, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < dtrain_params_buffer_count(sync->params) && status == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(sync->params, i);
		int64_t count = dtrain_shape_count(&buffer->shape);
		if (buffer->fixed)
			continue;
		status = sync->api->copy(stream, to_array ? array : buffer->data, to_array ? buffer->data : array,
					 (size_t)count * sizeof(float), DTRAIN_DEVICE_TO_DEVICE, err);
		array += count;
	}
	return status;
}

static float *buffers_of_micro_batch(const dtrain_sync *sync, int micro_batch)
{
	return sync->part_buffers + (size_t)micro_batch * (size_t)sync->moving_count;
}

int dtrain__tree_share_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < dtrain__tree_micro_batches(sync) && sync->part_buffers && status == BETON_OK; i++)
		status = copy_buffers(sync, buffers_of_micro_batch(sync, i), true, stream, err);
	return status;
}

static int begin(void *context, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = context;
	return sync->started && dtrain__tree_micro_batches(sync) > 1
		       ? copy_buffers(sync, buffers_of_micro_batch(sync, run->micro_batch), false, run->stream, err)
		       : BETON_OK;
}

static int end(void *context, const dtrain__run *run, beton_error *err)
{
	dtrain_sync *sync = context;
	return sync->started && dtrain__tree_micro_batches(sync) > 1
		       ? copy_buffers(sync, buffers_of_micro_batch(sync, run->micro_batch), true, run->stream, err)
		       : BETON_OK;
}

/* Backward changes no buffers. The next micro-batch may run forward before it. */
int dtrain__tree_plan_buffers(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err)
{
	int32_t forward = dtrain__graph_forward_nodes(schedule->graph);
	const dtrain__call puts = {.name = "buffers of the part", .issue = begin, .context = sync};
	const dtrain__call gets = {.name = "buffers back to the part", .issue = end, .context = sync};
	int status = dtrain__schedule_add(schedule, &puts, -1, 0, err);
	return status == BETON_OK ? dtrain__schedule_add(schedule, &gets, forward - 1, forward, err) : status;
}

/* all: [ranks][micro-batches][moving_count]. Makes the first array the mean over the parts, added up as gradients are.
 */
static void average(const dtrain_sync *sync, float *all, int ranks)
{
	int micro_batches = dtrain__tree_micro_batches(sync), parts = sync->options.deterministic_shards;
	size_t count = (size_t)sync->moving_count;
	/* The distance in parts between two micro-batches: with 1 a rank has consecutive parts, else a micro-batch has.
	 */
	bool by_rank = micro_batches == 1 ||
		       dtrain_sync_deterministic_shard(sync, 1) - dtrain_sync_deterministic_shard(sync, 0) == 1;
	for (int apart = 1; apart < parts; apart *= 2) {
		for (int i = 0; i < parts; i += 2 * apart) {
			int k = i + apart;
			int left = by_rank ? i : i % ranks * micro_batches + i / ranks;
			int right = by_rank ? k : k % ranks * micro_batches + k / ranks;
			for (size_t at = 0; at < count; at++)
				all[(size_t)left * count + at] += all[(size_t)right * count + at];
		}
	}
	for (size_t at = 0; at < count; at++)
		all[at] /= (float)parts;
}

static int average_on_host(dtrain_sync *sync, float *mine, float *all, dtrain_stream *stream, beton_error *err)
{
	int ranks = dtrain_group_size(sync->group);
	size_t bytes = (size_t)dtrain__tree_micro_batches(sync) * (size_t)sync->moving_count * sizeof(float);
	/* A rank's only part has its buffers in place. */
	int status = dtrain__tree_micro_batches(sync) == 1 ? dtrain__tree_share_buffers(sync, stream, err) : BETON_OK;
	if (status == BETON_OK)
		status = sync->api->copy(stream, mine, sync->part_buffers, bytes, DTRAIN_DEVICE_TO_HOST, err);
	if (status == BETON_OK)
		status = sync->api->stream_synchronize(stream, err);
	if (status == BETON_OK)
		status = dtrain__group_gather_host(sync->group, mine, bytes, all, err);
	if (status != BETON_OK)
		return status;
	average(sync, all, ranks);
	bytes = (size_t)sync->moving_count * sizeof(float);
	status = sync->api->copy(stream, sync->part_buffers, all, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = copy_buffers(sync, sync->part_buffers, false, stream, err);
	if (status == BETON_OK)
		status = dtrain__tree_share_buffers(sync, stream, err);
	return status == BETON_OK ? sync->api->stream_synchronize(stream, err) : status;
}

int dtrain__tree_average_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	size_t micro_batches = (size_t)dtrain__tree_micro_batches(sync), ranks = (size_t)dtrain_group_size(sync->group);
	void *memory = NULL;
	if (!sync->part_buffers)
		return BETON_OK;
	int status = sync->api->host_alloc(
		sync->device, (1 + ranks) * micro_batches * (size_t)sync->moving_count * sizeof(float), &memory, err);
	if (status != BETON_OK)
		return status;
	float *mine = memory, *all = mine + micro_batches * (size_t)sync->moving_count;
	status = average_on_host(sync, mine, all, stream, err);
	/* After an error a copy may still use the memory. */
	if (status != BETON_OK)
		sync->api->stream_synchronize(stream, NULL);
	sync->api->host_free(sync->device, memory);
	return status;
}
