/* SPDX-License-Identifier: Apache-2.0 */
#include "alloc_table.h"

#include <stdlib.h>

#include "common/error.h"
#include "format.h"
#include "reader.h"

/* Entries in a piece: the packed table is read in pieces, so it is never in memory as a whole. */
#define PIECE_ENTRIES 4096

alloc_entry bt_alloc_unpack(const uint8_t *packed, uint64_t number)
{
	return (alloc_entry){.sample = load_u64(packed),
			     .pointer = load_u64(packed + 8),
			     .size = load_u64(packed + 16),
			     .number = number};
}

const char *bt_alloc_fault(const beton_file_info *info, const alloc_entry *entry)
{
	uint64_t end = info->data_end;
	uint64_t data = info->metadata_offset + info->num_samples * info->record_size;
	if (entry->sample >= info->num_samples)
		return "belongs to no sample";
	if (entry->size > info->page_size)
		return "is larger than a page";
	/* The place of an empty blob does not matter: FFCV puts an empty first blob one page before the pages. */
	if (entry->pointer > end || entry->size > end - entry->pointer)
		return "reaches beyond the pages";
	if (entry->size && entry->pointer < data)
		return "lies in the header or the metadata";
	if (entry->size && entry->pointer % info->page_size + entry->size > info->page_size)
		return "crosses the end of its page";
	return NULL;
}

int bt_alloc_fail(const beton_reader *reader, const alloc_entry *entry, const char *fault, beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: allocation entry %llu (sample %llu, offset %llu, %llu bytes) %s",
		       reader->path, (unsigned long long)entry->number, (unsigned long long)entry->sample,
		       (unsigned long long)entry->pointer, (unsigned long long)entry->size, fault);
}

int bt_alloc_each(const beton_reader *reader, int (*take)(void *context, const alloc_entry *entry), void *context,
		  beton_error *err)
{
	uint64_t total = reader->info.alloc_entries;
	uint8_t *piece = malloc(PIECE_ENTRIES * ALLOC_ENTRY_SIZE);
	if (!piece)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	int result = BETON_OK;
	for (uint64_t first = 0; first < total && result == BETON_OK; first += PIECE_ENTRIES) {
		uint64_t left = total - first;
		size_t count = left < PIECE_ENTRIES ? (size_t)left : PIECE_ENTRIES;
		result = bt_read_section(reader, "allocation table", piece, count * ALLOC_ENTRY_SIZE,
					 reader->info.alloc_table_offset + first * ALLOC_ENTRY_SIZE, err);
		for (size_t i = 0; i < count && result == BETON_OK; i++) {
			alloc_entry entry = bt_alloc_unpack(piece + i * ALLOC_ENTRY_SIZE, first + i);
			result = take(context, &entry);
		}
	}
	free(piece);
	return result;
}

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

typedef struct builder {
	const beton_file_info *info;
	alloc_index *index;
	bool sorted;
} builder;

static int add_entry(void *context, const alloc_entry *entry)
{
	builder *self = context;
	alloc_index *index = self->index;
	if (bt_alloc_fault(self->info, entry)) {
		index->left_out++;
		return BETON_OK;
	}
	if (index->count && compare_entries(&index->entries[index->count - 1], entry) > 0)
		self->sorted = false;
	index->entries[index->count++] = *entry;
	return BETON_OK;
}

static int build(const beton_reader *reader, alloc_index **out, beton_error *err)
{
	uint64_t count = reader->info.alloc_entries;
	alloc_index *index = NULL;
	if (count <= (SIZE_MAX - sizeof(*index)) / sizeof(alloc_entry))
		index = malloc(sizeof(*index) + (size_t)count * sizeof(alloc_entry));
	if (!index)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu allocation entries", reader->path,
			       (unsigned long long)count);
	index->count = index->left_out = 0;
	builder self = {&reader->info, index, true};
	int result = bt_alloc_each(reader, add_entry, &self, err);
	if (result != BETON_OK) {
		free(index);
		return result;
	}
	/* FFCV's workers append to the table as they finish; one worker's entries are sorted. */
	if (!self.sorted)
		qsort(index->entries, (size_t)index->count, sizeof(*index->entries), compare_entries);
	*out = index;
	return BETON_OK;
}

int bt_alloc_index(const beton_reader *reader, const alloc_index **out, beton_error *err)
{
	beton_reader *self = (beton_reader *)reader;
	*out = atomic_load_explicit(&self->index, memory_order_acquire);
	if (*out)
		return BETON_OK;
	pthread_mutex_lock(&self->lock);
	alloc_index *index = atomic_load_explicit(&self->index, memory_order_relaxed);
	int result = index ? BETON_OK : build(reader, &index, err);
	if (result == BETON_OK) {
		atomic_store_explicit(&self->index, index, memory_order_release);
		*out = index;
	}
	pthread_mutex_unlock(&self->lock);
	return result;
}

/* Index of the first entry that is not less than the key. */
static uint64_t lower_bound(const alloc_index *index, const alloc_entry *key)
{
	uint64_t low = 0;
	uint64_t high = index->count;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (compare_entries(&index->entries[middle], key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool matches(const alloc_index *index, uint64_t place, uint64_t pointer, uint64_t sample)
{
	return place < index->count && index->entries[place].pointer == pointer &&
	       index->entries[place].sample == sample;
}

const alloc_entry *bt_alloc_find(const alloc_index *index, uint64_t pointer, uint64_t sample, const alloc_entry **empty)
{
	*empty = NULL;
	uint64_t first = lower_bound(index, &(alloc_entry){.pointer = pointer, .sample = sample});
	if (!matches(index, first, pointer, sample))
		return NULL;
	if (index->entries[first].size)
		return &index->entries[first];
	*empty = &index->entries[first];
	/* A binary search, because a hostile table can have any number of empty entries at one pointer. */
	uint64_t filled = lower_bound(index, &(alloc_entry){.pointer = pointer, .sample = sample, .size = 1});
	return &index->entries[matches(index, filled, pointer, sample) ? filled : first];
}
