/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks over all samples.
 */
#include <stdlib.h>

#include "alloc_table.h"
#include "common/error.h"
#include "format.h"
#include "layout.h"
#include "reader.h"

/* Bytes of metadata in one read. */
enum { PIECE = 1 << 18 };

static int check_range(const beton_reader *reader, uint32_t field, uint64_t first, uint64_t count, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	if (field >= info->num_fields || reader->fields[field].type != BETON_FIELD_INT)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: field %u is not a field of integers", reader->path,
			       field);
	if (first > info->num_samples || count > info->num_samples - first)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no samples %llu to %llu: the file has %llu",
			       reader->path, (unsigned long long)first, (unsigned long long)(first + count - 1),
			       (unsigned long long)info->num_samples);
	return BETON_OK;
}

int beton_reader_integers(const beton_reader *reader, uint32_t field, uint64_t first, uint64_t count, int64_t *out,
			  beton_error *err)
{
	if (BT_MISSING(err, reader))
		return BETON_INVALID_ARGUMENT;
	int result = check_range(reader, field, first, count, err);
	if (result != BETON_OK || count == 0)
		return result;
	if (BT_MISSING(err, out))
		return BETON_INVALID_ARGUMENT;
	const uint32_t record = reader->info.record_size;
	uint64_t batch = record < PIECE ? PIECE / record : 1;
	batch = batch < count ? batch : count;
	uint8_t *piece = malloc((size_t)batch * record);
	if (!piece)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu records", reader->path,
			       (unsigned long long)batch);
	for (uint64_t done = 0; done < count && result == BETON_OK; done += batch) {
		batch = batch < count - done ? batch : count - done;
		result = bt_read_metadata(reader, first + done, piece, (size_t)batch * record, (first + done) * record,
					  err);
		for (uint64_t i = 0; i < batch && result == BETON_OK; i++)
			out[done + i] = (int64_t)load_u64(piece + i * record + reader->fields[field].record_offset);
	}
	free(piece);
	return result;
}

/* Takes `count` samples from `first` on, with these records and entries. */
static int take_batch(const beton_reader *reader, const uint8_t *records, const uint8_t *entries, uint64_t first,
		      uint64_t count, beton_value *values, sample_function take, void *context, beton_error *err)
{
	size_t entries_size = (size_t)reader->num_blobs * ALLOC_ENTRY_SIZE;
	for (uint64_t i = 0; i < count; i++) {
		beton_error fault;
		int result = bt_take_values(reader, first + i, records + i * reader->info.record_size,
					    entries + i * entries_size, values, &fault);
		if (result != BETON_OK && result != BETON_SAMPLE_CORRUPT) {
			if (err)
				*err = fault;
			return result;
		}
		result = take(context, values, result, &fault);
		if (result != BETON_OK)
			return result;
	}
	return BETON_OK;
}

int bt_each_sample(const beton_reader *reader, sample_function take, void *context, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	size_t record = info->record_size;
	size_t entries_size = (size_t)reader->num_blobs * ALLOC_ENTRY_SIZE;
	uint64_t batch = record + entries_size < PIECE ? PIECE / (record + entries_size) : 1;
	batch = batch < info->num_samples ? batch : info->num_samples;
	uint8_t *records = malloc((size_t)batch * record + 1);
	uint8_t *entries = malloc((size_t)batch * entries_size + 1);
	beton_value *values = calloc(info->num_fields, sizeof(*values));
	int result = BETON_OK;
	if (!records || !entries || !values)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu samples of %u fields", reader->path,
				 (unsigned long long)batch, info->num_fields);
	for (uint64_t first = 0; first < info->num_samples && result == BETON_OK; first += batch) {
		uint64_t left = info->num_samples - first;
		uint64_t count = batch < left ? batch : left;
		result = bt_read_section(reader, "metadata", records, (size_t)count * record,
					 info->metadata_offset + first * record, err);
		if (result == BETON_OK)
			result = bt_read_section(reader, "allocation table", entries, (size_t)count * entries_size,
						 info->alloc_table_offset + first * entries_size, err);
		if (result == BETON_OK)
			result = take_batch(reader, records, entries, first, count, values, take, context, err);
	}
	free(values);
	free(entries);
	free(records);
	return result;
}

/* ---- the order of samples in the file ---- */

typedef struct watcher {
	uint64_t sample;
	uint64_t pointer;
	uint32_t turns; /* a file's first samples may be stored after its last ones */
	bool disordered;
} watcher;

static int watch(void *context, const alloc_entry *entry)
{
	watcher *self = context;
	if (entry->size == 0)
		return BETON_OK;
	self->turns += entry->pointer < self->pointer;
	self->disordered = entry->sample < self->sample || self->turns > 1;
	self->sample = entry->sample;
	self->pointer = entry->pointer;
	return self->disordered ? BETON_END : BETON_OK;
}

typedef struct placed {
	uint64_t pointer;
	uint64_t sample;
} placed;

typedef struct collector {
	const beton_file_info *info;
	placed *samples;
} collector;

static int collect(void *context, const alloc_entry *entry)
{
	const collector *self = context;
	if (entry->size && !bt_alloc_fault(self->info, entry) && entry->pointer < self->samples[entry->sample].pointer)
		self->samples[entry->sample].pointer = entry->pointer;
	return BETON_OK;
}

static int compare_placed(const void *a, const void *b)
{
	const placed *left = a, *right = b;
	if (left->pointer != right->pointer)
		return left->pointer < right->pointer ? -1 : 1;
	return left->sample < right->sample ? -1 : left->sample > right->sample;
}

static int sort_samples(const beton_reader *reader, uint64_t **out, beton_error *err)
{
	uint64_t n = reader->info.num_samples;
	collector self = {&reader->info, n <= SIZE_MAX / sizeof(placed) ? malloc(n * sizeof(placed)) : NULL};
	uint64_t *order = self.samples ? malloc(n * sizeof(*order)) : NULL;
	int result = BETON_OK;
	if (!order)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for the places of %llu samples", reader->path,
				 (unsigned long long)n);
	for (uint64_t i = 0; i < n && result == BETON_OK; i++)
		self.samples[i] = (placed){UINT64_MAX, i};
	if (result == BETON_OK)
		result = bt_alloc_each(reader, collect, &self, err);
	if (result == BETON_OK)
		qsort(self.samples, (size_t)n, sizeof(placed), compare_placed);
	bool moved = false;
	for (uint64_t i = 0; i < n && result == BETON_OK; i++) {
		order[i] = self.samples[i].sample;
		moved |= order[i] != i;
	}
	if (moved)
		*out = order;
	else
		free(order);
	free(self.samples);
	return result;
}

int beton_reader_storage_order(const beton_reader *reader, uint64_t **out, beton_error *err)
{
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, reader))
		return BETON_INVALID_ARGUMENT;
	if (reader->info.ordered || reader->info.alloc_entries == 0)
		return BETON_OK;
	watcher self = {0};
	int result = bt_alloc_each(reader, watch, &self, err);
	return self.disordered ? sort_samples(reader, out, err) : result;
}
