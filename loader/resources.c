/* SPDX-License-Identifier: Apache-2.0 */
#include "resources.h"

#include "engine.h"
#include "workers.h"

/* Disks need no more reads at a time than this from all workers together. */
enum { AHEAD_MAX = 64 };

/* Of blobs on their way, for each worker: 64 JPEGs of 128 KiB. Memory that is not needed is not touched. */
enum { ARENA_BYTES = 8 << 20 };

static uint32_t at_most(uint64_t value, uint32_t most)
{
	return value < most ? (uint32_t)value : most;
}

/* The room that all blobs of one sample need, wherever in the ring the first of them lies. A blob lies in a page, and a
 * direct read of it too. */
static size_t least_arena(const bt_dataset *dataset, const bt_outputs *outputs)
{
	size_t page = 0;
	for (uint32_t i = 0; i < dataset->count; i++) {
		size_t size = beton_reader_info(dataset->readers[i])->page_size;
		page = size > page ? size : page;
	}
	page = (page + BT_ARENA_ALIGNMENT - 1) / BT_ARENA_ALIGNMENT * BT_ARENA_ALIGNMENT + BT_ARENA_ALIGNMENT;
	return page * (outputs->num_reads > 1 ? outputs->num_reads + 1 : 1);
}

bt_resources bt_resources_plan(const beton_loader_options *options, const bt_dataset *dataset,
			       const bt_outputs *outputs, bool buffers)
{
	bt_resources plan = {0};
	if (!buffers || outputs->num_reads == 0) {
		plan.tickets = BT_CLAIM_MAX;
		return plan;
	}
	/* Half of what may be under way at all, so that the workers can share the batches. */
	uint64_t share = (uint64_t)options->batch_size * options->batches_ahead / (2 * (uint64_t)options->num_threads);
	uint32_t most = options->read_ahead ? options->read_ahead : at_most(share, AHEAD_MAX);
	plan.ahead = options->read_ahead || options->direct ? most : 0;
	plan.ahead_max = options->read_ahead ? 0 : most;
	plan.tickets = BT_CLAIM_MAX;
	while (plan.tickets < most + BT_CLAIM_MAX)
		plan.tickets *= 2;
	size_t least = least_arena(dataset, outputs);
	plan.arena_bytes = least > ARENA_BYTES ? least : ARENA_BYTES;
	return plan;
}
