/* SPDX-License-Identifier: Apache-2.0 */
#include "alloc_table.h"

#include <errno.h>
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "format.h"

/* Entries are read and unpacked by pieces of this size, so that the packed table is never in memory as a whole. */
#define PIECE_ENTRIES 4096

static int compare_entries(const void *a, const void *b)
{
	const alloc_entry *left = a;
	const alloc_entry *right = b;
	if (left->pointer != right->pointer)
		return left->pointer < right->pointer ? -1 : 1;
	if (left->sample != right->sample)
		return left->sample < right->sample ? -1 : 1;
	return left->size < right->size ? -1 : left->size > right->size;
}

static int check_entry(const alloc_entry *entry, uint64_t index, const char *path, const beton_file_info *info,
		       beton_error *err)
{
	const char *fault = NULL;
	uint64_t end = info->alloc_table_offset;
	uint64_t data = info->metadata_offset + info->num_samples * info->record_size;
	if (entry->sample >= info->num_samples)
		fault = "belongs to no sample";
	else if (entry->size > info->page_size)
		fault = "is larger than a page";
	/* Where nothing is stored does not matter: FFCV puts an empty first blob a page in front of the pages. */
	else if (entry->pointer > end || entry->size > end - entry->pointer)
		fault = "reaches beyond the pages";
	else if (entry->size && entry->pointer < data)
		fault = "lies in the header or the metadata";
	else if (entry->size && entry->pointer % info->page_size + entry->size > info->page_size)
		fault = "crosses the end of its page";
	if (!fault)
		return BETON_OK;
	return bt_fail(err, BETON_FORMAT, "%s: allocation entry %llu (sample %llu, offset %llu, %llu bytes) %s", path,
		       (unsigned long long)index, (unsigned long long)entry->sample, (unsigned long long)entry->pointer,
		       (unsigned long long)entry->size, fault);
}

static int read_entries(alloc_table *table, int fd, const char *path, const beton_file_info *info, beton_error *err)
{
	uint8_t *piece = malloc(PIECE_ENTRIES * ALLOC_ENTRY_SIZE);
	if (!piece)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = BETON_OK;
	for (uint64_t first = 0; first < table->count && result == BETON_OK; first += PIECE_ENTRIES) {
		uint64_t left = table->count - first;
		size_t count = left < PIECE_ENTRIES ? (size_t)left : PIECE_ENTRIES;
		uint64_t offset = info->alloc_table_offset + first * ALLOC_ENTRY_SIZE;
		ssize_t got = bt_pread_full(fd, piece, count * ALLOC_ENTRY_SIZE, offset);
		if (got < 0)
			result = bt_fail_errno(err, errno, "%s: cannot read the allocation table at offset %llu", path,
					       (unsigned long long)offset);
		else if ((size_t)got != count * ALLOC_ENTRY_SIZE)
			result =
				bt_fail(err, BETON_FILE_CHANGED, "%s: the file became shorter while it was read", path);
		for (size_t i = 0; i < count && result == BETON_OK; i++) {
			const uint8_t *packed = piece + i * ALLOC_ENTRY_SIZE;
			alloc_entry *entry = &table->entries[first + i];
			*entry = (alloc_entry){load_u64(packed + 8), load_u64(packed), load_u64(packed + 16)};
			result = check_entry(entry, first + i, path, info, err);
		}
	}
	free(piece);
	return result;
}

/* FFCV's tables are in the order in which its workers finished; ours are sorted already, which saves the time. */
static void sort_entries(alloc_table *table)
{
	for (uint64_t i = 1; i < table->count; i++)
		if (compare_entries(&table->entries[i - 1], &table->entries[i]) > 0) {
			qsort(table->entries, (size_t)table->count, sizeof(*table->entries), compare_entries);
			return;
		}
}

static int check_overlap(const alloc_table *table, const char *path, beton_error *err)
{
	const alloc_entry *last = NULL;
	for (uint64_t i = 0; i < table->count; i++) {
		const alloc_entry *entry = &table->entries[i];
		if (entry->size == 0)
			continue;
		if (last && entry->pointer - last->pointer < last->size)
			return bt_fail(err, BETON_FORMAT,
				       "%s: allocations overlap at offset %llu (samples %llu and %llu)", path,
				       (unsigned long long)entry->pointer, (unsigned long long)last->sample,
				       (unsigned long long)entry->sample);
		last = entry;
	}
	return BETON_OK;
}

int beton_alloc_table_load(alloc_table *table, int fd, const char *path, const beton_file_info *info, beton_error *err)
{
	*table = (alloc_table){.count = info->alloc_entries};
	if (table->count == 0)
		return BETON_OK;
	if (table->count <= SIZE_MAX)
		table->entries = calloc((size_t)table->count, sizeof(*table->entries));
	if (!table->entries)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu allocation entries", path,
			       (unsigned long long)table->count);
	int result = read_entries(table, fd, path, info, err);
	if (result != BETON_OK)
		return result;
	sort_entries(table);
	return check_overlap(table, path, err);
}

/* The index of the first entry that is not in front of the key. */
static uint64_t lower_bound(const alloc_table *table, const alloc_entry *key)
{
	uint64_t low = 0;
	uint64_t high = table->count;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (compare_entries(&table->entries[middle], key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool matches(const alloc_table *table, uint64_t index, uint64_t pointer, uint64_t sample)
{
	return index < table->count && table->entries[index].pointer == pointer &&
	       table->entries[index].sample == sample;
}

const alloc_entry *beton_alloc_table_find(const alloc_table *table, uint64_t pointer, uint64_t sample, bool *has_empty)
{
	uint64_t first = lower_bound(table, &(alloc_entry){.pointer = pointer, .sample = sample});
	*has_empty = false;
	if (!matches(table, first, pointer, sample))
		return NULL;
	*has_empty = table->entries[first].size == 0;
	if (!*has_empty)
		return &table->entries[first];
	/* Searched for, not walked to: a hostile table can have any number of empty entries at one place. */
	uint64_t filled = lower_bound(table, &(alloc_entry){.pointer = pointer, .sample = sample, .size = 1});
	return &table->entries[matches(table, filled, pointer, sample) ? filled : first];
}
