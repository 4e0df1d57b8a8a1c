/* SPDX-License-Identifier: Apache-2.0
 *
 * Gathers host buffers through device memory where the backend needs that.
 */
#include <string.h>

#include "common/error.h"
#include "group_stream.h"

static int gather_through(dtrain_group *group, dtrain_stream *stream, char *memory, const void *mine, size_t bytes,
			  void *all, beton_error *err)
{
	const dtrain_device_api *api = group->api;
	dtrain_work *work = NULL;
	int status = api->copy(stream, memory, mine, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->stream_synchronize(stream, err);
	if (status == BETON_OK)
		status = dtrain__work_finish(
			dtrain_all_gather(group, memory + bytes, memory, (int64_t)bytes, DTRAIN_U8, NULL, &work, err),
			&work, err);
	if (status == BETON_OK)
		status = api->copy(stream, all, memory + bytes, bytes * (size_t)group->member.size,
				   DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? api->stream_synchronize(stream, err) : status;
}

int dtrain__group_gather_host(dtrain_group *group, const void *mine, size_t bytes, void *all, beton_error *err)
{
	const dtrain_device_api *api = group->api;
	dtrain_stream *stream = NULL;
	dtrain_work *work = NULL;
	void *memory = NULL;
	if (group->batch.open)
		return bt_fail(err, BETON_STATE, "group \"%s\": the ranks cannot compare anything within a batch",
			       group->name);
	if (!group->streams)
		return dtrain__work_finish(
			dtrain_all_gather(group, all, mine, (int64_t)bytes, DTRAIN_U8, NULL, &work, err), &work, err);
	int status = api->alloc(group->device, bytes * ((size_t)group->member.size + 1), &memory, err);
	if (status != BETON_OK)
		return status;
	status = api->stream_create(group->device, &stream, err);
	if (status == BETON_OK) {
		status = gather_through(group, stream, memory, mine, bytes, all, err);
		api->stream_destroy(stream);
	}
	api->free(group->device, memory);
	return status;
}
