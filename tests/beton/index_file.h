/* SPDX-License-Identifier: Apache-2.0
 *
 * Files with JPEGs that have no index yet, and chosen free space. */
#ifndef TESTS_BETON_INDEX_FILE_H
#define TESTS_BETON_INDEX_FILE_H

#include <stdbool.h>
#include <stdint.h>

enum {
	INDEX_JPEGS = 12, /* the first samples; further ones have a raw picture of one pixel */
	INDEX_ALL = 1 << 20,
};

typedef struct index_file {
	bool plain;        /* without extension block, as FFCV's are */
	bool tight;        /* so many samples that their metadata leave less than 200 bytes before the pages */
	uint64_t tail;     /* free bytes after the last value; INDEX_ALL: as it comes */
	uint32_t shift;    /* the allocation table is that many bytes further, at most 512 */
	uint32_t page_gap; /* a page without a value after the first page */
} index_file;

/* Makes the file `name` in the folder; returns its path. */
const char *index_file_make(const char *name, const index_file *wanted);

/* A hash of the values of all samples, and of what the allocation table says about them. */
uint64_t index_file_content(const char *path);

/* Whether two files have the same bytes. */
bool index_file_same(const char *path, const char *other);

/* Copies a file; returns the path of the copy in the folder. */
const char *index_file_copy(const char *path, const char *name);

#endif
