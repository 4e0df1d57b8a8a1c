/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers are many and small (batch norm's statistics): they are put into one array, and reduced or broadcast at once.
 * Fixed buffers keep the broadcast's values: the mean of three equal numbers may differ from them.
 */
#include "comm/group/work.h"
#include "common/error.h"
#include "core/params.h"
#include "sync.h"
#include "tree.h"

/* Bytes of values in host memory that are copied at a time. */
enum { BOUNCE_BYTES = 1 << 20 };

/* fixed: include the buffers that no step changes. */
static int copy_buffers(dtrain_sync *sync, dtrain_stream *stream, bool pack, bool fixed, beton_error *err)
{
	size_t each = dtrain_dtype_size(dtrain_params_dtype(sync->params));
	char *at = sync->packed;
	int status = BETON_OK;
	for (int i = 0; i < dtrain_params_buffer_count(sync->params) && status == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(sync->params, i);
		size_t bytes = (size_t)dtrain_shape_count(&buffer->shape) * each;
		if (buffer->fixed && !fixed)
			continue;
		status = sync->api->copy(stream, pack ? at : buffer->data, pack ? buffer->data : at, bytes,
					 DTRAIN_DEVICE_TO_DEVICE, err);
		at += bytes;
	}
	return status;
}

/* Puts an operation of the group between two parts of the stream; *work is its handle if status is BETON_OK. */
static int join_stream(int status, dtrain_work **work, dtrain_stream *stream, beton_error *err)
{
	return status != BETON_OK ? status : dtrain_work_stream_wait(work, stream, err);
}

/* The group may begin after this event. *after NULL: the group runs on the host, which has waited for the stream. */
static int mark_ready(dtrain_sync *sync, dtrain_stream *stream, dtrain_event **after, beton_error *err)
{
	*after = NULL;
	if (!dtrain__group_is_stream_ordered(sync->group))
		return sync->api->stream_synchronize(stream, err);
	*after = sync->packed_ready;
	return sync->api->event_record(sync->packed_ready, stream, err);
}

static int start_buffers(dtrain_sync *sync, dtrain_event *after, dtrain_work **work, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	return sync->options.buffers == DTRAIN_BUFFERS_BROADCAST
		       ? dtrain_broadcast(sync->group, sync->packed, sync->moving_count, dtype, 0, after, work, err)
		       : dtrain_allreduce(sync->group, sync->packed, sync->moving_count, dtype, DTRAIN_AVG, after, work,
					  err);
}

int dtrain_sync_buffers(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, sync, stream))
		return BETON_INVALID_ARGUMENT;
	dtrain_work *work = NULL;
	dtrain_event *after;
	if (sync->started && sync->options.deterministic_shards)
		return dtrain__tree_average_buffers(sync, stream, err);
	if (!sync->started || sync->moving_count == 0 || dtrain_group_size(sync->group) == 1 ||
	    sync->options.buffers == DTRAIN_BUFFERS_OWN)
		return BETON_OK;
	int status = copy_buffers(sync, stream, true, false, err);
	if (status == BETON_OK)
		status = mark_ready(sync, stream, &after, err);
	if (status == BETON_OK)
		status = join_stream(start_buffers(sync, after, &work, err), &work, stream, err);
	return status != BETON_OK ? status : copy_buffers(sync, stream, false, false, err);
}

/* The ranks that have the same range; NULL: no others. */
static dtrain_group *holders_of(const dtrain_sync *sync, const dtrain_range *range)
{
	dtrain_group *group = sync->shards && !range->shared ? sync->replicas : sync->group;
	return group && dtrain_group_size(group) > 1 ? group : NULL;
}

/* Values in host memory go through memory of the device, which the group can use: piece by piece, since that memory is
 * in no plan. */
static int broadcast_piece(dtrain_sync *sync, dtrain_group *group, void *values, int64_t count, void *bounce,
			   dtrain_stream *stream, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	size_t bytes = (size_t)count * dtrain_dtype_size(dtype);
	dtrain_event *after;
	dtrain_work *work = NULL;
	int status = sync->api->copy(stream, bounce, values, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = mark_ready(sync, stream, &after, err);
	if (status == BETON_OK)
		status = join_stream(dtrain_broadcast(group, bounce, count, dtype, 0, after, &work, err), &work, stream,
				     err);
	return status == BETON_OK ? sync->api->copy(stream, values, bounce, bytes, DTRAIN_DEVICE_TO_HOST, err) : status;
}

static int broadcast_range(dtrain_sync *sync, const dtrain_range *range, void *bounce, dtrain_stream *stream,
			   beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	dtrain_group *group = holders_of(sync, range);
	int64_t most = (int64_t)(BOUNCE_BYTES / dtrain_dtype_size(dtype));
	dtrain_work *work = NULL;
	int status = BETON_OK;
	if (!group)
		return BETON_OK;
	if (range->device)
		return join_stream(dtrain_broadcast(group, range->values, range->count, dtype, 0, NULL, &work, err),
				   &work, stream, err);
	for (int64_t done = 0; done < range->count && status == BETON_OK; done += most) {
		int64_t count = range->count - done < most ? range->count - done : most;
		void *values = dtrain__params_place(range->values, (size_t)done * dtrain_dtype_size(dtype));
		status = broadcast_piece(sync, group, values, count, bounce, stream, err);
	}
	return status;
}

/* NULL: what is broadcast is on the device. */
static int allocate_bounce(const dtrain_sync *sync, void **out, beton_error *err)
{
	bool needed = false;
	*out = NULL;
	for (int i = 0; i < dtrain_params_range_count(sync->params); i++) {
		const dtrain_range *range = dtrain_params_range_at(sync->params, i);
		needed = needed || (!range->device && holders_of(sync, range));
	}
	return needed ? sync->api->alloc(sync->device, BOUNCE_BYTES, out, err) : BETON_OK;
}

/* Rank 0 of all that have the same range gives it to the others. */
static int broadcast_values(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	void *bounce;
	int status = allocate_bounce(sync, &bounce, err);
	for (int i = 0; i < dtrain_params_range_count(sync->params) && status == BETON_OK; i++)
		status = broadcast_range(sync, dtrain_params_range_at(sync->params, i), bounce, stream, err);
	/* Copies that were started before a failure still use the memory. */
	int ended = bounce ? sync->api->stream_synchronize(stream, status == BETON_OK ? err : NULL) : BETON_OK;
	sync->api->free(sync->device, bounce);
	return status == BETON_OK ? ended : status;
}

static int broadcast_all(dtrain_sync *sync, dtrain_stream *stream, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(sync->params);
	dtrain_work *work = NULL;
	dtrain_event *after;
	int status = broadcast_values(sync, stream, err);
	if (status == BETON_OK)
		status = copy_buffers(sync, stream, true, true, err);
	if (status == BETON_OK)
		status = mark_ready(sync, stream, &after, err);
	if (status == BETON_OK)
		status = join_stream(
			dtrain_broadcast(sync->group, sync->packed, sync->packed_count, dtype, 0, after, &work, err),
			&work, stream, err);
	if (status == BETON_OK)
		status = copy_buffers(sync, stream, false, true, err);
	if (status == BETON_OK)
		status = dtrain_params_changed(sync->params, stream, err);
	if (status == BETON_OK)
		status = sync->api->stream_synchronize(stream, err);
	return status != BETON_OK ? status : dtrain_group_check(sync->group, err);
}

int dtrain__sync_broadcast(dtrain_sync *sync, beton_error *err)
{
	dtrain_stream *stream = NULL;
	bool alone = dtrain_group_size(sync->group) == 1;
	if (alone && !sync->part_buffers)
		return BETON_OK;
	int status = sync->api->stream_create(sync->device, &stream, err);
	if (status != BETON_OK)
		return status;
	status = alone ? BETON_OK : broadcast_all(sync, stream, err);
	if (status == BETON_OK)
		status = dtrain__tree_share_buffers(sync, stream, err);
	if (status == BETON_OK)
		status = sync->api->stream_synchronize(stream, err);
	sync->api->stream_destroy(stream);
	return status;
}
