/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads files' metadata, allocation tables and checksums like values: with the engines' table of system calls, their
 * retries, and their reports of late reads.
 */
#ifndef BT_LOADER_METADATA_H
#define BT_LOADER_METADATA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/io.h>

#include "file.h"

/* Concurrent reads that are tracked. Reads beyond these are not reported as late. */
enum { BT_METADATA_READS = 64 };

/* Reads of metadata of all files. Zero-initialise. Any thread may use it. */
typedef struct bt_metadata {
	struct {
		_Atomic uint64_t since; /* bt_now_ns; 0: no read */
		_Atomic uint64_t offset;
		_Atomic(const bt_file *) file;
	} reads[BT_METADATA_READS];
} bt_metadata;

/* Records a read, and its end. Returns the number that the end needs. */
int bt_metadata_begin(bt_metadata *self, const bt_file *file, uint64_t offset);
void bt_metadata_end(bt_metadata *self, int number);

/* beton_reader_options.read, whose context is a bt_file. */
int64_t bt_metadata_read(void *context, int fd, void *destination, size_t size, uint64_t offset);

/* The caller's source of a file, with its reads recorded; values are read through it too. Its `close` is left out. The
 * file outlives the reader. */
beton_io bt_metadata_source(bt_file *file);

/* The oldest read in flight: since when (bt_now_ns), its file and its offset. False: there is none. */
bool bt_metadata_stalled(const bt_metadata *metadata, uint64_t *since_ns, const bt_file **file, uint64_t *offset);

#endif
