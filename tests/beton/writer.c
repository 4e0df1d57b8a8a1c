/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton's output reads back as it was given, and lies where FFCV looks for it. The check of the layout reads the
 * bytes by FFCV's rules and uses no part of libbeton. */
#include "tests/support/beton_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#define PAGE (UINT32_C(2) << 20)

static const beton_field every_field[] = {
	{.name = "i", .type = BETON_FIELD_INT},
	{.name = "image", .type = BETON_FIELD_IMAGE},
	{.name = "f", .type = BETON_FIELD_FLOAT},
	{.name = "b", .type = BETON_FIELD_BYTES},
	{.name = "j", .type = BETON_FIELD_JSON},
	{.name = "a_name_of_16_byt", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 2, .shape = {3, 5}},
	{.name = "t", .type = BETON_FIELD_TORCH_TENSOR, .dtype = "|u1", .ndim = 1, .shape = {7}},
};
enum { FIELDS = sizeof(every_field) / sizeof(*every_field) };
/* NumPy's offsets of these fields: 8-byte members aligned, the image (13 bytes) and bytes (16) packed. */
static const size_t offsets[FIELDS] = {0, 8, 24, 32, 48, 64, 72};
enum { RECORD = 80 };

/* Contents follow from the sample's number alone. */
static uint8_t byte_of(uint64_t sample, uint64_t field, size_t index)
{
	return (uint8_t)(sample * 31 + field * 7 + index * 13 + (index >> 8));
}

typedef struct sample_data {
	uint8_t bytes[FIELDS][1024];
	beton_input inputs[FIELDS];
} sample_data;

static void make_sample(sample_data *data, uint64_t sample)
{
	memset(data->inputs, 0, sizeof(data->inputs));
	data->inputs[0].integer = (int64_t)sample - 5;
	bool raw = sample % 3 == 0;
	data->inputs[1].mode = raw ? BETON_IMAGE_RAW : BETON_IMAGE_JPEG;
	data->inputs[1].width = raw ? 1 + sample % 9 : 1 + (uint32_t)sample % 65535;
	data->inputs[1].height = 11;
	data->inputs[1].size = raw ? (uint64_t)data->inputs[1].width * 11 * 3 : 1 + sample * 17 % 700;
	data->inputs[2].real = (double)sample / 4;
	data->inputs[3].size = sample % 4 == 0 ? 0 : sample * 7 % 600;
	int length =
		snprintf((char *)data->bytes[4], sizeof(data->bytes[4]), "{\"id\": %llu}", (unsigned long long)sample);
	data->inputs[4].size = sample % 5 == 0 ? 0 : (uint64_t)length;
	data->inputs[5].size = 3 * 5 * 4;
	data->inputs[6].size = 7;
	for (int f = 0; f < FIELDS; f++) {
		data->inputs[f].data = data->bytes[f];
		for (size_t i = 0; i < data->inputs[f].size && f != 4; i++)
			data->bytes[f][i] = byte_of(sample, (uint64_t)f, i);
	}
}

/* Bytes of the field in the file: JSON gets a NUL. */
static uint64_t stored_size(int field, const beton_input *input)
{
	return input->size + (field == 4);
}

static void write_samples(const char *path, uint64_t samples, uint64_t expected)
{
	static sample_data data;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	options.expected_samples = expected;
	beton_writer *writer;
	beton_error err;
	if (beton_writer_open(&writer, path, every_field, FIELDS, &options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	for (uint64_t i = 0; i < samples; i++) {
		make_sample(&data, i);
		if (beton_writer_append(writer, data.inputs, &err) != BETON_OK)
			fail_msg("%s", err.message);
	}
	if (beton_writer_finish(writer, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_STATE);
	assert_int_equal(beton_writer_append(writer, data.inputs, &err), BETON_STATE);
	beton_writer_close(&writer);
	assert_null(writer);
}

static void check_read_back(const char *path, uint64_t samples)
{
	static sample_data data;
	static uint8_t bytes[8192];
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_info(reader)->num_samples, samples);
	assert_int_equal(beton_reader_info(reader)->record_size, RECORD);
	for (uint64_t sample = 0; sample < samples; sample++) {
		make_sample(&data, sample);
		for (int f = 0; f < FIELDS; f++) {
			const beton_input *input = &data.inputs[f];
			beton_value value;
			beton_error err;
			if (beton_reader_value(reader, sample, (uint32_t)f, &value, &err) != BETON_OK)
				fail_msg("%s", err.message);
			assert_int_equal(value.integer, input->integer);
			assert_true(value.real == input->real);
			if (every_field[f].type == BETON_FIELD_INT || every_field[f].type == BETON_FIELD_FLOAT)
				continue;
			assert_int_equal(value.mode, input->mode);
			assert_int_equal(value.width, input->width);
			assert_int_equal(value.height, input->height);
			assert_int_equal(value.blob.size, stored_size(f, input));
			assert_int_equal(beton_reader_read(reader, &value.blob, bytes, &err), BETON_OK);
			assert_memory_equal(bytes, input->data, input->size);
		}
	}
	beton_reader_close(&reader);
}

static uint64_t number(const file_content *file, uint64_t offset, int bytes)
{
	uint64_t value = 0;
	assert_true(offset + (uint64_t)bytes <= file->size);
	for (int i = bytes - 1; i >= 0; i--)
		value = value << 8 | file->data[offset + (uint64_t)i];
	return value;
}

static int compare_numbers(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a;
	uint64_t right = *(const uint64_t *)b;
	return left < right ? -1 : left > right;
}

/* FFCV keeps a table pointer -> size, so pointers must be unique. */
static void check_pointers(const file_content *file, uint64_t table, uint64_t entries)
{
	uint64_t *pointers = malloc((size_t)entries * sizeof(*pointers) + 1);
	for (uint64_t i = 0; i < entries; i++)
		pointers[i] = number(file, table + i * 24 + 8, 8);
	qsort(pointers, (size_t)entries, sizeof(*pointers), compare_numbers);
	for (uint64_t i = 1; i < entries; i++)
		assert_true(pointers[i - 1] < pointers[i]);
	free(pointers);
}

static void check_blob(const file_content *file, uint64_t metadata_end, uint64_t table, uint64_t entry, uint64_t sample,
		       int field, uint64_t pointer, const beton_input *input)
{
	uint64_t size = stored_size(field, input);
	assert_int_equal(number(file, table + entry * 24, 8), sample);
	assert_int_equal(number(file, table + entry * 24 + 8, 8), pointer);
	assert_int_equal(number(file, table + entry * 24 + 16, 8), size);
	assert_true(pointer >= (metadata_end + PAGE - 1) / PAGE * PAGE);
	assert_true(pointer + size <= table);
	if (size)
		assert_int_equal(pointer / PAGE, (pointer + size - 1) / PAGE);
	assert_memory_equal(file->data + pointer, input->data, input->size);
	if (field == 4)
		assert_int_equal(file->data[pointer + input->size], 0);
}

/* The checksums of `count` pieces of a range, and the one in its directory entry at `entry`. */
static uint64_t check_sums(const file_content *file, uint64_t entry, uint32_t kind, uint64_t at, uint64_t offset,
			   uint64_t size, uint64_t piece)
{
	uint64_t count = (size + piece - 1) / piece;
	if (count == 0)
		return entry;
	assert_int_equal(number(file, entry, 8), kind);
	assert_int_equal(number(file, entry + 8, 8), at);
	assert_int_equal(number(file, entry + 16, 8), count * 8);
	assert_int_equal(number(file, entry + 24, 8), XXH3_64bits(file->data + at, count * 8));
	assert_int_equal(number(file, entry + 32, 8), 0);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t part = size - i * piece < piece ? size - i * piece : piece;
		assert_int_equal(number(file, at + i * 8, 8), XXH3_64bits(file->data + offset + i * piece, part));
	}
	return entry + 40;
}

/* The extension block of a file with the default facts, by the layout of docs/format.md. */
static void check_extension(const file_content *file, uint64_t samples, uint64_t metadata_size)
{
	static const char facts[] = "{\"writer\":\"libbeton " BETON_VERSION "\"}";
	uint64_t fields = number(file, 2, 2);
	uint64_t table = number(file, 16, 8);
	uint64_t footer = table - 64;
	uint64_t entries = (file->size - table) / 24;
	assert_memory_equal(file->data + footer, "BETONEXT", 8);
	assert_int_equal(number(file, footer + 8, 4), 1);
	assert_int_equal(number(file, footer + 32, 8), 1);
	assert_int_equal(number(file, footer + 40, 8), XXH3_64bits(file->data, 24 + 1041 * fields));
	assert_int_equal(number(file, footer + 48, 8), 0);
	assert_int_equal(number(file, footer + 56, 8), XXH3_64bits(file->data + footer, 56));
	uint64_t directory = number(file, footer + 16, 8);
	uint64_t count = number(file, footer + 12, 4);
	assert_int_equal(directory + count * 40, footer);
	assert_int_equal(number(file, footer + 24, 8), XXH3_64bits(file->data + directory, count * 40));
	uint64_t entry = directory;
	uint64_t at = number(file, entry + 8, 8);
	if (entries) {
		assert_int_equal(at % PAGE, 0);
		assert_int_equal(number(file, entry, 8), 1);
		assert_int_equal(number(file, entry + 16, 8), entries * 8);
		assert_int_equal(number(file, entry + 24, 8), XXH3_64bits(file->data + at, entries * 8));
		for (uint64_t i = 0; i < entries; i++)
			assert_int_equal(number(file, at + i * 8, 8),
					 XXH3_64bits(file->data + number(file, table + i * 24 + 8, 8),
						     number(file, table + i * 24 + 16, 8)));
		entry += 40;
		at += entries * 8;
	}
	entry = check_sums(file, entry, 2, at, 24 + 1041 * fields, metadata_size, 65536);
	at += samples ? number(file, entry - 40 + 16, 8) : 0;
	uint64_t before = entry;
	entry = check_sums(file, entry, 3, at, table, file->size - table, 98304);
	at += entry > before ? number(file, before + 16, 8) : 0;
	assert_int_equal(number(file, entry, 8), 4);
	assert_int_equal(number(file, entry + 8, 8), at);
	assert_int_equal(number(file, entry + 16, 8), strlen(facts));
	assert_int_equal(number(file, entry + 24, 8), XXH3_64bits(facts, strlen(facts)));
	assert_memory_equal(file->data + at, facts, strlen(facts));
	assert_int_equal(entry + 40, footer);
}

static void check_layout(const char *path, uint64_t samples)
{
	static sample_data data;
	static const uint8_t types[FIELDS] = {1, 2, 0, 3, 5, 4, 6};
	file_content file = read_file(path);
	assert_int_equal(number(&file, 0, 2), 2);
	assert_int_equal(number(&file, 2, 2), FIELDS);
	assert_int_equal(number(&file, 4, 4), PAGE);
	assert_int_equal(number(&file, 8, 8), samples);
	uint64_t table = number(&file, 16, 8);
	uint64_t metadata = 24 + 1041 * FIELDS;
	uint64_t metadata_end = metadata + samples * RECORD;
	assert_int_equal(file.size, table + samples * 5 * 24);
	check_extension(&file, samples, samples * RECORD);
	for (int f = 0; f < FIELDS; f++) {
		uint8_t expected[1041] = {types[f]};
		memcpy(expected + 1, every_field[f].name, strlen(every_field[f].name));
		for (uint32_t d = 0; d < every_field[f].ndim; d++)
			expected[17 + 8 * d] = (uint8_t)every_field[f].shape[d];
		if (every_field[f].ndim) {
			char type[32];
			int length = snprintf(type, sizeof(type), "[[\"\", \"%s\"]]", every_field[f].dtype);
			expected[17 + 256] = (uint8_t)length;
			memcpy(expected + 17 + 264, type, (size_t)length);
		}
		assert_memory_equal(file.data + 24 + 1041 * (size_t)f, expected, sizeof(expected));
	}
	uint64_t entry = 0;
	for (uint64_t sample = 0; sample < samples; sample++) {
		uint64_t record = metadata + sample * RECORD;
		uint64_t page = 0;
		make_sample(&data, sample);
		for (int f = 0; f < FIELDS; f++) {
			uint64_t at = record + offsets[f];
			const beton_input *input = &data.inputs[f];
			uint64_t bits = (uint64_t)input->integer;
			if (types[f] == 0)
				memcpy(&bits, &input->real, 8);
			if (types[f] <= 1) {
				assert_int_equal(number(&file, at, 8), bits);
				continue;
			}
			if (types[f] == 2) {
				assert_int_equal(number(&file, at, 1), input->mode);
				assert_int_equal(number(&file, at + 1, 2), input->width);
				assert_int_equal(number(&file, at + 3, 2), input->height);
				at += 5;
			}
			if (types[f] == 3 || types[f] == 5)
				assert_int_equal(number(&file, at + 8, 8), stored_size(f, input));
			uint64_t pointer = number(&file, at, 8);
			check_blob(&file, metadata_end, table, entry++, sample, f, pointer, input);
			if (page)
				assert_int_equal(pointer / PAGE, page);
			page = pointer / PAGE;
		}
	}
	check_pointers(&file, table, entry);
	free(file.data);
}

static void check_written(uint64_t samples, uint64_t expected)
{
	const char *path = in_folder("written.beton");
	write_samples(path, samples, expected);
	check_read_back(path, samples);
	check_layout(path, samples);
}

static void test_no_samples(void **state)
{
	(void)state;
	check_written(0, 0);
	check_written(0, 1000);
}

static void test_known_count(void **state)
{
	(void)state;
	check_written(3000, 3000);
	/* The data starts right after the metadata. */
	beton_reader *reader = open_good(in_folder("written.beton"));
	beton_value value;
	assert_int_equal(beton_reader_value(reader, 0, 1, &value, NULL), BETON_OK);
	assert_int_equal(value.blob.offset, PAGE);
	beton_reader_close(&reader);
}

/* 80 bytes x 30,000 need two pages, but one was left; then twice the need is left. */
static void test_metadata_outgrows_its_room(void **state)
{
	(void)state;
	check_written(30000, 0);
	check_written(30000, 60000);
}

/* Metadata longer than all pages together. */
static void test_more_metadata_than_pages(void **state)
{
	(void)state;
	const beton_field fields[] = {{.name = "n", .type = BETON_FIELD_INT}, {.name = "b", .type = BETON_FIELD_BYTES}};
	const char *path = in_folder("tiny-blobs.beton");
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	beton_writer *writer;
	beton_error err;
	assert_int_equal(beton_writer_open(&writer, path, fields, 2, &options, &err), BETON_OK);
	for (uint64_t i = 0; i < 300000; i++) {
		const beton_input values[] = {{.integer = (int64_t)i}, {.data = &i, .size = 2}};
		assert_int_equal(beton_writer_append(writer, values, &err), BETON_OK);
	}
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);
	beton_reader *reader = open_good(path);
	for (uint64_t i = 0; i < 300000; i += 997) {
		beton_value value;
		uint16_t bytes = 0;
		assert_int_equal(beton_reader_value(reader, i, 1, &value, &err), BETON_OK);
		assert_int_equal(beton_reader_read(reader, &value.blob, &bytes, &err), BETON_OK);
		assert_int_equal(bytes, i & 0xffff);
	}
	assert_int_equal(read_everything(reader), 0);
	beton_reader_close(&reader);
}

/* A page is filled again in the same memory: nothing of the one before may stay there. */
static void test_zeros_behind_samples(void **state)
{
	(void)state;
	enum { FULL = PAGE - 100, SHORT = 200 };
	static uint8_t bytes[FULL];
	memset(bytes, 0xaa, sizeof(bytes));
	const beton_field field = {.name = "b", .type = BETON_FIELD_BYTES};
	const size_t sizes[] = {FULL, SHORT, 0, FULL};
	const char *path = in_folder("zeros.beton");
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	options.expected_samples = 4;
	beton_writer *writer;
	beton_error err;
	assert_int_equal(beton_writer_open(&writer, path, &field, 1, &options, &err), BETON_OK);
	for (int i = 0; i < 4; i++) {
		const beton_input value = {.data = bytes, .size = sizes[i]};
		assert_int_equal(beton_writer_append(writer, &value, &err), BETON_OK);
	}
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);
	file_content file = read_file(path);
	assert_true(file.size > 4 * (size_t)PAGE);
	for (size_t page = 1; page < 4; page++)
		for (size_t i = 0; i < PAGE; i++)
			assert_int_equal(file.data[page * PAGE + i], i < (page == 2 ? SHORT : FULL) ? 0xaa : 0);
	free(file.data);
	remove(path);
}

static void test_same_input_same_bytes(void **state)
{
	(void)state;
	write_samples(in_folder("one.beton"), 2000, 7);
	write_samples(in_folder("two.beton"), 2000, 7);
	file_content one = read_file(in_folder("one.beton"));
	file_content two = read_file(in_folder("two.beton"));
	assert_int_equal(one.size, two.size);
	assert_memory_equal(one.data, two.data, one.size);
	free(one.data);
	free(two.data);
}

static void test_scalars_only(void **state)
{
	(void)state;
	const beton_field fields[] = {{.name = "x", .type = BETON_FIELD_FLOAT}, {.name = "y", .type = BETON_FIELD_INT}};
	const char *golden = unpack_golden("scalars-only");
	const char *path = in_folder("scalars.beton");
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	options.flags = BETON_WRITER_NO_EXTENSION;
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, fields, 2, &options, NULL), BETON_OK);
	for (int i = 0; i < 10; i++) {
		const beton_input values[] = {{.real = i / 2.0}, {.integer = i}};
		assert_int_equal(beton_writer_append(writer, values, NULL), BETON_OK);
	}
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
	/* Without pages the layout is fixed: FFCV's file and ours are the same. */
	file_content ours = read_file(path);
	file_content theirs = read_file(golden);
	assert_int_equal(ours.size, theirs.size);
	assert_memory_equal(ours.data, theirs.data, ours.size);
	free(ours.data);
	free(theirs.data);
}

static bool contains(const file_content *file, const char *text)
{
	return memmem(file->data, file->size, text, strlen(text)) != NULL;
}

static void test_facts(void **state)
{
	(void)state;
	const beton_field field = {.name = "n", .type = BETON_FIELD_INT};
	const char *path = in_folder("facts.beton");
	beton_writer_options options;
	beton_writer_options_init(&options);
	for (int named = 0; named < 2; named++) {
		options.facts = named ? "{\"writer\": \"me 1\", \"z\": [1, \"\xc3\xa4\"]}" : "{\"classes\": [\"a\"]}";
		beton_writer *writer;
		assert_int_equal(beton_writer_open(&writer, path, &field, 1, &options, NULL), BETON_OK);
		assert_int_equal(beton_writer_append(writer, &(beton_input){.integer = 1}, NULL), BETON_OK);
		assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
		beton_writer_close(&writer);
		file_content file = read_file(path);
		assert_true(contains(&file, named ? "{\"writer\":\"me 1\",\"z\":[1,\"\xc3\xa4\"]}"
						  : "{\"writer\":\"libbeton " BETON_VERSION "\",\"classes\":[\"a\"]}"));
		free(file.data);
		beton_reader *reader = open_good(path);
		assert_int_equal(read_everything(reader), 0);
		beton_reader_close(&reader);
	}
}

static void expect_bad_schema(const beton_field *fields, uint32_t count, const char *word)
{
	beton_writer *writer = (beton_writer *)1;
	beton_error err = {0};
	const char *path = in_folder("bad-schema.beton");
	assert_int_equal(beton_writer_open(&writer, path, fields, count, NULL, &err), BETON_INVALID_ARGUMENT);
	assert_null(writer);
	if (!strstr(err.message, word))
		fail_msg("'%s' is not in: %s", word, err.message);
	assert_int_not_equal(access(path, F_OK), 0);
}

static void test_bad_schema(void **state)
{
	(void)state;
	beton_field two[] = {{.name = "same", .type = BETON_FIELD_INT}, {.name = "same", .type = BETON_FIELD_INT}};
	expect_bad_schema(two, 0, "0 fields");
	expect_bad_schema(two, 65536, "65536 fields");
	expect_bad_schema(two, 2, "two fields");
	beton_field field = {.name = "", .type = BETON_FIELD_INT};
	expect_bad_schema(&field, 1, "name");
	memset(field.name, 'x', sizeof(field.name));
	expect_bad_schema(&field, 1, "name");
	strcpy(field.name, "tab\t");
	expect_bad_schema(&field, 1, "ASCII");
	strcpy(field.name, "n");
	field.type = (beton_field_type)7;
	expect_bad_schema(&field, 1, "unknown type 7");
	static const char *const dtypes[] = {"",    "f4",  "<f3", "|O", "<i16", "<f4x", "|S0", "<M8[", "<U99999999999",
					     "<c4", "|b2", "<m4", "<f"};
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++) {
		field = (beton_field){.name = "a", .type = BETON_FIELD_NDARRAY, .ndim = 1, .shape = {1}};
		memcpy(field.dtype, dtypes[i], strlen(dtypes[i]));
		expect_bad_schema(&field, 1, "dtype");
	}
	memset(field.dtype, '1', sizeof(field.dtype));
	expect_bad_schema(&field, 1, "dtype");
	field = (beton_field){.name = "a", .type = BETON_FIELD_NDARRAY, .dtype = "<f4"};
	expect_bad_schema(&field, 1, "dimensions");
	field.ndim = 33;
	expect_bad_schema(&field, 1, "dimensions");
	field.ndim = 2;
	field.shape[0] = 4;
	expect_bad_schema(&field, 1, "dimensions");
	field.shape[0] = UINT64_MAX;
	field.shape[1] = UINT64_MAX;
	expect_bad_schema(&field, 1, "larger than a page");
	field.shape[0] = 1;
	field.shape[1] = (BETON_PAGE_SIZE_DEFAULT / 4) + 1;
	expect_bad_schema(&field, 1, "larger than a page");
}

static void test_good_dtypes(void **state)
{
	(void)state;
	static const struct {
		const char *text;
		uint32_t size;
	} dtypes[] = {{"|b1", 1}, {"<i8", 8},  {">u2", 2},     {"<f2", 2},      {"<f16", 16}, {"<c8", 8},
		      {"|S5", 5}, {"<U3", 12}, {"<M8[ns]", 8}, {"<m8[25s]", 8}, {"|V7", 7},   {"=f8", 8}};
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++) {
		beton_field field = {.name = "a", .type = BETON_FIELD_NDARRAY, .ndim = 2, .shape = {2, 3}};
		memcpy(field.dtype, dtypes[i].text, strlen(dtypes[i].text));
		beton_writer *writer;
		beton_error err;
		if (beton_writer_open(&writer, in_folder("dtype.beton"), &field, 1, NULL, &err) != BETON_OK)
			fail_msg("%s: %s", dtypes[i].text, err.message);
		uint8_t bytes[96] = {0};
		assert_int_equal(
			beton_writer_append(writer, &(beton_input){.data = bytes, .size = 6 * dtypes[i].size}, &err),
			BETON_OK);
		assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
		beton_writer_close(&writer);
		beton_reader *reader = open_good(in_folder("dtype.beton"));
		assert_int_equal(beton_reader_field(reader, 0)->item_size, dtypes[i].size);
		assert_int_equal(read_everything(reader), 0);
		beton_reader_close(&reader);
	}
}

static void test_bad_options(void **state)
{
	(void)state;
	static const uint32_t sizes[] = {1, 3u << 20, (1u << 21) - 1, 1u << 20, (1u << 21) + 1};
	beton_writer *writer;
	beton_writer_options options;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		beton_writer_options_init(&options);
		options.page_size = sizes[i];
		assert_int_equal(beton_writer_open(&writer, in_folder("x"), every_field, FIELDS, &options, NULL),
				 BETON_INVALID_ARGUMENT);
	}
	beton_writer_options_init(&options);
	options.expected_samples = UINT64_MAX;
	assert_int_equal(beton_writer_open(&writer, in_folder("x"), every_field, FIELDS, &options, NULL),
			 BETON_INVALID_ARGUMENT);
	static const char *const facts[] = {"", "[]", "{", "1", "{\"a\":1,\"a\":2}", "{} x", "\xff"};
	for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
		beton_writer_options_init(&options);
		options.facts = facts[i];
		assert_int_equal(beton_writer_open(&writer, in_folder("x"), every_field, FIELDS, &options, NULL),
				 BETON_INVALID_ARGUMENT);
	}
	beton_writer_options_init(&options);
	options.flags = 1u << 31;
	assert_int_equal(beton_writer_open(&writer, in_folder("x"), every_field, FIELDS, &options, NULL),
			 BETON_INVALID_ARGUMENT);
	beton_error err;
	assert_int_equal(beton_writer_open(&writer, in_folder("none/x"), every_field, FIELDS, NULL, &err),
			 BETON_NOT_FOUND);
	assert_int_equal(beton_writer_open(&writer, in_folder(""), every_field, FIELDS, NULL, &err),
			 BETON_INVALID_ARGUMENT);
	/* Members of a later release, whose meaning this one does not know. */
	beton_field field = {.name = "x", .type = BETON_FIELD_INT, .reserved = {0, 0, 0, 1}};
	assert_int_equal(beton_writer_open(&writer, in_folder("x"), &field, 1, NULL, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "field 'x': reserved is not 0"));
	field.reserved[3] = 0;
	assert_int_equal(beton_writer_open(&writer, in_folder("x"), &field, 1, NULL, &err), BETON_OK);
	assert_int_equal(beton_writer_append(writer, &(beton_input){.reserved = {1}}, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "sample 0, field 'x': reserved is not 0"));
	assert_int_equal(beton_writer_append(writer, &(beton_input){.integer = 1}, &err), BETON_OK);
	beton_writer_close(&writer);
	beton_writer_close(&writer);
	beton_writer_close(NULL);
}

/* Values that come compressed, as another file stores them. */
static void test_stored_values(void **state)
{
	(void)state;
	const beton_field fields[] = {
		{.name = "label", .type = BETON_FIELD_INT},
		{.name = "text", .type = BETON_FIELD_JSON, .compression = BETON_COMPRESSION_ZSTD}};
	const char *from = in_folder("stored.beton");
	beton_writer *writer;
	beton_error err;
	int result = beton_writer_open(&writer, from, fields, 2, NULL, &err);
	if (result == BETON_UNSUPPORTED) /* a build without zstd */
		return;
	assert_int_equal(result, BETON_OK);
	const beton_input inputs[] = {{.integer = 3}, {.data = "[1, 2]", .size = 6}};
	assert_int_equal(beton_writer_append(writer, inputs, &err), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);

	beton_reader *reader;
	assert_int_equal(beton_reader_open(&reader, from, &err), BETON_OK);
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.stored_like = reader;
	const char *path = in_folder("new.beton");
	options.job = "job";
	assert_int_equal(beton_writer_open(&writer, path, fields, 2, &options, &err), BETON_INVALID_ARGUMENT);
	options.job = NULL;
	options.flags = BETON_WRITER_NO_EXTENSION;
	assert_int_equal(beton_writer_open(&writer, path, fields, 2, &options, &err), BETON_INVALID_ARGUMENT);
	options.flags = 0;
	assert_int_equal(beton_writer_open(&writer, path, fields, 1, &options, &err), BETON_INVALID_ARGUMENT);
	const beton_field plain[] = {fields[0], {.name = "text", .type = BETON_FIELD_JSON}};
	assert_int_equal(beton_writer_open(&writer, path, plain, 2, &options, &err), BETON_INVALID_ARGUMENT);

	beton_value value;
	uint8_t stored[64];
	assert_int_equal(beton_reader_value(reader, 0, 1, &value, &err), BETON_OK);
	assert_true(value.blob.size <= sizeof(stored) && value.size == 7);
	assert_int_equal(beton_reader_read(reader, &value.blob, stored, &err), BETON_OK);
	assert_int_equal(beton_writer_open(&writer, path, fields, 2, &options, &err), BETON_OK);
	const beton_input again[] = {{.integer = 3},
				     {.data = stored, .size = value.blob.size, .value_size = value.size}};
	assert_int_equal(beton_writer_append(writer, again, &err), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);
	beton_reader_close(&reader);
	assert_int_equal(beton_reader_open(&reader, path, &err), BETON_OK);
	assert_int_equal(beton_reader_value(reader, 0, 1, &value, &err), BETON_OK);
	char text[7];
	assert_int_equal(value.size, sizeof(text));
	assert_int_equal(beton_reader_read_value(reader, &value, text, &err), BETON_OK);
	assert_string_equal(text, "[1, 2]");
	beton_reader_close(&reader);
	remove(from);
	remove(path);
}

static void test_bad_values(void **state)
{
	(void)state;
	static sample_data data;
	beton_writer *writer;
	beton_error err = {0};
	const char *path = in_folder("bad-values.beton");
	assert_int_equal(beton_writer_open(&writer, path, every_field, FIELDS, NULL, &err), BETON_OK);
	make_sample(&data, 1);
	const struct {
		int field;
		beton_input input;
	} cases[] = {
		{1, {.data = &data, .size = 0, .width = 1, .height = 1}},
		{1, {.data = &data, .size = 5, .width = 0, .height = 1}},
		{1, {.data = &data, .size = 5, .width = 1, .height = 65536}},
		{1, {.data = &data, .size = 5, .width = 1, .height = 1, .mode = (beton_image_mode)2}},
		{1, {.data = &data, .size = 5, .width = 1, .height = 1, .mode = BETON_IMAGE_RAW}},
		{3, {.data = NULL, .size = 1}},
		{3, {.data = &data, .size = BETON_PAGE_SIZE_DEFAULT}},
		{3, {.data = &data, .size = UINT64_MAX}},
		{4, {.data = "a\0b", .size = 3}},
		{4, {.data = &data, .size = UINT64_MAX}},
		{5, {.data = &data, .size = 59}},
		{6, {.data = &data, .size = 8}},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_input good = data.inputs[cases[i].field];
		data.inputs[cases[i].field] = cases[i].input;
		assert_int_equal(beton_writer_append(writer, data.inputs, &err), BETON_INVALID_ARGUMENT);
		data.inputs[cases[i].field] = good;
	}
	/* None of that is in the file, and the writer still works. */
	assert_int_equal(beton_writer_append(writer, data.inputs, &err), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_info(reader)->num_samples, 1);
	assert_int_equal(read_everything(reader), 0);
	beton_reader_close(&reader);
}

static size_t entries_in(const char *path)
{
	size_t count = 0;
	DIR *folder = opendir(path);
	assert_non_null(folder);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count - 2;
}

static void test_nothing_appears_before_finish(void **state)
{
	(void)state;
	static sample_data data;
	const char *folder = in_folder("atomic");
	assert_int_equal(mkdir(folder, 0755), 0);
	const char *path = in_folder("atomic/file.beton");
	write_file(path, "old", 3);
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, every_field, FIELDS, NULL, NULL), BETON_OK);
	make_sample(&data, 1);
	assert_int_equal(beton_writer_append(writer, data.inputs, NULL), BETON_OK);
	assert_int_equal(entries_in(folder), 3);
	beton_writer_close(&writer);
	assert_int_equal(entries_in(folder), 1);
	file_content old = read_file(path);
	assert_int_equal(old.size, 3);
	assert_memory_equal(old.data, "old", 3);
	free(old.data);
}

static void test_prepared_file(void **state)
{
	(void)state;
	static sample_data data;
	beton_error err;
	const char *folder = in_folder("prepared");
	assert_int_equal(mkdir(folder, 0755), 0);
	const char *path = in_folder("prepared/file.beton");
	make_sample(&data, 1);
	for (int given_up = 0; given_up < 2; given_up++) {
		write_file(path, "old", 3);
		beton_writer *writer;
		assert_int_equal(beton_writer_open(&writer, path, every_field, FIELDS, NULL, NULL), BETON_OK);
		assert_int_equal(beton_writer_append(writer, data.inputs, NULL), BETON_OK);
		assert_int_equal(beton_writer_prepare(writer, &err), BETON_OK);
		file_content old = read_file(path);
		assert_int_equal(old.size, 3);
		free(old.data);
		assert_int_equal(beton_writer_append(writer, data.inputs, &err), BETON_STATE);
		assert_int_equal(beton_writer_prepare(writer, &err), BETON_STATE);
		if (given_up) {
			beton_writer_cancel(writer);
			assert_int_equal(beton_writer_finish(writer, &err), BETON_CANCELLED);
			beton_writer_close(&writer);
			assert_int_equal(entries_in(folder), 1);
			expect_refusal(path, BETON_TRUNCATED);
			break;
		}
		assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
		assert_int_equal(beton_writer_finish(writer, &err), BETON_STATE);
		beton_writer_close(&writer);
		assert_int_equal(entries_in(folder), 1);
		beton_reader *reader = open_good(path);
		assert_int_equal(read_everything(reader), 0);
		beton_reader_close(&reader);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_samples),
		cmocka_unit_test(test_known_count),
		cmocka_unit_test(test_metadata_outgrows_its_room),
		cmocka_unit_test(test_more_metadata_than_pages),
		cmocka_unit_test(test_zeros_behind_samples),
		cmocka_unit_test(test_same_input_same_bytes),
		cmocka_unit_test(test_scalars_only),
		cmocka_unit_test(test_facts),
		cmocka_unit_test(test_bad_schema),
		cmocka_unit_test(test_good_dtypes),
		cmocka_unit_test(test_bad_options),
		cmocka_unit_test(test_stored_values),
		cmocka_unit_test(test_bad_values),
		cmocka_unit_test(test_nothing_appears_before_finish),
		cmocka_unit_test(test_prepared_file),
	};
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
