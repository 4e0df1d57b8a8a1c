/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoding of crops, resizing and the last pass, each against a plain computation of the same thing. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "common/half.h"
#include "loader/pixels/decode.h"
#include "loader/pixels/transform.h"

enum { WIDTH = 93, HEIGHT = 71 };

static bt_decoder *decoder;

static int open_decoder(void **state)
{
	(void)state;
	return bt_decoder_open(&decoder, UINT64_MAX, NULL, NULL);
}

static int close_decoder(void **state)
{
	(void)state;
	bt_decoder_close(&decoder);
	return 0;
}

static beton_value jpeg_value(uint32_t width, uint32_t height, uint64_t size)
{
	return (beton_value){.type = BETON_FIELD_IMAGE,
			     .mode = BETON_IMAGE_JPEG,
			     .width = width,
			     .height = height,
			     .blob = {.size = size}};
}

/* A view of RGB pixels. */
typedef struct bt_pixels {
	const uint8_t *data;
	size_t stride;
	uint32_t width;
	uint32_t height;
} bt_pixels;

static bt_plane plane_of(const bt_pixels *view)
{
	return (bt_plane){.data = view->data,
			  .stride = view->stride,
			  .width = view->width,
			  .height = view->height,
			  .channels = 3,
			  .box_width = view->width,
			  .box_height = view->height};
}

/* Decodes a crop; the view of its RGB pixels in *out. */
static int decode_as(bt_pixels_wanted wanted, int64_t sample, const beton_value *value, const uint8_t *bytes,
		     const bt_rect *crop, bt_pixels *out, beton_error *err)
{
	bt_request request = {.pixels = wanted, .crop = *crop};
	bt_picture picture;
	int result = bt_decode(decoder, sample, value, bytes, &request, &picture, err);
	if (result)
		return result;
	const bt_plane *plane = &picture.planes[0];
	assert_int_equal(picture.colour, BT_RGB);
	assert_int_equal(plane->channels, 3);
	*out = (bt_pixels){plane->data + (size_t)plane->y * plane->stride + (size_t)plane->x * 3, plane->stride,
			   (uint32_t)plane->box_width, (uint32_t)plane->box_height};
	return BETON_OK;
}

static int decode(int64_t sample, const beton_value *value, const uint8_t *bytes, const bt_rect *crop, bt_pixels *out,
		  beton_error *err)
{
	return decode_as(BT_WANT_RGB, sample, value, bytes, crop, out, err);
}

/* The whole picture, packed; freed by the caller. */
static uint8_t *decode_whole(const uint8_t *bytes, unsigned long size, uint32_t width, uint32_t height)
{
	beton_value value = jpeg_value(width, height, size);
	bt_rect whole = {.width = width, .height = height};
	bt_pixels view;
	assert_ok(decode(0, &value, bytes, &whole, &view, err));
	size_t row = (size_t)width * 3;
	uint8_t *out = malloc(row * height);
	assert_non_null(out);
	for (size_t y = 0; y < height; y++)
		memcpy(out + y * row, view.data + y * view.stride, row);
	return out;
}

/* Crops of a JPEG, beside the whole picture's pixels. */
static void compare_crops(const fixture_jpeg_options *options, bt_pixels_wanted wanted, const beton_value *value,
			  const uint8_t *bytes, const uint8_t *whole)
{
	uint32_t width = value->width, height = value->height;
	for (uint32_t i = 0; i < 400; i++) {
		bt_rect crop = {.width = 1 + i * 31 % width, .height = 1 + i * 17 % height};
		crop.x = i * 7 % (width - crop.width + 1);
		crop.y = i * 5 % (height - crop.height + 1);
		bt_pixels view = {0};
		assert_ok(decode_as(wanted, 0, value, bytes, &crop, &view, err));
		assert_int_equal(view.width, crop.width);
		assert_int_equal(view.height, crop.height);
		for (uint32_t y = 0; y < crop.height; y++)
			if (memcmp(view.data + y * view.stride, whole + ((crop.y + y) * (size_t)width + crop.x) * 3,
				   (size_t)crop.width * 3))
				fail_msg("%dx%d progressive %d partial %d: crop %u,%u %ux%u of %ux%u differs in row %u",
					 options->horizontal, options->vertical, options->progressive, options->partial,
					 crop.x, crop.y, crop.width, crop.height, width, height, y);
	}
}

static void check_crops_of(fixture_jpeg_options options, bt_pixels_wanted wanted, uint32_t width, uint32_t height)
{
	uint8_t *pixels = fixture_pixels(5, width, height);
	unsigned long size;
	uint8_t *bytes = fixture_jpeg(pixels, width, height, options, &size);
	uint8_t *whole = options.cmyk ? decode_whole(bytes, size, width, height)
				      : fixture_decode(bytes, size, wanted == BT_WANT_RGB_FAST_DCT);
	beton_value value = jpeg_value(width, height, size);
	compare_crops(&options, wanted, &value, bytes, whole);
	free(whole);
	free(bytes);
	free(pixels);
}

static void check_crops(fixture_jpeg_options options)
{
	check_crops_of(options, BT_WANT_RGB, WIDTH, HEIGHT);
	for (uint32_t width = 1; width <= 40; width++)
		check_crops_of(options, width % 3 || options.cmyk ? BT_WANT_RGB : BT_WANT_RGB_FAST_DCT, width,
			       1 + width * 7 % 36);
}

static void a_crop_has_the_pixels_of_the_whole(void **state)
{
	(void)state;
	for (int horizontal = 1; horizontal <= 4; horizontal++)
		for (int vertical = 1; vertical <= 2; vertical++)
			for (int progressive = 0; progressive < 2; progressive++)
				check_crops((fixture_jpeg_options){horizontal, vertical, progressive});
	for (int partial = 1; partial <= 3; partial++)
		for (int sampling = 1; sampling <= 2; sampling++) {
			check_crops((fixture_jpeg_options){sampling, sampling, .partial = partial});
			check_crops_of((fixture_jpeg_options){sampling, sampling, .partial = partial},
				       BT_WANT_RGB_FAST_DCT, WIDTH, HEIGHT);
		}
	check_crops((fixture_jpeg_options){.grey = true});
	check_crops((fixture_jpeg_options){.cmyk = true});
	for (int restart = 1; restart <= 6; restart++) {
		for (int horizontal = 1; horizontal <= 2; horizontal++)
			for (int vertical = 1; vertical <= 2; vertical++)
				check_crops((fixture_jpeg_options){horizontal, vertical, .restart = restart});
		check_crops((fixture_jpeg_options){.cmyk = true, .restart = restart});
	}
}

static void check_close(const uint8_t *got, uint32_t picture, double factor, bool grey)
{
	double error = 0;
	for (uint32_t y = 0; y < HEIGHT; y++)
		for (uint32_t x = 0; x < WIDTH; x++)
			for (uint32_t c = 0; c < 3; c++) {
				double expected = fixture_pixel(picture, x, y, c);
				if (grey)
					expected = 0.299 * fixture_pixel(picture, x, y, 0) +
						   0.587 * fixture_pixel(picture, x, y, 1) +
						   0.114 * fixture_pixel(picture, x, y, 2);
				error += fabs(got[(y * WIDTH + x) * 3 + c] - expected * factor);
			}
	assert_true(error / (WIDTH * HEIGHT * 3) < 8);
}

static void every_kind_of_jpeg_becomes_rgb(void **state)
{
	(void)state;
	const fixture_jpeg_options kinds[] = {
		{1, 1}, {1, 1, true}, {.grey = true}, {.cmyk = true}, {.cmyk = true, .unmarked = true}};
	uint8_t *pixels = fixture_pixels(5, WIDTH, HEIGHT);
	for (int i = 0; i < 5; i++) {
		unsigned long size;
		uint8_t *bytes = fixture_jpeg(pixels, WIDTH, HEIGHT, kinds[i], &size);
		uint8_t *whole = decode_whole(bytes, size, WIDTH, HEIGHT);
		check_close(whole, 5, kinds[i].cmyk ? 200.0 / 255 : 1, kinds[i].grey);
		free(whole);
		free(bytes);
	}
	free(pixels);
}

static void raw_crops_are_views(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(9, WIDTH, HEIGHT);
	beton_value value = jpeg_value(WIDTH, HEIGHT, WIDTH * HEIGHT * 3);
	value.mode = BETON_IMAGE_RAW;
	bt_rect crop = {3, 4, 20, 30};
	bt_pixels view;
	assert_ok(decode(0, &value, pixels, &crop, &view, err));
	assert_ptr_equal(view.data, pixels + (4 * WIDTH + 3) * 3);
	assert_int_equal(view.stride, WIDTH * 3);
	value.blob.size--;
	beton_error fault;
	assert_int_equal(decode(7, &value, pixels, &crop, &view, &fault), BETON_SAMPLE_CORRUPT);
	assert_int_equal(fault.sample, 7);
	assert_non_null(strstr(fault.message, "sample 7"));
	free(pixels);
}

/* bytes must be refused, naming sample 3 and `reason`; and the decoder must work afterwards. */
static void check_refused(const uint8_t *bytes, const beton_value *value, const char *reason)
{
	bt_rect whole = {.width = value->width, .height = value->height};
	bt_pixels view;
	beton_error err = {0};
	assert_int_equal(decode(3, value, bytes, &whole, &view, &err), BETON_SAMPLE_CORRUPT);
	assert_int_equal(err.sample, 3);
	if (!strstr(err.message, "sample 3") || !strstr(err.message, reason))
		fail_msg("'%s' does not name sample 3 and '%s'", err.message, reason);
	check_crops_of((fixture_jpeg_options){.horizontal = 2, .vertical = 2}, BT_WANT_RGB, WIDTH, HEIGHT);
}

static void damaged_jpegs_are_refused(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(5, WIDTH, HEIGHT);
	unsigned long size;
	uint8_t *bytes = fixture_jpeg(pixels, WIDTH, HEIGHT, (fixture_jpeg_options){0}, &size);
	beton_value value = jpeg_value(WIDTH, HEIGHT, size / 2);
	check_refused(bytes, &value, "remature end");
	value = jpeg_value(WIDTH, HEIGHT, 0);
	check_refused(bytes, &value, "");
	value = jpeg_value(WIDTH, HEIGHT, 20);
	check_refused(bytes, &value, "");
	value = jpeg_value(WIDTH + 1, HEIGHT, size);
	check_refused(bytes, &value, "93 x 71 pixels, its metadata says 94 x 71");
	value = jpeg_value(0, 0, size);
	check_refused(bytes, &value, "0 x 0");
	value = jpeg_value(65535, 65535, size);
	check_refused(bytes, &value, "its metadata says");
	memset(bytes + size / 2, 0xff, 64);
	value = jpeg_value(WIDTH, HEIGHT, size);
	check_refused(bytes, &value, "Corrupt JPEG data");
	memset(bytes, 'x', size);
	check_refused(bytes, &value, "Not a JPEG");
	free(bytes);
	free(pixels);
}

/* A valid progressive JPEG of 379 scans: each coefficient of each component in two scans of its own. */
static uint8_t *jpeg_of_many_scans(unsigned long *size)
{
	enum { COMPONENTS = 3, COEFFICIENTS = 64 };
	static jpeg_scan_info script[1 + COMPONENTS * (COEFFICIENTS - 1) * 2];
	int scans = 0;
	script[scans++] = (jpeg_scan_info){.comps_in_scan = COMPONENTS, .component_index = {0, 1, 2}};
	for (int refine = 0; refine < 2; refine++)
		for (int c = 0; c < COMPONENTS; c++)
			for (int k = 1; k < COEFFICIENTS; k++)
				script[scans++] = (jpeg_scan_info){1, {c}, k, k, refine, 1 - refine};
	struct jpeg_compress_struct jpeg;
	struct jpeg_error_mgr errors;
	unsigned char *bytes = NULL;
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_compress(&jpeg);
	jpeg_mem_dest(&jpeg, &bytes, size);
	jpeg.image_width = jpeg.image_height = 16;
	jpeg.input_components = 3;
	jpeg.in_color_space = JCS_RGB;
	jpeg_set_defaults(&jpeg);
	jpeg.scan_info = script;
	jpeg.num_scans = scans;
	jpeg_start_compress(&jpeg, TRUE);
	uint8_t row[16 * 3] = {200, 3, 77};
	for (JSAMPROW at = row; jpeg.next_scanline < 16;)
		jpeg_write_scanlines(&jpeg, &at, 1);
	jpeg_finish_compress(&jpeg);
	jpeg_destroy_compress(&jpeg);
	return bytes;
}

static void endless_scans_are_refused(void **state)
{
	(void)state;
	unsigned long size = 0;
	uint8_t *bytes = jpeg_of_many_scans(&size);
	beton_value value = jpeg_value(16, 16, size);
	check_refused(bytes, &value, "more than 200 scans");
	free(bytes);
}

/* Any damage gives pixels or an error; sanitizers see the rest. */
static void random_damage_is_survived(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(5, WIDTH, HEIGHT);
	for (int kind = 0; kind < 3; kind++) {
		unsigned long size;
		uint8_t *bytes =
			fixture_jpeg(pixels, WIDTH, HEIGHT,
				     (fixture_jpeg_options){.progressive = kind == 1, .cmyk = kind == 2}, &size);
		uint32_t seed = 1;
		for (int i = 0; i < 1000; i++) {
			seed = seed * 1664525 + 1013904223;
			unsigned long at = (seed >> 8) % (i % 2 ? size : 700);
			uint8_t before = bytes[at];
			bytes[at] = (uint8_t)(seed >> 3);
			beton_value value = jpeg_value(WIDTH, HEIGHT, size);
			bt_rect crop = {.x = 11, .y = 12, .width = 50, .height = 40};
			bt_pixels view;
			int result = decode(3, &value, bytes, &crop, &view, NULL);
			assert_true(result == BETON_OK || result == BETON_SAMPLE_CORRUPT);
			bytes[at] = before;
		}
		free(bytes);
	}
	free(pixels);
}

/* The weight of input pixel k for output pixel i: the overlap of their extents, or the tent of linear interpolation. */
static double weight(uint32_t in, uint32_t out, uint32_t i, uint32_t k)
{
	double step = (double)in / out;
	if (in >= out) {
		double begin = fmax(i * step, k), end = fmin((i + 1) * step, k + 1.0);
		return fmax(end - begin, 0) / step;
	}
	double centre = fmin(fmax((i + 0.5) * step - 0.5, 0), in - 1.0);
	return fmax(1 - fabs(centre - k), 0);
}

static double reference(const bt_pixels *in, uint32_t width, uint32_t height, uint32_t x, uint32_t y, uint32_t c)
{
	double sum = 0;
	for (uint32_t j = 0; j < in->height; j++) {
		double vertical = weight(in->height, height, y, j);
		for (uint32_t i = 0; vertical > 0 && i < in->width; i++)
			sum += vertical * weight(in->width, width, x, i) * in->data[j * in->stride + i * 3 + c];
	}
	return sum;
}

static void resize_matches_the_reference(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(2, WIDTH, HEIGHT);
	const uint32_t sizes[][4] = {{93, 71, 93, 71}, {93, 71, 31, 24}, {60, 60, 30, 30}, {40, 50, 64, 64},
				     {93, 20, 32, 32}, {20, 71, 32, 32}, {1, 1, 5, 7},     {2, 3, 1, 1},
				     {93, 71, 1, 1},   {7, 9, 92, 70},   {64, 64, 63, 65}, {33, 33, 32, 32}};
	bt_resizer resizer = {0};
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
		bt_pixels in = {pixels, WIDTH * 3, sizes[s][0], sizes[s][1]};
		uint32_t width = sizes[s][2], height = sizes[s][3];
		bt_plane plane = plane_of(&in);
		assert_ok(bt_resize_begin(&resizer, &plane, &(bt_resize_target){width, height}, NULL, err));
		uint32_t taps = (in.width / width + 2) + (in.height / height + 2);
		for (uint32_t y = 0; y < height; y++) {
			size_t stride;
			const uint8_t *row = bt_resize_rows(&resizer, y, 1, &stride);
			for (uint32_t x = 0; x < width * 3; x++)
				assert_true(fabs(row[x] - reference(&in, width, height, x / 3, y, x % 3)) <
					    0.504 + 255.0 * taps / 32768);
		}
	}
	bt_resize_free(&resizer);
	free(pixels);
}

static void a_flat_picture_stays_flat(void **state)
{
	(void)state;
	uint8_t white[50 * 40 * 3];
	memset(white, 255, sizeof(white));
	bt_resizer resizer = {0};
	for (uint32_t size = 1; size <= 80; size++) {
		bt_plane in = plane_of(&(bt_pixels){white, 50 * 3, 50, 40});
		for (beton_filter filter = BETON_FILTER_AUTO; filter <= BETON_FILTER_NEAREST; filter++) {
			assert_ok(bt_resize_begin(&resizer, &in, &(bt_resize_target){size, size, filter}, NULL, err));
			for (uint32_t y = 0; y < size; y++) {
				size_t stride;
				const uint8_t *row = bt_resize_rows(&resizer, y, 1, &stride);
				for (uint32_t x = 0; x < size * 3; x++)
					assert_int_equal(row[x], 255);
			}
		}
	}
	bt_resize_free(&resizer);
}

/* Where the element of a pixel lies in the output. */
static size_t place_of(const beton_image_options *image, uint32_t x, uint32_t y, uint32_t c)
{
	return image->layout == BETON_NHWC ? ((size_t)y * image->width + x) * 3 + c
					   : ((size_t)c * image->height + y) * image->width + x;
}

static void check_element(const beton_image_options *image, const void *out, size_t at, uint8_t byte, uint32_t c)
{
	float expected = image->normalize ? (byte - image->mean[c]) / image->std[c] : byte;
	switch (image->dtype) {
	case BETON_FLOAT32:
		assert_true(((const float *)out)[at] == expected);
		break;
	case BETON_FLOAT16:
		assert_int_equal(((const uint16_t *)out)[at], bt_float16(expected));
		break;
	case BETON_BFLOAT16:
		assert_int_equal(((const uint16_t *)out)[at], bt_bfloat16(expected));
		break;
	default:
		assert_int_equal(((const uint8_t *)out)[at], byte);
	}
}

/* Flip, layout, type and normalization of a picture, resized or not, against the plain loops. */
static void check_format(const beton_loader_options *options, bool flip, uint32_t crop_width, uint32_t crop_height)
{
	uint8_t *pixels = fixture_pixels(4, WIDTH, HEIGHT);
	bt_pixels in = {pixels + 30, WIDTH * 3, crop_width, crop_height};
	const size_t sizes[] = {[BETON_UINT8] = 1, [BETON_FLOAT32] = 4, [BETON_FLOAT16] = 2, [BETON_BFLOAT16] = 2};
	bt_image_format format;
	bt_image_format_init(&format, options);
	uint32_t width = options->image.width, height = options->image.height;
	size_t bytes = (size_t)width * height * 3 * sizes[options->image.dtype];
	assert_int_equal(bt_image_format_bytes(&format), bytes);
	void *out = malloc(bytes);
	bt_transformer transformer = {0};
	bt_picture picture = {.planes[0] = {.data = pixels,
					    .stride = WIDTH * 3,
					    .width = WIDTH,
					    .height = HEIGHT,
					    .channels = 3,
					    .x = 10,
					    .box_width = crop_width,
					    .box_height = crop_height}};
	assert_ok(bt_transform(&transformer, &picture, flip, NULL, &format, out, err));
	bt_resizer resizer = {0};
	bt_plane plane = plane_of(&in);
	assert_ok(bt_resize_begin(&resizer, &plane, &(bt_resize_target){width, height}, NULL, err));
	for (uint32_t y = 0; y < height; y++) {
		size_t stride;
		const uint8_t *row = bt_resize_rows(&resizer, y, 1, &stride);
		for (uint32_t x = 0; x < width; x++)
			for (uint32_t c = 0; c < 3; c++)
				check_element(&options->image, out, place_of(&options->image, x, y, c),
					      row[(flip ? width - 1 - x : x) * 3 + c], c);
	}
	bt_resize_free(&resizer);
	bt_transformer_free(&transformer);
	free(out);
	free(pixels);
}

static void narrow_floats_are_rounded_to_even(void **state)
{
	(void)state;
	const struct {
		float value;
		uint16_t half;
		uint16_t brain;
	} known[] = {{0, 0, 0},
		     {-0.0f, 0x8000, 0x8000},
		     {1, 0x3c00, 0x3f80},
		     {-2, 0xc000, 0xc000},
		     {65504, 0x7bff, 0x4780},
		     {65519, 0x7bff, 0x4780},
		     {65520, 0x7c00, 0x4780},
		     {1 + 0x1p-11f, 0x3c00, 0x3f80},     /* ties: to even, down ... */
		     {1 + 3 * 0x1p-11f, 0x3c02, 0x3f80}, /* ... and up */
		     {1 + 0x1p-8f, 0x3c04, 0x3f80},
		     {1 + 3 * 0x1p-8f, 0x3c0c, 0x3f82},
		     {0x1p-14f, 0x0400, 0x3880},
		     {0x1p-24f, 0x0001, 0x3380}, /* the smallest */
		     {0x1p-25f, 0x0000, 0x3300},
		     {0x1.8p-25f, 0x0001, 0x3340},
		     {0x1.ffcp-15f, 0x0400, 0x3880}, /* rounds up to a normal number */
		     {-1e30f, 0xfc00, 0xf14a}};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		assert_int_equal(bt_float16(known[i].value), known[i].half);
		assert_int_equal(bt_bfloat16(known[i].value), known[i].brain);
	}
}

static void every_format_is_right(void **state)
{
	(void)state;
	const beton_dtype dtypes[] = {BETON_UINT8, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	for (int i = 0; i < 128; i++) {
		beton_loader_options options = fixture_options(1, 1);
		options.image.layout = i & 1 ? BETON_NCHW : BETON_NHWC;
		options.image.dtype = dtypes[i >> 5];
		options.image.normalize = (i & 4) && options.image.dtype != BETON_UINT8;
		check_format(&options, i & 8, i & 16 ? 16 : 40, i & 16 ? 12 : 9);
	}
}

static void *transformed(const bt_picture *picture, bool flip, const bt_image_format *format)
{
	bt_transformer transformer = {0};
	void *out = malloc(bt_image_format_bytes(format));
	assert_non_null(out);
	assert_ok(bt_transform(&transformer, picture, flip, NULL, format, out, err));
	bt_transformer_free(&transformer);
	return out;
}

/* The same grey picture as RGB, as grey, and as brightness with chroma that has no colour. */
static void greys_of_every_kind_are_equal(void **state)
{
	(void)state;
	enum { SIDE = 50 };
	static uint8_t grey[SIDE * SIDE], rgb[SIDE * SIDE * 3], neutral[SIDE * SIDE];
	uint8_t *noise = fixture_pixels(9, SIDE, SIDE);
	memcpy(grey, noise, sizeof(grey));
	free(noise);
	memset(neutral, 128, sizeof(neutral));
	for (size_t i = 0; i < sizeof(rgb); i++)
		rgb[i] = grey[i / 3];
	const bt_plane plane = {grey, SIDE, SIDE, SIDE, 1, 0, 0, SIDE, SIDE};
	const bt_plane chroma = {neutral, SIDE, SIDE, SIDE, 1, 0, 0, SIDE, SIDE};
	const bt_picture pictures[3] = {{BT_RGB, {{rgb, SIDE * 3, SIDE, SIDE, 3, 0, 0, SIDE, SIDE}}},
					{BT_GREY, {plane}},
					{BT_YCC, {plane, chroma, chroma}}};
	const beton_dtype dtypes[] = {BETON_UINT8, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	for (uint32_t i = 0; i < 48; i++) {
		beton_loader_options options = fixture_options(1, 1);
		options.image.width = (const uint32_t[]){7, SIDE, 100}[i % 3];
		options.image.height = (const uint32_t[]){6, SIDE, 101}[i % 3];
		options.image.dtype = dtypes[i / 3 % 4];
		options.image.normalize = options.image.dtype != BETON_UINT8;
		options.image.layout = i / 12 % 2 ? BETON_NCHW : BETON_NHWC;
		bt_image_format format;
		bt_image_format_init(&format, &options);
		void *expected = transformed(&pictures[0], i / 24, &format);
		for (int k = 1; k < 3; k++) {
			void *got = transformed(&pictures[k], i / 24, &format);
			assert_memory_equal(got, expected, bt_image_format_bytes(&format));
			free(got);
		}
		free(expected);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_crop_has_the_pixels_of_the_whole),
		cmocka_unit_test(every_kind_of_jpeg_becomes_rgb),
		cmocka_unit_test(raw_crops_are_views),
		cmocka_unit_test(damaged_jpegs_are_refused),
		cmocka_unit_test(endless_scans_are_refused),
		cmocka_unit_test(random_damage_is_survived),
		cmocka_unit_test(resize_matches_the_reference),
		cmocka_unit_test(a_flat_picture_stays_flat),
		cmocka_unit_test(every_format_is_right),
		cmocka_unit_test(greys_of_every_kind_are_equal),
		cmocka_unit_test(narrow_floats_are_rounded_to_even),
	};
	return cmocka_run_group_tests(tests, open_decoder, close_decoder);
}
