/* SPDX-License-Identifier: Apache-2.0 */
#include "scalars.h"

#include <string.h>

int dtrain__scalars_open(dtrain__scalars *scalars, dtrain_device *device, dtrain_device *streams, size_t count,
			 beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(device), *of_streams = dtrain_device_get_api(streams);
	*scalars = (dtrain__scalars){.device = device, .streams = streams, .bytes = count * sizeof(float)};
	int status = api->alloc(device, scalars->bytes, (void **)&scalars->memory, err);
	if (status == BETON_OK)
		status = of_streams->host_alloc(streams, scalars->bytes, (void **)&scalars->host, err);
	return status == BETON_OK ? of_streams->event_create(streams, &scalars->copied, err) : status;
}

void dtrain__scalars_close(dtrain__scalars *scalars)
{
	if (!scalars->device)
		return;
	const dtrain_device_api *of_streams = dtrain_device_get_api(scalars->streams);
	if (scalars->copied)
		of_streams->event_destroy(scalars->copied);
	of_streams->host_free(scalars->streams, scalars->host);
	dtrain_device_get_api(scalars->device)->free(scalars->device, scalars->memory);
}

int dtrain__scalars_begin(dtrain__scalars *scalars, beton_error *err)
{
	return dtrain_device_get_api(scalars->streams)->event_synchronize(scalars->copied, err);
}

static void copy_on_host(void *context)
{
	const dtrain__scalars *scalars = context;
	memcpy(scalars->memory, scalars->host, scalars->bytes);
}

int dtrain__scalars_put(dtrain__scalars *scalars, dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(scalars->streams);
	int status = scalars->device == scalars->streams ? api->copy(stream, scalars->memory, scalars->host,
								     scalars->bytes, DTRAIN_HOST_TO_DEVICE, err)
							 : api->call_host(stream, copy_on_host, scalars, err);
	return status == BETON_OK ? api->event_record(scalars->copied, stream, err) : status;
}
