/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_FILE_H
#define BT_LOADER_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

/* An open file of the data set, whatever its kind: what engines, reports and plans of memory need to know. Constant;
 * path and fd belong to the object that has the file open. */
typedef struct bt_file {
	const char *path;
	int fd;           /* for reading, through the page cache; -1: the file has a source */
	uint64_t size;    /* bytes */
	uint64_t end;     /* no blob reaches beyond this byte */
	uint64_t largest; /* bytes of the largest possible blob */

	/* A file that functions of the caller read. */
	const beton_reader *source; /* reads it; NULL: the file has a descriptor */
	uint32_t in_flight;         /* reads at a time */
	bool immediate;             /* reads do not wait */
} bt_file;

#endif
