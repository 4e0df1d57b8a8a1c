/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

bool bt_arena_take(bt_arena *arena, size_t bytes, uint8_t **out)
{
	if (arena->parts == 0)
		arena->begin = arena->end = 0;
	bool wrapped = arena->parts > 0 && arena->end <= arena->begin;
	size_t limit = wrapped ? arena->begin : arena->size;
	if (bytes > limit - arena->end) {
		/* No room after the newest part; perhaps before the oldest. */
		if (wrapped || bytes > arena->begin)
			return false;
		arena->wrap = arena->end;
		arena->end = 0;
	}
	*out = arena->memory + arena->end;
	arena->end += bytes;
	arena->parts++;
	return true;
}

void bt_arena_give(bt_arena *arena, size_t bytes)
{
	bool wrapped = arena->end <= arena->begin;
	arena->begin += bytes;
	arena->parts--;
	if (wrapped && arena->begin == arena->wrap)
		arena->begin = 0;
}
