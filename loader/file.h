/* SPDX-License-Identifier: Apache-2.0 */
#ifndef BT_LOADER_FILE_H
#define BT_LOADER_FILE_H

#include <stdint.h>

/* An open file of the data set, whatever its kind: what engines, reports and plans of memory need to know. Constant;
 * path and fd belong to the object that has the file open. */
typedef struct bt_file {
	const char *path;
	int fd;           /* for reading, through the page cache */
	uint64_t size;    /* bytes */
	uint64_t end;     /* no blob reaches beyond this byte */
	uint64_t largest; /* bytes of the largest possible blob */
} bt_file;

#endif
