/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker's memory for blobs on their way: a ring, whose parts are given back in the order in which they were taken.
 */
#ifndef BT_LOADER_ARENA_H
#define BT_LOADER_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Parts begin and end at multiples of the size that the caller uses; they are in one piece. */
typedef struct bt_arena {
	uint8_t *memory;
	size_t size;
	size_t begin; /* of the oldest part */
	size_t end;   /* behind the newest one */
	size_t wrap;  /* where parts end before they go on at 0, if end <= begin */
	uint32_t parts;
} bt_arena;

/* Fails (false) if it does not fit now; it does if the ring is empty and bytes <= size. */
bool bt_arena_take(bt_arena *arena, size_t bytes, uint8_t **out);

/* Gives the oldest part back, of that many bytes. */
void bt_arena_give(bt_arena *arena, size_t bytes);

#endif
