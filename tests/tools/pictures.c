/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-write turns pictures of all kinds into right RGB pictures. Runs the program $BETON_WRITE. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jpeglib.h>

#include "tests/support/jpegs.h"
#include "tests/support/pictures.h"

enum { WIDTH = 70, HEIGHT = 50 };

static void run_on(const char *folder, const char *options)
{
	char command[1024];
	snprintf(command, sizeof(command), "'%s' --quiet --force %s '%s' '%s'", getenv("BETON_WRITE"), options,
		 in_folder(folder), in_folder("out.beton"));
	if (system(command) != 0)
		fail_msg("%s", command);
}

static void run(const char *options)
{
	run_on("pictures", options);
}

static int setup(void **state)
{
	(void)state;
	make_folder();
	assert_int_equal(mkdir(in_folder("pictures"), 0755), 0);
	assert_int_equal(mkdir(in_folder("pictures/only"), 0755), 0);
	for (int kind = 0; kind < PICTURE_KINDS; kind++) {
		char name[64];
		snprintf(name, sizeof(name), "pictures/only/%02d.JPEG", kind);
		picture_write((picture_kind)kind, WIDTH, HEIGHT, in_folder(name));
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

static uint8_t *read_blob(const beton_reader *reader, uint64_t sample, beton_value *value)
{
	beton_error err;
	if (beton_reader_value(reader, sample, 0, value, &err) != BETON_OK)
		fail_msg("%s", err.message);
	uint8_t *bytes = malloc((size_t)value->blob.size);
	assert_int_equal(beton_reader_read(reader, &value->blob, bytes, &err), BETON_OK);
	return bytes;
}

/* Decodes as FFCV does: whatever is in it, RGB comes out. */
static uint8_t *decode(const uint8_t *data, uint64_t size, uint32_t width, uint32_t height)
{
	struct jpeg_decompress_struct info;
	struct jpeg_error_mgr errors;
	info.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&info);
	jpeg_mem_src(&info, data, (unsigned long)size);
	jpeg_read_header(&info, TRUE);
	info.out_color_space = JCS_RGB;
	jpeg_start_decompress(&info);
	assert_int_equal(info.output_width, width);
	assert_int_equal(info.output_height, height);
	uint8_t *pixels = malloc((size_t)width * height * 3);
	while (info.output_scanline < height) {
		JSAMPROW row = pixels + (size_t)info.output_scanline * width * 3;
		jpeg_read_scanlines(&info, &row, 1);
	}
	jpeg_finish_decompress(&info);
	jpeg_destroy_decompress(&info);
	return pixels;
}

/* Transparent pixels are blended with white, unless alpha is dropped. */
static bool blended = true;

static void expected_pixel(picture_kind kind, uint32_t x, uint32_t y, uint8_t rgb[3])
{
	picture_pixel(kind, x, y, rgb);
	int alpha = kind == PICTURE_PNG_ALPHA     ? (uint8_t)(x * 3)
		    : kind != PICTURE_PNG_PALETTE ? 255
		    : x % 16 == 0                 ? 0
		    : x % 16 == 1                 ? 128
						  : 255;
	for (int c = 0; blended && c < 3; c++)
		rgb[c] = (uint8_t)((rgb[c] * alpha + 255 * (255 - alpha) + 127) / 255);
}

static void check_pixels(int kind, const uint8_t *pixels, int tolerance)
{
	for (uint32_t y = 0; y < HEIGHT; y++)
		for (uint32_t x = 0; x < WIDTH; x++) {
			uint8_t rgb[3];
			expected_pixel((picture_kind)kind, x, y, rgb);
			for (uint32_t c = 0; c < 3; c++) {
				int found = pixels[(y * WIDTH + x) * 3 + c];
				if (abs(found - rgb[c]) > tolerance)
					fail_msg("%s: %d instead of %d at %u, %u, %u", picture_names[kind], found,
						 rgb[c], x, y, c);
			}
		}
}

static int tolerance_of(int kind, bool encoded_here)
{
	if (kind == PICTURE_PNG_PALETTE)
		return encoded_here ? blended ? 120 : 30 : 0; /* edges that JPEG blurs */
	return (kind >= PICTURE_PNG ? 0 : 5) + (encoded_here ? 6 : 0);
}

static void check_mode(const char *options, bool (*is_jpeg)(int kind), bool (*is_encoded)(int kind))
{
	run(options);
	beton_reader *reader = open_good(in_folder("out.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, PICTURE_KINDS);
	for (int kind = 0; kind < PICTURE_KINDS; kind++) {
		beton_value value;
		uint8_t *bytes = read_blob(reader, (uint64_t)kind, &value);
		assert_int_equal(value.width, WIDTH);
		assert_int_equal(value.height, HEIGHT);
		assert_int_equal(value.mode, is_jpeg(kind) ? BETON_IMAGE_JPEG : BETON_IMAGE_RAW);
		if (value.mode == BETON_IMAGE_JPEG) {
			uint8_t *pixels = decode(bytes, value.blob.size, WIDTH, HEIGHT);
			check_pixels(kind, pixels, tolerance_of(kind, is_encoded(kind)));
			free(pixels);
		} else {
			check_pixels(kind, bytes, tolerance_of(kind, false));
		}
		free(bytes);
	}
	beton_reader_close(&reader);
}

static bool always(int kind)
{
	(void)kind;
	return true;
}

static bool never(int kind)
{
	(void)kind;
	return false;
}

static bool jpeg_source(int kind)
{
	return kind < PICTURE_PNG;
}

static bool cmyk_source(int kind)
{
	return kind == PICTURE_CMYK || kind == PICTURE_YCCK;
}

static void test_original(void **state)
{
	(void)state;
	check_mode("", jpeg_source, cmyk_source);
	beton_reader *reader = open_good(in_folder("out.beton"));
	for (int kind = 0; kind < PICTURE_PNG; kind++) {
		char name[64];
		snprintf(name, sizeof(name), "pictures/only/%02d.JPEG", kind);
		file_content source = read_file(in_folder(name));
		beton_value value;
		uint8_t *bytes = read_blob(reader, (uint64_t)kind, &value);
		if (!cmyk_source(kind)) {
			uint8_t *before = decode(source.data, source.size, WIDTH, HEIGHT);
			uint8_t *after = decode(bytes, value.blob.size, WIDTH, HEIGHT);
			assert_memory_equal(before, after, WIDTH * HEIGHT * 3);
			assert_true(value.blob.size < source.size);
			free(before);
			free(after);
		}
		free(bytes);
		free(source.data);
	}
	beton_reader_close(&reader);
}

static void check_kept_bytes(const char *options)
{
	check_mode(options, jpeg_source, cmyk_source);
	beton_reader *reader = open_good(in_folder("out.beton"));
	for (int kind = 0; kind < PICTURE_PNG; kind++) {
		char name[64];
		snprintf(name, sizeof(name), "pictures/only/%02d.JPEG", kind);
		file_content source = read_file(in_folder(name));
		beton_value value;
		uint8_t *bytes = read_blob(reader, (uint64_t)kind, &value);
		bool same = source.size == value.blob.size && memcmp(source.data, bytes, source.size) == 0;
		assert_int_equal(same, !cmyk_source(kind));
		free(bytes);
		free(source.data);
	}
	beton_reader_close(&reader);
}

static void test_keep_bytes(void **state)
{
	(void)state;
	check_kept_bytes("--keep-bytes");
	check_kept_bytes("--keep-bytes --no-check");
}

/* Pillow's way. */
static void test_dropped_transparency(void **state)
{
	(void)state;
	blended = false;
	check_mode("--write-mode=raw --background=none", never, never);
	blended = true;
}

static void test_jpg(void **state)
{
	(void)state;
	check_mode("--write-mode=jpg --quality=95", always, always);
}

static void test_raw(void **state)
{
	(void)state;
	check_mode("--write-mode=raw", never, never);
}

/* 70 x 50 to at most 35: every pixel is the mean of four. */
static void test_shrinks_by_area(void **state)
{
	(void)state;
	run("--write-mode=raw --max-resolution=35");
	beton_reader *reader = open_good(in_folder("out.beton"));
	beton_value value;
	uint8_t *bytes = read_blob(reader, PICTURE_PNG, &value);
	assert_int_equal(value.width, 35);
	assert_int_equal(value.height, 25);
	for (uint32_t y = 0; y < 25; y++)
		for (uint32_t x = 0; x < 35; x++)
			for (uint32_t c = 0; c < 3; c++) {
				int sum = 0;
				for (uint32_t i = 0; i < 4; i++) {
					uint8_t rgb[3];
					picture_pixel(PICTURE_PNG, 2 * x + i % 2, 2 * y + i / 2, rgb);
					sum += rgb[c];
				}
				assert_true(abs(4 * bytes[(y * 35 + x) * 3 + c] - sum) <= 2);
			}
	free(bytes);
	beton_reader_close(&reader);
}

/* FFCV's rounding: 70 x 50 times 33/70 is 33 x 23.57, cut to 33 x 23. */
static void test_shrunk_sizes(void **state)
{
	(void)state;
	run("--max-resolution=33");
	beton_reader *reader = open_good(in_folder("out.beton"));
	for (int kind = 0; kind < PICTURE_KINDS; kind++) {
		beton_value value;
		uint8_t *bytes = read_blob(reader, (uint64_t)kind, &value);
		assert_int_equal(value.width, 33);
		assert_int_equal(value.height, 23);
		assert_int_equal(value.mode, jpeg_source(kind) ? BETON_IMAGE_JPEG : BETON_IMAGE_RAW);
		if (value.mode == BETON_IMAGE_JPEG)
			free(decode(bytes, value.blob.size, 33, 23));
		free(bytes);
	}
	beton_reader_close(&reader);
	run("--max-resolution=70");
	reader = open_good(in_folder("out.beton"));
	beton_value value;
	free(read_blob(reader, 0, &value));
	assert_int_equal(value.width, WIDTH);
	beton_reader_close(&reader);
}

static const jpeg_sort sorts[] = {
	{.name = "4:2:0", .colour = JCS_YCbCr, .h = 2, .v = 2},
	{.name = "4:2:0 with markers", .colour = JCS_YCbCr, .h = 2, .v = 2, .restart = 3},
	{.name = "4:2:2", .colour = JCS_YCbCr, .h = 2, .v = 1},
	{.name = "4:4:0", .colour = JCS_YCbCr, .h = 1, .v = 2},
	{.name = "4:4:4", .colour = JCS_YCbCr, .h = 1, .v = 1},
	{.name = "4:1:1", .colour = JCS_YCbCr, .h = 4, .v = 1},
	{.name = "grey", .colour = JCS_GRAYSCALE, .h = 1, .v = 1},
	{.name = "grey, sampled", .colour = JCS_GRAYSCALE, .h = 2, .v = 2},
};

enum { SORTS = sizeof(sorts) / sizeof(sorts[0]), SIDES = 3 };

/* Sides of pictures whose last blocks and MCUs are whole, cut, and filled up. */
static const uint32_t sides[SIDES][2] = {{160, 128}, {195, 113}, {121, 200}};

static void write_twins(int side, const uint8_t *pixels)
{
	for (int i = 0; i < 2 * SORTS; i++) {
		jpeg_sort sort = sorts[i / 2];
		sort.progressive = i % 2;
		jpeg_bytes jpeg = jpeg_make(&sort, sides[side][0], sides[side][1], pixels, 90);
		char name[64];
		snprintf(name, sizeof(name), "twins/only/%d-%02d.JPEG", side, i);
		FILE *file = fopen(in_folder(name), "wb");
		assert_non_null(file);
		assert_int_equal(fwrite(jpeg.data, 1, jpeg.size, file), jpeg.size);
		assert_int_equal(fclose(file), 0);
		free(jpeg.data);
	}
}

static void check_twins(const char *options)
{
	run_on("twins", options);
	beton_reader *reader = open_good(in_folder("out.beton"));
	assert_int_equal(beton_reader_info(reader)->num_samples, 2 * SORTS * SIDES);
	for (uint64_t i = 0; i < SORTS * SIDES; i++) {
		beton_value values[2];
		uint8_t *bytes[2] = {read_blob(reader, 2 * i, &values[0]), read_blob(reader, 2 * i + 1, &values[1])};
		if (values[0].blob.size != values[1].blob.size || memcmp(bytes[0], bytes[1], values[0].blob.size) != 0)
			fail_msg("%s: %s, %ux%u differs from its progressive twin", options, sorts[i % SORTS].name,
				 values[0].width, values[0].height);
		free(bytes[0]);
		free(bytes[1]);
	}
	beton_reader_close(&reader);
}

/* This project's decoder reads the same as libjpeg from a progressive JPEG of the same coefficients. */
static void test_progressive_twins(void **state)
{
	(void)state;
	assert_int_equal(mkdir(in_folder("twins"), 0755), 0);
	assert_int_equal(mkdir(in_folder("twins/only"), 0755), 0);
	for (int side = 0; side < SIDES; side++) {
		uint8_t *pixels = textured_pixels(sides[side][0], sides[side][1]);
		write_twins(side, pixels);
		free(pixels);
	}
	check_twins("");
	check_twins("--write-mode=jpg");
	check_twins("--write-mode=jpg --max-resolution=150");
	check_twins("--write-mode=jpg --subsampling=444");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_original),
		cmocka_unit_test(test_keep_bytes),
		cmocka_unit_test(test_dropped_transparency),
		cmocka_unit_test(test_jpg),
		cmocka_unit_test(test_raw),
		cmocka_unit_test(test_shrinks_by_area),
		cmocka_unit_test(test_shrunk_sizes),
		cmocka_unit_test(test_progressive_twins),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
