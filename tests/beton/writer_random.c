/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of random schemas and values: what is in them is found by the layout of docs/format.md, which is read here
 * without libbeton, and by libbeton's reader; and the bytes do not depend on the number of threads or on an
 * interruption. BETON_TEST_SEED: where the seeds begin; BETON_TEST_SEEDS: how many. */
#include "tests/support/beton_files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>
#include <zstd.h>

#define PAGE (UINT32_C(2) << 20)

enum { FIELDS_MAX = 12, VALUE_MAX = 4096 };

typedef struct plan {
	uint64_t seed;
	uint32_t num_fields;
	uint64_t num_samples;
	uint64_t expected;
	beton_field fields[FIELDS_MAX];
} plan;

/* Draws follow from the seed, the sample, the field and what is drawn. */
static uint64_t draw(const plan *self, uint64_t sample, uint64_t field, uint64_t what, uint64_t below)
{
	const uint64_t key[] = {self->seed, sample, field, what};
	return XXH3_64bits(key, sizeof(key)) % below;
}

static bool is_array(const beton_field *field)
{
	return field->type == BETON_FIELD_NDARRAY || field->type == BETON_FIELD_TORCH_TENSOR;
}

static bool has_blob(const beton_field *field)
{
	return field->type != BETON_FIELD_INT && field->type != BETON_FIELD_FLOAT;
}

static size_t array_size(const beton_field *field, size_t item)
{
	for (uint32_t d = 0; d < field->ndim; d++)
		item *= (size_t)field->shape[d];
	return item;
}

static void make_plan(plan *self, uint64_t seed)
{
	static const char *const dtypes[] = {"|u1", "<i2", "<f4", "<i8"};
	static const uint64_t counts[] = {0, 1, 7, 1500, 3000};
	*self = (plan){.seed = seed};
	self->num_fields = 1 + (uint32_t)draw(self, 0, 0, 1, FIELDS_MAX);
	self->num_samples = counts[draw(self, 0, 0, 2, 5)];
	self->expected = draw(self, 0, 0, 3, 2) ? draw(self, 0, 0, 4, 200000) : 0;
	for (uint32_t i = 0; i < self->num_fields; i++) {
		beton_field *field = &self->fields[i];
		field->type = (beton_field_type)draw(self, 0, i, 5, 7);
		snprintf(field->name, sizeof(field->name), "%.*su%u", (int)draw(self, 0, i, 6, 13), "field_of_name",
			 i % 100);
		if (is_array(field)) {
			uint64_t kind = draw(self, 0, i, 7, 4);
			snprintf(field->dtype, sizeof(field->dtype), "%s", dtypes[kind]);
			field->ndim = 1 + (uint32_t)draw(self, 0, i, 8, 3);
			for (uint32_t d = 0; d < field->ndim; d++)
				field->shape[d] = 1 + draw(self, 0, i, 9 + d, 6);
		}
		if (has_blob(field) && field->type != BETON_FIELD_IMAGE && draw(self, 0, i, 20, 2)) {
			field->compression = BETON_COMPRESSION_ZSTD;
			field->compression_level = (int32_t)draw(self, 0, i, 21, 5) - 1;
		}
	}
}

/* The value of a field of a sample; its bytes go to `bytes`. */
static beton_input make_value(const plan *self, uint64_t sample, uint32_t i, uint8_t *bytes)
{
	static const char *const words[] = {"\"label\": ", "\"width\": ", "{}",      ", ",
					    "[1, 2, 3]",   "null",        "\"cat\"", " "};
	const beton_field *field = &self->fields[i];
	beton_input value = {.data = bytes};
	switch (field->type) {
	case BETON_FIELD_INT:
		value.integer = (int64_t)draw(self, sample, i, 1, UINT64_MAX);
		break;
	case BETON_FIELD_FLOAT:
		value.real = (double)draw(self, sample, i, 1, 1000000) / 7;
		break;
	case BETON_FIELD_IMAGE:
		value.mode = (beton_image_mode)draw(self, sample, i, 1, 2);
		value.width = 1 + (uint32_t)draw(self, sample, i, 2, value.mode == BETON_IMAGE_RAW ? 30 : 65535);
		value.height = 1 + (uint32_t)draw(self, sample, i, 3, value.mode == BETON_IMAGE_RAW ? 30 : 65535);
		value.size = value.mode == BETON_IMAGE_RAW ? (uint64_t)value.width * value.height * 3
							   : 1 + draw(self, sample, i, 4, 3000);
		break;
	case BETON_FIELD_JSON:
		for (uint64_t n = draw(self, sample, i, 1, 60), at = 0; at < n; at++) {
			/* Runs, too: what repeats at once is coded by reference to the last offsets. */
			const char *word = words[draw(self, sample, i, 2 + at / (1 + sample % 9), 8)];
			memcpy(bytes + value.size, word, strlen(word));
			value.size += strlen(word);
		}
		return value;
	case BETON_FIELD_BYTES:
		value.size = draw(self, sample, i, 1, 8) ? draw(self, sample, i, 2, 900) : 0;
		break;
	default:
		value.size = array_size(field, field->dtype[2] == '1' ? 1 : (size_t)(field->dtype[2] - '0'));
	}
	uint64_t period = 1 + draw(self, sample, i, 70, 200);
	for (size_t at = 0; at < value.size; at++)
		bytes[at] = (uint8_t)(at % period * 31 + draw(self, sample, i, 71, 256));
	return value;
}

typedef struct crew {
	const plan *plan;
	beton_writer *writer;
	uint64_t end;
	atomic_ullong next;
	atomic_int failures;
} crew;

static void *work(void *argument)
{
	crew *self = argument;
	static _Thread_local uint8_t bytes[FIELDS_MAX][VALUE_MAX];
	uint64_t index;
	while ((index = atomic_fetch_add(&self->next, 1)) < self->end) {
		beton_input values[FIELDS_MAX];
		for (uint32_t i = 0; i < self->plan->num_fields; i++)
			values[i] = make_value(self->plan, index, i, bytes[i]);
		if (beton_writer_put(self->writer, index, values, NULL) != BETON_OK)
			atomic_fetch_add(&self->failures, 1);
	}
	return NULL;
}

/* end: below the plan's number of samples, the writer is closed there and can be continued. */
static uint64_t write_plan(const plan *self, const char *path, int threads, bool resume, uint64_t end)
{
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.max_pixels = UINT64_MAX;
	options.page_size = PAGE;
	options.expected_samples = self->expected;
	options.job = resume ? "random" : NULL;
	options.resume = resume;
	beton_error err;
	crew team = {.plan = self, .end = end};
	if (beton_writer_open(&team.writer, path, self->fields, self->num_fields, &options, &err) != BETON_OK)
		fail_msg("seed %llu: %s", (unsigned long long)self->seed, err.message);
	uint64_t begin = beton_writer_position(team.writer);
	team.next = begin;
	pthread_t ids[4];
	for (int i = 0; i < threads; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, work, &team), 0);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	assert_int_equal(team.failures, 0);
	if (end == self->num_samples && beton_writer_finish(team.writer, &err) != BETON_OK)
		fail_msg("seed %llu: %s", (unsigned long long)self->seed, err.message);
	beton_writer_close(&team.writer);
	return begin;
}

static uint64_t number(const file_content *file, uint64_t offset, int bytes)
{
	uint64_t value = 0;
	assert_true(offset <= file->size && file->size - offset >= (uint64_t)bytes);
	for (int i = bytes - 1; i >= 0; i--)
		value = value << 8 | file->data[offset + (uint64_t)i];
	return value;
}

/* Offset of the section of a kind, 0 if there is none; *size: its bytes. */
static uint64_t find_section(const file_content *file, uint32_t kind, uint64_t *size)
{
	uint64_t footer = number(file, 16, 8) - 64;
	uint64_t entry = number(file, footer + 16, 8);
	assert_memory_equal(file->data + footer, "BETONEXT", 8);
	*size = 0;
	for (uint64_t count = number(file, footer + 12, 4); count > 0; count--, entry += 40)
		if (number(file, entry, 4) == kind) {
			*size = number(file, entry + 16, 8);
			return number(file, entry + 8, 8);
		}
	return 0;
}

/* Decompresses to bytes; returns how many. */
static size_t unpack(const file_content *file, uint32_t field, uint64_t pointer, uint64_t size, uint8_t *bytes)
{
	const uint8_t *dictionary = NULL;
	size_t dictionary_size = 0;
	uint64_t left;
	uint64_t at = find_section(file, 5, &left);
	unsigned id = ZSTD_getDictID_fromFrame(file->data + pointer, (size_t)size);
	while (id && left) {
		uint64_t length = number(file, at + 4, 4);
		if (number(file, at, 4) == field) {
			dictionary = file->data + at + 8;
			dictionary_size = (size_t)length;
		}
		at += 8 + length;
		left -= 8 + length;
	}
	assert_true(!id == !dictionary);
	ZSTD_DCtx *context = ZSTD_createDCtx();
	size_t got = ZSTD_decompress_usingDict(context, bytes, VALUE_MAX, file->data + pointer, (size_t)size,
					       dictionary, dictionary_size);
	ZSTD_freeDCtx(context);
	assert_false(ZSTD_isError(got));
	return got;
}

typedef struct layout {
	uint64_t offsets[FIELDS_MAX];
	uint64_t record;
	uint64_t blobs;
} layout;

static layout find_layout(const plan *self)
{
	layout found = {0};
	uint64_t widest = 1;
	for (uint32_t i = 0; i < self->num_fields; i++) {
		static const uint64_t sizes[] = {8, 8, 13, 16, 8, 16, 8};
		static const uint64_t alignments[] = {8, 8, 1, 1, 8, 1, 8};
		bool packed = self->fields[i].compression != BETON_COMPRESSION_NONE;
		uint64_t alignment = packed ? 8 : alignments[self->fields[i].type];
		found.offsets[i] = (found.record + alignment - 1) / alignment * alignment;
		found.record = found.offsets[i] + (packed ? 24 : sizes[self->fields[i].type]);
		widest = alignment > widest ? alignment : widest;
		found.blobs += has_blob(&self->fields[i]);
	}
	found.record = (found.record + widest - 1) / widest * widest;
	return found;
}

/* One value at its slot in the record. entry: its blob's entry of the table. */
static void check_value(const plan *self, const file_content *file, uint64_t sample, uint32_t i, uint64_t slot,
			uint64_t entry, uint64_t index)
{
	static uint8_t expected[VALUE_MAX];
	static uint8_t unpacked[VALUE_MAX];
	const beton_field *field = &self->fields[i];
	beton_input value = make_value(self, sample, i, expected);
	uint64_t bits = (uint64_t)value.integer;
	if (field->type == BETON_FIELD_FLOAT)
		memcpy(&bits, &value.real, sizeof(bits));
	if (!has_blob(field)) {
		assert_int_equal(number(file, slot, 8), bits);
		return;
	}
	if (field->type == BETON_FIELD_IMAGE) {
		assert_int_equal(number(file, slot, 1), value.mode);
		assert_int_equal(number(file, slot + 1, 2), value.width);
		assert_int_equal(number(file, slot + 3, 2), value.height);
		slot += 5;
	}
	if (field->type == BETON_FIELD_JSON)
		expected[value.size++] = 0;
	uint64_t pointer = number(file, slot, 8);
	uint64_t size = number(file, entry + 16, 8);
	assert_int_equal(number(file, entry, 8), sample);
	assert_int_equal(number(file, entry + 8, 8), pointer);
	assert_true(pointer + size <= number(file, 16, 8));
	assert_true(size == 0 || pointer / PAGE == (pointer + size - 1) / PAGE);
	uint64_t sums_size;
	uint64_t sums = find_section(file, 1, &sums_size);
	assert_int_equal(number(file, sums + index * 8, 8), XXH3_64bits(file->data + pointer, size));
	const uint8_t *bytes = file->data + pointer;
	if (field->compression != BETON_COMPRESSION_NONE) {
		assert_int_equal(number(file, slot + 8, 8), size);
		assert_int_equal(number(file, slot + 16, 8), value.size);
		size = unpack(file, i, pointer, size, unpacked);
		bytes = unpacked;
	} else if (field->type == BETON_FIELD_BYTES || field->type == BETON_FIELD_JSON)
		assert_int_equal(number(file, slot + 8, 8), size);
	assert_int_equal(size, value.size);
	assert_memory_equal(bytes, expected, size);
}

static void check_file(const plan *self, const char *path)
{
	file_content file = read_file(path);
	layout places = find_layout(self);
	assert_int_equal(number(&file, 0, 2), 2);
	assert_int_equal(number(&file, 2, 2), self->num_fields);
	assert_int_equal(number(&file, 4, 4), PAGE);
	assert_int_equal(number(&file, 8, 8), self->num_samples);
	uint64_t table = number(&file, 16, 8);
	uint64_t metadata = 24 + 1041 * (uint64_t)self->num_fields;
	assert_int_equal(file.size, table + 24 * self->num_samples * places.blobs);
	for (uint32_t i = 0; i < self->num_fields; i++) {
		const beton_field *field = &self->fields[i];
		uint64_t descriptor = 24 + 1041 * (uint64_t)i;
		bool packed = field->compression != BETON_COMPRESSION_NONE;
		assert_int_equal(number(&file, descriptor, 1), packed ? 255 : (unsigned)field->type);
		assert_int_equal(memcmp(file.data + descriptor + 17 + 960, "BETONZST", 8) == 0, packed);
		assert_int_equal(number(&file, descriptor + 17 + 968, 4), packed ? (unsigned)field->type : 0);
	}
	uint64_t index = 0;
	for (uint64_t sample = 0; sample < self->num_samples; sample++)
		for (uint32_t i = 0; i < self->num_fields; i++) {
			check_value(self, &file, sample, i, metadata + sample * places.record + places.offsets[i],
				    table + 24 * index, index);
			index += has_blob(&self->fields[i]);
		}
	free(file.data);
}

/* The same through libbeton's reader. */
static void check_reader(const plan *self, const char *path)
{
	static uint8_t expected[VALUE_MAX];
	static uint8_t found[VALUE_MAX];
	beton_reader *reader = open_good(path);
	beton_error err;
	if (beton_reader_check_structure(reader, &err) != BETON_OK)
		fail_msg("seed %llu: %s", (unsigned long long)self->seed, err.message);
	for (uint64_t sample = 0; sample < self->num_samples; sample++) {
		beton_value values[FIELDS_MAX];
		if (beton_reader_sample(reader, sample, values, &err) != BETON_OK)
			fail_msg("seed %llu: %s", (unsigned long long)self->seed, err.message);
		for (uint32_t i = 0; i < self->num_fields; i++) {
			beton_input value = make_value(self, sample, i, expected);
			assert_int_equal(values[i].integer, value.integer);
			if (!has_blob(&self->fields[i]))
				continue;
			if (self->fields[i].type == BETON_FIELD_JSON)
				expected[value.size++] = 0;
			assert_int_equal(values[i].size, value.size);
			if (beton_reader_read_value(reader, &values[i], found, &err) != BETON_OK)
				fail_msg("seed %llu: %s", (unsigned long long)self->seed, err.message);
			assert_memory_equal(found, expected, value.size);
		}
	}
	beton_reader_close(&reader);
}

static void expect_equal(const char *one, const char *two, uint64_t seed)
{
	file_content a = read_file(one);
	file_content b = read_file(two);
	if (a.size != b.size || memcmp(a.data, b.data, a.size) != 0)
		fail_msg("seed %llu: %s and %s differ", (unsigned long long)seed, one, two);
	free(a.data);
	free(b.data);
}

static uint64_t from_environment(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 10) : otherwise;
}

static void test_random_files(void **state)
{
	(void)state;
	uint64_t first = from_environment("BETON_TEST_SEED", 1);
	uint64_t end = first + from_environment("BETON_TEST_SEEDS", 16);
	for (uint64_t seed = first; seed < end; seed++) {
		plan self;
		make_plan(&self, seed);
		const char *one = in_folder("one.beton");
		const char *other = in_folder("other.beton");
		write_plan(&self, one, 1, false, self.num_samples);
		check_file(&self, one);
		check_reader(&self, one);
		write_plan(&self, other, 4, false, self.num_samples);
		expect_equal(one, other, seed);
		write_plan(&self, other, 2, true, draw(&self, 0, 0, 99, self.num_samples + 1));
		write_plan(&self, other, 3, true, self.num_samples);
		expect_equal(one, other, seed);
	}
}

/* The same words in every text: a dictionary is worth its place, and a continuing writer does not make it again. */
static void test_dictionary(void **state)
{
	(void)state;
	plan self = {.seed = 5, .num_fields = 3, .num_samples = 40000};
	self.fields[0] = (beton_field){.name = "text", .type = BETON_FIELD_JSON, .compression = BETON_COMPRESSION_ZSTD};
	self.fields[1] = (beton_field){.name = "plain", .type = BETON_FIELD_BYTES};
	self.fields[2] =
		(beton_field){.name = "n", .type = BETON_FIELD_NDARRAY, .dtype = "|u1", .ndim = 1, .shape = {9}};
	self.fields[2].compression = BETON_COMPRESSION_ZSTD;
	const char *one = in_folder("dictionary.beton");
	const char *other = in_folder("dictionary-other.beton");
	write_plan(&self, one, 2, false, self.num_samples);
	check_reader(&self, one);
	file_content file = read_file(one);
	uint64_t size;
	uint64_t section = find_section(&file, 5, &size);
	assert_true(section && size > 264);
	assert_int_equal(number(&file, section, 4), 0);
	free(file.data);
	assert_int_equal(write_plan(&self, other, 2, true, 30000), 0);
	assert_in_range(write_plan(&self, other, 2, true, self.num_samples), 1025, 30000);
	expect_equal(one, other, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_files), cmocka_unit_test(test_dictionary)};
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
