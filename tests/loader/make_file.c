/* SPDX-License-Identifier: Apache-2.0
 *
 * make-file FILE.beton [kinds | boxes | rasters | numbers]: writes 10 samples there, for tests that are not cmocka
 * programs. With kinds: a picture of each kind that decoders treat differently; tests/golden/pictures.beton.zst is such
 * a file. With boxes: pictures with a box each. With rasters: of five channels and 16 bits. With numbers: nothing else.
 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most are small, with parts of blocks at both edges; large ones are decoded at 1/2, 1/4 or 1/8 as well. */
enum { WIDTH = 45, HEIGHT = 35, LARGE_WIDTH = 187, LARGE_HEIGHT = 140 };

static uint64_t appended;

/* kind NULL: the pixels themselves. */
static void append(beton_writer *writer, uint32_t width, uint32_t height, const fixture_jpeg_options *kind)
{
	uint64_t picture = appended++;
	uint8_t *pixels = fixture_pixels(picture, width, height), *bytes = pixels;
	unsigned long size = (unsigned long)width * height * 3;
	if (kind)
		bytes = fixture_jpeg(pixels, width, height, *kind, &size);
	const beton_input input = {.data = bytes,
				   .size = size,
				   .mode = kind ? BETON_IMAGE_JPEG : BETON_IMAGE_RAW,
				   .width = width,
				   .height = height};
	assert_ok(beton_writer_append(writer, &input, err));
	if (kind)
		free(bytes);
	free(pixels);
}

static void append_kinds(beton_writer *writer)
{
	static const int sampling[][2] = {{2, 2}, {2, 1}, {1, 2}, {1, 1}, {4, 1}, {3, 2}};
	for (size_t i = 0; i < sizeof(sampling) / sizeof(*sampling); i++) {
		fixture_jpeg_options kind = {.horizontal = sampling[i][0], .vertical = sampling[i][1]};
		append(writer, WIDTH, HEIGHT, &kind);
		kind.restart = i % 2 ? 1 : (WIDTH + 8 * kind.horizontal - 1) / (8 * kind.horizontal);
		append(writer, WIDTH, HEIGHT, &kind);
		if (i < 4)
			append(writer, LARGE_WIDTH, LARGE_HEIGHT, &kind);
		kind.progressive = true;
		append(writer, WIDTH, HEIGHT, &kind);
	}
	static const fixture_jpeg_options others[] = {
		{.grey = true},
		{.grey = true, .restart = 3},
		{.grey = true, .horizontal = 2, .vertical = 2},
		{.grey = true, .progressive = true},
		{.cmyk = true},
		{.cmyk = true, .unmarked = true},
	};
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		append(writer, WIDTH, HEIGHT, &others[i]);
	append(writer, 1, 1, &(fixture_jpeg_options){0});
	append(writer, 8, LARGE_HEIGHT, &(fixture_jpeg_options){0});
	append(writer, LARGE_WIDTH, LARGE_HEIGHT, &(fixture_jpeg_options){0});
	append(writer, LARGE_WIDTH, LARGE_HEIGHT, &(fixture_jpeg_options){.grey = true});
	append(writer, WIDTH, HEIGHT, NULL);
	append(writer, 3, 5, NULL);
}

static void write_kinds(const char *path)
{
	const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, &field, 1, &options, err));
	append_kinds(writer);
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static void write_boxes(const char *path)
{
	enum { SAMPLES = 10, HEIGHT_OF_ALL = 40 };
	const beton_field fields[2] = {
		{.name = "image", .type = BETON_FIELD_IMAGE},
		{.name = "boxes", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 2, .shape = {2, 4}}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, &options, err));
	for (uint32_t i = 0; i < SAMPLES; i++) {
		uint32_t width = 90 + i;
		float left = (float)(9 + i);
		const float boxes[2][4] = {{left, 8, left + 30, 28}}; /* the second one is padding */
		uint8_t *pixels = fixture_pixels(i, width, HEIGHT_OF_ALL);
		const beton_input inputs[2] = {{.data = pixels,
						.size = (uint64_t)width * HEIGHT_OF_ALL * 3,
						.mode = BETON_IMAGE_RAW,
						.width = width,
						.height = HEIGHT_OF_ALL},
					       {.data = boxes, .size = sizeof(boxes)}};
		assert_ok(beton_writer_append(writer, inputs, err));
		free(pixels);
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static void write_rasters(const char *path)
{
	enum { SAMPLES = 10, SIDE = 20, CHANNELS = 5 };
	const beton_field field = {
		.name = "raster", .type = BETON_FIELD_RASTER, .dtype = "<u2", .ndim = 1, .shape = {CHANNELS}};
	static const uint16_t samples[SIDE * SIDE * CHANNELS];
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, &field, 1, NULL, err));
	for (int i = 0; i < SAMPLES; i++)
		assert_ok(beton_writer_append(
			writer, &(beton_input){.data = samples, .size = sizeof(samples), .width = SIDE, .height = SIDE},
			err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static void write_numbers(const char *path)
{
	const beton_field field = {.name = "label", .type = BETON_FIELD_INT};
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, &field, 1, NULL, err));
	for (int i = 0; i < 10; i++)
		assert_ok(beton_writer_append(writer, &(beton_input){.integer = i}, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[2], "kinds") == 0) {
		write_kinds(argv[1]);
		return 0;
	}
	if (argc == 3 && strcmp(argv[2], "boxes") == 0) {
		write_boxes(argv[1]);
		return 0;
	}
	if (argc == 3 && strcmp(argv[2], "rasters") == 0) {
		write_rasters(argv[1]);
		return 0;
	}
	if (argc == 3 && strcmp(argv[2], "numbers") == 0) {
		write_numbers(argv[1]);
		return 0;
	}
	if (argc != 2)
		return 2;
	char *path = fixture_write(10, -1);
	if (rename(path, argv[1]) != 0) {
		perror(argv[1]);
		return 1;
	}
	fixture_remove(path);
	return 0;
}
