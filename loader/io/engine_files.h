/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the engines that read into buffers: the file, opened for buffered and direct reads, and the next step of a
 * read after each answer of the system.
 */
#ifndef BT_LOADER_ENGINE_FILE_H
#define BT_LOADER_ENGINE_FILE_H

#include <sys/types.h>

#include "common/system.h"
#include "engine.h"
#include "io.h"

typedef struct bt_engine_file {
	const bt_file *file;
	const bt_io *io;
	void (*log)(void *context, beton_log_level level, const char *line);
	void *log_context;
	int fd;               /* through the page cache; the file's */
	int direct_fd;        /* -1: none */
	uint32_t alignment;   /* of offsets and lengths of direct reads; 1 if there are none */
	atomic_bool direct;   /* direct reads have worked so far */
	atomic_bool was_told; /* one line of log was written */
} bt_engine_file;

/* Cannot fail: a file that cannot be read directly is read through the page cache, with one line of log. */
void bt_engine_file_open(bt_engine_file *file, const bt_engine_config *config);
void bt_engine_file_close(bt_engine_file *file);

/* Writes a line of log that begins with the file's name; at most one in an engine's life. */
BETON_PRINTF(2, 3) void bt_engine_file_tell(bt_engine_file *file, const char *format, ...);

size_t bt_engine_file_footprint(const bt_engine_file *file, uint64_t offset, uint64_t size);

/* The next request to the system. */
typedef struct bt_piece {
	int fd;
	uint64_t offset;
	uint8_t *to;
	size_t size;
} bt_piece;

/* Prepares a read. False: the read is over already. */
bool bt_read_begin(bt_engine_file *file, bt_read *read, void *buffer);
bt_piece bt_read_piece(const bt_engine_file *file, const bt_read *read);

/* Takes the system's answer to the piece: bytes, 0 at the end of the file, or -errno. True: request the next piece,
 * which may be the same again. False: the read is over. */
bool bt_read_advance(bt_engine_file *file, bt_read *read, ssize_t answer);

/* Reads the rest in the calling thread. */
void bt_read_rest(bt_engine_file *file, bt_read *read);

/* Calls around a worker's wait for a read, for bt_lane_stalled. */
static inline void bt_lane_begin_wait(bt_lane *lane, bt_read *read)
{
	read->waited = true;
	atomic_store_explicit(&lane->waiting_offset, read->offset, memory_order_relaxed);
	atomic_store(&lane->waiting_since, bt_now_ns());
}

static inline void bt_lane_end_wait(bt_lane *lane)
{
	atomic_store_explicit(&lane->waiting_since, 0, memory_order_relaxed);
}

/* The result of a read that is over: sets bytes, or fills err. */
int bt_read_outcome(const bt_engine_file *file, bt_read *read, beton_error *err);

#endif
