/* SPDX-License-Identifier: Apache-2.0 */
#include "made_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>
#include <zstd.h>

enum { KINDS = 5, DICTIONARY_SIZE = 200 };

static void require(bool condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "made_file: %s\n", what);
	abort();
}

void poke(made_file *file, uint64_t offset, uint64_t value, size_t bytes)
{
	require(offset + bytes <= file->size, "an edit beyond the end");
	for (size_t i = 0; i < bytes; i++)
		file->data[offset + i] = (uint8_t)(value >> (8 * i));
}

uint64_t peek(const made_file *file, uint64_t offset, size_t bytes)
{
	uint64_t value = 0;
	for (size_t i = bytes; i-- > 0;)
		value = value << 8 | file->data[offset + i];
	return value;
}

size_t made_text(uint64_t sample, char *text)
{
	return (size_t)snprintf(text, MADE_TEXT_MAX, "{\"caption\": \"picture %llu of a made-up set\"}",
				(unsigned long long)sample) +
	       1;
}

float made_element(uint64_t sample, uint32_t i)
{
	return (float)(sample + i / 8);
}

static void make_dictionary(uint8_t *bytes)
{
	for (size_t i = 0; i < DICTIONARY_SIZE;) {
		char text[MADE_TEXT_MAX];
		size_t length = made_text(i, text);
		size_t room = DICTIONARY_SIZE - i;
		memcpy(bytes + i, text, length < room ? length : room);
		i += length;
	}
}

/* Memory for a file of that size: powers of two, so that growing by many small steps copies little. */
static size_t capacity_of(size_t size)
{
	size_t capacity = 4096;
	while (capacity <= size)
		capacity *= 2;
	return capacity;
}

/* Grows the file; the new bytes are zeros. Returns where they begin. */
static uint64_t extend(made_file *file, size_t size)
{
	uint64_t at = file->size;
	file->size += size;
	if (!file->data || capacity_of(at) != capacity_of(file->size)) {
		file->data = realloc(file->data, capacity_of(file->size));
		require(file->data != NULL, "out of memory");
	}
	memset(file->data + at, 0, size);
	return at;
}

/* Makes a field of bytes one of rasters, whose records are as long. */
static void put_raster(made_file *file, uint64_t field)
{
	file->data[field] = 255;
	memcpy(file->data + field + 17, "BETONRAS", 8);
	poke(file, field + 25, 3, 4);
	poke(file, field + 29, 2, 4);
}

static void put_fields(made_file *file, bool raster)
{
	static const struct {
		const char *name;
		uint8_t type, inner;
	} fields[MADE_FIELDS] = {
		{"picture", 2, 0}, {"label", 1, 0}, {"note", 3, 0}, {"text", 255, 5}, {"vector", 255, 4}};
	for (int i = 0; i < MADE_FIELDS; i++) {
		uint64_t at = extend(file, MADE_FIELD);
		file->data[at] = fields[i].type;
		memcpy(file->data + at + 1, fields[i].name, strlen(fields[i].name));
		if (raster && fields[i].type == 3)
			put_raster(file, at);
		if (fields[i].type != 255)
			continue;
		uint64_t arguments = at + 17;
		if (fields[i].inner == 4) {
			static const char type[] = "[[\"\", \"<f4\"]]";
			poke(file, arguments, MADE_VECTOR, 8);
			poke(file, arguments + 256, strlen(type), 8);
			memcpy(file->data + arguments + 264, type, strlen(type));
		}
		memcpy(file->data + arguments + 960, "BETONZST", 8);
		poke(file, arguments + 968, fields[i].inner, 4);
		poke(file, arguments + 972, 1, 4);
	}
}

/* Where blobs go: at the file's end, a sample within one page. */
typedef struct blob_place {
	made_file *file;
	uint64_t sample;
	uint64_t *entries; /* sample, pointer, size of all */
	uint64_t count;
} blob_place;

/* Returns the pointer. */
static uint64_t put_blob(blob_place *place, const void *bytes, size_t size)
{
	/* An empty blob takes a byte, as the writer has it. */
	uint64_t at = extend(place->file, size ? size : 1);
	if (size)
		memcpy(place->file->data + at, bytes, size);
	uint64_t *entry = place->entries + 3 * place->count++;
	entry[0] = place->sample;
	entry[1] = at;
	entry[2] = size;
	return at;
}

static void put_compressed(blob_place *place, uint64_t slot, const void *bytes, size_t size,
			   const ZSTD_CDict *dictionary)
{
	uint8_t packed[1024];
	ZSTD_CCtx *context = ZSTD_createCCtx();
	require(context != NULL, "out of memory");
	size_t stored = dictionary ? ZSTD_compress_usingCDict(context, packed, sizeof(packed), bytes, size, dictionary)
				   : ZSTD_compressCCtx(context, packed, sizeof(packed), bytes, size, 3);
	require(!ZSTD_isError(stored), "a value cannot be compressed");
	ZSTD_freeCCtx(context);
	poke(place->file, slot, put_blob(place, packed, stored), 8);
	poke(place->file, slot + 8, stored, 8);
	poke(place->file, slot + 16, size, 8);
}

static void put_sample(blob_place *place, const ZSTD_CDict *dictionary, bool raster)
{
	made_file *file = place->file;
	uint64_t i = place->sample;
	uint64_t record = MADE_METADATA + i * MADE_RECORD;
	uint8_t bytes[64];
	for (size_t k = 0; k < sizeof(bytes); k++)
		bytes[k] = (uint8_t)(i * 7 + k * 3);
	bool raw = i % 3 == 0;
	poke(file, record, raw, 1);
	poke(file, record + 1, 4, 2);
	poke(file, record + 3, 2, 2);
	poke(file, record + 5, put_blob(place, bytes, raw ? 24 : 1 + i % 60), 8);
	poke(file, record + MADE_LABEL, i * 5, 8);
	size_t note = raster ? MADE_RASTER_WIDTH * MADE_RASTER_HEIGHT * 6 : i % 4 * 9;
	poke(file, record + MADE_NOTE, put_blob(place, bytes, note), 8);
	poke(file, record + MADE_NOTE + 8, raster ? MADE_RASTER_WIDTH | (uint64_t)MADE_RASTER_HEIGHT << 32 : note, 8);
	char text[MADE_TEXT_MAX];
	float vector[MADE_VECTOR];
	put_compressed(place, record + MADE_TEXT, text, made_text(i, text), dictionary);
	for (uint32_t k = 0; k < MADE_VECTOR; k++)
		vector[k] = made_element(i, k);
	put_compressed(place, record + MADE_VECTOR_SLOT, vector, sizeof(vector), NULL);
}

static void put_samples(made_file *file, const made_options *options, uint64_t *entries)
{
	uint8_t content[DICTIONARY_SIZE];
	make_dictionary(content);
	ZSTD_CDict *dictionary = options->dictionary ? ZSTD_createCDict(content, sizeof(content), 3) : NULL;
	blob_place place = {.file = file, .entries = entries};
	extend(file, (size_t)(file->samples * MADE_RECORD));
	for (place.sample = 0; place.sample < file->samples; place.sample++) {
		size_t used = file->size % MADE_PAGE;
		if (!options->compact && (place.sample == 0 || used > MADE_PAGE - 4096))
			extend(file, MADE_PAGE - used);
		put_sample(&place, dictionary, options->raster);
	}
	if (!options->compact && file->size % MADE_PAGE)
		extend(file, MADE_PAGE - file->size % MADE_PAGE);
	ZSTD_freeCDict(dictionary);
}

static uint64_t count_pieces(uint64_t size, uint64_t piece)
{
	return (size + piece - 1) / piece;
}

static void put_block(made_file *file, const made_options *options)
{
	uint64_t entries = file->samples * MADE_BLOBS;
	const char *facts = options->facts ? options->facts : "{}";
	const uint64_t sizes[KINDS] = {entries * 8, count_pieces(file->samples * MADE_RECORD, 65536) * 8,
				       count_pieces(entries, 4096) * 8, strlen(facts),
				       options->dictionary ? 8 + DICTIONARY_SIZE : 0};
	for (int i = 0; i < KINDS; i++)
		file->sections[i + 1] = extend(file, (size_t)sizes[i]);
	memcpy(file->data + file->sections[4], facts, strlen(facts));
	if (options->dictionary) {
		poke(file, file->sections[5], 3, 4);
		poke(file, file->sections[5] + 4, DICTIONARY_SIZE, 4);
		make_dictionary(file->data + file->sections[5] + 8);
	}
	file->directory = extend(file, KINDS * MADE_DIRECTORY_ENTRY);
	for (int i = 0; i < KINDS; i++) {
		uint64_t at = file->directory + (uint64_t)i * MADE_DIRECTORY_ENTRY;
		poke(file, at, (uint64_t)i + 1, 4);
		poke(file, at + 8, file->sections[i + 1], 8);
		poke(file, at + 16, sizes[i], 8);
	}
	file->footer = extend(file, MADE_FOOTER);
	memcpy(file->data + file->footer, "BETONEXT", 8);
	poke(file, file->footer + 8, 1, 4);
	poke(file, file->footer + 12, KINDS, 4);
	poke(file, file->footer + 16, file->directory, 8);
	poke(file, file->footer + 32, !options->unordered, 8);
}

made_file make_file(const made_options *options)
{
	made_file file = {.samples = options->samples};
	uint64_t count = file.samples * MADE_BLOBS;
	uint64_t *entries = calloc((size_t)count * 3 + 1, sizeof(*entries));
	require(entries != NULL, "out of memory");
	extend(&file, MADE_HEADER);
	poke(&file, 0, 2, 2);
	poke(&file, 2, MADE_FIELDS, 2);
	poke(&file, 4, MADE_PAGE, 4);
	poke(&file, 8, file.samples, 8);
	put_fields(&file, options->raster);
	put_samples(&file, options, entries);
	if (!options->plain)
		put_block(&file, options);
	file.table = extend(&file, (size_t)count * MADE_ENTRY);
	for (uint64_t i = 0; i < count; i++)
		for (uint64_t k = 0; k < 3; k++)
			poke(&file, file.table + i * MADE_ENTRY + 8 * k,
			     entries[3 * (options->unordered ? count - 1 - i : i) + k], 8);
	poke(&file, 16, file.table, 8);
	free(entries);
	if (!options->plain)
		seal_file(&file, SEAL_ALL);
	return file;
}

static uint64_t sum(const made_file *file, uint64_t offset, uint64_t size)
{
	require(offset + size <= file->size, "a checksum beyond the end");
	return XXH3_64bits(file->data + offset, (size_t)size);
}

/* One checksum for each piece of a part of the file. */
static void put_sums(made_file *file, uint64_t to, uint64_t from, uint64_t size, uint64_t piece)
{
	for (uint64_t at = 0; at < size; at += piece, to += 8)
		poke(file, to, sum(file, from + at, size - at < piece ? size - at : piece), 8);
}

void seal_file(made_file *file, int what)
{
	uint64_t entries = file->samples * MADE_BLOBS;
	if (what & SEAL_SUMS) {
		for (uint64_t i = 0; i < entries; i++) {
			uint64_t entry = file->table + i * MADE_ENTRY;
			uint64_t pointer = peek(file, entry + 8, 8);
			uint64_t size = peek(file, entry + 16, 8);
			if (pointer <= file->size && size <= file->size - pointer)
				poke(file, file->sections[1] + 8 * i, sum(file, pointer, size), 8);
		}
		put_sums(file, file->sections[2], MADE_METADATA, file->samples * MADE_RECORD, 65536);
		put_sums(file, file->sections[3], file->table, entries * MADE_ENTRY, 4096 * MADE_ENTRY);
	}
	for (int i = 0; i < KINDS && what & SEAL_SECTIONS; i++) {
		uint64_t at = file->directory + (uint64_t)i * MADE_DIRECTORY_ENTRY;
		poke(file, at + 24, sum(file, file->sections[i + 1], peek(file, at + 16, 8)), 8);
	}
	if (what & SEAL_DIRECTORY) {
		poke(file, file->footer + 24, sum(file, file->directory, KINDS * MADE_DIRECTORY_ENTRY), 8);
		poke(file, file->footer + 40, sum(file, 0, MADE_METADATA), 8);
	}
	if (what & SEAL_FOOTER)
		poke(file, file->footer + 56, sum(file, file->footer, 56), 8);
}
