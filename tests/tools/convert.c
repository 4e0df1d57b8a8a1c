/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures in beton-write: rewriting, turning, modes, sizes and filters, and refusals. */
#include "tests/support/beton_files.h"

#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/jpegs.h"
#include "tools/beton-write/images/image_convert.h"
#include "tools/beton-write/images/jpeg.h"
#include "tools/beton-write/images/resize.h"

static const jpeg_sort sorts[] = {
	{.name = "grey", .colour = JCS_GRAYSCALE, .h = 1, .v = 1},
	{.name = "grey with 2x2 sampling", .colour = JCS_GRAYSCALE, .h = 2, .v = 2},
	{.name = "4:4:4", .colour = JCS_YCbCr, .h = 1, .v = 1, .comment = true},
	{.name = "4:2:2", .colour = JCS_YCbCr, .h = 2, .v = 1},
	{.name = "4:4:0", .colour = JCS_YCbCr, .h = 1, .v = 2},
	{.name = "4:2:0", .colour = JCS_YCbCr, .h = 2, .v = 2, .orientation = 1},
	{.name = "4:1:1", .colour = JCS_YCbCr, .h = 4, .v = 1},
	{.name = "4:1:0", .colour = JCS_YCbCr, .h = 4, .v = 2},
	{.name = "RGB", .colour = JCS_RGB, .h = 1, .v = 1},
	{.name = "progressive", .colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true},
	{.name = "progressive grey", .colour = JCS_GRAYSCALE, .h = 1, .v = 1, .progressive = true},
	{.name = "arithmetic", .colour = JCS_YCbCr, .h = 2, .v = 1, .arithmetic = true},
	{.name = "separate scans", .colour = JCS_YCbCr, .h = 2, .v = 2, .separate_scans = true},
	{.name = "restart markers", .colour = JCS_YCbCr, .h = 1, .v = 1, .restart = 3},
};
static const uint32_t sides[][2] = {{1, 1}, {7, 9}, {8, 8}, {16, 32}, {17, 31}, {130, 65}, {65, 130}, {700, 20}};

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static stored_image convert(const uint8_t *data, size_t size, const image_settings *settings)
{
	file_bytes file = {malloc(size), size};
	memcpy(file.data, data, size);
	stored_image out;
	beton_error err;
	if (image_convert(&file, "picture", settings, &out, &err) != BETON_OK)
		fail_msg("%s", err.message);
	free(file.data);
	return out;
}

static const char *refusal(const uint8_t *data, size_t size, const image_settings *settings, int code)
{
	static beton_error err;
	file_bytes file = {malloc(size), size};
	memcpy(file.data, data, size);
	stored_image out;
	assert_int_equal(image_convert(&file, "picture", settings, &out, &err), code);
	assert_null(out.data);
	free(file.data);
	return err.message;
}

static image_settings defaults(write_mode mode)
{
	image_settings settings;
	image_settings_init(&settings);
	settings.mode = mode;
	return settings;
}

/* The row is divided, no segment is shorter than 6 blocks if the row is not, and no better divisor was left. */
static void check_interval(uint32_t interval, uint32_t mcus, uint32_t blocks)
{
	uint32_t limit = mcus / 10 > 3 ? mcus / 10 : 3;
	assert_int_equal(mcus % interval, 0);
	assert_true(interval * blocks >= 6 || interval == mcus);
	for (uint32_t other = 1; other < mcus; other++)
		if (mcus % other == 0 && other * blocks >= 6)
			assert_false(interval > limit ? other < interval : other > interval && other <= limit);
}

static void check_rewritten(const jpeg_sort *sort, const jpeg_bytes *source, const stored_image *stored)
{
	uint32_t width, height;
	uint8_t *before = jpeg_pixels(source->data, source->size, &width, &height);
	uint8_t *after = jpeg_pixels(stored->data, stored->size, &width, &height);
	if (memcmp(before, after, (size_t)width * height * 3) != 0)
		fail_msg("%s, %u x %u: other pixels", sort->name, width, height);
	assert_int_equal(width, stored->width);
	assert_int_equal(height, stored->height);
	assert_non_null(jpeg_find_marker(stored->data, stored->size, 0xc0)); /* baseline */
	assert_null(jpeg_find_marker(stored->data, stored->size, 0xe1));
	assert_null(jpeg_find_marker(stored->data, stored->size, 0xfe));
	const uint8_t *interval = jpeg_find_marker(stored->data, stored->size, 0xdd);
	assert_non_null(interval);
	uint32_t mcu = sort->colour == JCS_GRAYSCALE ? 8 : 8 * (uint32_t)sort->h;
	uint32_t mcus = (width + mcu - 1) / mcu;
	uint32_t step = (uint32_t)(interval[0] << 8 | interval[1]);
	check_interval(step, mcus, sort->colour == JCS_GRAYSCALE ? 1 : (uint32_t)(sort->h * sort->v) + 2);
	/* libjpeg's own optimal tables may break a tie in another way: other bytes are stuffed, and segments end at
	 * other bits of their last byte. */
	size_t best = jpeg_optimized_size(source->data, source->size, step);
	size_t segments = (size_t)mcus / step * (height / 8 + 1);
	if (stored->size > best + best / 500 + segments / 8 + 12)
		fail_msg("%s, %u x %u: %zu bytes, libjpeg needs %zu", sort->name, width, height, stored->size, best);
	free(before);
	free(after);
}

static void test_rewriting_keeps_pixels(void **state)
{
	(void)state;
	const image_settings settings = defaults(WRITE_ORIGINAL);
	for (size_t i = 0; i < COUNT(sorts); i++)
		for (size_t j = 0; j < COUNT(sides); j++)
			for (int quality = 30; quality <= 100; quality += 35) {
				uint8_t *rgb = textured_pixels(sides[j][0], sides[j][1]);
				jpeg_bytes source = jpeg_make(&sorts[i], sides[j][0], sides[j][1], rgb, quality);
				stored_image stored = convert(source.data, source.size, &settings);
				check_rewritten(&sorts[i], &source, &stored);
				free(stored.data);
				free(source.data);
				free(rgb);
			}
}

/* libjpeg smooths between the blocks of a progressive JPEG whose coefficients are not all known, and of no other: its
 * bytes are kept, and it is turned as pixels. */
static void test_partial_coefficients_are_kept(void **state)
{
	(void)state;
	static const jpeg_scan_info scripts[][4] = {
		{{3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 5, 0, 2}},
		{{3, {0, 1, 2}, 0, 0, 0, 1}, {1, {0}, 1, 63, 0, 0}, {1, {1}, 1, 63, 0, 0}, {1, {2}, 1, 63, 0, 0}},
		{{3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 0}, {1, {1}, 1, 63, 0, 0}, {1, {2}, 1, 63, 0, 1}},
		{{3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 0}, {1, {1}, 1, 63, 0, 0}, {1, {2}, 1, 62, 0, 0}},
		{{3, {0, 1, 2}, 0, 0, 0, 0}, {1, {0}, 1, 63, 0, 0}, {1, {1}, 1, 63, 0, 0}, {1, {2}, 1, 63, 0, 0}},
	};
	const image_settings settings = defaults(WRITE_ORIGINAL);
	for (size_t i = 0; i < COUNT(scripts); i++) {
		bool partial = i + 1 < COUNT(scripts);
		const jpeg_sort sort = {.name = partial ? "partial" : "progressive",
					.colour = JCS_YCbCr,
					.h = 2,
					.v = 2,
					.scans = scripts[i],
					.num_scans = i ? 4 : 2};
		uint8_t *rgb = textured_pixels(96, 64), *turned;
		size_t turned_size;
		beton_error err;
		jpeg_bytes source = jpeg_make(&sort, 96, 64, rgb, 60);
		stored_image stored = convert(source.data, source.size, &settings);
		bool kept = stored.size == source.size && memcmp(stored.data, source.data, source.size) == 0;
		if (kept != partial)
			fail_msg("script %zu: %s", i, partial ? "rewritten" : "kept");
		assert_int_equal(jpeg_turn(source.data, source.size, 3, "picture", &turned, &turned_size, &err),
				 BETON_OK);
		if (!turned != partial)
			fail_msg("script %zu: %s", i, partial ? "turned" : "not turned");
		free(turned);
		free(stored.data);
		free(source.data);
		free(rgb);
	}
}

/* Whatever is cut off, it is found: by rewriting, by the check of kept bytes, and by decoding. */
static void test_truncation_is_found(void **state)
{
	(void)state;
	uint8_t *rgb = textured_pixels(70, 50);
	image_settings kept = defaults(WRITE_ORIGINAL);
	kept.keep_bytes = true;
	const image_settings ways[] = {defaults(WRITE_ORIGINAL), kept, defaults(WRITE_JPG), defaults(WRITE_RAW)};
	for (size_t i = 0; i < COUNT(sorts); i++) {
		jpeg_bytes source = jpeg_make(&sorts[i], 70, 50, rgb, 90);
		for (size_t way = 0; way < COUNT(ways); way++)
			for (unsigned long size = 3; size < source.size; size += source.size / 23)
				refusal(source.data, size, &ways[way], BETON_SAMPLE_CORRUPT);
		free(source.data);
	}
	free(rgb);
}

/* Where a stored row 0 and column 0 are in the upright picture, as EXIF 2.3 lists it for each orientation. */
static void upright_place(int orientation, uint32_t row, uint32_t column, uint32_t width, uint32_t height, uint32_t *x,
			  uint32_t *y)
{
	static const char *const rows_and_columns[] = {"", "TL", "TR", "BR", "BL", "LT", "RT", "RB", "LB"};
	const char *place = rows_and_columns[orientation];
	const uint32_t at[2] = {row, column};
	for (int i = 0; i < 2; i++)
		switch (place[i]) {
		case 'T':
			*y = at[i];
			break;
		case 'B':
			*y = height - 1 - at[i];
			break;
		case 'L':
			*x = at[i];
			break;
		default:
			*x = width - 1 - at[i];
		}
}

/* A picture that looks different from each side, smooth enough for JPEG. */
static void slope_pixel(uint32_t x, uint32_t y, uint8_t rgb[3])
{
	rgb[0] = (uint8_t)(30 + x);
	rgb[1] = (uint8_t)(40 + y);
	rgb[2] = (uint8_t)(200 - x / 2);
}

static uint8_t *turned_pixels(int orientation, uint32_t width, uint32_t height)
{
	uint32_t stored_width = orientation >= 5 ? height : width;
	uint32_t stored_height = orientation >= 5 ? width : height;
	uint8_t *rgb = malloc((size_t)width * height * 3);
	for (uint32_t row = 0; row < stored_height; row++)
		for (uint32_t column = 0; column < stored_width; column++) {
			uint32_t x = 0;
			uint32_t y = 0;
			upright_place(orientation, row, column, width, height, &x, &y);
			slope_pixel(x, y, rgb + ((size_t)row * stored_width + column) * 3);
		}
	return rgb;
}

static void check_slope(const stored_image *stored, uint32_t factor, int tolerance)
{
	uint32_t width = stored->width;
	uint32_t height = stored->height;
	uint8_t *rgb = stored->mode == BETON_IMAGE_JPEG ? jpeg_pixels(stored->data, stored->size, &width, &height)
							: stored->data;
	for (uint32_t y = 0; y < height; y++)
		for (uint32_t x = 0; x < width; x++) {
			uint8_t expected[3];
			slope_pixel(x * factor + factor / 2, y * factor + factor / 2, expected);
			for (int c = 0; c < 3; c++) {
				int found = rgb[((size_t)y * width + x) * 3 + (size_t)c];
				if (abs(found - expected[c]) > tolerance)
					fail_msg("%d instead of %d at %u, %u, %d", found, expected[c], x, y, c);
			}
		}
	if (rgb != stored->data)
		free(rgb);
}

static void check_turned(int orientation, uint32_t width, uint32_t height, const image_settings *settings,
			 uint32_t factor)
{
	const jpeg_sort sort = {.colour = JCS_YCbCr, .h = 2, .v = 2, .orientation = orientation};
	bool swap = orientation >= 5;
	uint8_t *rgb = turned_pixels(orientation, width, height);
	jpeg_bytes source = jpeg_make(&sort, swap ? height : width, swap ? width : height, rgb, 95);
	stored_image stored = convert(source.data, source.size, settings);
	assert_int_equal(stored.mode, settings->mode == WRITE_RAW ? BETON_IMAGE_RAW : BETON_IMAGE_JPEG);
	assert_int_equal(stored.width, width / factor);
	assert_int_equal(stored.height, height / factor);
	check_slope(&stored, factor, 8);
	free(stored.data);
	free(source.data);
	free(rgb);
}

static void test_upright(void **state)
{
	(void)state;
	const image_settings original = defaults(WRITE_ORIGINAL);
	const image_settings raw = defaults(WRITE_RAW);
	const image_settings jpg = defaults(WRITE_JPG);
	image_settings small = defaults(WRITE_RAW);
	small.max_resolution = 48;
	for (int orientation = 1; orientation <= 8; orientation++) {
		check_turned(orientation, 96, 64, &original, 1);
		check_turned(orientation, 91, 55, &original, 1); /* no multiple of the MCU */
		check_turned(orientation, 91, 55, &raw, 1);
		check_turned(orientation, 91, 55, &jpg, 1);
		check_turned(orientation, 96, 64, &small, 2);
	}
}

/* Where all sides are multiples of the MCU, turning loses nothing: turned back, the coefficients are the same. */
static void test_turning_is_lossless(void **state)
{
	(void)state;
	const jpeg_sort sort = {.colour = JCS_YCbCr, .h = 2, .v = 2, .orientation = 3};
	uint8_t *rgb = textured_pixels(96, 64);
	jpeg_bytes source = jpeg_make(&sort, 96, 64, rgb, 80);
	uint8_t *once, *twice, *plain;
	size_t once_size, twice_size, plain_size;
	beton_error err;
	assert_int_equal(jpeg_turn(source.data, source.size, 3, "picture", &once, &once_size, &err), BETON_OK);
	assert_non_null(once);
	assert_int_equal(jpeg_turn(once, once_size, 3, "picture", &twice, &twice_size, &err), BETON_OK);
	assert_int_equal(jpeg_rewrite(source.data, source.size, "picture", &plain, &plain_size, &err), BETON_OK);
	assert_int_equal(twice_size, plain_size);
	assert_memory_equal(twice, plain, plain_size);
	free(once);
	free(twice);
	free(plain);
	free(source.data);
	free(rgb);
}

static void test_orientation_can_be_ignored(void **state)
{
	(void)state;
	const jpeg_sort sort = {.colour = JCS_YCbCr, .h = 1, .v = 1, .orientation = 6};
	uint8_t *rgb = textured_pixels(40, 24);
	jpeg_bytes source = jpeg_make(&sort, 40, 24, rgb, 90);
	image_settings settings = defaults(WRITE_ORIGINAL);
	settings.ignore_orientation = true;
	stored_image stored = convert(source.data, source.size, &settings);
	assert_int_equal(stored.width, 40);
	free(stored.data);
	free(source.data);
	free(rgb);
}

static const char *refused_patch(const jpeg_bytes *source, size_t offset, uint8_t value)
{
	const image_settings settings = defaults(WRITE_ORIGINAL);
	uint8_t *patched = malloc(source->size);
	memcpy(patched, source->data, source->size);
	patched[offset] = value;
	const char *message = refusal(patched, source->size, &settings, BETON_SAMPLE_CORRUPT);
	free(patched);
	return message;
}

static void test_refused_by_name(void **state)
{
	(void)state;
	uint8_t *rgb = textured_pixels(32, 32);
	jpeg_bytes source = jpeg_make(&sorts[2], 32, 32, rgb, 90);
	size_t frame = (size_t)(jpeg_find_marker(source.data, source.size, 0xc0) - source.data);
	assert_non_null(strstr(refused_patch(&source, frame, 12), "12 bits a sample"));
	assert_non_null(strstr(refused_patch(&source, frame - 3, 0xc3), "lossless JPEG"));
	assert_non_null(strstr(refused_patch(&source, frame - 3, 0xc5), "hierarchical JPEG"));
	free(source.data);
	/* Two samples of luma to three of Cb. */
	source = jpeg_make(&sorts[5], 32, 32, rgb, 90);
	frame = (size_t)(jpeg_find_marker(source.data, source.size, 0xc0) - source.data);
	assert_non_null(strstr(refused_patch(&source, frame + 10, 0x31), "a fraction of a pixel"));
	free(source.data);
	free(rgb);
}

/* The pixels of what a JPEG is stored as. */
static uint8_t *converted_pixels(const jpeg_bytes *source, const image_settings *settings, size_t *bytes)
{
	stored_image stored = convert(source->data, source->size, settings);
	uint32_t width = stored.width, height = stored.height;
	uint8_t *pixels = stored.data;
	if (stored.mode == BETON_IMAGE_JPEG) {
		pixels = jpeg_pixels(stored.data, stored.size, &width, &height);
		free(stored.data);
	}
	free(stored.index);
	*bytes = (size_t)width * height * 3;
	return pixels;
}

/* Without Huffman tables a sequential JPEG has the standard's; without quantization tables any is damaged. */
static void test_missing_tables(void **state)
{
	(void)state;
	image_settings settings[] = {defaults(WRITE_ORIGINAL), defaults(WRITE_ORIGINAL), defaults(WRITE_JPG),
				     defaults(WRITE_RAW), defaults(WRITE_RAW)};
	settings[1].keep_bytes = true;
	settings[4].max_resolution = 20;
	uint8_t *rgb = textured_pixels(48, 32);
	for (int orientation = 0; orientation <= 6; orientation += 6) {
		const jpeg_sort plain = {.colour = JCS_YCbCr, .h = 2, .v = 2, .orientation = orientation};
		const jpeg_sort progressive = {.colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true};
		jpeg_bytes with = jpeg_make(&plain, 48, 32, rgb, 80), without = jpeg_make(&plain, 48, 32, rgb, 80);
		jpeg_bytes no_dqt = jpeg_make(&plain, 48, 32, rgb, 80);
		jpeg_bytes no_scan_tables = jpeg_make(&progressive, 48, 32, rgb, 80);
		jpeg_remove(&without, 0xc4);
		jpeg_remove(&no_dqt, 0xdb);
		jpeg_remove(&no_scan_tables, 0xc4);
		for (size_t i = 0; i < COUNT(settings); i++) {
			size_t bytes, others;
			uint8_t *expected = converted_pixels(&with, &settings[i], &bytes);
			uint8_t *pixels = converted_pixels(&without, &settings[i], &others);
			assert_int_equal(bytes, others);
			assert_memory_equal(pixels, expected, bytes);
			free(pixels);
			free(expected);
			const char *message = refusal(no_dqt.data, no_dqt.size, &settings[i], BETON_SAMPLE_CORRUPT);
			assert_non_null(strstr(message, "Quantization table 0x00 was not defined"));
			message = refusal(no_scan_tables.data, no_scan_tables.size, &settings[i], BETON_SAMPLE_CORRUPT);
			assert_non_null(strstr(message, "Huffman table 0x00 was not defined"));
		}
		free(with.data);
		free(without.data);
		free(no_dqt.data);
		free(no_scan_tables.data);
	}
	free(rgb);
}

/* More pixels than are decoded: whether it is to shrink or not. */
static void test_max_pixels(void **state)
{
	(void)state;
	static const write_mode modes[] = {WRITE_ORIGINAL, WRITE_JPG, WRITE_RAW};
	const jpeg_sort sort = {.colour = JCS_YCbCr, .h = 2, .v = 2, .progressive = true};
	uint8_t *rgb = textured_pixels(40, 30);
	jpeg_bytes source = jpeg_make(&sort, 40, 30, rgb, 80);
	for (size_t i = 0; i < COUNT(modes); i++) {
		image_settings settings = defaults(modes[i]);
		settings.max_pixels = 40 * 30;
		stored_image stored = convert(source.data, source.size, &settings);
		free(stored.data);
		settings.max_pixels--;
		settings.max_resolution = i == 2 ? 20 : 0;
		const char *message = refusal(source.data, source.size, &settings, BETON_SAMPLE_CORRUPT);
		assert_non_null(strstr(message, "picture: "));
		assert_non_null(strstr(message, "it has 40 x 30 pixels, more than max_pixels (1199)"));
	}
	free(source.data);
	free(rgb);
}

/* The last scan again and again. */
static void test_many_scans(void **state)
{
	(void)state;
	enum { SCANS = 250 };
	uint8_t *rgb = textured_pixels(8, 8);
	const jpeg_sort sort = {.colour = JCS_YCbCr, .h = 1, .v = 1, .separate_scans = true};
	jpeg_bytes source = jpeg_make(&sort, 8, 8, rgb, 50);
	size_t last = source.size - 2;
	while (source.data[last] != 0xff || source.data[last + 1] != 0xda)
		last--;
	size_t scan = source.size - 2 - last;
	uint8_t *bomb = malloc(source.size + SCANS * scan);
	memcpy(bomb, source.data, source.size - 2);
	for (size_t i = 0; i < SCANS; i++)
		memcpy(bomb + source.size - 2 + i * scan, source.data + last, scan);
	memcpy(bomb + source.size - 2 + SCANS * scan, "\xff\xd9", 2);
	for (int mode = WRITE_ORIGINAL; mode <= WRITE_RAW; mode++) {
		image_settings settings = defaults((write_mode)mode);
		const char *message = refusal(bomb, source.size + SCANS * scan, &settings, BETON_SAMPLE_CORRUPT);
		assert_non_null(strstr(message, "more than 200 scans"));
	}
	free(bomb);
	free(source.data);
	free(rgb);
}

static double mean_difference(const uint8_t *a, const uint8_t *b, size_t size)
{
	double sum = 0;
	for (size_t i = 0; i < size; i++)
		sum += abs(a[i] - b[i]);
	return sum / (double)size;
}

/* Full decoding and resizing. */
static uint8_t *shrunk(const jpeg_bytes *source, uint32_t width, uint32_t height)
{
	uint32_t full_width, full_height;
	beton_error err;
	uint8_t *full = jpeg_pixels(source->data, source->size, &full_width, &full_height);
	uint8_t *small = malloc((size_t)width * height * 3);
	const pixel_rows from = {full, full_width, full_height, (size_t)full_width * 3};
	const pixel_rows to = {small, width, height, (size_t)width * 3};
	assert_int_equal(resize_pixels(&from, &to, 3, (double)full_width / width, (double)full_height / height,
				       RESIZE_AREA, "picture", &err),
			 BETON_OK);
	free(full);
	return small;
}

/* The bound that the manual states: decoding at a smaller scale changes values by 4 on average, on noisy pictures. */
static void test_small_scales(void **state)
{
	(void)state;
	static const uint32_t limits[] = {300, 200, 190, 150, 100, 64, 50, 37, 25, 10};
	uint8_t *rgb = textured_pixels(400, 300);
	for (size_t i = 0; i < COUNT(sorts); i++) {
		jpeg_bytes source = jpeg_make(&sorts[i], 400, 300, rgb, 90);
		for (size_t j = 0; j < COUNT(limits); j++) {
			image_settings settings = defaults(WRITE_RAW);
			settings.max_resolution = limits[j];
			stored_image raw = convert(source.data, source.size, &settings);
			uint8_t *expected = shrunk(&source, raw.width, raw.height);
			double difference = mean_difference(raw.data, expected, raw.size);
			if (difference > 4)
				fail_msg("%s to %u: a mean difference of %.2f", sorts[i].name, limits[j], difference);
			settings.mode = WRITE_JPG;
			settings.quality = 100;
			settings.full_colour = true;
			stored_image jpeg = convert(source.data, source.size, &settings);
			uint32_t width, height;
			uint8_t *pixels = jpeg_pixels(jpeg.data, jpeg.size, &width, &height);
			assert_int_equal(width, raw.width);
			assert_int_equal(height, raw.height);
			difference = mean_difference(pixels, expected, raw.size);
			if (difference > 4)
				fail_msg("%s to a JPEG of %u: a mean difference of %.2f", sorts[i].name, limits[j],
					 difference);
			free(pixels);
			free(jpeg.data);
			free(expected);
			free(raw.data);
		}
		free(source.data);
	}
	free(rgb);
}

/* Encoded again at the same size: by way of the planes, the picture is what libjpeg makes of its pixels. */
static void test_reencoding(void **state)
{
	(void)state;
	uint8_t *rgb = textured_pixels(131, 77);
	for (size_t i = 0; i < COUNT(sorts); i++)
		for (int full_colour = 0; full_colour < 2; full_colour++) {
			jpeg_bytes source = jpeg_make(&sorts[i], 131, 77, rgb, 95);
			image_settings settings = defaults(WRITE_JPG);
			settings.full_colour = full_colour;
			settings.quality = 95;
			stored_image stored = convert(source.data, source.size, &settings);
			uint32_t width, height;
			uint8_t *before = jpeg_pixels(source.data, source.size, &width, &height);
			uint8_t *after = jpeg_pixels(stored.data, stored.size, &width, &height);
			assert_int_equal(width, 131);
			assert_int_equal(height, 77);
			const jpeg_sort same = {.colour = sorts[i].colour == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_YCbCr,
						.h = full_colour || sorts[i].colour == JCS_GRAYSCALE ? 1 : 2,
						.v = full_colour || sorts[i].colour == JCS_GRAYSCALE ? 1 : 2};
			jpeg_bytes usual = jpeg_make(&same, 131, 77, before, 95);
			uint8_t *expected = jpeg_pixels(usual.data, usual.size, &width, &height);
			double ours = mean_difference(before, after, (size_t)width * height * 3);
			double theirs = mean_difference(before, expected, (size_t)width * height * 3);
			if (ours > theirs + 0.3)
				fail_msg("%s: a mean difference of %.2f, by way of RGB %.2f", sorts[i].name, ours,
					 theirs);
			free(before);
			free(after);
			free(expected);
			free(usual.data);
			free(stored.data);
			free(source.data);
		}
	free(rgb);
}

static void test_filters(void **state)
{
	(void)state;
	static const uint32_t sizes[][2] = {{40, 30}, {13, 7}, {1, 1}, {39, 29}, {80, 31}};
	beton_error err;
	uint8_t flat[40 * 30 * 3];
	uint8_t ramp[40 * 30 * 3];
	for (size_t i = 0; i < sizeof(flat); i++) {
		flat[i] = 200;
		ramp[i] = (uint8_t)(10 + 5 * (i / 3 % 40));
	}
	for (resize_filter filter = RESIZE_AREA; filter <= RESIZE_LANCZOS; filter++)
		for (size_t i = 0; i < COUNT(sizes); i++) {
			uint32_t width = sizes[i][0];
			uint32_t height = sizes[i][1];
			uint8_t out[80 * 31 * 3];
			const pixel_rows to = {out, width, height, (size_t)width * 3};
			pixel_rows from = {flat, 40, 30, 120};
			double scale = 40.0 / width;
			assert_int_equal(resize_pixels(&from, &to, 3, scale, 30.0 / height, filter, "x", &err),
					 BETON_OK);
			for (size_t j = 0; j < (size_t)width * height * 3; j++)
				assert_int_equal(out[j], 200);
			from.data = ramp;
			assert_int_equal(resize_pixels(&from, &to, 3, scale, 30.0 / height, filter, "x", &err),
					 BETON_OK);
			/* Away from the ends, a ramp stays a ramp. */
			uint32_t edge = (uint32_t)ceil(3 * fmax(1, 1 / scale)) + 1;
			for (uint32_t x = edge; x + edge < width; x++)
				assert_true(fabs(out[3 * x] - (10 + 5 * ((x + 0.5) * scale - 0.5))) <= 1.6);
		}
}

static void test_sizes(void **state)
{
	(void)state;
	static const struct {
		uint32_t max, min, width, height;
	} cases[] = {{0, 0, 70, 50},  {35, 0, 35, 25}, {33, 0, 33, 23}, {70, 0, 70, 50}, {0, 25, 35, 25},
		     {0, 33, 46, 33}, {0, 50, 70, 50}, {0, 60, 70, 50}, {1, 0, 1, 1}};
	uint8_t *rgb = textured_pixels(70, 50);
	jpeg_bytes source = jpeg_make(&sorts[5], 70, 50, rgb, 90);
	for (size_t i = 0; i < COUNT(cases); i++)
		for (int mode = WRITE_ORIGINAL; mode <= WRITE_RAW; mode++) {
			image_settings settings = defaults((write_mode)mode);
			settings.max_resolution = cases[i].max;
			settings.min_resolution = cases[i].min;
			stored_image stored = convert(source.data, source.size, &settings);
			assert_int_equal(stored.width, cases[i].width);
			assert_int_equal(stored.height, cases[i].height);
			free(stored.data);
		}
	free(source.data);
	free(rgb);
}

static bool becomes_jpeg(const jpeg_bytes *source, const image_settings *settings)
{
	stored_image stored = convert(source->data, source->size, settings);
	free(stored.data);
	return stored.mode == BETON_IMAGE_JPEG;
}

static void test_smart(void **state)
{
	(void)state;
	uint8_t *rgb = textured_pixels(20, 10);
	jpeg_bytes source = jpeg_make(&sorts[5], 20, 10, rgb, 90);
	image_settings settings = defaults(WRITE_SMART);
	settings.smart_threshold = 599;
	assert_true(becomes_jpeg(&source, &settings));
	settings.smart_threshold = 600;
	assert_false(becomes_jpeg(&source, &settings));
	free(source.data);
	free(rgb);
}

static void test_proportion(void **state)
{
	(void)state;
	enum { PICTURES = 200 };
	image_settings settings = defaults(WRITE_PROPORTION);
	int chosen = 0, other = 0, never = 0, always = 0;
	for (int i = 0; i < PICTURES; i++) {
		uint8_t *rgb = textured_pixels(8, 8);
		rgb[0] = (uint8_t)i;
		rgb[3] = (uint8_t)(i * 7);
		jpeg_bytes source = jpeg_make(&sorts[8], 8, 8, rgb, 100);
		settings.compress_seed = 0;
		settings.compress_probability = 0.25;
		bool first = becomes_jpeg(&source, &settings);
		assert_int_equal(becomes_jpeg(&source, &settings), first);
		chosen += first;
		settings.compress_seed = 1;
		other += becomes_jpeg(&source, &settings) != first;
		settings.compress_probability = 0;
		never += becomes_jpeg(&source, &settings);
		settings.compress_probability = 1;
		always += becomes_jpeg(&source, &settings);
		free(source.data);
		free(rgb);
	}
	assert_in_range(chosen, 30, 70);
	assert_in_range(other, 40, 110);
	assert_int_equal(never, 0);
	assert_int_equal(always, PICTURES);
}

/* Real pictures, if there are any. */
static uint64_t bytes_before, bytes_after;

static int rewrite_file(const char *path, const struct stat *status, int type, struct FTW *place)
{
	(void)status;
	(void)place;
	if (type != FTW_F)
		return 0;
	file_content source = read_file(path);
	uint8_t *out;
	size_t size;
	beton_error err;
	jpeg_facts facts;
	if (source.size > 3 && memcmp(source.data, "\xff\xd8\xff", 3) == 0 &&
	    jpeg_inspect(source.data, source.size, UINT64_MAX, path, &facts, &err) == BETON_OK &&
	    facts.colour != JPEG_CMYK) {
		if (jpeg_rewrite(source.data, source.size, path, &out, &size, &err) != BETON_OK)
			fail_msg("%s", err.message);
		assert_non_null(out);
		uint32_t width, height;
		uint8_t *before = jpeg_pixels(source.data, source.size, &width, &height);
		uint8_t *after = jpeg_pixels(out, size, &width, &height);
		if (memcmp(before, after, (size_t)width * height * 3) != 0)
			fail_msg("%s: other pixels", path);
		bytes_before += source.size;
		bytes_after += size;
		free(before);
		free(after);
		free(out);
	}
	free(source.data);
	return 0;
}

static void test_real_pictures(void **state)
{
	(void)state;
	const char *folder = getenv("BETON_TEST_PICTURES");
	if (!folder)
		skip();
	assert_int_equal(nftw(folder, rewrite_file, 16, 0), 0);
	print_message("%llu bytes of JPEGs, rewritten %llu\n", (unsigned long long)bytes_before,
		      (unsigned long long)bytes_after);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rewriting_keeps_pixels),
		cmocka_unit_test(test_partial_coefficients_are_kept),
		cmocka_unit_test(test_truncation_is_found),
		cmocka_unit_test(test_upright),
		cmocka_unit_test(test_turning_is_lossless),
		cmocka_unit_test(test_orientation_can_be_ignored),
		cmocka_unit_test(test_refused_by_name),
		cmocka_unit_test(test_missing_tables),
		cmocka_unit_test(test_max_pixels),
		cmocka_unit_test(test_many_scans),
		cmocka_unit_test(test_small_scales),
		cmocka_unit_test(test_reencoding),
		cmocka_unit_test(test_filters),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_smart),
		cmocka_unit_test(test_proportion),
		cmocka_unit_test(test_real_pictures),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
