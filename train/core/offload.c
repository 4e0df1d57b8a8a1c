/* SPDX-License-Identifier: Apache-2.0 */
#include "offload.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "params.h"

int dtrain_params_offload(dtrain_params *params, dtrain_device *host, bool units, beton_error *err)
{
	if (BT_MISSING(err, params, host))
		return BETON_INVALID_ARGUMENT;
	const dtrain_device_api *api = dtrain_device_get_api(host);
	dtrain_device_caps caps = {0}, of_host = {0};
	params->api->caps(params->device, &caps);
	api->caps(host, &of_host);
	if (params->allocated)
		return bt_fail(err, BETON_STATE, "parameters are offloaded after they were allocated");
	if (!of_host.host_memory)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "parameters cannot be offloaded to device '%s', which is not a host", api->name);
	if (caps.host_memory || !params->api->call_host)
		return bt_fail(err, BETON_UNSUPPORTED, "device '%s' %s, so nothing can be offloaded from it",
			       params->api->name, caps.host_memory ? "is in host memory" : "cannot call the host");
	int status = params->offload.stream ? BETON_OK : api->stream_create(host, &params->offload.stream, err);
	if (status != BETON_OK)
		return status;
	params->offload.host = host;
	params->offload.api = api;
	params->offload.units = units;
	return BETON_OK;
}

dtrain_device *dtrain_params_host(const dtrain_params *params)
{
	if (!params)
		return NULL;
	return params->offload.host;
}

static bool is_copied(const dtrain_params *params, int index)
{
	return params->memory[index].offloaded && params->copies.dtype != params->dtype;
}

/* Values, gradients and copies, each of all ranges in their order. */
static void lay_out(dtrain_params *params)
{
	dtrain__offload *offload = &params->offload;
	size_t element = dtrain_dtype_size(params->dtype), half = dtrain_dtype_size(params->copies.dtype);
	size_t at = 0;
	for (int kind = 0; kind < 3; kind++) {
		for (int i = 0; i < params->range_count; i++) {
			dtrain__offload_range *range = &offload->ranges[i];
			void **member = kind == 0 ? &range->values : kind == 1 ? &range->grads : &range->copies;
			if (kind == 2 && !is_copied(params, i))
				continue;
			*member = dtrain__params_place(offload->memory, at);
			at += (size_t)params->ranges[i].count * (kind == 2 ? half : element);
		}
	}
	offload->bytes = at;
}

/* Where the device has what ops read. */
static void find_device_side(const dtrain_params *params, int index)
{
	const dtrain__unit_memory *memory = &params->memory[index];
	dtrain__offload_range *range = &params->offload.ranges[index];
	bool copied = is_copied(params, index);
	dtrain_dtype dtype = copied ? params->copies.dtype : params->dtype;
	if (memory->prefetched)
		return;
	range->bytes = (size_t)params->ranges[index].count * dtrain_dtype_size(dtype);
	range->to = dtrain__unit_kept(params, index, copied ? memory->copies : memory->values,
				      copied ? memory->whole_copies : memory->whole_values, dtype);
}

/* Copies of a range are plain: it may begin and end within a parameter. */
static int create_cast(dtrain_params *params, int index, size_t *workspace, beton_error *err)
{
	dtrain__offload *offload = &params->offload;
	dtrain__offload_range *range = &offload->ranges[index];
	dtrain_op_desc desc;
	dtrain_segment segment;
	if (!range->copies)
		return BETON_OK;
	dtrain__copies_describe_range(params, params->ranges[index].count, &segment, &desc);
	int status = offload->api->op_create(offload->host, &desc, &range->cast, err);
	*workspace = desc.workspace_bytes > *workspace ? desc.workspace_bytes : *workspace;
	return status;
}

/* A shared unit has no copies, and its values are read. */
int dtrain__offload_allocate(dtrain_params *params, beton_error *err)
{
	dtrain__offload *offload = &params->offload;
	size_t workspace = 0;
	if (!offload->host)
		return BETON_OK;
	offload->ranges = calloc((size_t)params->range_count + 1, sizeof(*offload->ranges));
	if (!offload->ranges)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %d ranges", params->range_count);
	offload->count = params->range_count;
	lay_out(params);
	if (params->only_plan)
		return BETON_OK;
	int status = params->api->host_alloc(params->device, offload->bytes, &offload->memory, err);
	if (status != BETON_OK) {
		bt_prefix(err, "pinned memory of offloaded parameters");
		return status;
	}
	memset(offload->memory, 0, offload->bytes);
	lay_out(params);
	for (int i = 0; i < params->range_count && status == BETON_OK; i++) {
		find_device_side(params, i);
		params->ranges[i].values = offload->ranges[i].values;
		params->ranges[i].grads = offload->ranges[i].grads;
		params->ranges[i].device = NULL;
		status = create_cast(params, i, &workspace, err);
	}
	return status == BETON_OK && workspace ? offload->api->alloc(offload->host, workspace, &offload->workspace, err)
					       : status;
}

void dtrain__offload_free(dtrain_params *params)
{
	dtrain__offload *offload = &params->offload;
	/* A device that only plans has no functions for pinned memory. */
	if (!offload->host)
		return;
	for (int i = 0; i < offload->count; i++)
		if (offload->ranges[i].cast)
			offload->api->op_destroy(offload->ranges[i].cast);
	offload->api->free(offload->host, offload->workspace);
	params->api->host_free(params->device, offload->memory);
	free(offload->ranges);
	offload->ranges = NULL;
	offload->memory = offload->workspace = NULL;
	offload->bytes = 0;
	offload->count = 0;
}

int dtrain__offload_round(const dtrain_params *params, int index, beton_error *err)
{
	const dtrain__offload *offload = &params->offload;
	const dtrain__offload_range *range = &offload->ranges[index];
	return range->cast ? offload->api->op_run(range->cast, offload->stream,
						  (void *[]){range->values, range->copies}, offload->workspace, err)
			   : BETON_OK;
}

int dtrain__offload_send(const dtrain_params *params, int index, dtrain_stream *stream, beton_error *err)
{
	const dtrain__offload_range *range = &params->offload.ranges[index];
	return range->to ? params->api->copy(stream, range->to, range->copies ? range->copies : range->values,
					     range->bytes, DTRAIN_HOST_TO_DEVICE, err)
			 : BETON_OK;
}

int dtrain__offload_prefetch(const dtrain_params *params, int index, bool copies, void *to, dtrain_stream *stream,
			     beton_error *err)
{
	const dtrain__offload_range *range = &params->offload.ranges[index];
	dtrain_dtype dtype = copies ? params->copies.dtype : params->dtype;
	return params->api->copy(stream, to, copies ? range->copies : range->values,
				 (size_t)params->ranges[index].count * dtrain_dtype_size(dtype), DTRAIN_HOST_TO_DEVICE,
				 err);
}

int dtrain__offload_fetch(const dtrain_params *params, int index, dtrain_stream *stream, beton_error *err)
{
	return params->api->copy(stream, params->offload.ranges[index].grads, dtrain__range_grads(params, index),
				 (size_t)params->ranges[index].count * dtrain_dtype_size(params->dtype),
				 DTRAIN_DEVICE_TO_HOST, err);
}

/* In a thread of the device's. */
static void round_all(void *context)
{
	dtrain_params *params = context;
	beton_error failure;
	for (int i = 0; i < params->offload.count; i++)
		if (dtrain__offload_round(params, i, &failure) != BETON_OK)
			dtrain__offload_fail(params, &failure);
}

int dtrain__offload_changed(dtrain_params *params, dtrain_stream *stream, beton_error *err)
{
	int status = params->api->call_host(stream, round_all, params, err);
	for (int i = 0; i < params->offload.count && status == BETON_OK; i++)
		status = dtrain__offload_send(params, i, stream, err);
	return status;
}

void dtrain__offload_fail(dtrain_params *params, const beton_error *failure)
{
	dtrain__offload *offload = &params->offload;
	int none = 0;
	/* Only the first one is written, and it is read when it is complete. */
	if (!atomic_compare_exchange_strong(&offload->failed, &none, 1))
		return;
	offload->failure = *failure;
	atomic_store(&offload->failed, 2);
}

int dtrain__offload_check(dtrain_params *params, beton_error *err)
{
	if (atomic_load(&params->offload.failed) != 2)
		return BETON_OK;
	if (err)
		*err = params->offload.failure;
	return params->offload.failure.code;
}
