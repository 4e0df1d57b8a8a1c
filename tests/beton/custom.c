/* SPDX-License-Identifier: Apache-2.0
 *
 * Files with fields of types that the library does not know: refused, or described by the caller, and then all other
 * fields are read as ever. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 50, FIELDS = 6, HEADER = 24, DESCRIPTOR = 1041, ARGUMENTS = 17 };

/* A record as NumPy aligns it: label at 0, note at 8 (16 bytes, not aligned), weight at 24, text at 32, last at 48,
 * picture at 56 (13 bytes, the pointer is the last 8). */
static const beton_field fields[FIELDS] = {
	{.name = "label", .type = BETON_FIELD_INT},    {.name = "note", .type = BETON_FIELD_BYTES},
	{.name = "weight", .type = BETON_FIELD_FLOAT}, {.name = "text", .type = BETON_FIELD_JSON},
	{.name = "last", .type = BETON_FIELD_INT},     {.name = "picture", .type = BETON_FIELD_IMAGE}};
static const char *path;
static file_content content;

static int setup(void **state)
{
	(void)state;
	beton_writer_options options;
	beton_writer *writer;
	beton_error err;
	make_folder();
	path = in_folder("data.beton");
	beton_writer_options_init(&options);
	/* Checksums cover the types. */
	options.flags = BETON_WRITER_NO_EXTENSION;
	int result = beton_writer_open(&writer, path, fields, FIELDS, &options, &err);
	for (int64_t i = 0; i < N && result == BETON_OK; i++) {
		char text[32];
		int length = snprintf(text, sizeof(text), "{\"number\": %d}", (int)i);
		const beton_input inputs[FIELDS] = {
			{.integer = i * 3},
			{.data = text, .size = 1 + (uint64_t)i % 9},
			{.real = (double)i / 4},
			{.data = text, .size = (uint64_t)length},
			{.integer = -i},
			{.data = text, .size = 3, .mode = BETON_IMAGE_RAW, .width = 1, .height = 1}};
		result = beton_writer_append(writer, inputs, &err);
	}
	if (result == BETON_OK)
		result = beton_writer_finish(writer, &err);
	if (result != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(&writer);
	content = read_file(path);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	free(content.data);
	remove_folder();
	return 0;
}

/* Makes a field's type unknown, with arguments that the library does not know. */
static void forget_type(uint32_t field, uint8_t type)
{
	const char arguments[] = "made by another program";
	uint64_t at = HEADER + (uint64_t)field * DESCRIPTOR;
	patch_file(path, at, &type, 1);
	patch_file(path, at + ARGUMENTS, arguments, sizeof(arguments));
}

static void restore(void)
{
	write_file(path, content.data, content.size);
}

/* Answers for each field, by name; type FLOAT with item_size 1: unknown. */
typedef struct answers {
	beton_field fields[FIELDS];
	int asked;
} answers;

static int describe(void *context, const void *arguments, beton_field *field)
{
	answers *self = context;
	assert_string_equal(arguments, "made by another program");
	self->asked++;
	for (int i = 0; i < FIELDS; i++)
		if (strcmp(fields[i].name, field->name) == 0) {
			if (self->fields[i].type == BETON_FIELD_FLOAT && self->fields[i].item_size)
				return 1;
			field->type = self->fields[i].type;
			field->item_size = self->fields[i].item_size;
			memcpy(field->shape, self->fields[i].shape, sizeof(field->shape));
			/* The name is not the function's to change. */
			memset(field->name, 'x', 3);
			return BETON_OK;
		}
	return 2;
}

static int open_described(beton_reader **reader, answers *given, beton_error *err)
{
	beton_reader_options options;
	beton_reader_options_init(&options);
	options.custom = describe;
	options.custom_context = given;
	*err = (beton_error){0};
	return beton_reader_open_with(reader, path, &options, err);
}

static beton_reader *open_good_described(answers *given)
{
	beton_reader *reader;
	beton_error err;
	if (open_described(&reader, given, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return reader;
}

/* All values of known fields are as written. */
static void expect_values(const beton_reader *reader)
{
	beton_error err = {0};
	for (uint64_t i = 0; i < N; i++) {
		beton_value all[FIELDS], one;
		char text[32], found[64] = "";
		int length = snprintf(text, sizeof(text), "{\"number\": %d}", (int)i);
		if (beton_reader_sample(reader, i, all, &err) != BETON_OK)
			fail_msg("%s", err.message);
		for (uint32_t k = 0; k < FIELDS; k++) {
			beton_field_type type = beton_reader_field(reader, k)->type;
			assert_string_equal(beton_reader_field(reader, k)->name, fields[k].name);
			if (beton_reader_value(reader, i, k, &one, &err) != BETON_OK)
				fail_msg("%s", err.message);
			assert_int_equal(one.type, type);
			assert_int_equal(all[k].type, type);
			assert_int_equal(one.blob.offset, all[k].blob.offset);
			assert_int_equal(one.integer, all[k].integer);
			assert_true(one.real == all[k].real);
			if (k == 5) {
				assert_int_equal(one.size, 3);
				assert_int_equal(beton_reader_read_value(reader, &one, found, &err), BETON_OK);
				assert_memory_equal(found, text, 3);
			}
			if (type != fields[k].type)
				continue;
			if (type == BETON_FIELD_INT)
				assert_int_equal(one.integer, k ? -(int64_t)i : (int64_t)i * 3);
			else if (type == BETON_FIELD_FLOAT)
				assert_true(one.real == (double)i / 4);
			else
				assert_int_equal(beton_reader_read_value(reader, &one, found, &err), BETON_OK);
			if (type == BETON_FIELD_JSON)
				assert_string_equal(found, text);
			assert_true(length > 9);
			if (type == BETON_FIELD_BYTES) {
				assert_int_equal(one.size, 1 + i % 9);
				assert_memory_equal(found, text, 1 + i % 9);
			}
		}
	}
	if (beton_reader_check_structure(reader, &err) != BETON_OK)
		fail_msg("%s", err.message);
}

/* Each field alone, and all together, described as they lie in the record. */
static void other_fields_are_read(void **state)
{
	(void)state;
	const beton_field number = {.type = BETON_FIELD_CUSTOM, .item_size = 8, .shape = {8}};
	const beton_field blob = {.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 16, .shape = {1, 0}};
	answers given = {.fields = {number,
				    blob,
				    number,
				    blob,
				    number,
				    {.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 13, .shape = {1, 5}}}};
	for (uint32_t i = 0; i <= FIELDS; i++) {
		int asked = 0;
		given.asked = 0;
		for (uint32_t k = 0; k < FIELDS; k++)
			if (i == k || i == FIELDS) {
				forget_type(k, (uint8_t)(i == 2 ? 7 : 200 + k));
				asked++;
			}
		expect_refusal(path, BETON_UNSUPPORTED_FIELD);
		beton_reader *reader = open_good_described(&given);
		assert_int_equal(given.asked, asked);
		expect_values(reader);
		beton_reader_close(&reader);
		restore();
	}
}

static void values_of_custom_fields(void **state)
{
	(void)state;
	answers given = {.fields = {{.type = BETON_FIELD_CUSTOM, .item_size = 8, .shape = {8}},
				    {.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 16, .shape = {1, 0}}}};
	forget_type(0, 255);
	forget_type(1, 255);
	beton_reader *reader = open_good_described(&given);
	for (uint64_t i = 0; i < N; i++) {
		int64_t number;
		uint64_t place[2];
		uint8_t bytes[16];
		beton_value value;
		assert_int_equal(beton_reader_record(reader, i, 0, &number, NULL), BETON_OK);
		assert_int_equal(number, (int64_t)i * 3);
		assert_int_equal(beton_reader_record(reader, i, 1, place, NULL), BETON_OK);
		assert_int_equal(beton_reader_value(reader, i, 1, &value, NULL), BETON_OK);
		assert_int_equal(value.type, BETON_FIELD_CUSTOM_BLOB);
		assert_int_equal(value.blob.offset, place[0]);
		assert_int_equal(value.size, place[1]);
		assert_int_equal(beton_reader_read_value(reader, &value, bytes, NULL), BETON_OK);
		assert_memory_equal(bytes, "{\"number\"", 1 + i % 9);
	}
	uint8_t record[BETON_CUSTOM_RECORD_MAX];
	assert_int_equal(beton_reader_record(reader, N, 0, record, NULL), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_reader_record(reader, 0, 2, record, NULL), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_reader_record(reader, 0, FIELDS, record, NULL), BETON_INVALID_ARGUMENT);
	beton_reader_close(&reader);
	/* Stored as a known type is. */
	given.fields[0] = (beton_field){.type = BETON_FIELD_INT};
	given.fields[1] = (beton_field){.type = BETON_FIELD_BYTES};
	reader = open_good_described(&given);
	assert_int_equal(beton_reader_find_type(reader, BETON_FIELD_BYTES), 1);
	expect_values(reader);
	beton_reader_close(&reader);
	restore();
}

static void bad_descriptions(void **state)
{
	(void)state;
	static const struct {
		beton_field field;
		int code;
		const char *text;
	} cases[] = {
		{{.type = BETON_FIELD_FLOAT, .item_size = 1},
		 BETON_UNSUPPORTED_FIELD,
		 "'note') has the unknown type 99"},
		{{.type = BETON_FIELD_CUSTOM, .shape = {1}},
		 BETON_INVALID_ARGUMENT,
		 "'note'): the function custom said: item"},
		{{.type = BETON_FIELD_CUSTOM, .item_size = 4097, .shape = {1}}, BETON_INVALID_ARGUMENT, "item_size"},
		{{.type = BETON_FIELD_CUSTOM, .item_size = 16, .shape = {0}}, BETON_INVALID_ARGUMENT, "alignment"},
		{{.type = BETON_FIELD_CUSTOM, .item_size = 16, .shape = {3}}, BETON_INVALID_ARGUMENT, "alignment"},
		{{.type = BETON_FIELD_CUSTOM, .item_size = 16, .shape = {32}}, BETON_INVALID_ARGUMENT, "alignment"},
		{{.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 16, .shape = {1, 9}},
		 BETON_INVALID_ARGUMENT,
		 "pointer"},
		{{.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 7, .shape = {1, 0}}, BETON_INVALID_ARGUMENT, "pointer"},
		{{.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 16, .shape = {1, UINT64_MAX}},
		 BETON_INVALID_ARGUMENT,
		 "pointer"},
		{{.type = BETON_FIELD_NDARRAY}, BETON_INVALID_ARGUMENT, "type is none"},
		{{.type = BETON_FIELD_TORCH_TENSOR}, BETON_INVALID_ARGUMENT, "type is none"},
		{{.type = (beton_field_type)99}, BETON_INVALID_ARGUMENT, "type is none"},
		/* Without its blobs the allocation table is too long. */
		{{.type = BETON_FIELD_CUSTOM, .item_size = 16, .shape = {1}}, BETON_FORMAT, "too many"},
		{{.type = BETON_FIELD_CUSTOM_BLOB, .item_size = 4096, .shape = {16, 0}}, BETON_OK, ""},
	};
	forget_type(1, 99);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		answers given = {.fields = {[1] = cases[i].field}};
		beton_reader *reader;
		beton_error err;
		int result = open_described(&reader, &given, &err);
		if (result != cases[i].code || !strstr(err.message, cases[i].text))
			fail_msg("case %zu: %d, %s", i, result, err.message);
		/* A wrong size is noticed where there are blobs. */
		beton_value values[FIELDS];
		if (reader)
			assert_int_equal(beton_reader_sample(reader, 1, values, &err), BETON_SAMPLE_CORRUPT);
		beton_reader_close(&reader);
	}
	restore();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(other_fields_are_read),
		cmocka_unit_test(values_of_custom_fields),
		cmocka_unit_test(bad_descriptions),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
