/* SPDX-License-Identifier: Apache-2.0
 *
 * I/O engines read the bytes of blobs, of all files of a data set. Every engine gives the same bytes.
 *
 * Each worker has a lane, its own channel to the engine. The worker submits reads for the samples that it has claimed,
 * each into a part of its arena, and waits for them one by one, usually in that order, while later ones are in flight.
 */
#ifndef BT_LOADER_ENGINE_H
#define BT_LOADER_ENGINE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/beton.h>
#include <beton/loader.h>

#include "files.h"

typedef struct bt_engine bt_engine;
typedef struct bt_lane bt_lane;
struct bt_io;

/* One read. The worker sets file, offset and size, inside the file; the other members belong to the engine from submit
 * to wait. The struct must not move in between. Zero-initialise. */
typedef struct bt_read {
	bt_file *file;
	uint64_t offset; /* in the file */
	uint64_t size;   /* bytes */

	/* After wait: the bytes, in the buffer or in memory of the engine. Valid until the buffer is used again or the
	 * lane is closed. */
	const uint8_t *bytes;

	/* After submit: the data was not in memory and must come from the disk. After wait: the worker had to wait for
	 * the data. */
	bool missed;
	bool waited;

	/* The engine's own. */
	uint8_t *buffer;
	uint64_t start;   /* file offset of the buffer's first byte: <= offset, aligned for a direct read */
	uint64_t length;  /* bytes to read from start, at least up to the end of the blob */
	uint64_t done;    /* bytes of length that have been read */
	int fault;        /* errno that ended the read; 0: none */
	bool ended;       /* the file ended before the blob */
	bool direct;      /* past the page cache */
	bool fixed;       /* into a registered buffer */
	bool failed;      /* its lane has the reason */
	bool handed_over; /* to a thread that may still use the read */
	uint8_t state;
	uint16_t errors;  /* failures that were retried */
	uint16_t retries; /* interruptions in a row */
	bt_lease lease;   /* while it is being read */
	bt_lane *lane;
	struct bt_read *previous;
	struct bt_read *next;
} bt_read;

typedef struct bt_engine_config {
	bt_files *files; /* must outlive the engine. At least one has its path */
	uint32_t lanes;  /* >= 1 */
	uint32_t depth;  /* reads that a lane may have in flight, >= 1; the engine holds back more */
} bt_engine_config;

typedef struct bt_engine_api {
	const char *name;
	beton_engine kind;
	bool reads_sources; /* also files without a descriptor, by the functions of their owner */

	/* Errors: NO_MEMORY, SYSTEM (the system does not have or allow what the engine needs). */
	int (*open)(bt_engine **out, const bt_engine_config *config, beton_error *err);

	/* Bytes of arena that a read takes: a multiple of BT_ARENA_ALIGNMENT, at most a page for a blob inside one
	 * page; 0 if the engine has memory of its own for the bytes. */
	size_t (*footprint)(const bt_engine *engine, uint64_t offset, uint64_t size);

	/* Opens lane 0 <= lane < lanes, once. The arena outlives it; it may be NULL where footprints are 0. A lane is
	 * used by one thread at a time. Errors: NO_MEMORY, and bt_files_borrow's. */
	int (*lane_open)(bt_engine *engine, uint32_t lane, void *arena, size_t bytes, bt_lane **out, beton_error *err);

	/* Begins a read into `buffer`, which is a part of the arena of its footprint. Does not wait for data, but may
	 * open the file. wait reports failures. */
	void (*submit)(bt_lane *lane, bt_read *read, void *buffer);

	/* Waits until this read has ended. Errors, which name file and offset: IO, FILE_CHANGED (the file ends before
	 * the blob does), NO_MEMORY, and bt_files_borrow's. */
	int (*wait)(bt_lane *lane, bt_read *read, beton_error *err);

	/* Drops the reads that have not begun, and waits for those in flight without their results. Nothing may be
	 * submitted afterwards. Not in the child of a fork. */
	void (*lane_drain)(bt_lane *lane);

	/* Drains the lane and sets *lane to NULL. NULL is allowed. */
	void (*lane_close)(bt_lane **lane);

	/* After all lanes are closed. In the child of a fork, both only free the child's memory: the reads belong to
	 * the parent. */
	void (*close)(bt_engine **engine);
} bt_engine_api;

/* The first member of every lane: which read its worker waits for. Stall reports use it. */
struct bt_lane {
	_Atomic uint64_t waiting_since; /* bt_now_ns(); 0: the worker is not waiting for data */
	_Atomic uint64_t waiting_offset;
	_Atomic(const bt_file *) waiting_file;
};

/* Whether the lane's worker waits for data now; if so, since when (bt_now_ns) and for which file and offset. Any thread
 * may ask while the lane is open. */
bool bt_lane_stalled(const bt_lane *lane, uint64_t *since_ns, const bt_file **file, uint64_t *offset);

/* Opens the engine of that name. URING falls back to THREADS, with one line of log, where it does not work. AUTO is
 * URING for direct reads, which suit files that do not fit into memory, and THREADS otherwise, which costs nothing for
 * a file in the page cache. Errors: open's, INVALID_ARGUMENT (an engine that cannot read a file's source). */
int bt_engine_open(const bt_engine_api **api, bt_engine **out, beton_engine which, const bt_engine_config *config,
		   beton_error *err);

extern const bt_engine_api bt_engine_mmap;
extern const bt_engine_api bt_engine_threads;
extern const bt_engine_api bt_engine_uring;

#endif
