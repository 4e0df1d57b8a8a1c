/* SPDX-License-Identifier: Apache-2.0
 *
 * Buffers are many and small (batch norm's statistics): they are put into one array, and reduced or broadcast at once.
 */
#include "common/error.h"
#include "comm/work.h"
#include "ddp.h"

static int copy_buffers(dtrain_ddp *ddp, dtrain_stream *stream, bool pack, beton_error *err)
{
	size_t each = dtrain_dtype_size(dtrain_params_dtype(ddp->params));
	char *at = ddp->packed;
	int status = BETON_OK;

	for (int i = 0; i < dtrain_params_buffer_count(ddp->params) && !status; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(ddp->params, i);
		size_t bytes = (size_t)dtrain_shape_count(&buffer->shape) * each;

		status = ddp->api->copy(stream, pack ? at : buffer->data, pack ? buffer->data : at, bytes,
					DTRAIN_DEVICE_TO_DEVICE, err);
		at += bytes;
	}
	return status ? status : ddp->api->stream_synchronize(stream, err);
}

int dtrain_ddp_sync_buffers(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err)
{
	dtrain_work *work = NULL;
	int status;

	if (ddp->packed_count == 0 || dtrain_group_size(ddp->group) == 1)
		return BETON_OK;
	status = copy_buffers(ddp, stream, true, err);
	if (!status)
		status = dtrain__work_finish(dtrain_allreduce(ddp->group, ddp->packed, ddp->packed_count,
							      dtrain_params_dtype(ddp->params), DTRAIN_AVG, NULL, &work,
							      err),
					     &work, err);
	return status ? status : copy_buffers(ddp, stream, false, err);
}

static int broadcast_all(dtrain_ddp *ddp, dtrain_stream *stream, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(ddp->params);
	dtrain_work *work = NULL;
	int status;

	/* The values that the caller has put on other streams of this thread's device are there when they are. */
	status =
		dtrain__work_finish(dtrain_broadcast(ddp->group, dtrain_params_values(ddp->params),
						     dtrain_params_flat_count(ddp->params), dtype, 0, NULL, &work, err),
				    &work, err);
	if (!status)
		status = copy_buffers(ddp, stream, true, err);
	if (!status)
		status = dtrain__work_finish(
			dtrain_broadcast(ddp->group, ddp->packed, ddp->packed_count, dtype, 0, NULL, &work, err), &work,
			err);
	return status ? status : copy_buffers(ddp, stream, false, err);
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
