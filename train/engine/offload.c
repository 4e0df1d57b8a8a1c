/* SPDX-License-Identifier: Apache-2.0 */
#include "offload.h"

#include <stddef.h>

const char *const engine_offload_names[] = {
	[ENGINE_OFFLOAD_NONE] = "none",
	[ENGINE_OFFLOAD_OPTIMIZER] = "optimizer",
	[ENGINE_OFFLOAD_ACTIVATIONS] = "activations",
	[ENGINE_OFFLOAD_BOTH] = "both",
	[ENGINE_OFFLOAD_PARAMETERS] = "parameters",
	[ENGINE_OFFLOAD_ALL] = "all",
	NULL,
};
