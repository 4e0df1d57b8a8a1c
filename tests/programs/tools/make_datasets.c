/* SPDX-License-Identifier: Apache-2.0
 *
 * make-datasets FOLDER: the golden files, which FFCV wrote, as FOLDER/NAME.beton, and files of our own:
 *   numbers.beton     100 samples: label (sample % 7 - 1), score (sample / 4, the last a NaN), data (10 bytes)
 *   large.beton       the same with 100 KB of data
 *   deep-source.beton one sample, whose source is the deepest folder
 *   cats.beton        4 samples of the classes cat and dog; cats-too.beton: cat, dog and emu; dogs.beton: dog, emu and
 *                     cat; twice.beton: cat and cat; one-name.beton: cat; no-names.beton: the same samples, whose
 * classes have no names odd-names.beton   a picture and a text for each class, whose names try to be anything but a
 * folder's name */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tests/support/beton_files.h"

enum { NUMBERS = 100 };

static const char *const odd_names[] = {"..",      ".",         "a/../../b", "/etc/x", "",
					".hidden", "caf\u00e9", "50%",       "-rf",    "a\tb"};

static void copy_golden(const char *name, const char *folder)
{
	char path[512];
	snprintf(path, sizeof(path), "%s/%s.beton", folder, name);
	file_content content = read_file(unpack_golden(name));
	write_file(path, content.data, content.size);
	free(content.data);
}

static beton_writer *open_writer(const char *folder, const char *name, const beton_field *fields, uint32_t num_fields,
				 const char *facts)
{
	char path[512];
	beton_writer *writer;
	beton_error err;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.facts = facts;
	options.page_size = BETON_PAGE_SIZE_MIN;
	snprintf(path, sizeof(path), "%s/%s.beton", folder, name);
	int result = beton_writer_open(&writer, path, fields, num_fields, &options, &err);
	if (result != BETON_OK && result != BETON_UNSUPPORTED)
		fail_msg("%s", err.message);
	return writer; /* NULL: this build cannot compress */
}

static void append(beton_writer *writer, const beton_input *values)
{
	beton_error err;
	if (beton_writer_append(writer, values, &err) != BETON_OK)
		fail_msg("%s", err.message);
}

static void finish(beton_writer *writer)
{
	beton_error err;
	if (beton_writer_finish(writer, &err) != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(&writer);
}

static void write_numbers(const char *folder, const char *name, size_t size)
{
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "score", .type = BETON_FIELD_FLOAT},
				      {.name = "data", .type = BETON_FIELD_BYTES}};
	beton_writer *writer = open_writer(folder, name, fields, 3, NULL);
	char *data = calloc(1, size);
	assert_non_null(data);
	for (int i = 0; i < NUMBERS; i++) {
		snprintf(data, size, "blob %d", i);
		const beton_input values[] = {{.integer = i % 7 - 1},
					      {.real = i == NUMBERS - 1 ? NAN : i / 4.0},
					      {.data = data, .size = size}};
		append(writer, values);
	}
	free(data);
	finish(writer);
}

/* Samples of the labels 0, 1, 0, 1 ... */
static void write_animals(const char *folder, const char *name, int count, const char *facts)
{
	const beton_field field = {.name = "label", .type = BETON_FIELD_INT};
	beton_writer *writer = open_writer(folder, name, &field, 1, facts);
	for (int i = 0; i < count; i++)
		append(writer, &(beton_input){.integer = i % 2});
	finish(writer);
}

static void write_pictures(const char *folder, const char *name, const char *facts)
{
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "picture", .type = BETON_FIELD_IMAGE}};
	beton_writer *writer = open_writer(folder, name, fields, 2, facts);
	for (int i = 0; i < 3; i++) {
		const uint8_t pixel[3] = {(uint8_t)i, 2, 3};
		const beton_input values[] = {
			{.integer = i}, {.data = pixel, .size = 3, .mode = BETON_IMAGE_RAW, .width = 1, .height = 1}};
		append(writer, values);
	}
	finish(writer);
}

/* Neither of the two has the name that programs look for. */
static void write_pairs(const char *folder)
{
	const beton_field fields[] = {{.name = "left", .type = BETON_FIELD_IMAGE},
				      {.name = "right", .type = BETON_FIELD_IMAGE}};
	const uint8_t pixel[3] = {1, 2, 3};
	const beton_input value = {.data = pixel, .size = 3, .mode = BETON_IMAGE_RAW, .width = 1, .height = 1};
	beton_writer *writer = open_writer(folder, "pairs", fields, 2, NULL);
	append(writer, (const beton_input[]){value, value});
	finish(writer);
}

/* More samples than dictionaries are trained from. */
static void write_compressed(const char *folder, const char *name, const char *word)
{
	const beton_field fields[] = {
		{.name = "label", .type = BETON_FIELD_INT},
		{.name = "text", .type = BETON_FIELD_JSON, .compression = BETON_COMPRESSION_ZSTD}};
	beton_writer *writer = open_writer(folder, name, fields, 2, NULL);
	for (int i = 0; writer && i < 1500; i++) {
		char text[400];
		snprintf(text, sizeof(text), "{\"number\": %d, \"%s\": \"%0300d\"}", i, word, i * i);
		append(writer, (const beton_input[]){{.integer = i % 3}, {.data = text, .size = strlen(text)}});
	}
	if (writer)
		finish(writer);
}

/* The first sample has only empty values. */
static void write_empty(const char *folder)
{
	const beton_field fields[] = {{.name = "first", .type = BETON_FIELD_BYTES},
				      {.name = "second", .type = BETON_FIELD_BYTES}};
	beton_writer *writer = open_writer(folder, "empty", fields, 2, NULL);
	for (int i = 0; writer && i < 4; i++)
		append(writer, (const beton_input[]){{.data = i % 2 ? "abc" : NULL, .size = i % 2 ? 3 : 0},
						     {.data = i == 2 ? "de" : NULL, .size = i == 2 ? 2 : 0}});
	if (writer)
		finish(writer);
}

static void write_odd_names(const char *folder)
{
	const beton_field fields[] = {{.name = "image", .type = BETON_FIELD_IMAGE},
				      {.name = "label", .type = BETON_FIELD_INT},
				      {.name = "../text", .type = BETON_FIELD_JSON}};
	const size_t count = sizeof(odd_names) / sizeof(*odd_names);
	json_t *names = json_array();
	for (size_t i = 0; i < count; i++)
		json_array_append_new(names, json_string(odd_names[i]));
	json_t *facts = json_pack("{s:o}", "classes", names);
	char *text = json_dumps(facts, 0);
	beton_writer *writer = open_writer(folder, "odd-names", fields, 3, text);
	for (size_t i = 0; i < count; i++) {
		uint8_t pixels[5 * 3 * 3];
		memset(pixels, (int)(i * 20), sizeof(pixels));
		const beton_input values[] = {
			{.data = pixels, .size = sizeof(pixels), .mode = BETON_IMAGE_RAW, .width = 5, .height = 3},
			{.integer = (int64_t)i},
			{.data = "{\"a\": 1}", .size = 8}};
		append(writer, values);
	}
	finish(writer);
	free(text);
	json_decref(facts);
}

/* One sample, whose source is as many folders as fit, each with a name that has to be written in three bytes. */
static void write_deep_source(const char *folder)
{
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT}};
	const beton_input value = {.integer = 1};
	char source[BETON_SOURCE_MAX + 1] = "";
	beton_error err;
	for (int i = 0; i + 2 <= BETON_SOURCE_MAX; i += 2)
		memcpy(source + i, "\n/", 3);
	source[BETON_SOURCE_MAX - 1] = 'x';
	beton_writer *writer = open_writer(folder, "deep-source", fields, 1, NULL);
	if (beton_writer_append_from(writer, &value, source, &err) != BETON_OK)
		fail_msg("%s", err.message);
	finish(writer);
}

int main(int argc, char **argv)
{
	static const char *const golden[] = {"every-field",     "image-jpg-int", "image-mixed",
					     "image-raw-float", "regression",    "scalars-only"};
	if (argc != 2) {
		fputs("usage: make-datasets FOLDER\n", stderr);
		return 2;
	}
	make_folder();
	for (size_t i = 0; i < sizeof(golden) / sizeof(*golden); i++)
		copy_golden(golden[i], argv[1]);
	write_numbers(argv[1], "numbers", 10);
	write_numbers(argv[1], "large", 100000);
	write_deep_source(argv[1]);
	write_animals(argv[1], "cats", 4, "{\"classes\": [\"cat\", \"dog\"], \"source\": \"a zoo\", \"year\": 1}");
	write_animals(argv[1], "cats-too", 4,
		      "{\"classes\": [\"cat\", \"dog\", \"emu\"], \"year\": 2, \"source\": \"a zoo\"}");
	write_animals(argv[1], "dogs", 4, "{\"classes\": [\"dog\", \"emu\", \"cat\"], \"source\": \"a zoo\"}");
	write_animals(argv[1], "twice", 4, "{\"classes\": [\"cat\", \"cat\"]}");
	write_animals(argv[1], "one-name", 4, "{\"classes\": [\"cat\"]}");
	write_animals(argv[1], "no-names", 4, NULL);
	write_animals(argv[1], "many", 100000, NULL);
	write_pictures(argv[1], "twice-pictures", "{\"classes\": [\"cat\", \"cat\", \"dog\"]}");
	write_pictures(argv[1], "few-names", "{\"classes\": [\"cat\", \"dog\"]}");
	write_pictures(argv[1], "script", "{\"classes\": [\"<script>\", \"a&b\", \"\uffff\\u0001\\ufffe\"]}");
	write_pairs(argv[1]);
	write_compressed(argv[1], "compressed", "text");
	write_compressed(argv[1], "compressed-else", "others");
	write_odd_names(argv[1]);
	write_empty(argv[1]);
	remove_folder();
	return 0;
}
