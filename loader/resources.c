/* SPDX-License-Identifier: Apache-2.0 */
#include "resources.h"

#include "common/error.h"
#include "io/engine.h"
#include "tools.h"

/* Limit of automatic read-ahead, for each worker: two such workers keep any disk of one machine busy. */
enum { AHEAD_MAX = 64 };

/* Memory for blobs being read, for each worker: 64 JPEGs of 128 KiB. Pages that are not used are not touched. */
enum { ARENA_BYTES = 8 << 20 };

/* Fixed amounts under a memory limit: for each worker its stack and the JPEG library's rows; for the loader the
 * readers' stacks and what is allocated once; and the least for a worker's buffers, enough for pictures of about a
 * megapixel. */
enum { SPARE_BYTES = 16 << 10 };

enum { WORKER_BYTES = 1 << 20, BASE_BYTES = 4 << 20, SCRATCH_LEAST = 4 << 20 };

/* Memory for cached look-ups: for a million samples, or this share of the limit. */
enum { CACHE_BYTES = 64 << 20, CACHE_SHARE = 16 };

uint64_t bt_cache_bytes(const beton_loader_options *options)
{
	uint64_t share = options->memory_limit / CACHE_SHARE;
	return options->memory_limit && share < CACHE_BYTES ? share : CACHE_BYTES;
}

static uint32_t at_most(uint64_t value, uint32_t most)
{
	return value < most ? (uint32_t)value : most;
}

/* Most bytes that the read of a blob takes: a direct one begins and ends at multiples of the alignment. */
static size_t footprint(size_t blob)
{
	return (blob + BT_ARENA_ALIGNMENT - 1) / BT_ARENA_ALIGNMENT * BT_ARENA_ALIGNMENT + BT_ARENA_ALIGNMENT;
}

/* The arena that all blobs of one sample need, at any position of the ring. They lie in one page, which look-up checks;
 * only the parts of a window lie in several. At the end of the ring, less than the largest one is lost. */
static size_t least_arena(const bt_dataset *dataset, const bt_outputs *outputs)
{
	size_t page = 0, all = 0, largest = 0;
	for (uint32_t i = 0; i < dataset->count; i++) {
		size_t size = dataset->files->list[i].largest;
		page = size > page ? size : page;
	}
	for (uint32_t i = 0; i < outputs->num_reads; i++) {
		size_t one = footprint(outputs->read_most[i] < page ? (size_t)outputs->read_most[i] : page);
		all += one;
		largest = one > largest ? one : largest;
	}
	/* Each blob of a page may be rounded up at both ends. */
	size_t in_page = footprint(page) + (size_t)outputs->num_reads * 2 * BT_ARENA_ALIGNMENT;
	if (dataset->readers && in_page < all)
		all = in_page;
	return outputs->num_reads > 1 ? all + (largest < all ? largest : all) : all;
}

uint32_t bt_slots_of(const beton_loader_options *options, uint32_t iterators)
{
	return iterators * (options->batches_ahead + options->batches_leased);
}

/* Plans how far ahead, and with how many tickets, a worker reads. */
static void plan_ahead(bt_resources *plan, const beton_loader_options *options)
{
	/* Half of all samples that may be in progress, so that the workers can share the batches. */
	uint64_t share = (uint64_t)options->batch_size * options->batches_ahead / (2 * (uint64_t)options->num_threads);
	uint32_t most = options->read_ahead ? options->read_ahead : at_most(share, AHEAD_MAX);
	plan->ahead = options->read_ahead || options->direct ? most : 0;
	plan->ahead_max = options->read_ahead ? 0 : most;
	while (plan->tickets < most + BT_CLAIM_MAX)
		plan->tickets *= 2;
}

/* Divides a limit: batches, and for each worker its fixed part, the arena and the rest. */
static int share_out(bt_resources *plan, const beton_loader_options *options, const bt_outputs *outputs,
		     size_t least_arena_bytes, beton_error *err)
{
	/* No overflow: there are at most 128 batches of less than 2^57 bytes, and 1024 workers. */
	unsigned __int128 batches = (unsigned __int128)bt_slots_of(options, 1) * outputs->slot_bytes;
	size_t tickets = plan->tickets * (sizeof(bt_ticket) + outputs->num_reads * sizeof(bt_blob_read) +
					  outputs->num_values * sizeof(beton_value));
	/* A substitute is read into a buffer of its own, which grows by a quarter more than it needs. */
	size_t spare = options->on_error == BETON_ON_ERROR_SUBSTITUTE ? least_arena_bytes / 4 * 5 + SPARE_BYTES : 0;
	unsigned __int128 fixed =
		batches + BASE_BYTES + (unsigned __int128)options->num_threads * (WORKER_BYTES + tickets + spare);
	unsigned __int128 least = fixed + (unsigned __int128)options->num_threads * (least_arena_bytes + SCRATCH_LEAST);
	unsigned __int128 cache = least / (CACHE_SHARE - 1) + 1;
	least += cache < CACHE_BYTES ? cache : CACHE_BYTES;
	fixed += bt_cache_bytes(options);
	if (least > options->memory_limit)
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"loader options: memory_limit is %llu; the least that can work is %llu: %u batches of %zu "
			"bytes, and %zu bytes for each of %u threads",
			(unsigned long long)options->memory_limit,
			least < UINT64_MAX ? (unsigned long long)least : UINT64_MAX, bt_slots_of(options, 1),
			outputs->slot_bytes, WORKER_BYTES + tickets + spare + least_arena_bytes + SCRATCH_LEAST,
			options->num_threads);
	size_t rest = (size_t)(options->memory_limit - fixed) / options->num_threads;
	size_t most_arena = rest - SCRATCH_LEAST < rest / 2 ? rest - SCRATCH_LEAST : rest / 2;
	plan->arena_bytes = plan->arena_bytes < most_arena ? plan->arena_bytes
							   : most_arena / BT_ARENA_ALIGNMENT * BT_ARENA_ALIGNMENT;
	plan->arena_bytes = plan->arena_bytes > least_arena_bytes ? plan->arena_bytes : least_arena_bytes;
	plan->scratch_bytes = rest - plan->arena_bytes;
	return BETON_OK;
}

int bt_resources_plan(bt_resources *out, const beton_loader_options *options, const bt_dataset *dataset,
		      const bt_outputs *outputs, bool buffers, beton_error *err)
{
	size_t least = 0;
	*out = (bt_resources){.tickets = BT_CLAIM_MAX};
	if (buffers && outputs->num_reads > 0) {
		plan_ahead(out, options);
		least = least_arena(dataset, outputs);
		out->arena_bytes = least > ARENA_BYTES ? least : ARENA_BYTES;
	}
	return options->memory_limit ? share_out(out, options, outputs, least, err) : BETON_OK;
}
