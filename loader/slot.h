/* SPDX-License-Identifier: Apache-2.0
 *
 * The fixed pool of slots that batches live in. */
#ifndef BT_LOADER_SLOT_H
#define BT_LOADER_SLOT_H

#include <beton/loader.h>

#include "order.h"
#include "outputs.h"
#include "shard.h"

typedef enum bt_slot_state {
	BT_SLOT_FREE = 0,
	BT_SLOT_FILLING,   /* workers are at it, or will be */
	BT_SLOT_READY,     /* waits for the consumer */
	BT_SLOT_LEASED,    /* the consumer's */
	BT_SLOT_ABANDONED, /* its epoch was left; free when the last worker has left it */
} bt_slot_state;

/* All members but those marked are guarded by the loader's lock. */
typedef struct bt_slot {
	beton_batch batch; /* first: the consumer's pointer is the slot's; constant while FILLING */
	beton_loader *loader;
	bt_slot_state state;
	bt_order order; /* a reference of its own; constant while FILLING, as the next two */
	bt_shard shard;
	uint64_t index;    /* of the batch, counted from the start of the run */
	uint32_t claimed;  /* samples that workers have taken */
	uint32_t finished; /* samples that are done, well or not */
	uint32_t workers;  /* workers that hold a claim */
	uint32_t failed;   /* position in the batch of the first sample that failed; only if error.code */
	beton_error error; /* code BETON_OK: none */
	beton_tensor *tensors;
	uint64_t *ids; /* written by the worker that holds the claim */
	void *memory;
} bt_slot;

/* count slots with their memory; NULL when there is none. */
bt_slot *bt_slots_new(const bt_outputs *outputs, uint32_t count, beton_loader *loader);
void bt_slots_free(bt_slot *slots, uint32_t count);

/* Makes a free slot hold batch `index` of a run, to be filled. */
void bt_slot_begin(bt_slot *slot, const bt_outputs *outputs, const bt_order *order, const bt_shard *shard,
		   uint64_t epoch, uint64_t index);

#endif
