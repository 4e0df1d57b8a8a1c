/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocation table, which assigns ranges of the pages to samples. It alone has the sizes of JPEGs. A sample's
 * entries can be anywhere in the table, unless the extension block says that the table is in order.
 */
#ifndef BETON_ALLOC_TABLE_H
#define BETON_ALLOC_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/beton.h>

typedef struct alloc_entry {
	uint64_t pointer;
	uint64_t sample;
	uint64_t size;
	uint64_t number; /* index in the table */
} alloc_entry;

/* The valid entries of a table, by pointer, then sample, then size. */
typedef struct alloc_index {
	uint64_t count;
	uint64_t left_out; /* number of damaged entries */
	alloc_entry entries[];
} alloc_index;

alloc_entry bt_alloc_unpack(const uint8_t *packed, uint64_t number);

/* The fault of an entry ("crosses the end of its page"), or NULL. An entry with bytes must lie in one page between the
 * metadata and data_end. */
const char *bt_alloc_fault(const beton_file_info *info, const alloc_entry *entry);

/* Fills err with the fault, and returns FORMAT. */
int bt_alloc_fail(const beton_reader *reader, const alloc_entry *entry, const char *fault, beton_error *err);

/* Calls take for all entries in order until it returns something other than BETON_OK, and returns that. Errors of its
 * own: IO, FILE_CHANGED, NO_MEMORY. */
int bt_alloc_each(const beton_reader *reader, int (*take)(void *context, const alloc_entry *entry), void *context,
		  beton_error *err);

/* Returns the index, which belongs to the reader, and builds it at the first call. It has no damaged entries, so values
 * that need those are not found. Errors: IO, FILE_CHANGED, NO_MEMORY. */
int bt_alloc_index(const beton_reader *reader, const alloc_index **out, beton_error *err);

/* The largest allocation of the sample that starts exactly at pointer, or NULL. Blobs without bytes share their pointer
 * with the next blob; *empty is such an entry, or NULL. */
const alloc_entry *bt_alloc_find(const alloc_index *index, uint64_t pointer, uint64_t sample,
				 const alloc_entry **empty);

#endif
