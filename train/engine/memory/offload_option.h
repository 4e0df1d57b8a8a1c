/* SPDX-License-Identifier: Apache-2.0
 *
 * The option --offload: data that a device with its own memory keeps in the host's. */
#ifndef ENGINE_MEMORY_OFFLOAD_OPTION_H
#define ENGINE_MEMORY_OFFLOAD_OPTION_H

#include <dtrain/device.h>

typedef enum engine_offload {
	ENGINE_OFFLOAD_NONE,
	ENGINE_OFFLOAD_OPTIMIZER,   /* see dtrain_params_offload */
	ENGINE_OFFLOAD_ACTIVATIONS, /* see dtrain_graph_offload */
	ENGINE_OFFLOAD_BOTH,        /* optimizer and activations */
	ENGINE_OFFLOAD_PARAMETERS,  /* optimizer, and the units that ops read */
	ENGINE_OFFLOAD_ALL,         /* parameters and activations */
} engine_offload;

/* Their names, then NULL. */
extern const char *const engine_offload_names[];

static inline bool engine_offloads_units(engine_offload offload)
{
	return offload == ENGINE_OFFLOAD_PARAMETERS || offload == ENGINE_OFFLOAD_ALL;
}

static inline bool engine_offloads_optimizer(engine_offload offload)
{
	return offload == ENGINE_OFFLOAD_OPTIMIZER || offload == ENGINE_OFFLOAD_BOTH || engine_offloads_units(offload);
}

static inline bool engine_offloads_activations(engine_offload offload)
{
	return offload == ENGINE_OFFLOAD_ACTIVATIONS || offload == ENGINE_OFFLOAD_BOTH || offload == ENGINE_OFFLOAD_ALL;
}

/* Whether the device, which need not be open, can leave that. Errors: INVALID_ARGUMENT. */
int engine_offload_check(const dtrain_device_api *api, engine_offload offload, beton_error *err);

#endif
