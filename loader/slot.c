/* SPDX-License-Identifier: Apache-2.0 */
#include "slot.h"

#include <stdlib.h>

static bool allocate(bt_slot *slot, const bt_outputs *outputs)
{
	slot->tensors = calloc(outputs->count, sizeof(*slot->tensors));
	if (!slot->tensors || posix_memalign(&slot->memory, BT_OUTPUT_ALIGNMENT, outputs->slot_bytes) != 0) {
		slot->memory = NULL;
		return false;
	}
	for (uint32_t i = 0; i < outputs->count; i++) {
		slot->tensors[i] = outputs->list[i].tensor;
		slot->tensors[i].data = (char *)slot->memory + outputs->list[i].offset;
	}
	slot->ids = (uint64_t *)((char *)slot->memory + outputs->ids_offset);
	return true;
}

bt_slot *bt_slots_new(const bt_outputs *outputs, uint32_t count, beton_loader *loader)
{
	bt_slot *slots = calloc(count, sizeof(*slots));
	for (uint32_t i = 0; slots && i < count; i++) {
		slots[i].loader = loader;
		if (!allocate(&slots[i], outputs)) {
			bt_slots_free(slots, count);
			return NULL;
		}
	}
	return slots;
}

void bt_slots_free(bt_slot *slots, uint32_t count)
{
	for (uint32_t i = 0; slots && i < count; i++) {
		bt_order_end(&slots[i].order);
		free(slots[i].tensors);
		free(slots[i].memory);
	}
	free(slots);
}

void bt_slot_begin(bt_slot *slot, const bt_outputs *outputs, const bt_order *order, const bt_shard *shard,
		   uint64_t epoch, uint64_t index)
{
	slot->state = BT_SLOT_FILLING;
	bt_order_end(&slot->order);
	slot->order = bt_order_retain(order);
	slot->shard = *shard;
	slot->index = index;
	slot->claimed = slot->finished = slot->workers = slot->failed = 0;
	slot->error.code = BETON_OK;
	slot->batch = (beton_batch){.epoch = epoch,
				    .position = bt_shard_window(shard, index),
				    .count = bt_shard_count(shard, index),
				    .num_tensors = outputs->count,
				    .tensors = slot->tensors,
				    .sample_ids = slot->ids};
	for (uint32_t i = 0; i < outputs->count; i++)
		slot->tensors[i].shape[0] = slot->batch.count;
}
