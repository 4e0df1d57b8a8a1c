/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers are many and small (batch norm's statistics): they are put into one array, and reduced or broadcast at once.
 * Those that are fixed stay as the broadcast left them: the mean of three equal numbers may be another one.
 */
#include "common/error.h"
#include "comm/work.h"
#include "ddp.h"

/* fixed: those that no step changes, too. */
static int copy_buffers(dtrain_ddp *ddp, dtrain_stream *stream, bool pack, bool fixed, beton_error *err)
{
	size_t each = dtrain_dtype_size(dtrain_params_dtype(ddp->params));
	char *at = ddp->packed;
	int status = BETON_OK;

	for (int i = 0; i < dtrain_params_buffer_count(ddp->params) && !status; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(ddp->params, i);
		size_t bytes = (size_t)dtrain_shape_count(&buffer->shape) * each;

		if (buffer->fixed && !fixed)
			continue;
		status = ddp->api->copy(stream, pack ? at : buffer->data, pack ? buffer->data : at, bytes,
					DTRAIN_DEVICE_TO_DEVICE, err);
		at += bytes;
	}
	return status;
}

/* An operation of the group between two parts of the stream; *work is its handle where status is 0. */
static int join_stream(int status, dtrain_work **work, dtrain_stream *stream, beton_error *err)
{
	return status ? status : dtrain_work_stream_wait(work, stream, err);
}

/* What the stream has to have done before the group begins. The groups' threads of today take this from the host. */
static int mark_ready(dtrain_ddp *ddp, dtrain_stream *stream, dtrain_event **after, beton_error *err)
{
	*after = NULL;
	if (!dtrain__group_is_stream_ordered(ddp->group))
		return ddp->api->stream_synchronize(stream, err);
	*after = ddp->ready;
	return ddp->api->event_record(ddp->ready, stream, err);
}

int dtrain_ddp_sync_buffers(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err)
{
	dtrain_work *work = NULL;
	dtrain_event *after;
	int status;

	if (ddp->moving_count == 0 || dtrain_group_size(ddp->group) == 1)
		return BETON_OK;
	status = copy_buffers(ddp, stream, true, false, err);
	if (!status)
		status = mark_ready(ddp, stream, &after, err);
	if (!status)
		status = join_stream(dtrain_allreduce(ddp->group, ddp->packed, ddp->moving_count,
						      dtrain_params_dtype(ddp->params), DTRAIN_AVG, after, &work, err),
				     &work, stream, err);
	return status ? status : copy_buffers(ddp, stream, false, false, err);
}

static int broadcast_all(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(ddp->params);
	dtrain_work *work = NULL;
	dtrain_event *after;
	int status;

	status = join_stream(dtrain_broadcast(ddp->group, dtrain_params_values(ddp->params),
					      dtrain_params_flat_count(ddp->params), dtype, 0, NULL, &work, err),
			     &work, stream, err);
	if (!status)
		status = copy_buffers(ddp, stream, true, true, err);
	if (!status)
		status = mark_ready(ddp, stream, &after, err);
	if (!status)
		status = join_stream(
			dtrain_broadcast(ddp->group, ddp->packed, ddp->packed_count, dtype, 0, after, &work, err),
			&work, stream, err);
	if (!status)
		status = copy_buffers(ddp, stream, false, true, err);
	if (!status)
		status = ddp->api->stream_synchronize(stream, err);
	return status ? status : dtrain_group_check(ddp->group, err);
}

int dtrain__ddp_broadcast(dtrain_ddp *ddp, beton_error *err)
{
	dtrain_stream *stream = NULL;
	int status;

	if (dtrain_group_size(ddp->group) == 1)
		return BETON_OK;
	status = ddp->api->stream_create(ddp->device, &stream, err);
	if (status)
		return status;
	status = broadcast_all(ddp, stream, err);
	ddp->api->stream_destroy(stream);
	return status;
}
