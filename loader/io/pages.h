/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads pages ahead, for orders that go through the file page by page. It announces the next part of the file to the
 * system, which reads it in large pieces into the page cache, once for all ranks of a machine.
 */
#ifndef BT_LOADER_PAGES_H
#define BT_LOADER_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

/* Starts the thread that announces pages, if the loader's order and options need it. If no thread can be started,
 * nothing is announced. Errors: NO_MEMORY. */
int bt_pages_start(beton_loader *loader, beton_error *err);

/* Joins the thread, which has ended, unless it is the calling one, and frees its memory. */
void bt_pages_close(beton_loader *loader);

/* With the lock held. The runs [*begin, *end) of an epoch that an iterator needs now and that were not announced yet.
 * NULL: none. */
struct bt_epoch *bt_pages_due(beton_iterator *iterator, uint64_t *begin, uint64_t *end);

/* With the lock held. Call when an iterator begins another batch, or the loader stops. */
void bt_pages_wake(beton_loader *loader);

#endif
