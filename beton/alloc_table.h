/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocation table: which bytes of the pages belong to which sample. The size of a JPEG stands nowhere else.
 * Nothing says where in the table a sample's entries are, unless the extension block says that they are in order. */
#ifndef BETON_ALLOC_TABLE_H
#define BETON_ALLOC_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

typedef struct alloc_entry {
	uint64_t pointer;
	uint64_t sample;
	uint64_t size;
	uint64_t number; /* its place in the table */
} alloc_entry;

/* The good entries of a table, by pointer, then sample, then size. */
typedef struct alloc_index {
	uint64_t count;
	uint64_t left_out; /* entries that are damaged */
	alloc_entry entries[];
} alloc_index;

alloc_entry beton_alloc_unpack(const uint8_t *packed, uint64_t number);

/* What is wrong with an entry ("crosses the end of its page"), or NULL: one with bytes must lie in one page between
 * the metadata and data_end. */
const char *beton_alloc_fault(const beton_file_info *info, const alloc_entry *entry);

/* The same as an error, FORMAT. */
int beton_alloc_fail(const beton_reader *reader, const alloc_entry *entry, const char *fault, beton_error *err);

/* Calls take for all entries in their order until it returns something other than BETON_OK, which is returned. Errors
 * of its own: IO, FILE_CHANGED, NO_MEMORY. */
int beton_alloc_each(const beton_reader *reader, int (*take)(void *context, const alloc_entry *entry), void *context,
		     beton_error *err);

/* The index, made now if it does not exist yet; it belongs to the reader. Damaged entries are left out: what needs them
 * is not found. Errors: IO, FILE_CHANGED, NO_MEMORY. */
int beton_alloc_index(const beton_reader *reader, const alloc_index **out, beton_error *err);

/* The largest allocation of the sample that starts exactly at pointer, or NULL. Blobs without bytes share their pointer
 * with the blob that follows; *empty is such an entry, if there is one, else NULL. */
const alloc_entry *beton_alloc_find(const alloc_index *index, uint64_t pointer, uint64_t sample,
				    const alloc_entry **empty);

#endif
