/* SPDX-License-Identifier: Apache-2.0 */
#include "structure.h"

#include "common/error.h"
#include "format.h"
#include "reader.h"

typedef struct check {
	const beton_reader *reader;
	structure_report report;
	void *context;

	/* Whether the blobs with bytes stand one behind the other in the order of the table, or would if its first part
	 * were its last one: so they do in files of one writing process, and then no index is needed. */
	uint64_t first; /* pointer of the first one */
	uint64_t last;  /* of the latest one */
	uint64_t end;   /* its end */
	bool any;
	bool turned;
	bool disordered;
} check;

static int found(const check *self, const char *section, uint64_t offset, int64_t sample, const beton_error *fault)
{
	return self->report(self->context, section, offset, sample, fault) ? BETON_OK : BETON_FORMAT;
}

static int check_sections(const check *self, beton_error *err)
{
	const extension_block *block = &self->reader->extension;
	int result = BETON_OK;
	for (uint32_t i = 0; i < block->count && result == BETON_OK; i++) {
		beton_error fault;
		result = beton_extension_check(self->reader, &block->list[i], &fault);
		if (result == BETON_FORMAT)
			result = found(self, "extension block", block->list[i].offset, -1, &fault);
		else if (result != BETON_OK && err)
			*err = fault;
	}
	return result;
}

static int check_pieces(const check *self, const summed_part *part, beton_error *err)
{
	int result = BETON_OK;
	for (uint64_t from = 0; from < part->size && result == BETON_OK; from += part->piece) {
		uint64_t left = part->size - from;
		beton_error fault;
		result =
			beton_sums_touch(self->reader, part, from, left < part->piece ? left : part->piece, -1, &fault);
		if (result == BETON_FORMAT)
			result = found(self, part->name, part->offset + from, -1, &fault);
		else if (result != BETON_OK && err)
			*err = fault;
	}
	return result;
}

static void follow_order(check *self, const alloc_entry *entry)
{
	if (!self->any) {
		self->any = true;
		self->first = entry->pointer;
	} else if (entry->pointer >= self->last) {
		self->disordered |= entry->pointer < self->end;
	} else {
		self->disordered |= self->turned;
		self->turned = true;
	}
	self->last = entry->pointer;
	self->end = entry->pointer + entry->size;
	self->disordered |= self->turned && self->end > self->first;
}

static int check_entry(void *context, const alloc_entry *entry)
{
	check *self = context;
	const beton_reader *reader = self->reader;
	uint64_t offset = reader->info.alloc_table_offset + entry->number * ALLOC_ENTRY_SIZE;
	beton_error fault;
	const char *text = beton_alloc_fault(&reader->info, entry);
	if (!text && reader->info.ordered && entry->sample != entry->number / reader->num_blobs)
		text = "does not stand at its sample's place";
	if (!text) {
		if (entry->size)
			follow_order(self, entry);
		return BETON_OK;
	}
	beton_alloc_fail(reader, entry, text, &fault);
	bool known = entry->sample < reader->info.num_samples;
	return found(self, "allocation table", offset, known ? (int64_t)entry->sample : -1, &fault);
}

static int check_overlaps(const check *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	const alloc_index *index;
	const alloc_entry *last = NULL;
	int result = beton_alloc_index(reader, &index, err);
	for (uint64_t i = 0; result == BETON_OK && i < index->count; i++) {
		const alloc_entry *entry = &index->entries[i];
		if (entry->size == 0)
			continue;
		if (last && entry->pointer - last->pointer < last->size) {
			beton_error fault;
			bt_fail(&fault, BETON_FORMAT, "%s: allocations overlap at offset %llu (samples %llu and %llu)",
				reader->path, (unsigned long long)entry->pointer, (unsigned long long)last->sample,
				(unsigned long long)entry->sample);
			result = found(self, "allocation table",
				       reader->info.alloc_table_offset + entry->number * ALLOC_ENTRY_SIZE,
				       (int64_t)entry->sample, &fault);
		}
		if (!last || entry->pointer + entry->size > last->pointer + last->size)
			last = entry;
	}
	return result;
}

int beton_structure_check(const beton_reader *reader, structure_report report, void *context, beton_error *err)
{
	check self = {.reader = reader, .report = report, .context = context};
	int result = check_sections(&self, err);
	if (result == BETON_OK)
		result = check_pieces(&self, &reader->metadata, err);
	if (result == BETON_OK)
		result = check_pieces(&self, &reader->table, err);
	if (result == BETON_OK)
		result = beton_alloc_each(reader, check_entry, &self, err);
	if (result == BETON_OK && self.disordered)
		result = check_overlaps(&self, err);
	return result;
}

static bool keep_first(void *context, const char *section, uint64_t offset, int64_t sample, const beton_error *err)
{
	(void)section;
	(void)offset;
	(void)sample;
	beton_error *first = context;
	if (first)
		*first = *err;
	return false;
}

int beton_reader_check_structure(const beton_reader *reader, beton_error *err)
{
	return beton_structure_check(reader, keep_first, err, err);
}
