/* SPDX-License-Identifier: Apache-2.0 */
#include "index_room.h"

#include <stdlib.h>

#include "alloc_table.h"
#include "common/error.h"
#include "format.h"
#include "reader.h"

/* The room that values take in a file. */
typedef struct taken {
	const beton_reader *reader;
	uint8_t *pages;  /* a bit for each page of the file that has a value */
	uint64_t lowest; /* where the first value begins */
	uint64_t end;    /* of the last value */
} taken;

static int note_entry(void *context, const alloc_entry *entry)
{
	taken *self = context;
	const beton_file_info *info = &self->reader->info;
	if (bt_alloc_fault(info, entry))
		return BETON_FORMAT;
	/* An empty value is not read. */
	if (entry->size == 0)
		return BETON_OK;
	uint64_t page = entry->pointer / info->page_size, end = entry->pointer + entry->size;
	self->pages[page / 8] |= (uint8_t)(1u << page % 8);
	self->lowest = entry->pointer < self->lowest ? entry->pointer : self->lowest;
	self->end = end > self->end ? end : self->end;
	return BETON_OK;
}

/* The beginning of a run of pages without a value that lies among the others and has `size` bytes; 0: there is none. */
static uint64_t find_pages(const taken *self, uint64_t size)
{
	uint64_t page_size = self->reader->info.page_size, run = 0;
	for (uint64_t page = self->lowest / page_size; page < self->end / page_size; page++) {
		run = self->pages[page / 8] >> page % 8 & 1 ? 0 : run + 1;
		if (run * page_size >= size)
			return (page + 1 - run) * page_size;
	}
	return 0;
}

static uint64_t round_down(uint64_t value)
{
	return value / 8 * 8;
}

int bt_index_find_room(const beton_reader *reader, uint64_t size, index_room *out, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	uint64_t metadata_end = info->metadata_offset + info->num_samples * info->record_size;
	uint64_t limit = info->has_extension ? reader->extension.begin : info->alloc_table_offset - FOOTER_SIZE;
	taken self = {.reader = reader, .lowest = UINT64_MAX, .end = metadata_end};
	*out = (index_room){0};
	self.pages = calloc((size_t)(info->file_size / info->page_size / 8 + 1), 1);
	if (!self.pages)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	int result = bt_alloc_each(reader, note_entry, &self, err);
	if (result == BETON_FORMAT)
		bt_fail(err, result, "%s: its allocation table is damaged", reader->path);
	if (result == BETON_OK && limit >= self.end && limit - self.end >= size + 8)
		*out = (index_room){round_down(limit - size), true};
	else if (result == BETON_OK && self.lowest != UINT64_MAX && self.lowest - metadata_end >= size + 8)
		*out = (index_room){round_down(self.lowest - size), false};
	else if (result == BETON_OK && self.lowest != UINT64_MAX)
		*out = (index_room){find_pages(&self, size), false};
	free(self.pages);
	return result;
}
