/* SPDX-License-Identifier: Apache-2.0 */
#include "order.h"

#include <xxhash.h>

/* The hash reads numbers as they lie in memory; orders must not depend on the machine. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the loader is written for little-endian machines");

/* Luby and Rackoff need 4 rounds for large halves; small data sets have halves of a few bits, which mix more slowly. */
enum { ROUNDS = 8 };

static uint64_t mask(uint32_t bits)
{
	return (UINT64_C(1) << bits) - 1;
}

void bt_order_init(bt_order *order, beton_order kind, uint64_t n, uint64_t seed, uint64_t epoch)
{
	uint32_t bits = n > 1 ? 64 - (uint32_t)__builtin_clzll(n - 1) : 0;
	*order = (bt_order){.kind = kind,
			    .n = n,
			    .key = XXH3_64bits_withSeed(&epoch, sizeof(epoch), seed),
			    .low_bits = bits - bits / 2,
			    .high_bits = bits / 2};
}

static uint64_t round_function(uint64_t key, uint64_t round, uint64_t half)
{
	uint64_t input[2] = {round, half};
	return XXH3_64bits_withSeed(input, sizeof(input), key);
}

/* A Feistel network without the swap: each round changes one half by a function of the other, so that the halves may
 * differ by one bit and the domain is smaller than 2n. */
static uint64_t permute(const bt_order *order, uint64_t value)
{
	uint64_t low = value & mask(order->low_bits);
	uint64_t high = value >> order->low_bits;
	for (uint64_t round = 0; round < ROUNDS; round += 2) {
		low ^= round_function(order->key, round, high) & mask(order->low_bits);
		high ^= round_function(order->key, round + 1, low) & mask(order->high_bits);
	}
	return high << order->low_bits | low;
}

uint64_t bt_order_sample(const bt_order *order, uint64_t position)
{
	if (order->kind == BETON_ORDER_SEQUENTIAL)
		return position;
	/* Cycle walking: a value outside 0 .. n-1 is permuted again. The cycle of a value inside ends inside, at the
	 * latest at itself; fewer than 2 steps are expected. */
	uint64_t value = position;
	do
		value = permute(order, value);
	while (value >= order->n);
	return value;
}

static uint64_t window_size(const bt_shard *shard)
{
	return (uint64_t)shard->batch_size * shard->world_size;
}

uint64_t bt_shard_window(const bt_shard *shard, uint64_t batch)
{
	return shard->start + batch * window_size(shard);
}

/* Distance from a window's begin to this rank's first position in it. */
static uint64_t first_offset(const bt_shard *shard, uint64_t begin)
{
	uint64_t residue = begin % shard->world_size;
	return shard->rank >= residue ? shard->rank - residue : shard->world_size - (residue - shard->rank);
}

uint32_t bt_shard_count(const bt_shard *shard, uint64_t batch)
{
	uint64_t begin = bt_shard_window(shard, batch);
	uint64_t left = shard->n - begin;
	if (left >= window_size(shard))
		return shard->batch_size;
	uint64_t offset = first_offset(shard, begin);
	return offset < left ? (uint32_t)((left - offset - 1) / shard->world_size + 1) : 0;
}

uint64_t bt_shard_position(const bt_shard *shard, uint64_t batch, uint32_t i)
{
	uint64_t begin = bt_shard_window(shard, batch);
	return begin + first_offset(shard, begin) + (uint64_t)i * shard->world_size;
}

uint64_t bt_shard_batches(const bt_shard *shard)
{
	uint64_t full = (shard->n - shard->start) / window_size(shard);
	if (shard->drop_last || (shard->n - shard->start) % window_size(shard) == 0)
		return full;
	/* The last window may hold fewer samples than there are ranks. */
	return full + (bt_shard_count(shard, full) > 0);
}
