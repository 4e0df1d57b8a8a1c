/* SPDX-License-Identifier: Apache-2.0
 *
 * Which positions of an epoch belong to a rank: pure functions, O(1) memory and time. */
#ifndef BT_LOADER_SHARD_H
#define BT_LOADER_SHARD_H

#include <stdint.h>

#include <beton/loader.h>

/* One rank's part of the positions [start, n). Global batch k is the window that begins at start + k * batch_size *
 * world_size; the rank takes the positions in it that are equal to rank modulo world_size. start <= n < 2^63.
 *
 * With parts, a window is parts * batch_size positions, and several batches of a rank are of the same window: see
 * beton_loader_options.parts. Then last is DROP. */
typedef struct bt_shard {
	uint64_t n;
	uint64_t start;
	uint32_t batch_size;
	uint32_t rank;
	uint32_t world_size;
	uint32_t parts; /* 0: positions go to the ranks in turn */
	uint32_t first_part, part_stride;
	beton_last last;
} bt_shard;

/* Number of this rank's batches from start to the end. */
uint64_t bt_shard_batches(const bt_shard *shard);

/* The first position of batch `batch`'s window, of all ranks. */
uint64_t bt_shard_window(const bt_shard *shard, uint64_t batch);

/* Number of this rank's samples in that window, and the position of the i-th, which may be n or more with PAD. */
uint32_t bt_shard_count(const bt_shard *shard, uint64_t batch);
uint64_t bt_shard_position(const bt_shard *shard, uint64_t batch, uint32_t i);

#endif
