/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_ITERATOR_H
#define BT_LOADER_ITERATOR_H

#include <beton/loader.h>

#include "order/shard.h"

/* This rank's part of an epoch from a position on. */
bt_shard bt_shard_of(const beton_loader *loader, uint64_t position);

/* With the lock held. Tells the consumer that a batch is ready, or that none will be. */
void bt_iterator_wake(beton_iterator *iterator);

/* Detaches the open iterators from a loader that is about to be closed; from then on they answer STATE. Takes the lock.
 */
void bt_iterators_leave(beton_loader *loader);

#endif
