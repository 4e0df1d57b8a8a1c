/* SPDX-License-Identifier: Apache-2.0 */
#include "scalars.h"

int dtrain__scalars_open(dtrain__scalars *scalars, dtrain_device *device, size_t count, beton_error *err)
{
	const dtrain_device_api *api = dtrain_device_get_api(device);
	*scalars = (dtrain__scalars){.api = api, .device = device, .bytes = count * sizeof(float)};
	int status = api->alloc(device, scalars->bytes, (void **)&scalars->memory, err);
	if (status == BETON_OK)
		status = api->host_alloc(device, scalars->bytes, (void **)&scalars->host, err);
	return status == BETON_OK ? api->event_create(device, &scalars->copied, err) : status;
}

void dtrain__scalars_close(dtrain__scalars *scalars)
{
	if (!scalars->api)
		return;
	if (scalars->copied)
		scalars->api->event_destroy(scalars->copied);
	scalars->api->host_free(scalars->device, scalars->host);
	scalars->api->free(scalars->device, scalars->memory);
}

int dtrain__scalars_begin(dtrain__scalars *scalars, beton_error *err)
{
	return scalars->api->event_synchronize(scalars->copied, err);
}

int dtrain__scalars_put(dtrain__scalars *scalars, dtrain_stream *stream, beton_error *err)
{
	int status =
		scalars->api->copy(stream, scalars->memory, scalars->host, scalars->bytes, DTRAIN_HOST_TO_DEVICE, err);
	return status == BETON_OK ? scalars->api->event_record(scalars->copied, stream, err) : status;
}
