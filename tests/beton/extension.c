/* SPDX-License-Identifier: Apache-2.0
 *
 * The extension block and compressed fields, read from files that libbeton did not write: what is whole reads back, and
 * what is damaged is found. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/made_file.h"

enum { SAMPLES = 4 };

static const char facts[] = "{\"writer\": \"by hand\", \"classes\": [\"cat\", \"dog\"]}";
static const made_options usual = {.samples = SAMPLES, .dictionary = true, .facts = facts};

static const char *path;

static int setup(void **state)
{
	(void)state;
	make_folder();
	static char kept[512];
	snprintf(kept, sizeof(kept), "%s", in_folder("made.beton"));
	path = kept;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

/* The pages are zeros for the most part: written as a hole, which is a hundred times as fast. */
static void save(const made_file *file)
{
	enum { BLOCK = 4096 };
	static const uint8_t zeros[BLOCK];
	write_file(path, "", 0);
	for (size_t at = 0, size; at < file->size; at += size) {
		size = file->size - at < BLOCK ? file->size - at : BLOCK;
		if (memcmp(file->data + at, zeros, size) != 0)
			patch_file(path, at, file->data + at, size);
	}
	assert_int_equal(truncate(path, (off_t)file->size), 0);
}

static void expect_text(const beton_reader *reader, uint64_t sample)
{
	beton_value value;
	beton_error err;
	char expected[MADE_TEXT_MAX], text[MADE_TEXT_MAX];
	float vector[MADE_VECTOR];
	assert_int_equal(beton_reader_value(reader, sample, 3, &value, &err), BETON_OK);
	assert_int_equal(value.type, BETON_FIELD_JSON);
	assert_int_equal(value.compression, BETON_COMPRESSION_ZSTD);
	assert_int_equal(value.size, made_text(sample, expected));
	if (beton_reader_read_value(reader, &value, text, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_string_equal(text, expected);
	assert_int_equal(beton_reader_value(reader, sample, 4, &value, &err), BETON_OK);
	assert_int_equal(value.size, sizeof(vector));
	if (beton_reader_read_value(reader, &value, vector, &err) != BETON_OK)
		fail_msg("%s", err.message);
	for (uint32_t i = 0; i < MADE_VECTOR; i++)
		assert_true(vector[i] == made_element(sample, i));
}

static void test_whole_files(void **state)
{
	(void)state;
	for (int kind = 0; kind < 8; kind++) {
		made_options options = {.samples = kind & 1 ? 3000 : SAMPLES,
					.dictionary = kind & 2,
					.unordered = kind & 4,
					.facts = facts};
		made_file file = make_file(&options);
		save(&file);
		beton_reader *reader = open_good(path);
		const beton_file_info *info = beton_reader_info(reader);
		beton_error err;
		assert_true(info->has_extension && info->has_checksums && info->has_facts);
		assert_int_equal(info->ordered, !options.unordered);
		assert_int_equal(info->data_end, file.sections[1]);
		assert_int_equal(info->record_size, MADE_RECORD);
		for (int i = 0; i < 2; i++)
			assert_string_equal(beton_reader_facts(reader, &err), facts);
		if (beton_reader_check_structure(reader, &err) != BETON_OK)
			fail_msg("%s", err.message);
		assert_int_equal(read_everything(reader), 0);
		for (uint64_t sample = 0; sample < options.samples; sample++)
			expect_text(reader, sample);
		beton_reader_close(&reader);
		free(file.data);
	}
}

static void test_file_without_a_block(void **state)
{
	(void)state;
	made_file file = make_file(&(made_options){.samples = SAMPLES, .plain = true});
	save(&file);
	beton_reader *reader = open_good(path);
	beton_error err;
	assert_false(beton_reader_info(reader)->has_extension);
	assert_null(beton_reader_facts(reader, &err));
	assert_int_equal(err.code, BETON_NOT_FOUND);
	expect_text(reader, 2);
	assert_int_equal(read_everything(reader), 0);
	assert_int_equal(beton_reader_check_structure(reader, &err), BETON_OK);
	beton_reader_close(&reader);
	free(file.data);
}

static void test_file_without_samples(void **state)
{
	(void)state;
	made_file file = make_file(&(made_options){.facts = "{}"});
	save(&file);
	beton_reader *reader = open_good(path);
	beton_error err;
	assert_true(beton_reader_info(reader)->has_extension);
	assert_int_equal(beton_reader_check_structure(reader, &err), BETON_OK);
	assert_string_equal(beton_reader_facts(reader, &err), "{}");
	beton_reader_close(&reader);
	free(file.data);
}

/* The first fault that open, the check of the structure, the facts or any value shows; BETON_OK: there is none. */
static int find_fault(void)
{
	beton_reader *reader;
	beton_error err = {0};
	int result = beton_reader_open(&reader, path, &err);
	if (result != BETON_OK) {
		assert_int_equal(err.code, result);
		return result;
	}
	result = beton_reader_check_structure(reader, &err);
	if (result == BETON_OK && beton_reader_info(reader)->has_facts && !beton_reader_facts(reader, &err))
		result = err.code;
	/* Both, whatever the structure's check says: nothing may be read out of bounds. */
	uint64_t damaged = read_everything(reader);
	if (result == BETON_OK && damaged)
		result = BETON_SAMPLE_CORRUPT;
	beton_reader_close(&reader);
	return result;
}

static void expect_every_flip_found(const made_file *file, uint64_t from, uint64_t to)
{
	for (uint64_t at = from; at < to; at++)
		for (int bit = 0; bit < 8; bit++) {
			/* Sanitizers' findings do not depend on the bit. */
			if (SANITIZED && bit != (int)(at % 8))
				continue;
			uint8_t flipped = (uint8_t)(file->data[at] ^ 1 << bit);
			patch_file(path, at, &flipped, 1);
			if (find_fault() == BETON_OK)
				fail_msg("bit %d of the byte at offset %llu", bit, (unsigned long long)at);
			patch_file(path, at, &file->data[at], 1);
		}
}

/* Checksums cover every byte that means something, so no flipped bit goes unnoticed. */
static void test_15_18_every_flipped_bit(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	save(&file);
	assert_int_equal(find_fault(), BETON_OK);
	/* Only the beginnings of the field descriptors, which are mostly zeros. */
	expect_every_flip_found(&file, 0, MADE_HEADER);
	for (uint64_t i = 0; i < MADE_FIELDS; i++) {
		uint64_t field = MADE_HEADER + i * MADE_FIELD;
		expect_every_flip_found(&file, field, field + 30);
		expect_every_flip_found(&file, field + 17 + 256, field + 17 + 280);
		expect_every_flip_found(&file, field + 17 + 958, field + 17 + 978);
	}
	expect_every_flip_found(&file, MADE_METADATA, MADE_METADATA + SAMPLES * MADE_RECORD);
	for (uint64_t i = 0; i < SAMPLES * MADE_BLOBS; i++) {
		uint64_t pointer = peek(&file, file.table + i * MADE_ENTRY + 8, 8);
		expect_every_flip_found(&file, pointer, pointer + peek(&file, file.table + i * MADE_ENTRY + 16, 8));
	}
	expect_every_flip_found(&file, file.sections[1], file.size);
	free(file.data);
}

static void test_1_every_truncation(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	save(&file);
	for (uint64_t length = file.size; length-- > 0;) {
		if (length > MADE_METADATA + 500 && length < file.sections[1] - 100 && length % 40961)
			continue;
		assert_int_equal(truncate(path, (off_t)length), 0);
		expect_refusal(path, BETON_TRUNCATED);
	}
	free(file.data);
}

/* An edit with checksums that match it: the result of the later checks. */
static int edit(uint64_t offset, uint64_t value, size_t bytes, int seal)
{
	made_file file = make_file(&usual);
	if (bytes)
		poke(&file, offset, value, bytes);
	seal_file(&file, seal);
	save(&file);
	free(file.data);
	return find_fault();
}

static void test_versions_and_magic(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	uint64_t footer = file.footer;
	free(file.data);
	assert_int_equal(edit(footer + 8, 0, 4, SEAL_FOOTER), BETON_FORMAT);
	assert_int_equal(edit(footer + 8, 3, 4, 0), BETON_FORMAT);
	/* Content valid in version 1 is valid in version 2. */
	assert_int_equal(edit(footer + 8, 2, 4, SEAL_FOOTER), BETON_OK);
	/* A later version's block is not looked at: neither its facts nor the dictionary that the text needs. */
	for (int kind = 0; kind < 2; kind++) {
		if (kind == 0)
			assert_int_equal(edit(footer + 8, 3, 4, SEAL_FOOTER), BETON_SAMPLE_CORRUPT);
		else
			assert_int_equal(edit(footer, 0, 8, SEAL_FOOTER), BETON_SAMPLE_CORRUPT);
		beton_reader *reader = open_good(path);
		assert_false(beton_reader_info(reader)->has_extension);
		assert_null(beton_reader_facts(reader, NULL));
		assert_int_equal(read_everything(reader), SAMPLES);
		beton_reader_close(&reader);
	}
}

static void test_places_and_sizes(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	const uint64_t at = file.directory;
	const uint64_t footer = file.footer;
	const struct {
		uint64_t offset, value;
		size_t bytes;
	} edits[] = {
		{footer + 12, 65, 4},
		{footer + 12, UINT32_MAX, 4},
		{footer + 16, 0, 8},
		{footer + 16, footer - 39, 8},
		{footer + 16, footer + 1, 8},
		{footer + 16, UINT64_MAX, 8},
		{at + 8, 0, 8},                                                     /* a section in the header */
		{at + 8, MADE_METADATA, 8},                                         /* in the metadata */
		{at + 8, at, 8},                                                    /* in the directory */
		{at + 8, UINT64_MAX, 8},                                            /* nowhere */
		{at + 8, file.sections[1] + 8, 8},                                  /* over the next one */
		{at + 16, UINT64_MAX, 8},                                           /* overflows */
		{at + 16, SAMPLES * MADE_BLOBS * 8 - 8, 8},                         /* a checksum too few */
		{at + MADE_DIRECTORY_ENTRY + 16, 16, 8},                            /* of the metadata, one too many */
		{at + 2 * MADE_DIRECTORY_ENTRY + 16, 0, 8},                         /* of the table, none */
		{at + MADE_DIRECTORY_ENTRY, 1, 4},                                  /* two of one kind */
		{at + 3 * MADE_DIRECTORY_ENTRY + 16, at - file.sections[4] + 1, 8}, /* facts into the directory */
		{at + 3 * MADE_DIRECTORY_ENTRY + 16, at - file.sections[4], 8},     /* over the dictionaries */
	};
	for (size_t i = 0; i < sizeof(edits) / sizeof(*edits); i++) {
		int result = edit(edits[i].offset, edits[i].value, edits[i].bytes, 0);
		assert_int_equal(result, BETON_FORMAT);
		/* The directory's checksum is computed over what lies in the usual place. */
		int seal = SEAL_FOOTER | (edits[i].offset < footer ? SEAL_DIRECTORY : 0);
		result = edit(edits[i].offset, edits[i].value, edits[i].bytes, seal);
		if (result != BETON_FORMAT)
			fail_msg("edit %zu: %s", i, beton_status_name(result));
		expect_refusal(path, BETON_FORMAT);
	}
	free(file.data);
	/* Facts that would need a gigabyte of memory, in a sparse file. */
	file = make_file(&(made_options){.facts = "{}"});
	uint64_t hole = UINT64_C(1) << 30;
	poke(&file, file.directory + 3 * MADE_DIRECTORY_ENTRY + 16, hole, 8);
	poke(&file, file.directory + 4 * MADE_DIRECTORY_ENTRY + 8, file.sections[5] + hole, 8);
	poke(&file, file.footer + 16, file.directory + hole, 8);
	poke(&file, 16, file.table + hole, 8);
	seal_file(&file, SEAL_DIRECTORY | SEAL_FOOTER);
	write_file(path, file.data, (size_t)file.directory);
	patch_file(path, file.directory + hole, file.data + file.directory, file.size - (size_t)file.directory);
	expect_refusal(path, BETON_FORMAT);
	free(file.data);
}

static void test_unknown_sections_are_ignored(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	const uint64_t entry = file.directory + 3 * MADE_DIRECTORY_ENTRY;
	free(file.data);
	static const uint32_t kinds[] = {0, 9, 77, UINT32_MAX};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		assert_int_equal(edit(entry, kinds[i], 4, SEAL_DIRECTORY | SEAL_FOOTER), BETON_OK);
		beton_reader *reader = open_good(path);
		assert_false(beton_reader_info(reader)->has_facts);
		beton_reader_close(&reader);
	}
}

static void test_facts(void **state)
{
	(void)state;
	static const char *const bad[] = {
		"", "{", "[1]", "5", "{\"a\": 1, \"a\": 2}", "{} x", "{\"a\"}", "{\"a\": \"\xff\"}"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		made_file file = make_file(&(made_options){.samples = 1, .facts = bad[i]});
		save(&file);
		free(file.data);
		beton_reader *reader = open_good(path);
		beton_error err = {0};
		assert_null(beton_reader_facts(reader, &err));
		assert_int_equal(err.code, BETON_FORMAT);
		assert_null(beton_reader_facts(reader, NULL));
		assert_int_equal(read_everything(reader), 0);
		beton_reader_close(&reader);
	}
}

/* A piece of the metadata, or of the table, that is damaged costs its samples and no others. */
static void test_damage_stays_in_its_piece(void **state)
{
	(void)state;
	enum { MANY = 3000, PIECE_SAMPLES = 65536 / MADE_RECORD, PIECE_ENTRIES = 4096 };
	for (int kind = 0; kind < 4; kind++) {
		bool metadata = kind < 2;
		made_file file = make_file(&(made_options){.samples = MANY, .unordered = kind & 1});
		uint64_t at = metadata ? MADE_METADATA + 65536 + 1000 : file.table + 4096 * MADE_ENTRY + 16;
		uint8_t flipped = file.data[at] ^ 1;
		save(&file);
		patch_file(path, at, &flipped, 1);
		beton_reader *reader = open_good(path);
		uint64_t damaged = 0;
		beton_error err = {0};
		for (uint64_t i = 0; i < MANY; i++) {
			beton_value values[MADE_FIELDS];
			int result = beton_reader_sample(reader, i, values, &err);
			damaged += result != BETON_OK;
			if (result == BETON_OK)
				continue;
			assert_int_equal(result, BETON_SAMPLE_CORRUPT);
			assert_int_equal(err.sample, i);
			assert_true(!metadata || strstr(err.message, "do not match their checksum"));
			/* Without its table entry a sample still has its label. */
			assert_int_equal(values[1].status, metadata ? BETON_SAMPLE_CORRUPT : BETON_OK);
			assert_int_equal(values[0].status, BETON_SAMPLE_CORRUPT);
			if (!metadata)
				assert_int_equal(values[1].integer, i * 5);
		}
		assert_in_range(damaged, 1, metadata ? PIECE_SAMPLES + 2 : PIECE_ENTRIES / MADE_BLOBS + 1);
		assert_int_equal(beton_reader_check_structure(reader, &err), BETON_FORMAT);
		beton_reader_close(&reader);
		free(file.data);
	}
}

/* A table that is said to be in order, and is not. */
static void test_false_order(void **state)
{
	(void)state;
	made_file file = make_file(&(made_options){.samples = SAMPLES, .unordered = true});
	poke(&file, file.footer + 32, 1, 8);
	seal_file(&file, SEAL_FOOTER);
	save(&file);
	beton_reader *reader = open_good(path);
	assert_int_equal(read_everything(reader), SAMPLES * MADE_BLOBS);
	beton_error err;
	assert_int_equal(beton_reader_check_structure(reader, &err), BETON_FORMAT);
	assert_non_null(strstr(err.message, "does not stand at its sample's place"));
	beton_reader_close(&reader);
	free(file.data);
}

static void test_7_compressed_field_types(void **state)
{
	(void)state;
	const uint64_t mark = MADE_HEADER + 3 * MADE_FIELD + 17 + 960;
	const struct {
		uint64_t offset, value;
		size_t bytes;
		int code;
	} edits[] = {{mark, 'X', 1, BETON_UNSUPPORTED_FIELD},
		     {mark + 12, 2, 4, BETON_UNSUPPORTED_FIELD},
		     {mark + 12, 0, 4, BETON_UNSUPPORTED_FIELD},
		     {mark + 8, 0, 4, BETON_FORMAT},
		     {mark + 8, 1, 4, BETON_FORMAT},
		     {mark + 8, 2, 4, BETON_FORMAT},
		     {mark + 8, 7, 4, BETON_FORMAT},
		     {mark + 8, 255, 4, BETON_FORMAT},
		     {mark + 8, UINT32_MAX, 4, BETON_FORMAT},
		     {mark + 8, 4, 4, BETON_FORMAT},                        /* an array without a type */
		     {mark + MADE_FIELD - 960 + 256, 697, 8, BETON_FORMAT}, /* a type that reaches the mark */
		     {mark + MADE_FIELD - 960, 1u << 31, 8, BETON_FORMAT}}; /* 8 GiB */
	for (size_t i = 0; i < sizeof(edits) / sizeof(*edits); i++) {
		int result = edit(edits[i].offset, edits[i].value, edits[i].bytes, SEAL_ALL);
		if (result != edits[i].code)
			fail_msg("edit %zu: %s", i, beton_status_name(result));
	}
	/* Bytes may be compressed as JSON may. */
	assert_int_equal(edit(mark + 8, 3, 4, SEAL_ALL), BETON_OK);
}

static void test_13_decompressed_sizes(void **state)
{
	(void)state;
	const uint64_t slots[] = {MADE_METADATA + MADE_RECORD + MADE_TEXT + 16,
				  MADE_METADATA + MADE_RECORD + MADE_VECTOR_SLOT + 16};
	static const uint64_t sizes[] = {
		0, 1, 10, 64, 255, 257, 4096, UINT32_MAX, UINT64_C(1) << 32, (UINT64_C(1) << 32) + 1, UINT64_MAX};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		for (int k = 0; k < 2; k++) {
			/* Some sizes cannot be, whatever the content. */
			int result = edit(slots[k], sizes[i], 8, SEAL_ALL);
			assert_true(result == BETON_SAMPLE_CORRUPT || result == BETON_FORMAT);
			beton_reader *reader = open_good(path);
			assert_int_equal(read_everything(reader), 1);
			beton_reader_close(&reader);
		}
	assert_int_equal(edit(slots[0] - 8, 5, 8, SEAL_ALL), BETON_FORMAT);
	/* Any bytes may stand where compressed ones should. */
	made_file file = make_file(&usual);
	uint64_t blob = peek(&file, slots[0] - 16, 8);
	uint64_t size = peek(&file, slots[0] - 8, 8);
	free(file.data);
	for (uint64_t i = 0; i < size; i++)
		for (int value = 0; value < 256; value += SANITIZED ? 255 : 51)
			edit(blob + i, (uint64_t)value, 1, SEAL_ALL);
}

static void test_dictionaries(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	const uint64_t at = file.sections[5];
	const uint64_t entry = file.directory + 4 * MADE_DIRECTORY_ENTRY;
	free(file.data);
	const struct {
		uint64_t offset, value;
		size_t bytes;
	} edits[] = {
		{at, 0, 4},       {at, 1, 4},       {at, MADE_FIELDS, 4}, {at, UINT32_MAX, 4}, {at + 4, 0, 4},
		{at + 4, 201, 4}, {at + 4, 199, 4}, {at + 4, 192, 4},     {entry + 16, 4, 8},  {at + 4, UINT32_MAX, 4},
	};
	for (size_t i = 0; i < sizeof(edits) / sizeof(*edits); i++) {
		edit(edits[i].offset, edits[i].value, edits[i].bytes, SEAL_ALL);
		beton_reader *reader = open_good(path);
		beton_value value;
		beton_error err;
		char text[MADE_TEXT_MAX];
		assert_int_equal(beton_reader_value(reader, 1, 3, &value, &err), BETON_OK);
		assert_int_equal(beton_reader_read_value(reader, &value, text, &err), BETON_FORMAT);
		assert_non_null(strstr(err.message, "dictionary"));
		beton_reader_close(&reader);
	}
	/* Another field's: the text cannot be read without its own. Two for one field. */
	assert_int_equal(edit(at, 4, 4, SEAL_ALL), BETON_SAMPLE_CORRUPT);
	file = make_file(&usual);
	poke(&file, at + 4, 92, 4);
	poke(&file, at + 100, 3, 4);
	poke(&file, at + 104, 100, 4);
	seal_file(&file, SEAL_ALL);
	save(&file);
	free(file.data);
	assert_int_equal(find_fault(), BETON_SAMPLE_CORRUPT);
}

static void test_check_arguments(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	save(&file);
	free(file.data);
	beton_reader *reader = open_good(path);
	beton_value value;
	uint8_t bytes[64];
	assert_int_equal(beton_reader_value(reader, 0, 0, &value, NULL), BETON_OK);
	assert_int_equal(beton_reader_read(reader, &value.blob, bytes, NULL), BETON_OK);
	assert_int_equal(beton_reader_check(reader, &value, bytes, NULL), BETON_OK);
	bytes[3] ^= 1;
	beton_error err;
	assert_int_equal(beton_reader_check(reader, &value, bytes, &err), BETON_SAMPLE_CORRUPT);
	assert_int_equal(err.sample, 0);
	assert_non_null(strstr(err.message, "'picture'"));
	value.entry = SAMPLES * MADE_BLOBS;
	assert_int_equal(beton_reader_check(reader, &value, bytes, NULL), BETON_INVALID_ARGUMENT);
	value = (beton_value){.type = BETON_FIELD_IMAGE, .field = MADE_FIELDS};
	assert_int_equal(beton_reader_check(reader, &value, bytes, NULL), BETON_INVALID_ARGUMENT);
	value.type = BETON_FIELD_INT;
	assert_int_equal(beton_reader_check(reader, &value, bytes, NULL), BETON_OK);
	assert_int_equal(beton_reader_sample(reader, SAMPLES, &value, NULL), BETON_INVALID_ARGUMENT);
	beton_reader_close(&reader);
}

/* A fixed sequence of edits, each followed by corrected checksums. */
static void test_15_many_sealed_edits(void **state)
{
	(void)state;
	made_file file = make_file(&usual);
	uint64_t random = 88172645463325252u;
	for (int i = 0; i < (SANITIZED ? 500 : 4000); i++) {
		made_file copy = file;
		copy.data = malloc(file.size);
		assert_non_null(copy.data);
		memcpy(copy.data, file.data, file.size);
		for (int edits = 0; edits < 3; edits++) {
			random ^= random << 13;
			random ^= random >> 7;
			random ^= random << 17;
			static const uint64_t values[] = {0, 1, MADE_PAGE, UINT64_MAX, 1u << 31, 40};
			uint64_t at =
				random % (MADE_METADATA + SAMPLES * MADE_RECORD + file.size - file.sections[1] - 8);
			if (at >= MADE_METADATA + SAMPLES * MADE_RECORD)
				at = at - (MADE_METADATA + SAMPLES * MADE_RECORD) + file.sections[1];
			poke(&copy, at, random >> 60 < 6 ? values[random >> 60] : random >> 8,
			     (size_t)1 << (random >> 56 & 3));
		}
		/* The sections' sizes are what the checksums go by. */
		for (int k = 0; k < 5; k++)
			memcpy(copy.data + file.directory + k * MADE_DIRECTORY_ENTRY + 16,
			       file.data + file.directory + k * MADE_DIRECTORY_ENTRY + 16, random & 1 ? 8 : 0);
		if (random & 1)
			seal_file(&copy, SEAL_ALL);
		save(&copy);
		find_fault();
		free(copy.data);
	}
	free(file.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_files),
		cmocka_unit_test(test_file_without_a_block),
		cmocka_unit_test(test_file_without_samples),
		cmocka_unit_test(test_15_18_every_flipped_bit),
		cmocka_unit_test(test_1_every_truncation),
		cmocka_unit_test(test_versions_and_magic),
		cmocka_unit_test(test_places_and_sizes),
		cmocka_unit_test(test_unknown_sections_are_ignored),
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_damage_stays_in_its_piece),
		cmocka_unit_test(test_false_order),
		cmocka_unit_test(test_7_compressed_field_types),
		cmocka_unit_test(test_13_decompressed_sizes),
		cmocka_unit_test(test_dictionaries),
		cmocka_unit_test(test_check_arguments),
		cmocka_unit_test(test_15_many_sealed_edits),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
