/* SPDX-License-Identifier: Apache-2.0
 *
 * RGB of our own decoder: equal to libjpeg's where it decodes, and what it leaves. Arguments: JPEGs that are compared
 * too. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jpeg/rgb.h"
#include "tests/support/jpegs.h"
#include "tests/support/rgb_pair.h"

enum { SIDE_MAX = 40, COUNT_MAX = 100 };

static uint32_t seed = 1;

static uint8_t draw(void)
{
	seed = seed * 1664525 + 1013904223;
	return (uint8_t)(seed >> 24);
}

/* Smooth parts and edges, or colours that lead beyond 0 .. 255. */
static uint8_t *make_pixels(uint32_t width, uint32_t height, bool wild)
{
	uint8_t *rgb = textured_pixels(width, height);
	for (size_t i = 0; wild && i < (size_t)width * height * 3; i++)
		rgb[i] = draw() & 1 ? 255 : 0;
	return rgb;
}

/* libjpeg repeats colour in narrow pictures, and where a block has one sample. 4:2:0 has as many samples of colour as
 * of brightness at smaller sizes. */
static bool is_taken(const jpeg_sort *sort, uint32_t width, unsigned int divisor)
{
	bool even = sort->h == sort->v && (sort->h == 1 || divisor > 1);
	bool fancy = sort->h == 2 && divisor < 8 && (width + 2 * divisor - 1) / (2 * divisor) > 2;
	if (sort->colour == JCS_GRAYSCALE)
		return true;
	return sort->colour == JCS_YCbCr && !sort->progressive && (even || fancy);
}

static void test_every_size(void **state)
{
	(void)state;
	static const jpeg_sort sorts[] = {
		{.name = "grey", .colour = JCS_GRAYSCALE, .h = 1, .v = 1},
		{.name = "grey with 2x2 sampling", .colour = JCS_GRAYSCALE, .h = 2, .v = 2},
		{.name = "4:4:4", .colour = JCS_YCbCr, .h = 1, .v = 1},
		{.name = "4:2:2", .colour = JCS_YCbCr, .h = 2, .v = 1, .restart = 1},
		{.name = "4:4:0", .colour = JCS_YCbCr, .h = 1, .v = 2},
		{.name = "4:2:0", .colour = JCS_YCbCr, .h = 2, .v = 2},
		{.name = "4:1:1", .colour = JCS_YCbCr, .h = 4, .v = 1},
		{.name = "RGB", .colour = JCS_RGB, .h = 1, .v = 1},
		{.name = "progressive", .colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true},
	};
	for (size_t i = 0; i < sizeof(sorts) / sizeof(*sorts); i++)
		for (uint32_t place = 0; place < SIDE_MAX * SIDE_MAX; place++) {
			uint32_t width = 1 + place % SIDE_MAX, height = 1 + place / SIDE_MAX;
			uint8_t *rgb = make_pixels(width, height, place % 3 == 0);
			/* A short file is left: its table would take longer than its picture. */
			jpeg_bytes jpeg = jpeg_make(&sorts[i], width, height, rgb, 100);
			jpeg.data = realloc(jpeg.data, jpeg.size + 4096);
			memset(jpeg.data + jpeg.size, 0, 4096);
			for (unsigned int divisor = 1; divisor <= 8; divisor *= 2) {
				rgb_verdict verdict = compare_rgb(jpeg.data, jpeg.size + 4096, divisor, UINT64_MAX);
				if (verdict != (is_taken(&sorts[i], width, divisor) ? RGB_SAME : RGB_LEFT))
					fail_msg("%s, %u x %u at 1/%u: %d", sorts[i].name, width, height, divisor,
						 (int)verdict);
			}
			free(jpeg.data);
			free(rgb);
		}
}

static void test_larger_pictures(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 60; i++) {
		const jpeg_sort sort = {.colour = JCS_YCbCr, .h = i % 3 ? 2 : 1, .v = i % 3 == 1 ? 2 : 1};
		uint32_t width = 200 + draw(), height = 130 + draw();
		uint8_t *rgb = make_pixels(width, height, i % 4 == 0);
		jpeg_bytes jpeg = jpeg_make(&sort, width, height, rgb, 40 + (int)i);
		for (unsigned int divisor = 1; divisor <= 4; divisor *= 2)
			assert_int_equal(compare_rgb(jpeg.data, jpeg.size, divisor, UINT64_MAX), RGB_SAME);
		free(jpeg.data);
		free(rgb);
	}
}

/* Each instruction set beside plain C: all colours, and rows of every length in memory of exactly their size. */
static void check_convert(const bt_rgb_kernels *kernels)
{
	uint8_t y[256], blue[256], red[256], got[256 * 3], expected[256 * 3];
	for (int i = 0; i < 256; i++)
		y[i] = (uint8_t)i;
	for (int colour = 0; colour < 1 << 16; colour++) {
		memset(blue, colour & 255, sizeof(blue));
		memset(red, colour >> 8, sizeof(red));
		bt_rgb_c.convert(y, blue, red, 256, expected);
		kernels->convert(y, blue, red, 256, got);
		assert_memory_equal(got, expected, sizeof(got));
	}
	for (uint32_t count = 0; count < COUNT_MAX; count++) {
		uint8_t *exact = malloc(count ? count * 3 : 1);
		bt_rgb_c.convert(y, y + 50, y + 100, count, expected);
		kernels->convert(y, y + 50, y + 100, count, exact);
		assert_memory_equal(exact, expected, (size_t)count * 3);
		free(exact);
	}
}

static void check_widening(const bt_rgb_kernels *kernels)
{
	static const uint16_t bias[] = {8, 7};
	uint8_t rows[2][COUNT_MAX], got[2 * COUNT_MAX], expected[2 * COUNT_MAX];
	uint16_t sums[2][COUNT_MAX + 2] = {0};
	for (uint32_t count = 1; count < COUNT_MAX; count++) {
		for (uint32_t i = 0; i < count; i++) {
			rows[0][i] = draw();
			rows[1][i] = draw();
		}
		bt_rgb_c.add(rows[0], rows[1], count, sums[0] + 1);
		kernels->add(rows[0], rows[1], count, sums[1] + 1);
		assert_memory_equal(sums[0], sums[1], sizeof(sums[0]));
		bt_rgb_c.spread(sums[0] + 1, count, bias, expected);
		kernels->spread(sums[1] + 1, count, bias, got);
		assert_memory_equal(got, expected, (size_t)count * 2);
	}
}

static void test_instruction_sets(void **state)
{
	(void)state;
	const bt_rgb_kernels *kernels;
	for (unsigned int i = 0; (kernels = bt_rgb_get(i)); i++) {
		check_convert(kernels);
		check_widening(kernels);
	}
}

static int compare_files(int count, char **paths)
{
	int others = 0;
	for (int i = 0; i < count; i++) {
		file_content file = read_file(paths[i]);
		for (unsigned int divisor = 1; divisor <= 8; divisor *= 2) {
			rgb_verdict verdict = compare_rgb(file.data, file.size, divisor, UINT64_MAX);
			others += verdict == RGB_DIFFERS;
			if (verdict != RGB_SAME)
				printf("%s at 1/%u: %s\n", paths[i], divisor,
				       verdict == RGB_LEFT ? "left to libjpeg" : "other pixels");
		}
		free(file.data);
	}
	return others > 0;
}

int main(int count, char **arguments)
{
	if (count > 1)
		return compare_files(count - 1, arguments + 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_size),
		cmocka_unit_test(test_larger_pictures),
		cmocka_unit_test(test_instruction_sets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
