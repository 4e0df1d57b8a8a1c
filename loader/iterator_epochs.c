/* SPDX-License-Identifier: Apache-2.0
 *
 * From one epoch of an iterator to the next: the orders, and the batches that are begun.
 */
#include <stdlib.h>

#include "common/error.h"
#include "io/pages.h"
#include "iterator.h"
#include "state.h"

uint64_t bt_iterator_epoch(const beton_iterator *iterator)
{
	return iterator->epochs.first + iterator->current;
}

/* The number after the last batch of the epoch whose batches are begun. */
static uint64_t filling_end(const beton_iterator *iterator)
{
	return bt_epochs_end(&iterator->epochs, iterator->filling.index);
}

bool bt_iterator_has_order(const beton_iterator *iterator)
{
	return iterator->begun < filling_end(iterator) || iterator->following.order.orders;
}

bool bt_iterator_lacks_order(const beton_iterator *iterator)
{
	return iterator->order_error.code && iterator->delivered == iterator->begun &&
	       iterator->delivered < bt_epochs_end(&iterator->epochs, iterator->current);
}

void bt_iterator_retry_order(beton_iterator *iterator)
{
	iterator->order_error.code = BETON_OK;
	pthread_cond_broadcast(&iterator->pool->work);
}

void bt_iterator_begin_batch(beton_iterator *iterator, bt_slot *slot)
{
	const bt_epochs *epochs = &iterator->epochs;
	if (iterator->begun == filling_end(iterator)) {
		bt_order_end(&iterator->filling.order);
		iterator->filling = iterator->following;
		iterator->following = (bt_epoch){0};
	}
	uint64_t index = iterator->filling.index;
	bt_slot_begin(slot, &iterator->filling.order, bt_epochs_shard(epochs, index), iterator->views,
		      epochs->first + index, iterator->begun - bt_epochs_begin(epochs, index));
	slot->iterator = iterator;
	iterator->in_flight[iterator->begun++ % iterator->loader->options.batches_ahead] = slot;
	bt_pages_wake(iterator->loader);
}

/* Once the consumer has a batch of an epoch, its workers are ahead, and the order of the epoch before is no longer
 * needed. */
static bool wants_order(const beton_iterator *iterator)
{
	const bt_epochs *epochs = &iterator->epochs;
	const bt_epoch *filling = &iterator->filling;
	bool missing = filling->index + 1 < epochs->count && epochs->whole_batches > 0 &&
		       !iterator->following.order.orders && !iterator->is_drawing && !iterator->order_error.code;
	return missing && (iterator->begun == filling_end(iterator) ||
			   iterator->delivered > bt_epochs_begin(epochs, filling->index));
}

beton_iterator *bt_iterators_take_drawing(beton_loader *loader)
{
	for (beton_iterator *i = loader->iterators; i; i = i->next)
		if (wants_order(i)) {
			i->is_drawing = true;
			i->references++;
			return i;
		}
	return NULL;
}

void bt_iterator_draw(beton_iterator *iterator)
{
	bt_pool *pool = iterator->pool;
	bt_epoch next = {.index = iterator->filling.index + 1};
	bt_orders *orders = iterator->loader ? iterator->loader->orders : NULL;
	beton_error err = {.sample = -1};
	int result = BETON_CANCELLED;
	if (orders) {
		pthread_mutex_unlock(&pool->lock);
		result = bt_order_begin(&next.order, orders, iterator->epochs.first + next.index, &err);
		pthread_mutex_lock(&pool->lock);
	}
	iterator->is_drawing = false;
	if (result || !iterator->loader) {
		bt_order_end(&next.order);
		iterator->order_error = err;
	} else {
		iterator->following = next;
		pthread_cond_broadcast(&pool->work);
		bt_pages_wake(iterator->loader);
	}
	if (iterator->loader && result)
		bt_iterator_wake(iterator);
	bt_iterator_release(iterator);
}

void bt_iterator_release(beton_iterator *iterator)
{
	if (--iterator->references == 0)
		free(iterator);
}
