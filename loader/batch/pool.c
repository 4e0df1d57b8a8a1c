/* SPDX-License-Identifier: Apache-2.0 */
#include "slot.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/error.h"
#include "condition.h"
#include "ragged.h"
#include "views.h"

/* Touching a batch of 256 pictures takes 9,000 page faults, as floats 38,000; with huge pages a few dozen. */
enum { HUGE_PAGE = 2 << 20, HUGE_PAGES_FROM = 4 * HUGE_PAGE };

static void *allocate(const bt_pool *pool)
{
	const beton_allocator *allocator = &pool->allocator;
	size_t bytes = pool->outputs.slot_bytes;
	size_t alignment = bytes < HUGE_PAGES_FROM ? BT_OUTPUT_ALIGNMENT : HUGE_PAGE;
	void *memory = NULL;
	if (allocator->allocate)
		return allocator->allocate(allocator->context, bytes, BT_OUTPUT_ALIGNMENT);
	if (posix_memalign(&memory, alignment, bytes) != 0)
		return NULL;
	/* Without huge pages the memory has small ones. */
	if (alignment == HUGE_PAGE)
		madvise(memory, bytes, MADV_HUGEPAGE);
	return memory;
}

static void free_slot(bt_pool *pool, bt_slot *slot)
{
	const beton_allocator *allocator = &pool->allocator;
	if (!allocator->allocate)
		free(slot->memory);
	else if (slot->memory)
		allocator->release(allocator->context, slot->memory, pool->outputs.slot_bytes);
	bt_slot_end(slot);
	free(slot->tensors);
	free(slot);
}

static bt_slot *new_slot(bt_pool *pool)
{
	const bt_outputs *outputs = &pool->outputs;
	bt_slot *slot = calloc(1, sizeof(*slot));
	if (!slot)
		return NULL;
	slot->pool = pool;
	slot->tensors = calloc(outputs->count, sizeof(*slot->tensors));
	slot->memory = slot->tensors ? allocate(pool) : NULL;
	if (!slot->memory) {
		free_slot(pool, slot);
		return NULL;
	}
	for (uint32_t i = 0; i < outputs->count; i++) {
		slot->tensors[i] = outputs->list[i].tensor;
		slot->tensors[i].data = (char *)slot->memory + outputs->list[i].offset;
	}
	slot->ids = (uint64_t *)((char *)slot->memory + outputs->ids_offset);
	return slot;
}

int bt_pool_open(bt_pool **out, bt_outputs *outputs, const beton_allocator *allocator, beton_error *err)
{
	bt_pool *pool = calloc(1, sizeof(*pool));
	*out = NULL;
	if (!pool)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for batches");
	/* These fail only if memory is short, and on Linux not even then. */
	if (pthread_mutex_init(&pool->lock, NULL) != 0 || pthread_cond_init(&pool->work, NULL) != 0 ||
	    !bt_condition_open(&pool->ended)) {
		free(pool);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for a lock");
	}
	pool->owner = getpid();
	pool->references = 1;
	pool->allocator = *allocator;
	pool->outputs = *outputs;
	*outputs = BT_OUTPUTS_NONE;
	*out = pool;
	return BETON_OK;
}

void bt_pool_retain(bt_pool *pool)
{
	pool->references++;
}

void bt_pool_release(bt_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	bool last = --pool->references == 0;
	pthread_mutex_unlock(&pool->lock);
	if (!last)
		return;
	pthread_cond_destroy(&pool->work);
	pthread_cond_destroy(&pool->ended);
	pthread_mutex_destroy(&pool->lock);
	bt_outputs_free(&pool->outputs);
	free(pool);
}

void bt_pool_empty(bt_pool *pool)
{
	pthread_mutex_lock(&pool->lock);
	bt_slot *slots = pool->free;
	pool->free = NULL;
	pool->closed = true;
	pthread_mutex_unlock(&pool->lock);
	for (bt_slot *next; slots; slots = next) {
		next = slots->next;
		free_slot(pool, slots);
	}
}

int bt_pool_grow(bt_pool *pool, uint32_t count, beton_error *err)
{
	for (;;) {
		pthread_mutex_lock(&pool->lock);
		bool enough = pool->count >= count;
		pthread_mutex_unlock(&pool->lock);
		if (enough)
			return BETON_OK;
		bt_slot *slot = new_slot(pool);
		if (!slot)
			return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u batches of %zu bytes", count,
				       pool->outputs.slot_bytes);
		pthread_mutex_lock(&pool->lock);
		pool->count++;
		bt_pool_give(pool, slot);
		pthread_mutex_unlock(&pool->lock);
	}
}

int bt_refuse_child(const bt_pool *pool, beton_error *err)
{
	if (pool->owner == getpid())
		return BETON_OK;
	return bt_fail(err, BETON_STATE,
		       "the loader was opened in process %ld; its threads do not exist in this fork (process %ld)",
		       (long)pool->owner, (long)getpid());
}

bt_slot *bt_pool_take(bt_pool *pool)
{
	bt_slot *slot = pool->free;
	if (slot)
		pool->free = slot->next;
	return slot;
}

void bt_pool_give(bt_pool *pool, bt_slot *slot)
{
	slot->state = BT_SLOT_FREE;
	slot->next = pool->free;
	pool->free = slot;
	pthread_cond_broadcast(&pool->work);
}

/* Tensors have the shape of this batch's rows, and pictures the size that its iterator has. */
static void set_shapes(bt_slot *slot)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	for (uint32_t i = 0; i < outputs->count; i++) {
		const bt_output *output = &outputs->list[i];
		int64_t *shape = slot->tensors[i].shape;
		if (output->kind == BT_OUTPUT_IMAGE) {
			const bt_view *view = &slot->views->list[output->view];
			beton_tensor tensor =
				bt_outputs_describe_image(view->image, view->format.channels, slot->batch.count);
			memcpy(shape, tensor.shape, sizeof(tensor.shape));
		} else if (!output->whole) {
			shape[0] = slot->batch.count;
		}
	}
}

size_t bt_slot_row_bytes(const bt_slot *slot, const bt_output *output)
{
	return output->kind == BT_OUTPUT_IMAGE ? bt_image_format_bytes(&slot->views->list[output->view].format)
					       : output->sample_bytes;
}

void bt_slot_begin(bt_slot *slot, const bt_order *order, const bt_shard *shard, bt_views *views, uint64_t epoch,
		   uint64_t index)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	slot->state = BT_SLOT_FILLING;
	atomic_store_explicit(&slot->abandoned, false, memory_order_relaxed);
	slot->order = bt_order_retain(order);
	slot->views = bt_views_retain(views);
	slot->shard = *shard;
	slot->index = index;
	slot->claimed = slot->finished = slot->failed = 0;
	slot->lost = false;
	slot->error.code = BETON_OK;
	slot->batch = (beton_batch){.epoch = epoch,
				    .position = bt_shard_window(shard, index),
				    .count = bt_shard_count(shard, index),
				    .num_tensors = outputs->count,
				    .tensors = slot->tensors,
				    .sample_ids = slot->ids};
	set_shapes(slot);
	bt_ragged_begin(slot);
}

void bt_slot_end(bt_slot *slot)
{
	bt_order_end(&slot->order);
	bt_views_release(&slot->views);
}

void bt_slot_complete(bt_slot *slot)
{
	const bt_outputs *outputs = &slot->pool->outputs;
	uint32_t kept = 0;
	for (uint32_t row = 0; row < slot->batch.count; row++) {
		if (slot->ids[row] == BT_NO_SAMPLE)
			continue;
		for (uint32_t i = 0; kept != row && i < outputs->count; i++) {
			size_t bytes = bt_slot_row_bytes(slot, &outputs->list[i]);
			char *data = slot->tensors[i].data;
			memcpy(data + kept * bytes, data + row * bytes, bytes);
		}
		slot->ids[kept++] = slot->ids[row];
	}
	slot->batch.count = kept;
	for (uint32_t i = 0; i < outputs->count; i++)
		if (!outputs->list[i].whole)
			slot->tensors[i].shape[0] = kept;
}

void beton_batch_retain(beton_batch *batch)
{
	if (!batch)
		return;
	bt_slot *slot = (bt_slot *)batch; /* the first member of the slot */
	atomic_fetch_add_explicit(&slot->references, 1, memory_order_relaxed);
}

void beton_batch_release(beton_batch **batch)
{
	if (!batch || !*batch)
		return;
	bt_slot *slot = (bt_slot *)*batch;
	bt_pool *pool = slot->pool;
	*batch = NULL;
	/* In the child of a fork the lock may be held by a thread that does not exist there. */
	if (pool->owner != getpid() || atomic_fetch_sub_explicit(&slot->references, 1, memory_order_acq_rel) > 1)
		return;
	pthread_mutex_lock(&pool->lock);
	bool closed = pool->closed;
	pool->leased--;
	if (!closed)
		bt_pool_give(pool, slot);
	pthread_mutex_unlock(&pool->lock);
	/* The caller's allocator must not be called with the lock held. */
	if (closed)
		free_slot(pool, slot);
	bt_pool_release(pool);
}
