/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's memory for the blobs that it reads: a ring, whose parts are given back in the order they were taken.
 */
#ifndef BT_LOADER_ARENA_H
#define BT_LOADER_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each part is contiguous. Callers take multiples of one size. */
typedef struct bt_arena {
	uint8_t *memory;
	size_t size;
	size_t begin; /* of the oldest part */
	size_t end;   /* past the newest one */
	size_t wrap;  /* where parts end before they go on at 0, if end <= begin */
	uint32_t parts;
} bt_arena;

/* False: no room now. An empty ring always has room for bytes <= size. */
bool bt_arena_take(bt_arena *arena, size_t bytes, uint8_t **out);

/* Gives back the oldest part, which has this many bytes. */
void bt_arena_give(bt_arena *arena, size_t bytes);

#endif
