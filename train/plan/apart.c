/* SPDX-License-Identifier: Apache-2.0 */
#include "apart.h"

#include <stdlib.h>

#include "common/error.h"

/* The functions of a device, of which two are replaced. */
typedef struct apart {
	dtrain_device_api api;
	const dtrain_device_api *inner;
} apart;

static const dtrain_device_api *inner_of(const dtrain_device *device)
{
	return ((const apart *)dtrain_device_get_api(device))->inner;
}

static void apart_caps(const dtrain_device *device, dtrain_device_caps *out)
{
	inner_of(device)->caps(device, out);
	out->host_memory = false;
}

static int apart_call_host(dtrain_stream *stream, void (*function)(void *context), void *context, beton_error *err)
{
	(void)stream, (void)function, (void)context;
	return bt_fail(err, BETON_UNSUPPORTED, "a device of a plan calls no function of the host");
}

static void apart_close(dtrain_device *device)
{
	apart *set = (apart *)dtrain_device_get_api(device);
	set->inner->close(device);
	free(set);
}

int plan_set_apart(dtrain_device **device, beton_error *err)
{
	const dtrain_device_api *inner = dtrain_device_get_api(*device);
	apart *set = malloc(sizeof(*set));
	if (!set) {
		dtrain_device_close(device);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for device '%s'", inner->name);
	}
	*set = (apart){.api = *inner, .inner = inner};
	set->api.caps = apart_caps;
	set->api.close = apart_close;
	set->api.call_host = apart_call_host;
	/* The functions are the first member of every device's struct. */
	*(const dtrain_device_api **)*device = &set->api;
	return BETON_OK;
}
