/* SPDX-License-Identifier: Apache-2.0 */
#include "extension.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/error.h"
#include "common/hash.h"
#include "reader.h"

/* Bytes that are read at once to take a checksum. */
enum { RANGE_BUFFER = 1 << 18 };

const char *bt_section_name(uint32_t kind)
{
	switch (kind) {
	case SECTION_BLOB_SUMS:
		return "checksums of the blobs";
	case SECTION_METADATA_SUMS:
		return "checksums of the metadata";
	case SECTION_TABLE_SUMS:
		return "checksums of the allocation table";
	case SECTION_FACTS:
		return "facts";
	case SECTION_DICTIONARIES:
		return "dictionaries";
	case SECTION_SOURCES:
		return "sources";
	case SECTION_JPEG_PLACES:
		return "places of JPEG indexes";
	case SECTION_JPEG_INDEXES:
		return "JPEG indexes";
	default:
		return "section of an unknown kind";
	}
}

static int damaged(const beton_reader *reader, const char *what, uint64_t offset, beton_error *err)
{
	return bt_fail(err, BETON_FORMAT, "%s: extension block: %s (offset %llu)", reader->path, what,
		       (unsigned long long)offset);
}

/* The size that a section of this kind must have, in bytes; UINT64_MAX: any. */
static uint64_t expected_size(const beton_reader *reader, uint32_t kind)
{
	const beton_file_info *info = &reader->info;
	uint64_t metadata = info->num_samples * info->record_size;
	uint64_t entries = info->num_samples * reader->num_blobs; /* also if the table is lost */
	uint64_t table = entries * ALLOC_ENTRY_SIZE;
	switch (kind) {
	case SECTION_BLOB_SUMS:
		return entries * sizeof(uint64_t);
	case SECTION_METADATA_SUMS:
		return (metadata / METADATA_SUM_PIECE + (metadata % METADATA_SUM_PIECE != 0)) * sizeof(uint64_t);
	case SECTION_JPEG_PLACES:
		return bt_pictures(reader) * sizeof(uint64_t);
	case SECTION_TABLE_SUMS:
		return (table / TABLE_SUM_PIECE + (table % TABLE_SUM_PIECE != 0)) * sizeof(uint64_t);
	default:
		return UINT64_MAX;
	}
}

static int check_section(const beton_reader *reader, const extension_section *section, uint64_t end, beton_error *err)
{
	const beton_file_info *info = &reader->info;
	uint64_t data = info->metadata_offset + info->num_samples * info->record_size;
	uint64_t expected = expected_size(reader, section->kind);
	if (section->offset < data || section->offset > end || section->size > end - section->offset)
		return bt_fail(err, BETON_FORMAT,
			       "%s: extension block: the %s (%llu bytes at offset %llu) do not lie between the "
			       "metadata and the block's directory",
			       reader->path, bt_section_name(section->kind), (unsigned long long)section->size,
			       (unsigned long long)section->offset);
	if ((expected != UINT64_MAX && section->size != expected) ||
	    (section->kind == SECTION_FACTS && section->size > FACTS_SIZE_MAX))
		return bt_fail(err, BETON_FORMAT, "%s: extension block: the %s have %llu bytes, expected %llu%s",
			       reader->path, bt_section_name(section->kind), (unsigned long long)section->size,
			       (unsigned long long)(section->kind == SECTION_FACTS ? FACTS_SIZE_MAX : expected),
			       section->kind == SECTION_FACTS ? " at most" : "");
	return BETON_OK;
}

static int compare_offsets(const void *a, const void *b)
{
	const extension_section *left = a;
	const extension_section *right = b;
	if (left->offset != right->offset)
		return left->offset < right->offset ? -1 : 1;
	return left->size < right->size ? -1 : left->size > right->size;
}

/* Where values end without what bt_index_place_add adds: of a block of another writer the index belongs to it. */
static uint64_t find_pages_end(const beton_reader *reader)
{
	const extension_block *block = &reader->extension;
	uint64_t least = reader->info.alloc_table_offset;
	uint32_t added = 0;
	for (uint32_t i = 0; i < block->count; i++) {
		bool index = block->list[i].kind == SECTION_JPEG_PLACES || block->list[i].kind == SECTION_JPEG_INDEXES;
		added += index;
		if (!index && block->list[i].offset < least)
			least = block->list[i].offset;
	}
	return added && (block->version == EXTENSION_APART || added == block->count) ? least : reader->info.data_end;
}

/* directory: count entries. footer: the offset of the block's end. */
static int read_sections(beton_reader *reader, const uint8_t *directory, uint32_t count, uint64_t footer,
			 beton_error *err)
{
	extension_block *block = &reader->extension;
	bool apart = block->version == EXTENSION_APART;
	uint64_t at = block->directory, end = at + count * DIRECTORY_ENTRY_SIZE;
	/* One more, because calloc of 0 bytes may return NULL. */
	block->list = calloc((size_t)count + 1, sizeof(*block->list));
	if (!block->list)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %u sections", reader->path, count);
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *packed = directory + i * DIRECTORY_ENTRY_SIZE;
		extension_section section = {load_u32(packed), load_u64(packed + 8), load_u64(packed + 16),
					     load_u64(packed + 24)};
		int result = check_section(reader, &section, apart ? footer : at, err);
		if (result != BETON_OK)
			return result;
		if (section.offset < end && at < section.offset + section.size)
			return damaged(reader, "a section overlaps its directory", at + i * DIRECTORY_ENTRY_SIZE, err);
		block->list[i] = section;
		if (section.kind >= SECTION_KINDS)
			continue;
		if (block->known[section.kind].offset)
			return damaged(reader, "two sections of one kind", at + i * DIRECTORY_ENTRY_SIZE, err);
		block->known[section.kind] = section;
	}
	block->count = count;
	qsort(block->list, count, sizeof(*block->list), compare_offsets);
	for (uint32_t i = 1; i < count; i++)
		if (block->list[i].offset - block->list[i - 1].offset < block->list[i - 1].size)
			return damaged(reader, "sections overlap", block->list[i].offset, err);
	block->begin = count && block->list[0].offset < at ? block->list[0].offset : at;
	reader->info.data_end = apart ? footer : block->begin;
	reader->info.pages_end = find_pages_end(reader);
	return BETON_OK;
}

/* Reads the block of an intact footer of a known version; its content must be valid. */
static int read_block(beton_reader *reader, const uint8_t *footer, uint64_t footer_offset, const uint8_t *head,
		      beton_error *err)
{
	beton_file_info *info = &reader->info;
	uint8_t directory[EXTENSION_ENTRIES_MAX * DIRECTORY_ENTRY_SIZE];
	uint64_t data = info->metadata_offset + info->num_samples * info->record_size;
	uint64_t at = load_u64(footer + FOOTER_DIRECTORY);
	uint32_t count = load_u32(footer + FOOTER_ENTRIES);
	if (count > EXTENSION_ENTRIES_MAX)
		return damaged(reader, "its directory has more than 64 entries", footer_offset, err);
	size_t size = count * DIRECTORY_ENTRY_SIZE;
	if (at < data || at > footer_offset || size > footer_offset - at)
		return damaged(reader, "its directory lies outside of it", footer_offset, err);
	if (XXH3_64bits(head, (size_t)info->metadata_offset) != load_u64(footer + FOOTER_HEADER_SUM))
		return bt_fail(err, BETON_FORMAT,
			       "%s: header and list of fields (offsets 0 to %llu) do not match their checksum",
			       reader->path, (unsigned long long)info->metadata_offset);
	int result = bt_read_section(reader, "extension block", directory, size, at, err);
	if (result != BETON_OK)
		return result;
	if (XXH3_64bits(directory, size) != load_u64(footer + FOOTER_DIRECTORY_SUM))
		return damaged(reader, "its directory does not match its checksum", at, err);
	reader->extension.directory = at;
	result = read_sections(reader, directory, count, footer_offset, err);
	if (result != BETON_OK)
		return result;
	const extension_section *known = reader->extension.known;
	info->has_extension = true;
	info->has_checksums = known[SECTION_BLOB_SUMS].offset != 0;
	info->has_facts = known[SECTION_FACTS].offset != 0;
	info->has_sources = known[SECTION_SOURCES].offset != 0;
	info->has_jpeg_indexes = known[SECTION_JPEG_PLACES].offset && known[SECTION_JPEG_INDEXES].offset;
	info->ordered = load_u64(footer + FOOTER_FLAGS) & EXTENSION_TABLE_IN_ORDER;
	reader->metadata.sums = known[SECTION_METADATA_SUMS].offset;
	reader->table.sums = known[SECTION_TABLE_SUMS].offset;
	return BETON_OK;
}

/* Reads the block that the footer at `offset` describes. */
static int read_by_footer(beton_reader *reader, const uint8_t *bytes, uint64_t offset, const uint8_t *head,
			  beton_error *err)
{
	uint8_t footer[FOOTER_SIZE];
	memcpy(footer, bytes, FOOTER_SIZE);
	/* Without the magic these bytes belong to a page, unless the magic itself is damaged. */
	bool magic = memcmp(footer, FOOTER_MAGIC, 8) == 0;
	memcpy(footer, FOOTER_MAGIC, 8);
	bool whole = XXH3_64bits(footer, FOOTER_SUM) == load_u64(footer + FOOTER_SUM);
	if (!magic && !whole)
		return BETON_OK;
	if (!magic || !whole)
		return damaged(reader, "its footer does not match its checksum", offset, err);
	uint32_t version = load_u32(footer + FOOTER_VERSION);
	if (version == 0)
		return damaged(reader, "it says version 0", offset, err);
	/* A later version's content is unknown. Without the block the file is one that FFCV could have written. */
	reader->extension.version = version;
	reader->extension.ignored = version > EXTENSION_APART;
	return reader->extension.ignored ? BETON_OK : read_block(reader, footer, offset, head, err);
}

int bt_extension_read(beton_reader *reader, const uint8_t *head, beton_error *err)
{
	enum { TRIES = 8 };
	const beton_file_info *info = &reader->info;
	uint64_t data = info->metadata_offset + info->num_samples * info->record_size;
	if (info->alloc_table_offset - data < FOOTER_SIZE)
		return BETON_OK;
	uint8_t footer[FOOTER_SIZE], now[FOOTER_SIZE];
	uint64_t offset = info->alloc_table_offset - FOOTER_SIZE;
	int result = bt_read_section(reader, "extension block", footer, FOOTER_SIZE, offset, err);
	for (int i = 0; result == BETON_OK && i < TRIES; i++) {
		result = read_by_footer(reader, footer, offset, head, err);
		/* An index may be taken out meanwhile: the directory is cleared then, but the footer before it. */
		if (result != BETON_FORMAT ||
		    bt_read_section(reader, "extension block", now, FOOTER_SIZE, offset, NULL) != BETON_OK ||
		    memcmp(now, footer, FOOTER_SIZE) == 0)
			return result;
		free(reader->extension.list);
		reader->extension = (extension_block){0};
		memcpy(footer, now, FOOTER_SIZE);
		result = i + 1 < TRIES ? BETON_OK : result;
	}
	return result;
}

bool bt_extension_touches(const extension_block *block, uint64_t offset, uint64_t size)
{
	uint64_t end = offset + size, directory_end = block->directory + block->count * DIRECTORY_ENTRY_SIZE;
	if (block->version != EXTENSION_APART || block->ignored || size == 0)
		return false;
	for (uint32_t i = 0; i < block->count; i++)
		if (offset < block->list[i].offset + block->list[i].size && block->list[i].offset < end)
			return true;
	return offset < directory_end && block->directory < end;
}

/* XXH3-64 of size bytes of the file at offset. Errors: IO, FILE_CHANGED, NO_MEMORY. */
static int sum_range(const beton_reader *reader, const char *section, uint64_t offset, uint64_t size, uint64_t *sum,
		     beton_error *err)
{
	uint8_t *buffer = malloc(RANGE_BUFFER);
	XXH3_state_t *state = XXH3_createState();
	int result = BETON_OK;
	if (!buffer || !state)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", reader->path);
	else
		XXH3_64bits_reset(state);
	while (result == BETON_OK && size > 0) {
		size_t count = size < RANGE_BUFFER ? (size_t)size : RANGE_BUFFER;
		result = bt_read_section(reader, section, buffer, count, offset, err);
		if (result == BETON_OK)
			XXH3_64bits_update(state, buffer, count);
		offset += count;
		size -= count;
	}
	if (result == BETON_OK)
		*sum = XXH3_64bits_digest(state);
	XXH3_freeState(state);
	free(buffer);
	return result;
}

int bt_extension_check(const beton_reader *reader, const extension_section *section, beton_error *err)
{
	uint64_t sum;
	const char *name = bt_section_name(section->kind);
	int result = sum_range(reader, name, section->offset, section->size, &sum, err);
	if (result == BETON_OK && sum != section->sum)
		result = bt_fail(err, BETON_FORMAT,
				 "%s: extension block: the %s at offset %llu do not match their checksum", reader->path,
				 name, (unsigned long long)section->offset);
	return result;
}

/* Reads the facts into *out, which the caller frees. */
static int read_facts(const beton_reader *reader, const extension_section *section, char **out, beton_error *err)
{
	size_t size = (size_t)section->size;
	char *text = malloc(size + 1);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its facts (%zu bytes)", reader->path, size);
	text[size] = 0;
	json_t *root = NULL;
	int result = bt_read_section(reader, "facts", text, size, section->offset, err);
	if (result == BETON_OK && XXH3_64bits(text, size) != section->sum)
		result = damaged(reader, "the facts do not match their checksum", section->offset, err);
	if (result == BETON_OK) {
		root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
		if (!json_is_object(root))
			result = damaged(reader, "the facts are not a JSON object", section->offset, err);
	}
	json_decref(root);
	if (result == BETON_OK)
		*out = text;
	else
		free(text);
	return result;
}

int beton_reader_dictionaries(const beton_reader *reader, void **out, uint64_t *size, beton_error *err)
{
	if (BT_MISSING(err, reader, out, size))
		return BETON_INVALID_ARGUMENT;
	const extension_section *section = &reader->extension.known[SECTION_DICTIONARIES];
	*out = NULL;
	*size = 0;
	if (!section->offset)
		return BETON_OK;
	void *bytes = malloc((size_t)section->size + 1);
	if (!bytes)
		return bt_fail(err, BETON_NO_MEMORY, "%s: no memory for its dictionaries (%llu bytes)", reader->path,
			       (unsigned long long)section->size);
	int result = bt_read_section(reader, "dictionaries", bytes, (size_t)section->size, section->offset, err);
	if (result == BETON_OK && XXH3_64bits(bytes, (size_t)section->size) != section->sum)
		result = damaged(reader, "the dictionaries do not match their checksum", section->offset, err);
	if (result != BETON_OK) {
		free(bytes);
		return result;
	}
	*out = bytes;
	*size = section->size;
	return BETON_OK;
}

const char *beton_reader_facts(const beton_reader *reader, beton_error *err)
{
	if (BT_MISSING(err, reader))
		return NULL;
	/* The facts are read once. The object is not const, and its lock guards this member. */
	beton_reader *self = (beton_reader *)reader;
	const extension_section *section = &reader->extension.known[SECTION_FACTS];
	if (!section->offset) {
		bt_fail(err, BETON_NOT_FOUND, "%s: it holds no facts", reader->path);
		return NULL;
	}
	pthread_mutex_lock(&self->lock);
	if (!self->facts)
		read_facts(reader, section, &self->facts, err);
	const char *facts = self->facts;
	pthread_mutex_unlock(&self->lock);
	return facts;
}
