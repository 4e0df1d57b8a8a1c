/* SPDX-License-Identifier: Apache-2.0
 *
 * Resources of each worker: samples to read ahead, and memory.
 */
#ifndef BT_LOADER_RESOURCES_H
#define BT_LOADER_RESOURCES_H

#include <stddef.h>
#include <stdint.h>

#include <beton/loader.h>

#include "dataset.h"
#include "batch/outputs.h"

/* Maximum number of samples that a worker holds, without the samples read ahead. */
enum { BT_CLAIM_MAX = 16 };

typedef struct bt_resources {
	uint32_t ahead;       /* samples that a worker reads ahead at first */
	uint32_t ahead_max;   /* most that adaptation may raise it to; 0: no adaptation */
	uint32_t tickets;     /* samples that a worker may hold: a power of 2 */
	size_t arena_bytes;   /* for the blobs of these */
	size_t scratch_bytes; /* for all other memory that depends on the samples; 0: no limit */
} bt_resources;

/* buffers: the engine reads into the workers' arenas. options are resolved. Errors: INVALID_ARGUMENT (memory_limit is
 * below what the other options need; the message names both). */
int bt_resources_plan(bt_resources *out, const beton_loader_options *options, const bt_dataset *dataset,
		      const bt_outputs *outputs, bool buffers, beton_error *err);

/* Memory for cached look-ups of samples, of all files together: part of memory_limit. */
uint64_t bt_cache_bytes(const beton_loader_options *options);

/* Batches that must exist for so many open iterators. */
uint32_t bt_slots_of(const beton_loader_options *options, uint32_t iterators);

#endif
