/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_ITERATOR_H
#define BT_LOADER_ITERATOR_H

#include <beton/loader.h>

#include "batch/slot.h"
#include "order/shard.h"

/* This rank's part of an epoch from a position on. */
bt_shard bt_shard_of(const beton_loader *loader, uint64_t position);

/* With the lock held. Tells the consumer that a batch is ready, or that none will be. */
void bt_iterator_wake(beton_iterator *iterator);

/* All below with the lock held. The epoch that the consumer is at. */
uint64_t bt_iterator_epoch(const beton_iterator *iterator);

/* Whether the next batch can be begun: its epoch's order is drawn. Makes the slot hold it. */
bool bt_iterator_has_order(const beton_iterator *iterator);
void bt_iterator_begin_batch(beton_iterator *iterator, bt_slot *slot);

/* Whether the consumer's next batch lacks its order for want of memory; lets the workers try again. */
bool bt_iterator_lacks_order(const beton_iterator *iterator);
void bt_iterator_retry_order(beton_iterator *iterator);

/* An iterator whose next epoch's order is to be drawn by the calling worker, with a reference; NULL: none. */
beton_iterator *bt_iterators_take_drawing(beton_loader *loader);

/* Draws it, unless the iterator was closed, and drops the reference. Releases the lock meanwhile. */
void bt_iterator_draw(beton_iterator *iterator);

/* Drops a reference; the last one frees the iterator. */
void bt_iterator_release(beton_iterator *iterator);

/* Without the lock. Detaches the open iterators from a loader that is about to be closed; from then on they answer
 * STATE. Takes the lock.
 */
void bt_iterators_leave(beton_loader *loader);

#endif
