/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_FILE_H
#define BT_LOADER_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <beton/set.h>

/* In an aligned arena, buffers begin at multiples of this; footprints are multiples of it. */
enum { BT_ARENA_ALIGNMENT = 4096 };

typedef struct bt_files bt_files;

/* Descriptors of a file: files.c alone uses the members. */
typedef struct bt_descriptors {
	_Atomic uint32_t users;    /* loans; the highest bit: the file is not open */
	_Atomic uint32_t used;     /* the table's clock at the last loan */
	atomic_bool direct_failed; /* direct reads are refused: the page cache is used */
	int fd, direct_fd;         /* -1: none; they change only while the file is shut */
	/* Guarded by the table's lock. */
	bool opening;
	uint32_t listed; /* the clock when the file came to its place in the list */
	struct bt_file *previous, *next;
	/* Identity of the file; set by the first opening. */
	bool known;
	uint64_t device, inode, bytes;
	int64_t modified_s, modified_ns;
} bt_descriptors;

/* A file of the data set, whatever its kind: what engines, reports and plans of memory need to know. Constant after
 * open. */
typedef struct bt_file {
	bt_files *files;  /* the table that it is in */
	char *path;       /* the table's; of a file with a source its name */
	uint64_t size;    /* bytes */
	uint64_t end;     /* no blob reaches beyond this byte. Of a shard: right once its reader is open */
	uint64_t largest; /* bytes of the largest possible blob */

	/* For samples, not for streams. */
	uint64_t data_bytes;  /* of all blobs, with the gaps between them */
	uint32_t record_size; /* bytes */
	uint32_t shard;       /* number in the set */
	const beton_set *set; /* NULL: the file was named by itself */
	bool opening;         /* the data set opens its reader; guarded by its lock */

	/* A file that functions of the caller read. */
	const beton_reader *source; /* reads it; NULL: the file has descriptors */
	beton_io *io;               /* the caller's, without its strings; the table's memory */
	uint32_t in_flight;         /* reads at a time */
	bool immediate;             /* reads do not wait */

	bt_descriptors descriptors;
} bt_file;

#endif
