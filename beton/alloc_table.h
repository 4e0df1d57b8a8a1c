/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocation table: which bytes of the pages belong to which sample. The size of a JPEG stands nowhere else. */
#ifndef BETON_ALLOC_TABLE_H
#define BETON_ALLOC_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

typedef struct alloc_entry {
	uint64_t pointer;
	uint64_t sample;
	uint64_t size;
} alloc_entry;

/* Sorted by pointer, then sample, then size. */
typedef struct alloc_table {
	alloc_entry *entries;
	uint64_t count;
} alloc_table;

/* Reads info->alloc_entries entries, sorts and checks them. Every entry with bytes must lie in one page between the
 * metadata and the table and overlap no other. The caller frees entries, on failure too. Errors: FORMAT, IO,
 * FILE_CHANGED, NO_MEMORY. */
int beton_alloc_table_load(alloc_table *table, int fd, const char *path, const beton_file_info *info, beton_error *err);

/* The largest allocation of the sample that starts exactly at pointer, or NULL. Blobs without bytes share their pointer
 * with the blob that follows; *has_empty says whether there is an empty one too. */
const alloc_entry *beton_alloc_table_find(const alloc_table *table, uint64_t pointer, uint64_t sample, bool *has_empty);

#endif
