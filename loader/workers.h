/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker threads and the queue that they share. */
#ifndef BT_LOADER_WORKERS_H
#define BT_LOADER_WORKERS_H

#include <beton/loader.h>

#include "batch/slot.h"
#include "io/file.h"

/* Starts options.num_threads workers. After a failure, those already started must still be ended. Errors: SYSTEM,
 * NO_MEMORY. */
int bt_workers_start(beton_loader *loader, beton_error *err);

/* Joins the workers, which have ended, except the calling thread; closes their lanes and frees them. */
void bt_workers_close(beton_loader *loader);

/* With the lock held. Abandons the iterator's batches that its consumer has not got. */
void bt_queue_abandon(beton_iterator *iterator);

/* With the lock held. The slot of the consumer's next batch; NULL: none is begun. */
bt_slot *bt_queue_head(const beton_iterator *iterator);

/* A read that a worker waits for. */
typedef struct bt_stall {
	uint64_t since_ns; /* bt_now_ns */
	uint64_t offset;   /* in the file */
	const bt_file *file;
} bt_stall;

/* With the lock held. The read, of values or of metadata, that has been waited for longest. False: there is none. */
bool bt_workers_stalled(const beton_loader *loader, bt_stall *out);

#endif
