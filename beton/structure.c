/* SPDX-License-Identifier: Apache-2.0 */
#include "structure.h"

#include <stdlib.h>
#include <string.h>

#include "alloc_table.h"
#include "common/error.h"
#include "extension.h"
#include "fields.h"
#include "format.h"
#include "reader.h"
#include "sources.h"
#include "sums.h"
#include "types/types.h"

typedef struct check {
	const beton_reader *reader;
	structure_report report;
	void *context;
	bool samples;    /* also report damaged values */
	uint64_t faults; /* number reported */

	uint64_t lowest; /* least pointer of a blob with bytes */
	uint64_t filled; /* number of entries with bytes */
	uint8_t *taken;  /* a bit for each entry that belongs to a value */
	uint64_t owned;  /* number of these bits */

	/* Whether the blobs with bytes follow each other in the order of the table, or of a rotation of it. They do in
	 * files of one writing process, and then no index is needed. */
	uint64_t first; /* pointer of the first blob */
	uint64_t last;  /* pointer of the last blob so far */
	uint64_t end;   /* its end */
	bool any;
	bool turned;
	bool disordered;
} check;

static int found(check *self, const char *section, uint64_t offset, int64_t sample, const beton_error *fault)
{
	self->faults++;
	return self->report(self->context, section, offset, sample, fault) ? BETON_OK : BETON_FORMAT;
}

static int check_fields(check *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	uint8_t descriptor[FIELD_SIZE];
	int result = BETON_OK;
	for (uint32_t i = 0; i < reader->info.num_fields && result == BETON_OK; i++) {
		uint64_t offset = HEADER_SIZE + (uint64_t)i * FIELD_SIZE;
		result = bt_read_section(reader, "list of fields", descriptor, FIELD_SIZE, offset, err);
		if (result != BETON_OK)
			break;
		const char *text = bt_field_contradiction(descriptor, &reader->fields[i]);
		beton_error fault;
		if (!text)
			continue;
		bt_fail(&fault, BETON_FORMAT, "%s: field %u of %u ('%s'): %s", reader->path, i, reader->info.num_fields,
			reader->fields[i].name, text);
		result = found(self, "fields", offset, -1, &fault);
	}
	return result;
}

static int check_sections(check *self, beton_error *err)
{
	const extension_block *block = &self->reader->extension;
	int result = BETON_OK;
	for (uint32_t i = 0; i < block->count && result == BETON_OK; i++) {
		beton_error fault;
		result = bt_extension_check(self->reader, &block->list[i], &fault);
		if (result == BETON_FORMAT)
			result = found(self, "extension block", block->list[i].offset, -1, &fault);
		else if (result != BETON_OK && err)
			*err = fault;
	}
	if (result == BETON_OK && self->faults == 0 && self->reader->info.has_sources) {
		beton_error fault;
		result = bt_sources_check(self->reader, &fault);
		if (result == BETON_FORMAT)
			result = found(self, "extension block", block->known[SECTION_SOURCES].offset, -1, &fault);
		else if (result != BETON_OK && err)
			*err = fault;
	}
	return result;
}

static int check_pieces(check *self, const summed_part *part, beton_error *err)
{
	int result = BETON_OK;
	for (uint64_t from = 0; from < part->size && result == BETON_OK; from += part->piece) {
		uint64_t left = part->size - from;
		beton_error fault;
		result = bt_sums_touch(self->reader, part, from, left < part->piece ? left : part->piece, -1, &fault);
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
	const char *text = bt_alloc_fault(&reader->info, entry);
	if (!text && reader->info.ordered && entry->sample != entry->number / reader->num_blobs)
		text = "does not stand at its sample's place";
	if (!text && bt_extension_touches(&reader->extension, entry->pointer, entry->size))
		text = "lies in the extension block";
	if (!text && entry->size) {
		follow_order(self, entry);
		self->filled++;
		self->lowest = entry->pointer < self->lowest ? entry->pointer : self->lowest;
	}
	if (!text)
		return BETON_OK;
	bt_alloc_fail(reader, entry, text, &fault);
	bool known = entry->sample < reader->info.num_samples;
	return found(self, "allocation table", offset, known ? (int64_t)entry->sample : -1, &fault);
}

static int check_overlaps(check *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	const alloc_index *index;
	const alloc_entry *last = NULL;
	int result = bt_alloc_index(reader, &index, err);
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

/* Offset of the first byte in begin .. end that is not 0, or end. */
static int find_byte(const beton_reader *reader, uint64_t begin, uint64_t end, uint64_t *found, beton_error *err)
{
	enum { PIECE = 1 << 18 };
	uint8_t *bytes = malloc(PIECE);
	int result = bytes ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	*found = end;
	for (uint64_t at = begin; at < end && *found == end && result == BETON_OK; at += PIECE) {
		size_t size = end - at < PIECE ? (size_t)(end - at) : PIECE;
		result = bt_read_section(reader, "metadata", bytes, size, at, err);
		/* All bytes are zero if each equals the one before it and the first is 0. */
		if (result != BETON_OK || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0))
			continue;
		for (size_t i = 0; *found == end; i++)
			if (bytes[i])
				*found = at + i;
	}
	free(bytes);
	return result;
}

/* Zeros must follow the metadata up to a page boundary. Other bytes are records or descriptors that the header does not
 * count. */
static int check_gap(check *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	const beton_file_info *info = &reader->info;
	uint64_t begin = info->metadata_offset + info->num_samples * info->record_size;
	uint64_t end = (begin + info->page_size - 1) / info->page_size * info->page_size;
	uint64_t place;
	beton_error fault;
	end = end < info->data_end ? end : info->data_end;
	end = end < self->lowest ? end : self->lowest;
	if (info->has_extension && reader->extension.begin < end)
		end = reader->extension.begin;
	if (reader->extension.ignored || begin >= end)
		return BETON_OK;
	int result = find_byte(reader, begin, end, &place, err);
	if (result != BETON_OK || place == end)
		return result;
	bt_fail(&fault, BETON_FORMAT,
		"%s: the metadata of %llu samples with %u fields end at offset %llu, but what follows up to offset "
		"%llu is not all zeros (offset %llu)",
		reader->path, (unsigned long long)info->num_samples, info->num_fields, (unsigned long long)begin,
		(unsigned long long)end, (unsigned long long)place);
	return found(self, "metadata", place, -1, &fault);
}

/* ---- that values and entries belong to each other ---- */

static int take_sample(void *context, const beton_value *values, int result, const beton_error *fault)
{
	check *self = context;
	const beton_reader *reader = self->reader;
	const beton_file_info *info = &reader->info;
	/* With a damaged value, ownership of entries cannot be checked. */
	if (result != BETON_OK && !self->samples)
		return BETON_END;
	if (result != BETON_OK)
		return found(self, "metadata", info->metadata_offset + values->sample * info->record_size,
			     (int64_t)values->sample, fault);
	for (uint32_t i = 0; i < info->num_fields; i++) {
		const beton_value *value = &values[i];
		if (!bt_type_has_blob(value->type) || value->blob.size == 0)
			continue;
		uint8_t *byte = &self->taken[value->entry / 8];
		uint8_t bit = (uint8_t)(1u << value->entry % 8);
		beton_error own;
		if (!(*byte & bit)) {
			*byte |= bit;
			self->owned++;
			continue;
		}
		bt_fail_sample(&own, BETON_FORMAT, (int64_t)value->sample,
			       "%s: sample %llu, field '%s': the blob at offset %llu is that of another field too",
			       reader->path, (unsigned long long)value->sample, reader->fields[i].name,
			       (unsigned long long)value->blob.offset);
		int end = found(self, "metadata",
				info->metadata_offset + value->sample * info->record_size +
					reader->fields[i].record_offset,
				(int64_t)value->sample, &own);
		if (end != BETON_OK)
			return end;
	}
	return BETON_OK;
}

static int find_unowned(void *context, const alloc_entry *entry)
{
	check *self = context;
	const beton_reader *reader = self->reader;
	beton_error fault;
	if (entry->size == 0 || self->taken[entry->number / 8] & 1u << entry->number % 8)
		return BETON_OK;
	bt_alloc_fail(reader, entry, "belongs to no value", &fault);
	return found(self, "allocation table", reader->info.alloc_table_offset + entry->number * ALLOC_ENTRY_SIZE,
		     (int64_t)entry->sample, &fault);
}

/* In an ordered table each value has its own entry or none. */
static int check_values(check *self, beton_error *err)
{
	const beton_reader *reader = self->reader;
	if (reader->num_blobs == 0 || (reader->info.ordered && !self->samples))
		return BETON_OK;
	self->taken = calloc((size_t)(reader->info.alloc_entries / 8 + 1), 1);
	if (!self->taken)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu allocation entries", reader->path,
			       (unsigned long long)reader->info.alloc_entries);
	int result = bt_each_sample(reader, take_sample, self, err);
	if (result == BETON_OK && self->owned < self->filled)
		result = bt_alloc_each(reader, find_unowned, self, err);
	free(self->taken);
	return result == BETON_END ? BETON_OK : result;
}

int bt_structure_check(const beton_reader *reader, bool samples, structure_report report, void *context,
		       beton_error *err)
{
	check self = {.reader = reader, .samples = samples, .report = report, .context = context, .lowest = UINT64_MAX};
	int result = check_fields(&self, err);
	if (result == BETON_OK)
		result = check_sections(&self, err);
	if (result == BETON_OK)
		result = check_pieces(&self, &reader->metadata, err);
	if (result == BETON_OK)
		result = check_pieces(&self, &reader->table, err);
	if (result == BETON_OK)
		result = bt_alloc_each(reader, check_entry, &self, err);
	if (result == BETON_OK && self.disordered)
		result = check_overlaps(&self, err);
	if (result == BETON_OK)
		result = check_gap(&self, err);
	if (result == BETON_OK && self.faults == 0)
		result = check_values(&self, err);
	return result;
}

static bool keep_first(void *context, const char *section, uint64_t offset, int64_t sample, const beton_error *err)
{
	(void)section;
	(void)offset;
	(void)sample;
	beton_error *first = context;
	if (first) {
		*first = *err;
		first->code = BETON_FORMAT;
	}
	return false;
}

int beton_reader_check_structure(const beton_reader *reader, beton_error *err)
{
	if (BT_MISSING(err, reader))
		return BETON_INVALID_ARGUMENT;
	return bt_structure_check(reader, true, keep_first, err, err);
}
