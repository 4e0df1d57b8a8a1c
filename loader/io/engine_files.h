/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the engines that read into buffers: the next step of a read after each answer of the system, and reasons of
 * failures that have no error number.
 */
#ifndef BT_LOADER_ENGINE_FILES_H
#define BT_LOADER_ENGINE_FILES_H

#include <sys/types.h>

#include "common/system.h"
#include "engine.h"
#include "io.h"

size_t bt_read_footprint(const bt_files *files, uint64_t offset, uint64_t size);

/* The next request to the system. */
typedef struct bt_piece {
	int fd;
	uint64_t offset;
	uint8_t *to;
	size_t size;
} bt_piece;

/* Prepares a read. direct: past the page cache, if that has worked so far. False: the read is over already. */
bool bt_read_begin(bt_read *read, void *buffer, bool direct);

/* Gives a read the descriptors that it needs for its pieces. */
void bt_read_lend(bt_read *read, bt_lease lease);
bt_piece bt_read_piece(const bt_read *read);

/* Takes the system's answer to the piece: bytes, 0 at the end of the file, or -errno. True: request the next piece,
 * which may be the same again. False: the read is over. */
bool bt_read_advance(bt_read *read, ssize_t answer);

/* Reads the rest in the calling thread; the read has its descriptors. */
void bt_read_rest(bt_read *read);

/* Calls around a worker's wait for a read, for bt_lane_stalled. */
static inline void bt_lane_begin_wait(bt_lane *lane, bt_read *read)
{
	read->waited = true;
	atomic_store_explicit(&lane->waiting_file, read->file, memory_order_relaxed);
	atomic_store_explicit(&lane->waiting_offset, read->offset, memory_order_relaxed);
	atomic_store(&lane->waiting_since, bt_now_ns());
}

static inline void bt_lane_end_wait(bt_lane *lane)
{
	atomic_store_explicit(&lane->waiting_since, 0, memory_order_relaxed);
}

/* The result of a read that is over and has no failure: sets bytes, or fills err. */
int bt_read_outcome(bt_read *read, beton_error *err);

/* Why a read failed, if that is more than an error number, until its worker asks. */
typedef struct bt_failure bt_failure;

/* A failure of this read, which is over then. NULL: out of memory, and that is the read's reason. */
bt_failure *bt_failure_make(bt_read *read, int result, const beton_error *why);
void bt_failure_note(bt_failure **list, bt_failure *failure);

/* Takes a failed read's failure out of the list. The caller frees it; NULL: there is none. */
bt_failure *bt_failure_take(bt_failure **list, const bt_read *read);
int bt_failure_tell(const bt_failure *failure, beton_error *err);
void bt_failures_free(bt_failure **list);

#endif
