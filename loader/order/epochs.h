/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's batches in consecutive epochs, numbered from 0 through all of them: pure functions, O(1) memory and time.
 */
#ifndef BT_LOADER_EPOCHS_H
#define BT_LOADER_EPOCHS_H

#include <stdint.h>

#include "shard.h"

/* The first epoch may begin at any position; all others are whole. */
typedef struct bt_epochs {
	uint64_t first; /* the first epoch's number */
	uint64_t count; /* >= 1 */
	bt_shard rest;  /* of the first epoch */
	bt_shard whole; /* of each other */
	uint64_t rest_batches;
	uint64_t whole_batches;
} bt_epochs;

/* count: 0: as many as have numbers. Else first + count - 1 < 2^64. */
bt_epochs bt_epochs_make(const bt_shard *rest, uint64_t first, uint64_t count);

/* Batches of all epochs; UINT64_MAX if there are more. */
uint64_t bt_epochs_batches(const bt_epochs *epochs);

/* The number of the first batch of the epoch at index < count, and the number after its last. */
uint64_t bt_epochs_begin(const bt_epochs *epochs, uint64_t index);
uint64_t bt_epochs_end(const bt_epochs *epochs, uint64_t index);

/* The rank's part of that epoch. */
const bt_shard *bt_epochs_shard(const bt_epochs *epochs, uint64_t index);

#endif
