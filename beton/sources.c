/* SPDX-License-Identifier: Apache-2.0 */
#include "sources.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/hash.h"
#include "format.h"
#include "reader.h"

static int damaged(const beton_reader *reader, const char *what, uint64_t at, beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: extension block: the sources at offset %llu: %s", reader->path,
		       (unsigned long long)(reader->extension.known[SECTION_SOURCES].offset + at), what);
}

/* A block, as the header and the index describe it. */
typedef struct block_place {
	uint32_t names;
	uint64_t begin; /* in the section */
	uint64_t end;
	uint64_t sum;
} block_place;

/* *per_block: names in every block but the last; *index: offset of the index in the section. */
static int read_header(const beton_reader *reader, uint32_t *per_block, uint64_t *index, beton_error *err)
{
	const extension_section *section = &reader->extension.known[SECTION_SOURCES];
	uint8_t header[SOURCES_HEADER_SIZE];
	if (section->size < sizeof(header))
		return damaged(reader, "the header is missing", 0, err);
	int result = bt_read_section(reader, "sources", header, sizeof(header), section->offset, err);
	if (result != BETON_OK)
		return result;
	*per_block = load_u32(header);
	if (*per_block == 0 || *per_block > SOURCES_BLOCK_MAX)
		return damaged(reader, "the number of names in a block is none from 1 to 65536", 0, err);
	uint64_t samples = reader->info.num_samples;
	uint64_t blocks = samples / *per_block + (samples % *per_block != 0);
	if (blocks > (section->size - sizeof(header)) / SOURCES_INDEX_SIZE)
		return damaged(reader, "the index does not fit", 0, err);
	*index = section->size - blocks * SOURCES_INDEX_SIZE;
	return BETON_OK;
}

static int find_block(const beton_reader *reader, uint32_t per_block, uint64_t index, uint64_t block, block_place *out,
		      beton_error *err)
{
	const extension_section *section = &reader->extension.known[SECTION_SOURCES];
	uint64_t samples = reader->info.num_samples;
	uint64_t left = samples - block * per_block;
	uint64_t at = index + block * SOURCES_INDEX_SIZE;
	uint8_t entries[2 * SOURCES_INDEX_SIZE];
	bool last = left <= per_block;
	size_t size = last ? SOURCES_INDEX_SIZE : 2 * SOURCES_INDEX_SIZE;
	int result = bt_read_section(reader, "sources", entries, size, section->offset + at, err);
	if (result != BETON_OK)
		return result;
	*out = (block_place){.names = last ? (uint32_t)left : per_block,
			     .begin = load_u64(entries),
			     .end = last ? index : load_u64(entries + SOURCES_INDEX_SIZE),
			     .sum = load_u64(entries + 8)};
	/* A name takes 3 bytes at least. */
	if (out->begin < SOURCES_HEADER_SIZE || out->end > index || out->begin > out->end ||
	    out->end - out->begin < 3 * (uint64_t)out->names ||
	    out->end - out->begin > (uint64_t)out->names * (BETON_SOURCE_MAX + 6))
		return damaged(reader, "the index has no place for a block", at, err);
	return BETON_OK;
}

static int load_block(const beton_reader *reader, sources_cursor *cursor, const block_place *place, uint64_t block,
		      beton_error *err)
{
	size_t size = (size_t)(place->end - place->begin);
	cursor->block = UINT64_MAX;
	if (size > cursor->capacity) {
		free(cursor->bytes);
		cursor->bytes = malloc(size);
		cursor->capacity = cursor->bytes ? size : 0;
		if (!cursor->bytes)
			return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its sources (%zu bytes)", reader->path,
				       size);
	}
	uint64_t offset = reader->extension.known[SECTION_SOURCES].offset + place->begin;
	int result = bt_read_section(reader, "sources", cursor->bytes, size, offset, err);
	if (result != BETON_OK)
		return result;
	if (XXH3_64bits(cursor->bytes, size) != place->sum)
		return damaged(reader, "a block does not match its checksum", place->begin, err);
	cursor->block = block;
	cursor->size = size;
	return BETON_OK;
}

static void rewind_block(sources_cursor *cursor)
{
	cursor->at = 0;
	cursor->next = 0;
	cursor->length = 0;
}

/* False: the block ends, or the number is larger than any of a name. */
static bool take_number(sources_cursor *cursor, size_t *number)
{
	*number = 0;
	for (int shift = 0; shift <= 7 && cursor->at < cursor->size; shift += 7) {
		uint8_t byte = cursor->bytes[cursor->at++];
		*number |= (size_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return *number <= BETON_SOURCE_MAX;
	}
	return false;
}

static bool take_name(sources_cursor *cursor)
{
	size_t front;
	size_t back;
	size_t middle;
	if (!take_number(cursor, &front) || !take_number(cursor, &back) || !take_number(cursor, &middle) ||
	    front + back > cursor->length || front + back + middle > BETON_SOURCE_MAX ||
	    middle > cursor->size - cursor->at || memchr(cursor->bytes + cursor->at, 0, middle))
		return false;
	memmove(cursor->name + front + middle, cursor->name + cursor->length - back, back);
	memcpy(cursor->name + front, cursor->bytes + cursor->at, middle);
	cursor->at += middle;
	cursor->length = front + middle + back;
	cursor->name[cursor->length] = 0;
	cursor->next++;
	return true;
}

/* Moves the cursor to the sample's name. */
static int seek(const beton_reader *reader, sources_cursor *cursor, uint64_t sample, beton_error *err)
{
	uint32_t per_block;
	uint64_t index;
	block_place place;
	int result = read_header(reader, &per_block, &index, err);
	if (result != BETON_OK)
		return result;
	uint64_t block = sample / per_block;
	uint32_t number = (uint32_t)(sample % per_block);
	if (cursor->block != block) {
		result = find_block(reader, per_block, index, block, &place, err);
		if (result == BETON_OK)
			result = load_block(reader, cursor, &place, block, err);
		if (result != BETON_OK)
			return result;
		rewind_block(cursor);
	} else if (number + 1 < cursor->next) {
		rewind_block(cursor);
	}
	while (cursor->next <= number)
		if (!take_name(cursor)) {
			cursor->block = UINT64_MAX;
			return damaged(reader, "a name is damaged", 0, err);
		}
	return BETON_OK;
}

int beton_reader_source(const beton_reader *reader, uint64_t sample, char *source, beton_error *err)
{
	if (BT_MISSING(err, reader, source))
		return BETON_INVALID_ARGUMENT;
	/* The object is not const, and its lock guards the cursor. */
	beton_reader *self = (beton_reader *)reader;
	*source = 0;
	if (sample >= reader->info.num_samples)
		return bt_fail_sample(err, BETON_INVALID_ARGUMENT, (int64_t)sample,
				      "%s: no sample %llu: the file has %llu", reader->path, (unsigned long long)sample,
				      (unsigned long long)reader->info.num_samples);
	if (!reader->info.has_sources)
		return BETON_OK;
	pthread_mutex_lock(&self->lock);
	int result = BETON_OK;
	if (!self->sources) {
		self->sources = calloc(1, sizeof(*self->sources));
		if (self->sources)
			self->sources->block = UINT64_MAX;
		else
			result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its sources", reader->path);
	}
	if (result == BETON_OK)
		result = seek(reader, self->sources, sample, err);
	if (result == BETON_OK)
		memcpy(source, self->sources->name, self->sources->length + 1);
	pthread_mutex_unlock(&self->lock);
	return result;
}

int bt_sources_check(const beton_reader *reader, beton_error *err)
{
	uint32_t per_block;
	uint64_t index;
	int result = read_header(reader, &per_block, &index, err);
	uint64_t end = SOURCES_HEADER_SIZE;
	sources_cursor *cursor = calloc(1, sizeof(*cursor));
	if (!cursor && result == BETON_OK)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its sources", reader->path);
	for (uint64_t block = 0; result == BETON_OK && block * per_block < reader->info.num_samples; block++) {
		block_place place;
		result = find_block(reader, per_block, index, block, &place, err);
		if (result == BETON_OK && place.begin != end)
			result = damaged(reader, "a block does not follow the one before", place.begin, err);
		if (result == BETON_OK)
			result = load_block(reader, cursor, &place, block, err);
		if (result != BETON_OK)
			break;
		end = place.end;
		rewind_block(cursor);
		while (cursor->next < place.names && take_name(cursor))
			;
		if (cursor->next < place.names || cursor->at != cursor->size)
			result = damaged(reader, "a name is damaged", place.begin, err);
	}
	if (result == BETON_OK && end != index)
		result = damaged(reader, "the last block does not reach the index", end, err);
	if (cursor)
		bt_sources_cursor_free(cursor);
	free(cursor);
	return result;
}

void bt_sources_cursor_free(sources_cursor *self)
{
	free(self->bytes);
	self->bytes = NULL;
}
