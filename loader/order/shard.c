/* SPDX-License-Identifier: Apache-2.0 */
#include "shard.h"

static uint64_t window_size(const bt_shard *shard)
{
	return (uint64_t)shard->batch_size * (shard->parts ? shard->parts : shard->world_size);
}

/* A rank's batches in a window. */
static uint64_t window_batches(const bt_shard *shard)
{
	return shard->parts ? shard->parts / shard->world_size : 1;
}

uint64_t bt_shard_window(const bt_shard *shard, uint64_t batch)
{
	return shard->start + batch / window_batches(shard) * window_size(shard);
}

/* Distance from a window's beginning to this rank's first position in it. */
static uint64_t first_offset(const bt_shard *shard, uint64_t begin)
{
	uint64_t residue = begin % shard->world_size;
	return shard->rank >= residue ? shard->rank - residue : shard->world_size - (residue - shard->rank);
}

uint32_t bt_shard_count(const bt_shard *shard, uint64_t batch)
{
	uint64_t begin = bt_shard_window(shard, batch);
	uint64_t left = shard->n - begin;
	if (left >= window_size(shard) || shard->last == BETON_LAST_PAD)
		return shard->batch_size;
	uint64_t offset = first_offset(shard, begin);
	return offset < left ? (uint32_t)((left - offset - 1) / shard->world_size + 1) : 0;
}

uint64_t bt_shard_position(const bt_shard *shard, uint64_t batch, uint32_t i)
{
	uint64_t begin = bt_shard_window(shard, batch);
	if (shard->parts) {
		uint64_t part = shard->first_part + batch % window_batches(shard) * shard->part_stride;
		return begin + part * shard->batch_size + i;
	}
	return begin + first_offset(shard, begin) + (uint64_t)i * shard->world_size;
}

uint64_t bt_shard_batches(const bt_shard *shard)
{
	uint64_t full = (shard->n - shard->start) / window_size(shard) * window_batches(shard);
	if (shard->last == BETON_LAST_DROP || (shard->n - shard->start) % window_size(shard) == 0)
		return full;
	/* The last window may hold fewer samples than there are ranks. */
	return full + (bt_shard_count(shard, full) > 0);
}
