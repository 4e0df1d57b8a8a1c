/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of an epoch, and which part of it belongs to a rank: pure functions, O(1) memory and time. */
#ifndef BT_LOADER_ORDER_H
#define BT_LOADER_ORDER_H

#include <stdint.h>

#include <beton/loader.h>

#include "permutation.h"

/* A permutation of 0 .. n-1. Immutable after init: any thread may use it. */
typedef struct bt_order {
	beton_order kind;
	uint64_t n;
	bt_permutation permutation;
} bt_order;

void bt_order_init(bt_order *order, beton_order kind, uint64_t n, uint64_t seed, uint64_t epoch);

/* The sample at a position; position < n. */
uint64_t bt_order_sample(const bt_order *order, uint64_t position);

/* One rank's part of the positions [start, n): batch k of all ranks together is the window
 * [start + k * batch_size * world_size, ...), and a rank takes the positions of it that are equal to rank modulo
 * world_size. */
typedef struct bt_shard {
	uint64_t n;
	uint64_t start;
	uint32_t batch_size;
	uint32_t rank;
	uint32_t world_size;
	bool drop_last;
} bt_shard;

/* Batches of this rank from start to the end. */
uint64_t bt_shard_batches(const bt_shard *shard);

/* The first position of window `batch`, for all ranks. */
uint64_t bt_shard_window(const bt_shard *shard, uint64_t batch);

/* Samples of this rank in that window, and the position of its i-th. */
uint32_t bt_shard_count(const bt_shard *shard, uint64_t batch);
uint64_t bt_shard_position(const bt_shard *shard, uint64_t batch, uint32_t i);

#endif
