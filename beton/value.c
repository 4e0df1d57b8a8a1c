/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes values from a sample's record and its entries in the allocation table. Both are read when needed, so that the
 * cost of opening a file does not grow with it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_table.h"
#include "codec.h"
#include "common/error.h"
#include "common/hash.h"
#include "common/system.h"
#include "decompress.h"
#include "format.h"
#include "layout.h"
#include "reader.h"
#include "sums.h"
#include "types/types.h"

/* Limits of records and entries that are read to the stack. */
enum { SMALL_RECORD = 1024, SMALL_ENTRIES = 16 * ALLOC_ENTRY_SIZE };

static const char *name_of(const beton_reader *reader, const value_place *place)
{
	return reader->fields[place->field].name;
}

static int corrupt(const beton_reader *reader, const value_place *place, const char *what, uint64_t found,
		   uint64_t expected, beton_error *err)
{
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample,
			      "%s: sample %llu, field '%s': %s is %llu, expected %llu", reader->path,
			      (unsigned long long)place->sample, name_of(reader, place), what,
			      (unsigned long long)found, (unsigned long long)expected);
}

static int take_entry(const beton_reader *reader, const value_place *place, const alloc_entry *entry, uint64_t size,
		      beton_value *out, beton_error *err)
{
	const char *fault = bt_alloc_fault(&reader->info, entry);
	if (fault)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample,
				      "%s: sample %llu, field '%s': its allocation (offset %llu, %llu bytes) %s",
				      reader->path, (unsigned long long)place->sample, name_of(reader, place),
				      (unsigned long long)entry->pointer, (unsigned long long)entry->size, fault);
	out->blob = (beton_blob){place->pointer, size};
	out->entry = entry->number;
	return bt_sums_touch(reader, &reader->table, entry->number * ALLOC_ENTRY_SIZE, ALLOC_ENTRY_SIZE,
			     (int64_t)place->sample, err);
}

static int not_found(const beton_reader *reader, const value_place *place, beton_error *err)
{
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample,
			      "%s: sample %llu, field '%s': no allocation of it starts at offset %llu", reader->path,
			      (unsigned long long)place->sample, name_of(reader, place),
			      (unsigned long long)place->pointer);
}

/* Searches the whole table for the blob's entry. */
static int search_blob(const beton_reader *reader, const value_place *place, beton_value *out, beton_error *err)
{
	const alloc_index *index;
	int result = bt_alloc_index(reader, &index, err);
	if (result != BETON_OK)
		return result;
	const alloc_entry *empty;
	const alloc_entry *entry = bt_alloc_find(index, place->pointer, place->sample, &empty);
	if (!entry)
		return not_found(reader, place, err);
	if (!place->any_size && place->size == 0 && empty)
		entry = empty;
	else if (!place->any_size && place->size != entry->size)
		return corrupt(reader, place, "its allocated size", entry->size, place->size, err);
	return take_entry(reader, place, entry, entry->size, out, err);
}

/* Without the table: the rest of the page bounds a picture's size. */
static int guess_blob(const beton_reader *reader, const value_place *place, beton_value *out, beton_error *err)
{
	alloc_entry entry = {.sample = place->sample, .pointer = place->pointer, .size = place->size};
	uint64_t end = reader->info.data_end;
	if (place->any_size && place->pointer < end) {
		uint64_t left = reader->info.page_size - place->pointer % reader->info.page_size;
		entry.size = left < end - place->pointer ? left : end - place->pointer;
	}
	return take_entry(reader, place, &entry, entry.size, out, err);
}

static int find_blob(const beton_reader *reader, const value_place *place, beton_value *out, beton_error *err)
{
	if (reader->table_lost)
		return guess_blob(reader, place, out, err);
	uint64_t number = place->sample * reader->num_blobs + reader->blob_index[place->field];
	alloc_entry entry = bt_alloc_unpack(place->likely, number);
	bool here = entry.sample == place->sample && entry.pointer == place->pointer;
	if (here && (place->any_size ? entry.size > 0 : entry.size == place->size))
		return take_entry(reader, place, &entry, entry.size, out, err);
	if (!reader->info.ordered)
		return search_blob(reader, place, out, err);
	if (!here)
		return not_found(reader, place, err);
	if (place->any_size)
		return take_entry(reader, place, &entry, 0, out, err);
	return corrupt(reader, place, "its allocated size", entry.size, place->size, err);
}

static int check_empty(const beton_reader *reader, const value_place *place, const bt_codec *codec,
		       const beton_value *value, beton_error *err)
{
	if (!codec->empty || value->size)
		return BETON_OK;
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample, "%s: sample %llu, field '%s': %s",
			      reader->path, (unsigned long long)place->sample, name_of(reader, place), codec->empty);
}

static int compressed_value(const beton_reader *reader, value_place *place, const bt_codec *codec, const uint8_t *slot,
			    beton_value *out, beton_error *err)
{
	const beton_field *field = &reader->fields[place->field];
	place->pointer = load_u64(slot);
	place->size = load_u64(slot + 8);
	out->compression = field->compression;
	out->size = load_u64(slot + 16);
	int result = find_blob(reader, place, out, err);
	if (result != BETON_OK)
		return result;
	uint64_t expected = out->size;
	if (codec->expect)
		result = codec->expect(reader, place, slot, out, &expected, err);
	if (result != BETON_OK)
		return result;
	if (out->size != expected)
		return corrupt(reader, place, codec->sized, out->size, expected, err);
	if (out->size > COMPRESSED_VALUE_MAX || out->size / COMPRESSED_RATIO_MAX > place->size)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)place->sample,
				      "%s: sample %llu, field '%s': %llu bytes cannot come from %llu compressed ones",
				      reader->path, (unsigned long long)place->sample, field->name,
				      (unsigned long long)out->size, (unsigned long long)place->size);
	return check_empty(reader, place, codec, out, err);
}

/* slot: the field's part of the record. */
static int take_value(const beton_reader *reader, value_place *place, const uint8_t *slot, beton_value *out,
		      beton_error *err)
{
	const beton_field *field = &reader->fields[place->field];
	const bt_type *type = bt_type_of(field->type);
	*out = (beton_value){.type = field->type, .sample = place->sample, .field = place->field};
	if (field->compression != BETON_COMPRESSION_NONE)
		return compressed_value(reader, place, type->codec, slot, out, err);
	int result = type->codec->take(reader, place, slot, out, err);
	if (result != BETON_OK || !type->blob)
		return result;
	result = find_blob(reader, place, out, err);
	out->size = out->blob.size;
	return result == BETON_OK ? check_empty(reader, place, type->codec, out, err) : result;
}

int bt_read_metadata(const beton_reader *reader, uint64_t sample, void *destination, size_t size, uint64_t from,
		     beton_error *err)
{
	const summed_part *part = &reader->metadata;
	int result = bt_sums_touch(reader, part, from, size, (int64_t)sample, err);
	if (result != BETON_OK)
		return result;
	return bt_part_read(reader, part, from, destination, size, err);
}

/* Reads count entries (zeros if the table is lost). They are verified once they prove to be the right ones. */
static int read_entries(const beton_reader *reader, void *destination, uint32_t count, uint64_t first, beton_error *err)
{
	const summed_part *part = &reader->table;
	if (reader->table_lost) {
		memset(destination, 0, (size_t)count * ALLOC_ENTRY_SIZE);
		return BETON_OK;
	}
	return bt_part_read(reader, part, first * ALLOC_ENTRY_SIZE, destination, (size_t)count * ALLOC_ENTRY_SIZE, err);
}

int beton_reader_value(const beton_reader *reader, uint64_t sample, uint32_t field_index, beton_value *out,
		       beton_error *err)
{
	if (BT_MISSING(err, reader, out))
		return BETON_INVALID_ARGUMENT;
	const beton_file_info *info = &reader->info;
	if (sample >= info->num_samples || field_index >= info->num_fields)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: no sample %llu, field %u: the file has %llu samples of %u fields", reader->path,
			       (unsigned long long)sample, field_index, (unsigned long long)info->num_samples,
			       info->num_fields);
	const beton_field *field = &reader->fields[field_index];
	uint8_t slot[BETON_CUSTOM_RECORD_MAX]; /* other types have fewer bytes */
	uint8_t entry[ALLOC_ENTRY_SIZE];
	int result = bt_read_metadata(reader, sample, slot, bt_field_slot(field).size,
				      sample * info->record_size + field->record_offset, err);
	value_place place = {.sample = sample, .field = field_index};
	if (result == BETON_OK && bt_type_has_blob(field->type)) {
		place.likely = entry;
		result = read_entries(reader, entry, 1, sample * reader->num_blobs + reader->blob_index[field_index],
				      err);
	}
	return result == BETON_OK ? take_value(reader, &place, slot, out, err) : result;
}

int beton_reader_record(const beton_reader *reader, uint64_t sample, uint32_t field_index, void *destination,
			beton_error *err)
{
	if (BT_MISSING(err, reader, destination))
		return BETON_INVALID_ARGUMENT;
	const beton_file_info *info = &reader->info;
	const beton_field *field = beton_reader_field(reader, field_index);
	if (sample >= info->num_samples || !field || !bt_type_of(field->type)->described)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample %llu, or field %u is not of a custom type",
			       reader->path, (unsigned long long)sample, field_index);
	return bt_read_metadata(reader, sample, destination, field->item_size,
				sample * info->record_size + field->record_offset, err);
}

static void mark_damaged(const beton_reader *reader, uint64_t sample, uint32_t field, beton_value *out)
{
	*out = (beton_value){
		.type = reader->fields[field].type, .sample = sample, .field = field, .status = BETON_SAMPLE_CORRUPT};
}

int bt_take_values(const beton_reader *reader, uint64_t sample, const uint8_t *record, const uint8_t *entries,
		   beton_value *values, beton_error *err)
{
	int first = BETON_OK;
	for (uint32_t i = 0; i < reader->info.num_fields; i++) {
		const beton_field *field = &reader->fields[i];
		value_place place = {.sample = sample, .field = i};
		if (bt_type_has_blob(field->type))
			place.likely = entries + (size_t)reader->blob_index[i] * ALLOC_ENTRY_SIZE;
		int result = take_value(reader, &place, record + field->record_offset, &values[i],
					first == BETON_OK ? err : NULL);
		if (result == BETON_SAMPLE_CORRUPT) {
			mark_damaged(reader, sample, i, &values[i]);
			first = result;
		} else if (result != BETON_OK) {
			return result;
		}
	}
	return first;
}

static int read_sample(const beton_reader *reader, uint64_t sample, uint8_t *record, uint8_t *entries,
		       beton_value *values, beton_error *err)
{
	uint32_t record_size = reader->info.record_size;
	int result = bt_read_metadata(reader, sample, record, record_size, sample * record_size, err);
	if (result == BETON_SAMPLE_CORRUPT)
		for (uint32_t i = 0; i < reader->info.num_fields; i++)
			mark_damaged(reader, sample, i, &values[i]);
	if (result == BETON_OK)
		result = read_entries(reader, entries, reader->num_blobs, sample * reader->num_blobs, err);
	return result == BETON_OK ? bt_take_values(reader, sample, record, entries, values, err) : result;
}

int beton_reader_sample(const beton_reader *reader, uint64_t sample, beton_value *values, beton_error *err)
{
	if (BT_MISSING(err, reader, values))
		return BETON_INVALID_ARGUMENT;
	const beton_file_info *info = &reader->info;
	if (sample >= info->num_samples)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample %llu: the file has %llu", reader->path,
			       (unsigned long long)sample, (unsigned long long)info->num_samples);
	uint8_t small_record[SMALL_RECORD];
	uint8_t small_entries[SMALL_ENTRIES];
	size_t entries_size = (size_t)reader->num_blobs * ALLOC_ENTRY_SIZE;
	uint8_t *record = info->record_size > SMALL_RECORD ? malloc(info->record_size) : small_record;
	uint8_t *entries = entries_size > SMALL_ENTRIES ? malloc(entries_size) : small_entries;
	int result;
	if (!record || !entries)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for a sample of %u fields", reader->path,
				 info->num_fields);
	else
		result = read_sample(reader, sample, record, entries, values, err);
	if (record != small_record)
		free(record);
	if (entries != small_entries)
		free(entries);
	return result;
}

int beton_reader_read(const beton_reader *reader, const beton_blob *blob, void *destination, beton_error *err)
{
	if (BT_MISSING(err, reader, blob))
		return BETON_INVALID_ARGUMENT;
	if (blob->size == 0)
		return BETON_OK;
	if (BT_MISSING(err, destination))
		return BETON_INVALID_ARGUMENT;
	return bt_read_section(reader, "pages", destination, (size_t)blob->size, blob->offset, err);
}

int beton_reader_check(const beton_reader *reader, const beton_value *value, const void *stored, beton_error *err)
{
	if (BT_MISSING(err, reader, value))
		return BETON_INVALID_ARGUMENT;
	if (!reader->info.has_checksums || !bt_type_has_blob(value->type))
		return BETON_OK;
	if (value->blob.size && BT_MISSING(err, stored))
		return BETON_INVALID_ARGUMENT;
	if (value->entry >= reader->info.alloc_entries || value->field >= reader->info.num_fields)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: no allocation entry %llu of field %u: the file has %llu of %u fields", reader->path,
			       (unsigned long long)value->entry, value->field,
			       (unsigned long long)reader->info.alloc_entries, reader->info.num_fields);
	uint8_t packed[sizeof(uint64_t)];
	int result =
		bt_part_read(reader, &reader->blob_sums, value->entry * sizeof(packed), packed, sizeof(packed), err);
	if (result != BETON_OK || XXH3_64bits(stored, (size_t)value->blob.size) == load_u64(packed))
		return result;
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)value->sample,
			      "%s: sample %llu, field '%s': %llu bytes at offset %llu do not match their checksum",
			      reader->path, (unsigned long long)value->sample, reader->fields[value->field].name,
			      (unsigned long long)value->blob.size, (unsigned long long)value->blob.offset);
}

int beton_reader_unpack(const beton_reader *reader, const beton_value *value, const void *stored, bool check,
			void *destination, beton_error *err)
{
	if (BT_MISSING(err, reader, value))
		return BETON_INVALID_ARGUMENT;
	if ((value->size && BT_MISSING(err, destination)) || (value->blob.size && BT_MISSING(err, stored)))
		return BETON_INVALID_ARGUMENT;
	int result = check ? beton_reader_check(reader, value, stored, err) : BETON_OK;
	if (result != BETON_OK || value->compression != BETON_COMPRESSION_NONE)
		return result == BETON_OK ? bt_decompress(reader, value, stored, destination, err) : result;
	if (stored != destination && value->size)
		memcpy(destination, stored, (size_t)value->size);
	return BETON_OK;
}

int beton_reader_read_value(const beton_reader *reader, const beton_value *value, void *destination, beton_error *err)
{
	if (BT_MISSING(err, reader, value))
		return BETON_INVALID_ARGUMENT;
	if (value->size && BT_MISSING(err, destination))
		return BETON_INVALID_ARGUMENT;
	bool packed = value->compression != BETON_COMPRESSION_NONE && value->blob.size > 0;
	void *stored = packed ? malloc((size_t)value->blob.size) : destination;
	if (packed && !stored)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for %llu bytes", reader->path,
			       (unsigned long long)value->blob.size);
	int result = beton_reader_read(reader, &value->blob, stored, err);
	if (result == BETON_OK)
		result = beton_reader_unpack(reader, value, stored, true, destination, err);
	if (packed)
		free(stored);
	return result;
}
