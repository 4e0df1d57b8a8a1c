/* SPDX-License-Identifier: Apache-2.0 */
#include "server_link.h"

#include <stdio.h>

#include "comm/group/group.h"
#include "comm/group/work.h"
#include "common/error.h"

int dtrain__link_arrays_of(dtrain_params *params, link_arrays *out, beton_error *err)
{
	dtrain_device *device = dtrain_params_device(params);
	*out = (link_arrays){.params = params,
			     .device = device,
			     .api = dtrain_device_get_api(device),
			     .count = dtrain_params_flat_count(params)};
	for (int i = 0; i < dtrain_params_buffer_count(params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(params, i);
		out->buffers += buffer->fixed ? 0 : dtrain_shape_count(&buffer->shape);
		out->all += dtrain_shape_count(&buffer->shape);
	}
	return dtrain_params_dtype(params) == DTRAIN_F32
		       ? BETON_OK
		       : bt_fail(err, BETON_UNSUPPORTED, "parameter server: parameters in %s, not in f32",
				 dtrain_dtype_name(dtrain_params_dtype(params)));
}

static int copy_buffers(const link_arrays *arrays, float *packed, bool pack, bool fixed, dtrain_stream *stream,
			beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < dtrain_params_buffer_count(arrays->params) && status == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(arrays->params, i);
		int64_t count = dtrain_shape_count(&buffer->shape);
		if (buffer->fixed && !fixed)
			continue;
		status = arrays->api->copy(stream, pack ? (void *)packed : buffer->data,
					   pack ? buffer->data : (void *)packed, (size_t)count * sizeof(float),
					   pack ? DTRAIN_DEVICE_TO_HOST : DTRAIN_HOST_TO_DEVICE, err);
		packed += count;
	}
	return status;
}

int dtrain__link_copy_buffers(const link_arrays *arrays, float *packed, bool pack, dtrain_stream *stream,
			      beton_error *err)
{
	return copy_buffers(arrays, packed, pack, false, stream, err);
}

int dtrain__link_first_buffers(const link_arrays *arrays, float *packed, bool pack, beton_error *err)
{
	dtrain_stream *stream = NULL;
	int status = arrays->api->stream_create(arrays->device, &stream, err);
	if (status != BETON_OK)
		return status;
	status = copy_buffers(arrays, packed, pack, true, stream, err);
	if (status == BETON_OK)
		status = arrays->api->stream_synchronize(stream, err);
	arrays->api->stream_destroy(stream);
	return status;
}

int dtrain__link_open(const link_arrays *arrays, dtrain_store *store, int rank, int worker,
		      const dtrain_server_options *options, dtrain_group **out, beton_error *err)
{
	const int64_t mine[] = {arrays->count, arrays->buffers};
	int64_t both[2 * LINK_RANKS];
	char name[32];
	dtrain_group_options group;
	dtrain_group_options_init(&group);
	const int world[LINK_RANKS] = {[LINK_SERVER] = 0, [LINK_WORKER] = worker + 1};
	snprintf(name, sizeof(name), "server-%d", world[LINK_WORKER]);
	group.name = name;
	group.interface = options->interface;
	group.timeout_ms = options->timeout_ms;
	group.join_timeout_ms = options->join_timeout_ms;
	int status =
		dtrain__group_create_within(store, rank, LINK_RANKS, &group, &(group_origin){.world = world}, out, err);
	if (status == BETON_OK)
		status = dtrain__group_gather_host(*out, mine, sizeof(mine), both, err);
	if (status != BETON_OK || (both[0] == both[2] && both[1] == both[3]))
		return status;
	return bt_fail(err, BETON_MISMATCH,
		       "parameter server: worker %d has another model: %lld parameters and %lld elements of buffers, "
		       "not %lld and %lld",
		       worker, (long long)both[2], (long long)both[3], (long long)both[0], (long long)both[1]);
}

int dtrain__link_send(dtrain_group *group, int peer, const void *data, int64_t count, dtrain_dtype dtype,
		      beton_error *err)
{
	dtrain_work *work = NULL;
	return dtrain__work_finish(dtrain_send(group, data, count, dtype, peer, 0, NULL, &work, err), &work, err);
}

int dtrain__link_receive(dtrain_group *group, int peer, void *data, int64_t count, dtrain_dtype dtype, beton_error *err)
{
	dtrain_work *work = NULL;
	return dtrain__work_finish(dtrain_recv(group, data, count, dtype, peer, 0, NULL, &work, err), &work, err);
}
