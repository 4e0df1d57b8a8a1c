/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "common/error.h"

#include <dtrain/optim.h>

#define INITIAL_SCALE 65536.0f /* GradScaler's init_scale */

struct dtrain_scaler {
	const dtrain_device_api *api;
	dtrain_device *device;
	void *memory;
};

int dtrain_scaler_create(dtrain_device *device, dtrain_stream *stream, dtrain_scaler **out, beton_error *err)
{
	if (BT_MISSING(err, device, stream, out))
		return BETON_INVALID_ARGUMENT;
	const float initial[DTRAIN_SCALERS] = {[DTRAIN_SCALER_SCALE] = INITIAL_SCALE};
	*out = NULL;
	dtrain_scaler *scaler = calloc(1, sizeof(*scaler));
	if (!scaler)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a scaler");
	scaler->device = device;
	scaler->api = dtrain_device_get_api(device);
	int status = scaler->api->alloc(device, sizeof(initial), &scaler->memory, err);
	if (status == BETON_OK)
		status =
			scaler->api->copy(stream, scaler->memory, initial, sizeof(initial), DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = scaler->api->stream_synchronize(stream, err);
	if (status != BETON_OK) {
		dtrain_scaler_destroy(&scaler);
		return status;
	}
	*out = scaler;
	return BETON_OK;
}

void dtrain_scaler_destroy(dtrain_scaler **scaler)
{
	if (!scaler)
		return;
	dtrain_scaler *s = *scaler;
	if (!s)
		return;
	s->api->free(s->device, s->memory);
	free(s);
	*scaler = NULL;
}

void *dtrain_scaler_memory(const dtrain_scaler *scaler)
{
	if (!scaler)
		return NULL;
	return scaler->memory;
}
