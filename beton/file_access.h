/* SPDX-License-Identifier: Apache-2.0
 *
 * How a file is read: through a descriptor of its own, or one that the caller lends for each read.
 */
#ifndef BETON_FILE_ACCESS_H
#define BETON_FILE_ACCESS_H

#include <sys/stat.h>

#include <beton/beton.h>

#include "common/system.h"

typedef struct file_access {
	int fd;                 /* owned; -1: none */
	bt_read_function *read; /* NULL: pread */
	int (*borrow)(void *context, int *fd, beton_error *err);
	void (*give_back)(void *context, int fd);
	void *context; /* of the three functions, which come from beton_reader_options */
} file_access;

/* Opens path, unless descriptors are borrowed, and reads the file's status. The functions and fd -1 are set; close it
 * after a failure too. Errors: NOT_FOUND, ACCESS, IO, SYSTEM, INVALID_ARGUMENT (borrow or give_back is missing), and
 * borrow's. */
int bt_access_open(file_access *self, const char *path, struct stat *status, beton_error *err);
void bt_access_close(file_access *self);

/* Reads up to size bytes, fewer only at the end of the file. *got: bytes read; -1: an error, in errno. Errors:
 * borrow's. */
int bt_access_read(const file_access *self, void *destination, size_t size, uint64_t offset, ssize_t *got,
		   beton_error *err);

/* The result of a read of size bytes that read `got`; got and errno are as bt_access_read leaves them. Errors: IO and
 * the like, FILE_CHANGED (the file became shorter). */
int bt_access_result(const char *path, ssize_t got, size_t size, uint64_t offset, beton_error *err);

#endif
