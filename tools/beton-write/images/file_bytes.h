/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole small file in memory. */
#ifndef BETON_WRITE_FILE_BYTES_H
#define BETON_WRITE_FILE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

/* The largest file that becomes a value of one sample: 1 GiB. */
#define FILE_BYTES_MAX (INT64_C(1) << 30)

/* data is the owner's to free; NULL when size is 0. */
typedef struct file_bytes {
	uint8_t *data;
	size_t size;
} file_bytes;

/* Reads the regular file at path, 0 to FILE_BYTES_MAX bytes, into new memory. Errors: NOT_FOUND, ACCESS, IO, NO_MEMORY,
 * FILE_CHANGED, SAMPLE_CORRUPT (not a regular file, or too large); nothing is left to free then. */
int file_bytes_read(const char *path, file_bytes *file, beton_error *err);

#endif
