/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads a file's metadata, allocation table and checksums like values: with the engines' table of system calls, their
 * retries, and their reports of late reads.
 */
#ifndef BT_LOADER_METADATA_H
#define BT_LOADER_METADATA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/io.h>

struct bt_io;

/* Concurrent reads of one file that are tracked. Reads beyond these are not reported as late. */
enum { BT_METADATA_READS = 16 };

/* Zero-initialise, but for io and source. Any thread may use it. */
typedef struct bt_metadata {
	const struct bt_io *io; /* NULL: the system's */
	beton_io source;        /* the caller's; read_at is NULL: the file has a path */
	struct {
		_Atomic uint64_t since; /* bt_now_ns; 0: no read */
		_Atomic uint64_t offset;
	} reads[BT_METADATA_READS];
} bt_metadata;

/* beton_reader_options.read, whose context is a bt_metadata. */
int64_t bt_metadata_read(void *context, int fd, void *destination, size_t size, uint64_t offset);

/* The caller's source, with its reads recorded; values are read through it too. Its `close` is left out. self outlives
 * the reader. */
beton_io bt_metadata_source(bt_metadata *self);

/* The oldest read in flight: since when (bt_now_ns), and its file offset. False: there is none. */
bool bt_metadata_stalled(const bt_metadata *metadata, uint64_t *since_ns, uint64_t *offset);

#endif
