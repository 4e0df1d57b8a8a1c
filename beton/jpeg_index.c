/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_index.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "format.h"
#include "reader.h"
#ifdef HAVE_JPEG
#include "jpeg/check.h"
#include "side_index.h"
#include "sums.h"
#include "types/types.h"
#endif

_Static_assert(JPEG_ENTRY_SUM + BT_INDEX_BYTES_MAX == BETON_JPEG_INDEX_MAX, "the room for an entry");

#ifdef HAVE_JPEG
bool bt_jpeg_index_make(const void *jpeg, size_t size, uint64_t max_pixels, bt_index_request *index)
{
	return bt_jpeg_index(jpeg, size, max_pixels, index);
}
#else
bool bt_jpeg_index_make(const void *jpeg, size_t size, uint64_t max_pixels, bt_index_request *index)
{
	(void)jpeg;
	(void)size;
	(void)max_pixels;
	index->size = 0;
	return true;
}
#endif

/* XXH3-64 of an entry's index. */
static uint64_t entry_sum(const uint8_t *entry, size_t used, uint64_t jpeg_sum)
{
	return XXH3_64bits_withSeed(entry + JPEG_ENTRY_SUM, used, jpeg_sum);
}

void bt_jpeg_entry_seal(uint8_t *entry, size_t used, uint64_t jpeg_sum)
{
	store_u64(entry, entry_sum(entry, used, jpeg_sum));
}

static int damaged(const beton_reader *reader, const beton_value *value, const char *what, uint64_t offset,
		   beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s%s: the index of sample %llu, field '%s', at offset %llu: %s",
		       reader->path, reader->info.jpeg_indexes_beside ? ".index" : ": extension block",
		       (unsigned long long)value->sample, reader->fields[value->field].name, (unsigned long long)offset,
		       what);
}

uint64_t bt_jpeg_picture_number(const beton_reader *reader, const beton_value *value)
{
	uint64_t before = 0;
	for (uint32_t i = 0; i < value->field; i++)
		before += bt_form_of(reader->fields[i].type) == BT_FORM_IMAGE;
	return value->sample * reader->num_pictures + before;
}

/* Reads `size` bytes at `from` of the places. */
static int read_places(const beton_reader *reader, uint64_t from, void *to, size_t size, beton_error *err)
{
	return reader->info.jpeg_indexes_beside ? bt_side_read(reader, to, size, SIDE_SIZE + from, err)
						: bt_part_read(reader, &reader->places, from, to, size, err);
}

/* Finds the entry of a picture: *out, of 0 bytes if there is none. */
static int find_entry(const beton_reader *reader, const beton_value *value, beton_blob *out, beton_error *err)
{
	const extension_section *section = &reader->extension.known[SECTION_JPEG_INDEXES];
	bool beside = reader->info.jpeg_indexes_beside;
	uint64_t entries = beside ? SIDE_SIZE + reader->side.places_size : section->offset;
	uint64_t entries_size = beside ? reader->side.entries_size : section->size;
	uint64_t number = bt_jpeg_picture_number(reader, value), first = number ? number - 1 : 0;
	uint8_t ends[2 * sizeof(uint64_t)] = {0};
	size_t skip = number ? 0 : sizeof(uint64_t);
	int result = read_places(reader, first * sizeof(uint64_t), ends + skip, sizeof(ends) - skip, err);
	if (result != BETON_OK)
		return result;
	uint64_t begin = load_u64(ends), end = load_u64(ends + sizeof(uint64_t));
	*out = (beton_blob){entries + begin, end - begin};
	if (begin <= end && end <= entries_size && end - begin <= BETON_JPEG_INDEX_MAX)
		return BETON_OK;
	return damaged(reader, value, "its place is outside of the section, or too large",
		       (beside ? SIDE_SIZE : reader->places.offset) + number * sizeof(uint64_t), err);
}

int beton_reader_jpeg_index(const beton_reader *reader, const beton_value *value, beton_blob *entry, beton_error *err)
{
	if (BT_MISSING(err, reader, value, entry))
		return BETON_INVALID_ARGUMENT;
	*entry = (beton_blob){0};
	if (!reader->info.has_jpeg_indexes || !bt_value_is_jpeg(value))
		return BETON_OK;
	if (value->sample >= reader->info.num_samples || value->field >= reader->info.num_fields)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample %llu, field %u", reader->path,
			       (unsigned long long)value->sample, value->field);
	return find_entry(reader, value, entry, err);
}

int beton_reader_read_jpeg_index(const beton_reader *reader, const beton_blob *entry, void *destination,
				 beton_error *err)
{
	if (BT_MISSING(err, reader, entry, destination))
		return BETON_INVALID_ARGUMENT;
	return reader->info.jpeg_indexes_beside
		       ? bt_side_read(reader, destination, (size_t)entry->size, entry->offset, err)
		       : bt_read_section(reader, "JPEG indexes", destination, (size_t)entry->size, entry->offset, err);
}

bool beton_reader_peek_jpeg_index(const beton_reader *reader, const beton_blob *entry, void *destination)
{
	if (!reader || !entry || !destination)
		return false;
	return reader->info.jpeg_indexes_beside &&
	       bt_side_peek(&reader->side, destination, (size_t)entry->size, entry->offset);
}

const char *beton_reader_jpeg_index_fault(const beton_reader *reader)
{
	if (!reader)
		return NULL;
	return reader->side.fault;
}

int beton_reader_open_jpeg_index(const beton_reader *reader, const beton_value *value, const beton_blob *entry,
				 const void *bytes, const void *stored, const void **index, size_t *size,
				 beton_error *err)
{
	if (BT_MISSING(err, reader, value, entry, bytes, stored, index, size))
		return BETON_INVALID_ARGUMENT;
	const uint8_t *from = bytes;
	size_t used = (size_t)entry->size - JPEG_ENTRY_SUM;
	*size = 0;
	if (entry->size < JPEG_ENTRY_SUM ||
	    load_u64(from) != entry_sum(from, used, XXH3_64bits(stored, (size_t)value->blob.size)))
		return damaged(reader, value, "it does not match its checksum and that of the JPEG", entry->offset,
			       err);
	*index = from + JPEG_ENTRY_SUM;
	*size = used;
	return BETON_OK;
}

int bt_index_check_begin(index_check *self, const beton_reader *reader, const beton_value *value, beton_error *err)
{
	self->again = (bt_index_request){0};
	self->place = (beton_blob){0};
	if (!reader->info.has_jpeg_indexes)
		return BETON_OK;
	if (!self->room && !(self->room = malloc(2 * BETON_JPEG_INDEX_MAX)))
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for an index", reader->path);
	self->again.out = self->room + BETON_JPEG_INDEX_MAX;
	int result = beton_reader_jpeg_index(reader, value, &self->place, err);
	if (result != BETON_OK || self->place.size == 0)
		return result;
	result = beton_reader_read_jpeg_index(reader, &self->place, self->room, err);
	if (self->place.size >= JPEG_ENTRY_SUM + sizeof(uint16_t))
		self->again.step = load_u16(self->room + JPEG_ENTRY_SUM);
	return result;
}

int bt_index_check_end(const index_check *self, const beton_reader *reader, const beton_value *value,
		       const void *stored, beton_error *err)
{
	const void *index;
	size_t size;
	if (self->place.size == 0)
		return BETON_OK;
	int result = beton_reader_open_jpeg_index(reader, value, &self->place, self->room, stored, &index, &size, err);
	if (result != BETON_OK)
		return result;
	if (self->again.step && self->again.size == size && memcmp(self->again.out, index, size) == 0)
		return BETON_OK;
	return damaged(reader, value, "it is not that of the JPEG", self->place.offset, err);
}

void bt_index_check_free(index_check *self)
{
	free(self->room);
	*self = (index_check){0};
}
