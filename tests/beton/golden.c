/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that FFCV wrote read as FFCV's own reader reads them. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <nettle/sha2.h>

static json_t *load_expected(const char *name)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s.json", GOLDEN_FOLDER, name);
	json_t *expected = json_load_file(path, 0, NULL);
	assert_non_null(expected);
	return expected;
}

static json_int_t integer(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);
	assert_true(json_is_integer(value));
	return json_integer_value(value);
}

static void check_field(const beton_field *field, const json_t *expected, json_int_t offset)
{
	assert_string_equal(field->name, json_string_value(json_object_get(expected, "name")));
	assert_int_equal(field->type, integer(expected, "type_id"));
	assert_int_equal(field->record_offset, offset);
	const json_t *shape = json_object_get(expected, "shape");
	assert_int_equal(field->ndim, json_array_size(shape));
	for (uint32_t i = 0; i < field->ndim; i++)
		assert_int_equal(field->shape[i], json_integer_value(json_array_get(shape, i)));
	if (shape)
		assert_string_equal(field->dtype, json_string_value(json_object_get(expected, "dtype")));
}

static void check_blob(const beton_reader *reader, const beton_value *value, const json_t *expected)
{
	assert_int_equal(value->blob.size, integer(expected, "size"));
	uint8_t *bytes = malloc((size_t)value->blob.size);
	beton_error err;
	if (beton_reader_read(reader, &value->blob, bytes, &err) != BETON_OK)
		fail_msg("%s", err.message);
	struct sha256_ctx context;
	uint8_t digest[SHA256_DIGEST_SIZE];
	char text[2 * SHA256_DIGEST_SIZE + 1];
	sha256_init(&context);
	sha256_update(&context, (size_t)value->blob.size, bytes);
	sha256_digest(&context, sizeof(digest), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		snprintf(text + 2 * i, 3, "%02x", digest[i]);
	free(bytes);
	assert_string_equal(text, json_string_value(json_object_get(expected, "sha256")));
	if (value->type != BETON_FIELD_IMAGE)
		return;
	assert_string_equal(value->mode == BETON_IMAGE_JPEG ? "jpg" : "raw",
			    json_string_value(json_object_get(expected, "mode")));
	assert_int_equal(value->width, integer(expected, "width"));
	assert_int_equal(value->height, integer(expected, "height"));
}

static void check_sample(const beton_reader *reader, uint64_t sample, const json_t *expected)
{
	for (uint32_t i = 0; i < beton_reader_info(reader)->num_fields; i++) {
		const json_t *known = json_object_get(expected, beton_reader_field(reader, i)->name);
		beton_value value;
		beton_error err;
		if (beton_reader_value(reader, sample, i, &value, &err) != BETON_OK)
			fail_msg("%s", err.message);
		assert_int_equal(value.type, beton_reader_field(reader, i)->type);
		if (value.type == BETON_FIELD_INT)
			assert_int_equal(value.integer, json_integer_value(known));
		else if (value.type == BETON_FIELD_FLOAT)
			assert_true(value.real == json_real_value(known));
		else
			check_blob(reader, &value, known);
	}
}

static void test_api(void **state)
{
	const char *name = *state;
	json_t *expected = load_expected(name);
	const char *path = unpack_golden(name);
	beton_reader *reader = open_good(path);
	const beton_file_info *info = beton_reader_info(reader);
	assert_string_equal(beton_reader_path(reader), path);
	assert_true(beton_reader_fd(reader) >= 0);
	assert_int_equal(info->version, integer(expected, "version"));
	assert_int_equal(info->page_size, integer(expected, "page_size"));
	assert_int_equal(info->num_samples, integer(expected, "num_samples"));
	assert_int_equal(info->record_size, integer(expected, "metadata_itemsize"));
	assert_int_equal(info->alloc_table_offset, integer(expected, "alloc_table_ptr"));
	assert_int_equal(info->alloc_entries, integer(expected, "alloc_entries"));
	const json_t *fields = json_object_get(expected, "fields");
	const json_t *offsets = json_object_get(expected, "metadata_offsets");
	assert_int_equal(info->num_fields, json_array_size(fields));
	for (uint32_t i = 0; i < info->num_fields; i++) {
		const beton_field *field = beton_reader_field(reader, i);
		check_field(field, json_array_get(fields, i), json_integer_value(json_array_get(offsets, i)));
		assert_int_equal(beton_reader_find_field(reader, field->name), i);
		assert_true(beton_reader_find_type(reader, field->type) <= (int)i);
	}
	assert_null(beton_reader_field(reader, info->num_fields));
	assert_int_equal(beton_reader_find_field(reader, "no such field"), -1);
	assert_int_equal(beton_reader_find_type(reader, (beton_field_type)99), -1);
	for (uint64_t i = 0; i < info->num_samples; i++)
		check_sample(reader, i, json_array_get(json_object_get(expected, "samples"), i));
	beton_value value;
	assert_int_equal(beton_reader_value(reader, info->num_samples, 0, &value, NULL), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_reader_value(reader, 0, info->num_fields, &value, NULL), BETON_INVALID_ARGUMENT);
	beton_reader_close(&reader);
	assert_null(reader);
	beton_reader_close(&reader);
	beton_reader_close(NULL);
	json_decref(expected);
}

/* The JSON that beton-info prints, without the keys that other is not to have. */
static json_t *run_info(const char *options, const char *path)
{
	const char *program = getenv("BETON_INFO");
	if (!program)
		skip();
	char command[1024];
	snprintf(command, sizeof(command), "'%s' %s '%s'", program, options, path);
	FILE *output = popen(command, "r");
	assert_non_null(output);
	json_error_t error;
	json_t *found = json_loadf(output, 0, &error);
	if (!found)
		fail_msg("%s: %s", command, error.text);
	assert_int_equal(pclose(output), 0);
	return found;
}

static void test_info(void **state)
{
	const char *name = *state;
	json_t *expected = load_expected(name);
	const char *path = unpack_golden(name);
	json_t *found = run_info("--json --samples", path);
	assert_true(json_equal(found, expected));
	json_decref(found);
	found = run_info("--json", path);
	json_object_del(expected, "samples");
	assert_true(json_equal(found, expected));
	json_decref(found);
	json_decref(expected);
}

int main(void)
{
	static char *names[] = {"scalars-only",  "regression",  "every-field",
				"image-jpg-int", "image-mixed", "image-raw-float"};
	enum { COUNT = sizeof(names) / sizeof(*names) };
	struct CMUnitTest tests[2 * COUNT];
	char titles[2 * COUNT][64];
	for (int i = 0; i < COUNT; i++) {
		snprintf(titles[2 * i], sizeof(titles[0]), "%s through the library", names[i]);
		snprintf(titles[2 * i + 1], sizeof(titles[0]), "%s through beton-info", names[i]);
		tests[2 * i] = (struct CMUnitTest){titles[2 * i], test_api, NULL, NULL, names[i]};
		tests[2 * i + 1] = (struct CMUnitTest){titles[2 * i + 1], test_info, NULL, NULL, names[i]};
	}
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
