/* SPDX-License-Identifier: Apache-2.0 */
#include "offload_option.h"

#include "common/error.h"

const char *const engine_offload_names[] = {
	[ENGINE_OFFLOAD_NONE] = "none",
	[ENGINE_OFFLOAD_OPTIMIZER] = "optimizer",
	[ENGINE_OFFLOAD_ACTIVATIONS] = "activations",
	[ENGINE_OFFLOAD_BOTH] = "both",
	[ENGINE_OFFLOAD_PARAMETERS] = "parameters",
	[ENGINE_OFFLOAD_ALL] = "all",
	NULL,
};

int engine_offload_check(const dtrain_device_api *api, engine_offload offload, beton_error *err)
{
	/* Devices in host memory have no such function. */
	if (offload == ENGINE_OFFLOAD_NONE || api->call_host)
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--offload %s needs a device with memory of its own; '%s' has none",
		       engine_offload_names[offload], api->name);
}
