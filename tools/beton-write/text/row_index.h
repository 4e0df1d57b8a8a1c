/* SPDX-License-Identifier: Apache-2.0
 *
 * The places of a manifest's rows in its file, so that any thread can read any row.
 */
#ifndef BETON_WRITE_ROW_INDEX_H
#define BETON_WRITE_ROW_INDEX_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

/* The longest row: 16 MiB. */
#define ROW_BYTES_MAX (UINT32_C(1) << 24)

/* Row i is bytes offsets[i] .. offsets[i + 1] - 1. Memory: 8 bytes for each row. */
typedef struct row_index {
	int fd;
	const char *path;            /* the owner's */
	uint64_t size;               /* of the file */
	const atomic_int *interrupt; /* not 0: going through the lines ends with CANCELLED */
	uint64_t *offsets;
	uint64_t count;
	size_t capacity;
} row_index;

/* Opens the regular file at path, which must outlive the index; no rows yet. Errors: INVALID_ARGUMENT, and errors of
 * opening a file. */
int row_index_open(row_index *self, const char *path, const atomic_int *interrupt, beton_error *err);
void row_index_close(row_index *self);

/* Called with each line, its end included, from the begin of the file to its end. offset: where it begins. */
typedef int (*row_line_function)(void *data, const char *line, size_t size, uint64_t offset, beton_error *err);

/* Reads the file once, in bounded memory. Errors: IO, CANCELLED, INVALID_ARGUMENT (a line longer than ROW_BYTES_MAX),
 * and the function's. */
int row_index_each_line(const row_index *self, row_line_function function, void *data, beton_error *err);

/* A row ends at end; it begins where the one before ended. Errors: NO_MEMORY. */
int row_index_add(row_index *self, uint64_t begin, uint64_t end, beton_error *err);

/* Reads row i; *text (size bytes and a NUL) is the caller's to free. Any thread. Errors: IO, FILE_CHANGED, NO_MEMORY.
 */
int row_index_read(const row_index *self, uint64_t row, char **text, size_t *size, beton_error *err);

#endif
