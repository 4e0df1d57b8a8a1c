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
#endif

_Static_assert(JPEG_ENTRY_SUM + BT_INDEX_BYTES_MAX == BETON_JPEG_INDEX_MAX, "the room for an entry");

#ifdef HAVE_JPEG
size_t bt_jpeg_index_make(const void *jpeg, size_t size, uint64_t max_pixels, uint8_t *out)
{
	bt_index_request index = {.out = out};
	bt_jpeg_index(jpeg, size, max_pixels, &index);
	return index.size;
}
#else
size_t bt_jpeg_index_make(const void *jpeg, size_t size, uint64_t max_pixels, uint8_t *out)
{
	(void)jpeg;
	(void)size;
	(void)max_pixels;
	(void)out;
	return 0;
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
	return bt_fail(err, BETON_FORMAT,
		       "%s: extension block: the index of sample %llu, field '%s', at offset %llu: %s", reader->path,
		       (unsigned long long)value->sample, reader->fields[value->field].name, (unsigned long long)offset,
		       what);
}

/* Finds the entry of a picture: *out, of 0 bytes if there is none. */
static int find_entry(const beton_reader *reader, const beton_value *value, beton_blob *out, beton_error *err)
{
	const extension_section *entries = &reader->extension.known[SECTION_JPEG_INDEXES];
	uint64_t pictures = 0, before = 0;
	for (uint32_t i = 0; i < reader->info.num_fields; i++) {
		before += i < value->field && reader->fields[i].type == BETON_FIELD_IMAGE;
		pictures += reader->fields[i].type == BETON_FIELD_IMAGE;
	}
	uint64_t number = value->sample * pictures + before, first = number ? number - 1 : 0;
	uint8_t ends[2 * sizeof(uint64_t)] = {0};
	size_t skip = number ? 0 : sizeof(uint64_t);
	int result =
		bt_part_read(reader, &reader->places, first * sizeof(uint64_t), ends + skip, sizeof(ends) - skip, err);
	if (result != BETON_OK)
		return result;
	uint64_t begin = load_u64(ends), end = load_u64(ends + sizeof(uint64_t));
	*out = (beton_blob){entries->offset + begin, end - begin};
	if (begin <= end && end <= entries->size && end - begin <= BETON_JPEG_INDEX_MAX)
		return BETON_OK;
	return damaged(reader, value, "its place is outside of the section, or too large",
		       reader->places.offset + number * sizeof(uint64_t), err);
}

int beton_reader_jpeg_index(const beton_reader *reader, const beton_value *value, beton_blob *entry, beton_error *err)
{
	*entry = (beton_blob){0};
	if (!reader->info.has_jpeg_indexes || value->type != BETON_FIELD_IMAGE || value->mode != BETON_IMAGE_JPEG)
		return BETON_OK;
	if (value->sample >= reader->info.num_samples || value->field >= reader->info.num_fields)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no sample %llu, field %u", reader->path,
			       (unsigned long long)value->sample, value->field);
	return find_entry(reader, value, entry, err);
}

int beton_reader_open_jpeg_index(const beton_reader *reader, const beton_value *value, const beton_blob *entry,
				 const void *bytes, const void *stored, const void **index, size_t *size,
				 beton_error *err)
{
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
	int result = beton_reader_jpeg_index(reader, value, &self->place, err);
	if (result != BETON_OK || self->place.size == 0)
		return result;
	if (!self->room && !(self->room = malloc(2 * BETON_JPEG_INDEX_MAX)))
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for an index", reader->path);
	result = bt_read_section(reader, "JPEG indexes", self->room, (size_t)self->place.size, self->place.offset, err);
	if (self->place.size >= JPEG_ENTRY_SUM + sizeof(uint16_t))
		self->again.step = load_u16(self->room + JPEG_ENTRY_SUM);
	self->again.out = self->room + BETON_JPEG_INDEX_MAX;
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
