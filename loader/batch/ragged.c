/* SPDX-License-Identifier: Apache-2.0 */
#include "ragged.h"

#include <string.h>

#include "common/error.h"
#include "slot.h"

_Static_assert(sizeof(bt_ragged_rows) == sizeof(bt_ragged_row), "rows and their header are placed as one array");

static bt_ragged_rows *rows_of(const bt_slot *slot, const bt_output *output)
{
	return (bt_ragged_rows *)((char *)slot->memory + output->rows);
}

uint64_t bt_ragged_room(const bt_output *output)
{
	return (uint64_t)output->tensor.shape[0];
}

static const char *room_option(const bt_output *output)
{
	return output->kind == BT_OUTPUT_STORED ? "stored_bytes" : "max_bytes";
}

void bt_ragged_begin(bt_slot *slot)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	for (uint32_t i = 0; outputs->ragged && i < outputs->count; i++)
		if (bt_is_ragged(&outputs->list[i]))
			atomic_init(&rows_of(slot, &outputs->list[i])->used, 0);
}

void bt_ragged_put(bt_slot *slot, uint32_t number, uint32_t row, const void *bytes, uint64_t size, bool lent)
{
	const bt_output *output = &slot->pool->outputs.list[number];
	bt_ragged_rows *rows = rows_of(slot, output);
	uint64_t room = bt_ragged_room(output);
	uint64_t start = atomic_fetch_add_explicit(&rows->used, size, memory_order_relaxed);
	bool fits = start <= room && size <= room - start;
	rows->rows[row] = (bt_ragged_row){fits ? bytes : NULL, size};
	if (!fits || lent)
		return;
	char *place = (char *)slot->memory + output->staging + start;
	if (size > 0)
		memcpy(place, bytes, (size_t)size);
	rows->rows[row].bytes = place;
}

/* Puts the values of the rows that are kept in order. */
static int finish(bt_slot *slot, uint32_t number, beton_error *err)
{
	const bt_output *output = &slot->pool->outputs.list[number];
	const bt_ragged_rows *rows = rows_of(slot, output);
	uint64_t used = atomic_load_explicit(&rows->used, memory_order_relaxed), room = bt_ragged_room(output);
	if (used > room)
		return bt_fail(err, BETON_NO_SPACE,
			       "epoch %llu, batch at position %llu: field '%s' has at least %llu bytes of values, and "
			       "there is room "
			       "for %llu (options %s, batch_size)",
			       (unsigned long long)slot->batch.epoch, (unsigned long long)slot->batch.position,
			       output->name, (unsigned long long)used, (unsigned long long)room, room_option(output));
	char *data = slot->tensors[number].data;
	int64_t *offsets = slot->tensors[number + 1].data;
	uint64_t total = 0;
	uint32_t kept = 0;
	offsets[0] = 0;
	for (uint32_t i = 0; i < slot->batch.count; i++) {
		if (slot->ids[i] == BT_NO_SAMPLE)
			continue;
		const bt_ragged_row *row = &rows->rows[i];
		if (row->size > 0)
			memcpy(data + total, row->bytes, row->size);
		total += row->size;
		offsets[++kept] = (int64_t)total;
	}
	slot->tensors[number].shape[0] = (int64_t)total;
	slot->tensors[number + 1].shape[0] = (int64_t)kept + 1;
	return BETON_OK;
}

int bt_ragged_finish(bt_slot *slot, beton_error *err)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	int result = BETON_OK;
	for (uint32_t i = 0; outputs->ragged && i < outputs->count && result == BETON_OK; i++)
		if (bt_is_ragged(&outputs->list[i]))
			result = finish(slot, i, err);
	return result;
}
