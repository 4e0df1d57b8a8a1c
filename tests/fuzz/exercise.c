/* SPDX-License-Identifier: Apache-2.0 */
#include "exercise.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/beton.h>

enum { VALUES_MAX = 5000, SIZE_MAX_READ = 1 << 22 };

void require(int condition, const char *what)
{
	if (condition)
		return;
	fprintf(stderr, "fuzz: not so: %s\n", what);
	abort();
}

static void read_value(const beton_reader *reader, const beton_value *value)
{
	const beton_file_info *info = beton_reader_info(reader);
	if (value->type == BETON_FIELD_INT || value->type == BETON_FIELD_FLOAT)
		return;
	beton_error err = {0};
	require(value->blob.size <= info->page_size, "a blob fits a page");
	require(value->entry < info->alloc_entries, "a value's entry is one of the table's");
	require(value->compression != BETON_COMPRESSION_NONE || value->size == value->blob.size,
		"a value without compression has the size of its blob");
	if (value->blob.size)
		require(value->blob.offset >= info->metadata_offset && value->blob.offset < info->data_end &&
				value->blob.size <= info->data_end - value->blob.offset,
			"a blob lies between the metadata and the end of the pages");
	/* A value's claimed size after decompression costs memory; the bound on it is tested elsewhere. */
	if (value->size > SIZE_MAX_READ)
		return;
	uint8_t *bytes = malloc((size_t)(value->size > value->blob.size ? value->size : value->blob.size));
	if (bytes) {
		require(beton_reader_read(reader, &value->blob, bytes, NULL) == BETON_OK, "a checked blob can be read");
		int result = beton_reader_read_value(reader, value, bytes, &err);
		require(result == BETON_OK || result == BETON_SAMPLE_CORRUPT || result == BETON_FORMAT,
			"a value can be read, or is damaged");
		require(result == BETON_OK || err.message[0], "damage says so");
	}
	free(bytes);
}

static void read_index(const beton_reader *reader, const beton_value *value)
{
	uint8_t *stored = malloc((size_t)value->blob.size + 1), *entry = malloc(BETON_JPEG_INDEX_MAX);
	const void *index;
	size_t size = 0;
	beton_blob place;
	beton_error err = {0};
	if (stored && entry && beton_reader_read(reader, &value->blob, stored, NULL) == BETON_OK) {
		int result = beton_reader_jpeg_index(reader, value, &place, &err);
		if (result == BETON_OK && place.size &&
		    beton_reader_read_jpeg_index(reader, &place, entry, NULL) == BETON_OK)
			result =
				beton_reader_open_jpeg_index(reader, value, &place, entry, stored, &index, &size, &err);
		require(result == BETON_OK || (result == BETON_FORMAT && err.message[0]),
			"an index is there, or damaged");
		require(result == BETON_OK || size == 0, "a damaged index is not given");
		require(size <= BETON_JPEG_INDEX_MAX, "an index has its room");
	}
	free(stored);
	free(entry);
}

/* Returns how many values are damaged by what their records and entries say. */
static int read_samples(const beton_reader *reader)
{
	int all = 0;
	const beton_file_info *info = beton_reader_info(reader);
	beton_value *values = calloc(info->num_fields, sizeof(*values));
	uint64_t done = 0;
	for (uint64_t sample = 0; values && sample < info->num_samples && done < VALUES_MAX; sample++) {
		beton_error err = {0};
		int whole = beton_reader_sample(reader, sample, values, &err);
		require(whole == BETON_OK || (whole == BETON_SAMPLE_CORRUPT && err.code == whole &&
					      err.sample == (int64_t)sample && err.message[0]),
			"a damaged sample says so");
		int damaged = 0;
		for (uint32_t i = 0; i < info->num_fields; i++, done++) {
			beton_value value;
			int result = beton_reader_value(reader, sample, i, &value, &err);
			require(result == values[i].status, "a value alone is what it is in its sample");
			damaged += result != BETON_OK;
			if (result == BETON_OK)
				read_value(reader, &value);
			if (result == BETON_OK && value.type == BETON_FIELD_IMAGE)
				read_index(reader, &value);
		}
		require((whole != BETON_OK) == (damaged > 0), "a sample is damaged if a value of it is");
		all += damaged;
	}
	free(values);
	return all;
}

void exercise_reader(const char *path)
{
	beton_reader *reader;
	beton_error err = {0};
	int result = beton_reader_open(&reader, path, &err);
	require(result == BETON_OK ? reader != NULL : !reader && err.code == result && err.message[0],
		"open gives a reader or an error");
	if (!reader)
		return;
	int structure = beton_reader_check_structure(reader, &err);
	require(structure == BETON_OK || (structure == BETON_FORMAT && err.message[0]), "a damaged structure says so");
	char source[BETON_SOURCE_MAX + 1];
	for (uint64_t i = 0; i < beton_reader_info(reader)->num_samples && i < 3; i++) {
		result = beton_reader_source(reader, i, source, &err);
		require(result == BETON_OK ? strlen(source) <= BETON_SOURCE_MAX : err.message[0] != 0,
			"a source is a text, or there is an error");
	}
	const char *facts = beton_reader_facts(reader, &err);
	require(facts || err.code == BETON_NOT_FOUND || err.code == BETON_FORMAT, "facts are there, or an error is");
	require(!facts || (facts[0] && strchr(facts, '{')), "facts are an object");
	int damaged = read_samples(reader);
	require(structure != BETON_OK || damaged == 0, "a good structure has every value");
	beton_reader_close(&reader);
}
