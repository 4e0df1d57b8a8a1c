/* SPDX-License-Identifier: Apache-2.0 */
#include "picture_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/pictures.h"

static file_content jpegs[2];

void make_pictures(void)
{
	for (int i = 0; i < 2; i++) {
		const char *name = in_folder("picture.jpg");
		picture_write(i ? PICTURE_PROGRESSIVE : PICTURE_RGB, WIDTH, HEIGHT, name);
		jpegs[i] = read_file(name);
	}
}

void free_pictures(void)
{
	free(jpegs[0].data);
	free(jpegs[1].data);
}

const file_content *picture_of(uint64_t sample)
{
	return &jpegs[sample % 2];
}

void write_picture_file(const char *path, uint32_t flags)
{
	static const beton_field fields[FIELDS] = {{.name = "picture", .type = BETON_FIELD_IMAGE},
						   {.name = "label", .type = BETON_FIELD_INT},
						   {.name = "text", .type = BETON_FIELD_JSON},
						   {.name = "raw", .type = BETON_FIELD_IMAGE}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	options.flags = flags;
	options.facts = "{\"classes\": [\"a\", \"b\"]}";
	beton_writer *writer;
	assert_int_equal(beton_writer_open(&writer, path, fields, FIELDS, &options, NULL), BETON_OK);
	uint8_t pixels[12] = {1, 2, 3};
	for (int i = 0; i < SAMPLES; i++) {
		char text[32];
		snprintf(text, sizeof(text), "{\"n\": %d}", i);
		const file_content *jpeg = picture_of((uint64_t)i);
		const beton_input values[FIELDS] = {
			{.data = jpeg->data, .size = jpeg->size, .width = WIDTH, .height = HEIGHT},
			{.integer = i * 3},
			{.data = text, .size = strlen(text)},
			{.data = pixels, .size = 12, .mode = BETON_IMAGE_RAW, .width = 2, .height = 2}};
		assert_int_equal(beton_writer_append(writer, values, NULL), BETON_OK);
	}
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_OK);
	beton_writer_close(&writer);
}

beton_value value_of(const char *path, uint64_t sample, uint32_t field)
{
	beton_reader *reader = open_good(path);
	beton_value value;
	assert_int_equal(beton_reader_value(reader, sample, field, &value, NULL), BETON_OK);
	beton_reader_close(&reader);
	return value;
}

void patch_number(const char *path, uint64_t offset, uint64_t value, size_t bytes)
{
	uint8_t little[8];
	for (size_t i = 0; i < bytes; i++)
		little[i] = (uint8_t)(value >> (8 * i));
	patch_file(path, offset, little, bytes);
}

uint64_t record_of(uint64_t sample)
{
	return 24 + FIELDS * 1041 + sample * RECORD;
}
