/* SPDX-License-Identifier: Apache-2.0
 *
 * Fields of rasters: what is put comes back, whatever the channels, bits and compression, beside fields of every other
 * kind; and what is wrong with a field, a value or a file is said. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/set.h>
#include <beton/verify.h>

enum { N = 40, FIELDS = 6, HEADER = 24, DESCRIPTOR = 1041, ARGUMENTS = 17, VALUE_MAX = 64 * 2 * 20 * 20 };

/* A record: label at 0, depth at 8 (16 bytes), note at 24, stack at 40 (16), packed at 56 (24 and 8), weight at 88. */
enum { DEPTH = 8, STACK = 40, PACKED = 56, RECORD = 96 };
static const beton_field fields[FIELDS] = {
	{.name = "label", .type = BETON_FIELD_INT},
	{.name = "depth", .type = BETON_FIELD_RASTER, .dtype = "<u2", .ndim = 1, .shape = {1}},
	{.name = "note", .type = BETON_FIELD_BYTES},
	{.name = "stack", .type = BETON_FIELD_RASTER, .dtype = "|u1", .ndim = 1, .shape = {64}},
	{.name = "packed",
	 .type = BETON_FIELD_RASTER,
	 .dtype = "<u2",
	 .ndim = 1,
	 .shape = {5},
	 .compression = BETON_COMPRESSION_ZSTD},
	{.name = "weight", .type = BETON_FIELD_FLOAT}};

static uint32_t num_fields = FIELDS;
static uint8_t samples[N + VALUE_MAX];

static int setup(void **state)
{
	(void)state;
	make_folder();
	for (size_t i = 0; i < sizeof(samples); i++)
		samples[i] = (uint8_t)(i * 2654435761u >> 20);
	beton_writer *writer = NULL;
	beton_error err;
	/* A build may lack zstd. */
	if (beton_writer_open(&writer, in_folder("try.beton"), fields, FIELDS, NULL, &err) != BETON_OK)
		num_fields = 4;
	beton_writer_close(&writer);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

static uint32_t width_of(int i)
{
	return 1 + (uint32_t)i % 20;
}

static uint32_t height_of(int i)
{
	return 1 + (uint32_t)i * 7 % 20;
}

static beton_input raster_of(const beton_field *field, int i)
{
	return (beton_input){.data = samples + i,
			     .size = (uint64_t)width_of(i) * height_of(i) * field->shape[0] *
				     (field->dtype[2] == '2' ? 2 : 1),
			     .width = width_of(i),
			     .height = height_of(i)};
}

static const char *make_file(const char *name, uint32_t flags)
{
	const char *path = in_folder(name);
	beton_writer *writer;
	beton_writer_options options;
	beton_error err;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	options.flags = flags;
	int result = beton_writer_open(&writer, path, fields, num_fields, &options, &err);
	for (int i = 0; i < N && result == BETON_OK; i++) {
		const beton_input inputs[FIELDS] = {
			{.integer = i},           raster_of(&fields[1], i), {.data = samples, .size = (uint64_t)i % 5},
			raster_of(&fields[3], i), raster_of(&fields[4], i), {.real = i / 2.0},
		};
		result = beton_writer_append(writer, inputs, &err);
	}
	if (result == BETON_OK)
		result = beton_writer_finish(writer, &err);
	if (result != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(&writer);
	return path;
}

static void check_file(const char *path)
{
	static uint8_t bytes[VALUE_MAX];
	beton_error err;
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_find_type(reader, BETON_FIELD_RASTER), 1);
	for (uint32_t f = 0; f < num_fields; f++) {
		const beton_field *field = beton_reader_field(reader, f);
		assert_int_equal(field->type, fields[f].type);
		assert_string_equal(field->dtype, fields[f].dtype);
		assert_int_equal(field->ndim, fields[f].ndim);
		assert_int_equal(field->shape[0], fields[f].shape[0]);
		assert_int_equal(field->compression, fields[f].compression);
	}
	assert_int_equal(beton_reader_info(reader)->num_samples, N);
	for (int i = 0; i < N; i++)
		for (uint32_t f = 1; f < num_fields; f++) {
			if (fields[f].type != BETON_FIELD_RASTER)
				continue;
			beton_value value;
			const beton_input expected = raster_of(&fields[f], i);
			if (beton_reader_value(reader, (uint64_t)i, f, &value, &err) != BETON_OK ||
			    beton_reader_read_value(reader, &value, bytes, &err) != BETON_OK)
				fail_msg("%s", err.message);
			assert_int_equal(value.width, expected.width);
			assert_int_equal(value.height, expected.height);
			assert_int_equal(value.mode, BETON_IMAGE_RAW);
			assert_int_equal(value.size, expected.size);
			assert_memory_equal(bytes, expected.data, expected.size);
		}
	if (beton_reader_check_structure(reader, &err) != BETON_OK)
		fail_msg("%s", err.message);
	beton_reader_close(&reader);
}

static void what_is_put_comes_back(void **state)
{
	(void)state;
	check_file(make_file("data.beton", 0));
	check_file(make_file("plain.beton", BETON_WRITER_NO_EXTENSION));
}

static void repair_keeps_rasters(void **state)
{
	(void)state;
	const char *path = make_file("data.beton", 0), *out = in_folder("repaired.beton");
	beton_repair_report report;
	beton_error err;
	/* The table is lost, so sizes follow from the records. */
	file_content content = read_file(path);
	uint64_t table;
	memcpy(&table, content.data + 16, sizeof(table));
	write_file(path, content.data, (size_t)table);
	free(content.data);
	if (beton_repair(path, out, NULL, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_true(report.table_lost);
	assert_int_equal(report.kept, N);
	check_file(out);
}

static void sets_name_their_channels(void **state)
{
	(void)state;
	const char *const shards[] = {make_file("a.beton", 0), make_file("b.beton", BETON_WRITER_NO_EXTENSION)};
	beton_error err;
	beton_set *set = NULL;
	if (beton_set_write(in_folder("all.betonset"), BETON_SET_CREATE, shards, 2, NULL, &err) != BETON_OK ||
	    beton_set_open(&set, in_folder("all.betonset"), &err) != BETON_OK)
		fail_msg("%s", err.message);
	assert_int_equal(beton_set_get_info(set)->num_samples, 2 * N);
	for (uint32_t f = 0; f < num_fields; f++) {
		const beton_field *field = beton_set_field(set, f);
		assert_int_equal(field->type, fields[f].type);
		assert_string_equal(field->dtype, fields[f].dtype);
		assert_int_equal(field->shape[0], fields[f].shape[0]);
	}
	beton_set_close(&set);
}

static void bad_fields_are_refused(void **state)
{
	(void)state;
	const struct {
		beton_field field;
		const char *message;
	} cases[] = {
		{{.name = "r", .dtype = "<u2", .ndim = 1, .shape = {0}}, "1 to 64 channels; it has 1 and 0"},
		{{.name = "r", .dtype = "<u2", .ndim = 1, .shape = {65}}, "1 to 64 channels; it has 1 and 65"},
		{{.name = "r", .dtype = "<u2", .ndim = 2, .shape = {3, 3}}, "1 to 64 channels; it has 2 and 3"},
		{{.name = "r", .dtype = "<f4", .ndim = 1, .shape = {3}}, "dtype '<f4' is not |u1 or <u2"},
		{{.name = "r", .dtype = ">u2", .ndim = 1, .shape = {3}}, "dtype '>u2' is not |u1 or <u2"},
		{{.name = "r", .dtype = "", .ndim = 1, .shape = {3}}, "dtype '' is not |u1 or <u2"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_field field = cases[i].field;
		beton_writer *writer = NULL;
		beton_error err;
		field.type = BETON_FIELD_RASTER;
		assert_int_equal(beton_writer_open(&writer, in_folder("bad.beton"), &field, 1, NULL, &err),
				 BETON_INVALID_ARGUMENT);
		if (!strstr(err.message, cases[i].message))
			fail_msg("'%s' does not say '%s'", err.message, cases[i].message);
	}
}

static void bad_values_are_refused(void **state)
{
	(void)state;
	const struct {
		beton_input input;
		const char *message;
	} cases[] = {
		{{.data = samples, .size = 23, .width = 4, .height = 3}, "23 bytes, expected 24"},
		{{.data = samples, .size = 0, .width = 0, .height = 3},
		 "a raster of 0 x 3 pixels; sides are 1 to 65535"},
		{{.data = samples, .size = 131072, .width = 65536, .height = 1}, "a raster of 65536 x 1 pixels"},
		{{.size = 24, .width = 4, .height = 3}, "24 bytes at NULL"},
		{{.data = samples, .size = UINT64_C(2) << 32, .width = 65535, .height = 65535}, "expected 8589672450"},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_writer *writer = NULL;
		beton_error err;
		assert_int_equal(beton_writer_open(&writer, in_folder("bad.beton"), &fields[1], 1, NULL, &err),
				 BETON_OK);
		assert_int_equal(beton_writer_append(writer, &cases[i].input, &err), BETON_INVALID_ARGUMENT);
		if (!strstr(err.message, cases[i].message))
			fail_msg("'%s' does not say '%s'", err.message, cases[i].message);
		beton_writer_close(&writer);
	}
}

static void damaged_descriptors_are_refused(void **state)
{
	(void)state;
	const struct {
		uint32_t field, at;
		uint32_t value;
		int code;
		const char *message;
	} cases[] = {
		{1, 8, 0, BETON_FORMAT, "raster field 'depth': 0 channels of 2 bytes"},
		{1, 8, 65, BETON_FORMAT, "raster field 'depth': 65 channels of 2 bytes"},
		{1, 12, 3, BETON_FORMAT, "raster field 'depth': 1 channels of 3 bytes"},
		{1, 12, 0, BETON_FORMAT, "raster field 'depth': 1 channels of 0 bytes"},
		{1, 0, 0x20202020, BETON_UNSUPPORTED_FIELD, "field 1 ('depth') has the unknown type 255"},
		{4, 8, 99, BETON_FORMAT, "raster field 'packed': 99 channels of 2 bytes"},
		{4, 0, 0x20202020, BETON_FORMAT, "values of type 255 are never compressed"},
		{4, 972, 2, BETON_UNSUPPORTED_FIELD, "has the unknown compression 2"},
	};
	const char *path = make_file("plain.beton", BETON_WRITER_NO_EXTENSION);
	file_content content = read_file(path);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (cases[i].field >= num_fields)
			continue;
		write_file(path, content.data, content.size);
		patch_file(path, HEADER + cases[i].field * DESCRIPTOR + ARGUMENTS + cases[i].at, &cases[i].value, 4);
		const char *message = expect_refusal(path, cases[i].code);
		if (!strstr(message, cases[i].message))
			fail_msg("'%s' does not say '%s'", message, cases[i].message);
	}
	/* Zeros follow the arguments. */
	write_file(path, content.data, content.size);
	patch_file(path, HEADER + DESCRIPTOR + ARGUMENTS + 16, "x", 1);
	expect_damage(path, BETON_FORMAT);
	free(content.data);
}

static void damaged_records_cost_their_value(void **state)
{
	(void)state;
	const struct {
		uint32_t field, at;
		uint32_t value;
		const char *message;
	} cases[] = {
		{1, DEPTH + 8, 0, "field 'depth': a raster of 0 x"},
		{1, DEPTH + 8, 65536, "field 'depth': a raster of 65536 x"},
		{1, DEPTH + 12, 70000, "x 70000 pixels; sides are 1 to 65535"},
		{1, DEPTH + 8, 19, "field 'depth': its allocated size is"},
		{3, STACK + 12, 65535, "field 'stack': its allocated size is"},
		{4, PACKED + 16, 7, "field 'packed': the size of the raster is 7"},
		{4, PACKED + 24, 0, "field 'packed': a raster of 0 x"},
		{4, PACKED + 28, 20, "field 'packed': the size of the raster is"},
	};
	const char *path = make_file("plain.beton", BETON_WRITER_NO_EXTENSION);
	file_content content = read_file(path);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t record = num_fields == FIELDS ? RECORD : 56;
		beton_error err;
		beton_value value;
		if (cases[i].field >= num_fields)
			continue;
		write_file(path, content.data, content.size);
		patch_file(path, HEADER + num_fields * DESCRIPTOR + 5 * record + cases[i].at, &cases[i].value, 4);
		beton_reader *reader = open_good(path);
		assert_int_equal(beton_reader_info(reader)->record_size, record);
		assert_int_equal(beton_reader_value(reader, 5, cases[i].field, &value, &err), BETON_SAMPLE_CORRUPT);
		if (!strstr(err.message, cases[i].message))
			fail_msg("'%s' does not say '%s'", err.message, cases[i].message);
		assert_int_equal(read_everything(reader), 1);
		beton_reader_close(&reader);
	}
	free(content.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_put_comes_back),           cmocka_unit_test(repair_keeps_rasters),
		cmocka_unit_test(sets_name_their_channels),         cmocka_unit_test(bad_fields_are_refused),
		cmocka_unit_test(bad_values_are_refused),           cmocka_unit_test(damaged_descriptors_are_refused),
		cmocka_unit_test(damaged_records_cost_their_value),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
