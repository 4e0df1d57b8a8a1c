/* SPDX-License-Identifier: Apache-2.0
 *
 * How much each worker gets: samples to read ahead, and memory. */
#ifndef BT_LOADER_RESOURCES_H
#define BT_LOADER_RESOURCES_H

#include <stddef.h>
#include <stdint.h>

#include <beton/loader.h>

#include "dataset.h"
#include "outputs.h"

typedef struct bt_resources {
	uint32_t ahead;     /* samples that a worker reads ahead at first */
	uint32_t ahead_max; /* up to which that adapts itself; 0: it does not */
	uint32_t tickets;   /* samples that a worker may hold: a power of 2 */
	size_t arena_bytes; /* for their blobs */
} bt_resources;

/* buffers: whether the engine reads into buffers of ours. options are resolved. */
bt_resources bt_resources_plan(const beton_loader_options *options, const bt_dataset *dataset,
			       const bt_outputs *outputs, bool buffers);

#endif
