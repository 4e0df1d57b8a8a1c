/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole pages ahead of their use, for orders that need the file page by page: the system is told which part of the file
 * comes next and reads it in large pieces into the page cache, once for all ranks of a machine. */
#ifndef BT_LOADER_PAGES_H
#define BT_LOADER_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/loader.h>

/* Starts the thread that does it, if the loader's order and options are such. Where no thread can be started it goes
 * without. Errors: NO_MEMORY. */
int bt_pages_start(beton_loader *loader, beton_error *err);

/* Joins the thread, which has ended, unless it is the calling one; frees what it had. */
void bt_pages_close(beton_loader *loader);

/* With the lock held: the runs [*begin, *end) that an iterator needs by now and that were not announced yet; false:
 * there are none. */
bool bt_pages_due(const beton_iterator *iterator, uint64_t *begin, uint64_t *end);

/* With the lock held: an iterator has begun another batch, or the loader stops. */
void bt_pages_wake(beton_loader *loader);

#endif
