/* SPDX-License-Identifier: Apache-2.0
 *
 * Grey pictures: against libjpeg's luma, Pillow's and OpenCV's pixels (grey-pixels.txt), and beside every other option.
 * grey PIXELS: that file.
 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

#include "loader/operations/operations.h"
#include "loader/pixels/decode_state.h"
#include "loader/pixels/transform.h"
#include "tests/support/numbers.h"

enum { SAMPLES = 18, BATCH = 5, WIDTH = 16, HEIGHT = 12, PIXELS = WIDTH * HEIGHT };

static const char *pixels_path;

/* The bytes of a row of the file; to be freed. */
static uint8_t *peer_bytes(const char *name, size_t *size)
{
	double *numbers = numbers_read(pixels_path, name, size);
	uint8_t *bytes = malloc(*size);
	assert_non_null(bytes);
	for (size_t i = 0; i < *size; i++)
		bytes[i] = (uint8_t)numbers[i];
	free(numbers);
	return bytes;
}

/* ---- the decoder ---- */

/* The JPEG library's own result at 1 / divisor of its size; to be freed. */
static uint8_t *luma_of(const uint8_t *bytes, unsigned long size, bool fast, unsigned int divisor, uint32_t *width)
{
	struct jpeg_decompress_struct jpeg;
	struct jpeg_error_mgr errors;
	jpeg.err = jpeg_std_error(&errors);
	jpeg_create_decompress(&jpeg);
	jpeg_mem_src(&jpeg, bytes, size);
	jpeg_read_header(&jpeg, TRUE);
	jpeg.out_color_space = JCS_GRAYSCALE;
	jpeg.dct_method = fast ? JDCT_IFAST : JDCT_ISLOW;
	jpeg.scale_denom = divisor;
	jpeg_start_decompress(&jpeg);
	*width = jpeg.output_width;
	uint8_t *out = malloc((size_t)jpeg.output_width * jpeg.output_height);
	assert_non_null(out);
	while (jpeg.output_scanline < jpeg.output_height) {
		JSAMPROW row = out + (size_t)jpeg.output_scanline * jpeg.output_width;
		jpeg_read_scanlines(&jpeg, &row, 1);
	}
	jpeg_finish_decompress(&jpeg);
	jpeg_destroy_decompress(&jpeg);
	return out;
}

static beton_value value_of(uint32_t width, uint32_t height, uint64_t size)
{
	return (beton_value){.type = BETON_FIELD_IMAGE,
			     .mode = BETON_IMAGE_JPEG,
			     .width = width,
			     .height = height,
			     .blob = {.size = size}};
}

/* Each sample of the plane is that of the whole picture at 1 / divisor. */
static void check_plane(const bt_picture *picture, const uint8_t *whole, uint32_t whole_width, const bt_rect *crop,
			uint32_t divisor)
{
	const bt_plane *plane = &picture->planes[0];
	assert_int_equal(picture->colour, BT_GREY);
	assert_int_equal(plane->channels, 1);
	assert_true(plane->box_width == (double)crop->width / divisor);
	assert_true(plane->box_height == (double)crop->height / divisor);
	uint32_t x = (uint32_t)((double)crop->x / divisor - plane->x + 0.5);
	uint32_t y = (uint32_t)((double)crop->y / divisor - plane->y + 0.5);
	for (uint32_t row = 0; row < plane->height; row++)
		if (memcmp(plane->data + row * plane->stride, whole + (size_t)(y + row) * whole_width + x,
			   plane->width))
			fail_msg("crop %u,%u %ux%u at 1/%u: row %u differs", crop->x, crop->y, crop->width,
				 crop->height, divisor, row);
}

/* Without `scan` libjpeg decodes. */
static void check_jpeg(const uint8_t *bytes, unsigned long size, uint32_t width, uint32_t height, bool scan)
{
	static const bt_pixels_wanted wanted[] = {BT_WANT_RGB, BT_WANT_RGB_FAST_DCT, BT_WANT_PLANES};
	const bt_rect crops[] = {{0, 0, width, height}, {width / 3, height / 4, width / 2, height / 2}, {1, 2, 3, 4}};
	bt_decoder *decoder;
	assert_ok(bt_decoder_open(&decoder, UINT64_MAX, NULL, err));
	if (!scan) {
		bt_scan_free(decoder->scan);
		decoder->scan = NULL;
	}
	beton_value value = value_of(width, height, size);
	for (uint32_t i = 0; i < 3; i++)
		for (uint32_t divisor = 1; divisor <= (wanted[i] == BT_WANT_PLANES ? 8 : 1); divisor *= 2) {
			uint32_t whole_width;
			uint8_t *whole = luma_of(bytes, size, wanted[i] == BT_WANT_RGB_FAST_DCT, divisor, &whole_width);
			for (size_t j = 0; j < (divisor > 1 ? 2 : sizeof(crops) / sizeof(*crops)); j++) {
				bt_request request = {.pixels = wanted[i], .grey = true, .crop = crops[j]};
				request.shrink = divisor;
				bt_picture picture;
				assert_ok(bt_decode(decoder, 0, &value, bytes, &request, &picture, err));
				check_plane(&picture, whole, whole_width, &crops[j], divisor);
			}
			free(whole);
		}
	bt_decoder_close(&decoder);
}

static void jpegs_give_libjpeg_s_luma(void **state)
{
	(void)state;
	enum { W = 150, H = 71 };
	static const fixture_jpeg_options kinds[] = {
		{.horizontal = 1, .vertical = 1},
		{.horizontal = 2, .vertical = 1},
		{.horizontal = 1, .vertical = 2},
		{.horizontal = 2, .vertical = 2},
		{.horizontal = 4, .vertical = 1},
		{.horizontal = 2, .vertical = 2, .restart = 3},
		{.horizontal = 2, .vertical = 2, .restart = 10},
		{.horizontal = 2, .vertical = 2, .progressive = true},
		{.grey = true},
		{.grey = true, .progressive = true},
		{.grey = true, .horizontal = 2, .vertical = 2, .restart = 4},
	};
	uint8_t *pixels = fixture_pixels(3, W, H);
	for (size_t i = 0; i < 2 * sizeof(kinds) / sizeof(*kinds); i++) {
		unsigned long size;
		uint8_t *bytes = fixture_jpeg(pixels, W, H, kinds[i / 2], &size);
		check_jpeg(bytes, size, W, H, i % 2);
		free(bytes);
	}
	free(pixels);
}

/* Without luma, the formula is applied to the RGB pixels. */
static void cmyk_is_grey_by_way_of_rgb(void **state)
{
	(void)state;
	enum { W = 50, H = 31 };
	uint8_t *pixels = fixture_pixels(3, W, H), grey[W];
	bt_decoder *decoder;
	assert_ok(bt_decoder_open(&decoder, UINT64_MAX, NULL, err));
	for (int i = 0; i < 6; i++) {
		unsigned long size;
		uint8_t *bytes =
			fixture_jpeg(pixels, W, H, (fixture_jpeg_options){.cmyk = true, .unmarked = i % 2}, &size);
		beton_value value = value_of(W, H, size);
		bt_request request = {.pixels = (bt_pixels_wanted)(i / 2), .crop = {7, 5, 30, 20}};
		bt_picture picture;
		assert_ok(bt_decode(decoder, 0, &value, bytes, &request, &picture, err));
		uint8_t rgb[20][30 * 3];
		for (int y = 0; y < 20; y++)
			memcpy(rgb[y], picture.planes[0].data + (size_t)y * picture.planes[0].stride, 30 * 3);
		request.grey = true;
		assert_ok(bt_decode(decoder, 0, &value, bytes, &request, &picture, err));
		assert_int_equal(picture.colour, BT_GREY);
		for (int y = 0; y < 20; y++) {
			bt_grey(rgb[y], 30, request.pixels == BT_WANT_RGB_FAST_DCT ? BT_GREY_OPENCV : BT_GREY_PILLOW,
				grey);
			assert_memory_equal(picture.planes[0].data + (size_t)y * picture.planes[0].stride, grey, 30);
		}
		free(bytes);
	}
	bt_decoder_close(&decoder);
	free(pixels);
}

/* A damaged one is damaged, whether chroma is wanted or not. */
static void damage_to_chroma_is_found(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(3, 64, 64);
	unsigned long size;
	uint8_t *bytes = fixture_jpeg(pixels, 64, 64, (fixture_jpeg_options){0}, &size);
	bt_decoder *decoder;
	assert_ok(bt_decoder_open(&decoder, UINT64_MAX, NULL, err));
	beton_value value = value_of(64, 64, size / 2);
	bt_request request = {.pixels = BT_WANT_PLANES, .grey = true, .crop = {0, 0, 64, 64}};
	bt_picture picture;
	beton_error err;
	assert_int_equal(bt_decode(decoder, 4, &value, bytes, &request, &picture, &err), BETON_SAMPLE_CORRUPT);
	assert_int_equal(err.sample, 4);
	bt_decoder_close(&decoder);
	free(bytes);
	free(pixels);
}

/* ---- Pillow and OpenCV ---- */

enum { COLOURS = 600, JPEG_WIDTH = 43, JPEG_HEIGHT = 37 };

static void the_formulas_are_pillow_s_and_opencv_s(void **state)
{
	(void)state;
	uint8_t colours[COLOURS * 3], grey[COLOURS];
	uint32_t seed = 7;
	for (int i = 0; i < COLOURS * 3; i++) {
		seed = seed * 1664525 + 1013904223;
		colours[i] = (uint8_t)(seed >> 24);
	}
	size_t size;
	uint8_t *pillow_of_rgb = peer_bytes("pillow_of_rgb", &size);
	assert_int_equal(size, COLOURS);
	uint8_t *opencv_of_rgb = peer_bytes("opencv_of_rgb", &size);
	assert_int_equal(size, COLOURS);
	/* Also the parts that vectors leave. */
	for (size_t count = 1; count <= COLOURS; count = count < 70 ? count + 1 : count + 53) {
		bt_grey(colours, count, BT_GREY_PILLOW, grey);
		assert_memory_equal(grey, pillow_of_rgb, count);
		bt_grey(colours, count, BT_GREY_OPENCV, grey);
		assert_memory_equal(grey, opencv_of_rgb, count);
	}
	assert_memory_not_equal(pillow_of_rgb, opencv_of_rgb, COLOURS);
	bt_grey(colours, COLOURS, BT_GREY_PILLOW, colours);
	assert_memory_equal(colours, pillow_of_rgb, COLOURS);
	free(pillow_of_rgb);
	free(opencv_of_rgb);
}

/* The first picture of an epoch; to be freed. */
static uint8_t *load_first(const char *path, const beton_loader_options *options)
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, path, options, err));
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	size_t bytes = (size_t)options->image.width * options->image.height;
	uint8_t *out = malloc(bytes);
	assert_non_null(out);
	memcpy(out, batch->tensors[0].data, bytes);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	return out;
}

static void batches_are_pillow_s_and_opencv_s(void **state)
{
	(void)state;
	size_t jpeg_size, luma_size, smaller_size;
	uint8_t *jpeg = peer_bytes("jpeg_bytes", &jpeg_size);
	uint8_t *luma = peer_bytes("jpeg_luma", &luma_size);
	uint8_t *smaller = peer_bytes("pillow_24x20", &smaller_size);
	assert_int_equal(luma_size, JPEG_WIDTH * JPEG_HEIGHT);
	assert_int_equal(smaller_size, 24 * 20);
	char *path = fixture_write_picture(&(beton_input){
		.data = jpeg, .size = jpeg_size, .mode = BETON_IMAGE_JPEG, .width = JPEG_WIDTH, .height = JPEG_HEIGHT});
	beton_loader_options options = fixture_options(1, 1);
	options.image.color = BETON_COLOR_GREY;
	options.image.width = JPEG_WIDTH;
	options.image.height = JPEG_HEIGHT;
	for (int filter = 0; filter < 4; filter++) {
		options.image.filter = (beton_filter)filter;
		uint8_t *got = load_first(path, &options);
		assert_memory_equal(got, luma, luma_size);
		free(got);
	}
	options.image.filter = BETON_FILTER_AUTO;
	options.image.pixels = BETON_PIXELS_TORCHVISION;
	options.image.width = 24;
	options.image.height = 20;
	uint8_t *got = load_first(path, &options);
	assert_memory_equal(got, smaller, smaller_size);
	free(got);
	free(jpeg);
	free(luma);
	free(smaller);
	fixture_remove(path);

	uint8_t *pixels = fixture_pixels(1, JPEG_WIDTH, JPEG_HEIGHT), expected[JPEG_WIDTH * JPEG_HEIGHT];
	path = fixture_write_picture(&(beton_input){.data = pixels,
						    .size = sizeof(expected) * 3,
						    .mode = BETON_IMAGE_RAW,
						    .width = JPEG_WIDTH,
						    .height = JPEG_HEIGHT});
	options.image.width = JPEG_WIDTH;
	options.image.height = JPEG_HEIGHT;
	for (int mode = 0; mode < 3; mode++) {
		options.image.pixels = (beton_pixels)mode;
		got = load_first(path, &options);
		bt_grey(pixels, sizeof(expected), mode == BETON_PIXELS_FFCV ? BT_GREY_OPENCV : BT_GREY_PILLOW,
			expected);
		assert_memory_equal(got, expected, sizeof(expected));
		free(got);
	}
	fixture_remove(path);
	free(pixels);
}

/* ---- beside other options ---- */

static beton_loader_options grey_options(void)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = BETON_ORDER_RANDOM;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.image.color = BETON_COLOR_GREY;
	return options;
}

static void shapes_have_one_channel(void **state)
{
	const char *path = *state;
	for (int layout = 0; layout < 2; layout++) {
		beton_loader_options options = grey_options();
		options.image.layout = (beton_layout)layout;
		beton_loader *loader;
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		fixture_start(&iterator, loader, 0, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		const beton_tensor *image = fixture_find(batch, "image");
		const int64_t shapes[2][4] = {{BATCH, HEIGHT, WIDTH, 1}, {BATCH, 1, HEIGHT, WIDTH}};
		assert_int_equal(image->ndim, 4);
		assert_memory_equal(image->shape, shapes[layout], sizeof(shapes[layout]));
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
	}
}

/* Every dtype and layout holds the same pixels, which engines and threads do not change. */
static void every_format_holds_the_same_pixels(void **state)
{
	const char *path = *state;
	static const beton_dtype dtypes[] = {BETON_UINT8, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	static const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_MMAP, BETON_ENGINE_URING};
	for (int mode = 0; mode < 3; mode++) {
		beton_loader_options options = grey_options();
		options.image.pixels = (beton_pixels)mode;
		uint8_t *bytes = fixture_load(path, SAMPLES, &options, NULL, "image", PIXELS);
		options.image.normalize = true;
		options.image.mean[0] = 100;
		options.image.std[0] = 50;
		options.image.std[1] = 0; /* not used */
		for (int i = 1; i < 8; i++) {
			options.image.dtype = dtypes[i % 4];
			options.image.layout = (beton_layout)(i / 4);
			options.image.normalize = options.image.dtype != BETON_UINT8;
			options.engine = engines[i % 3];
			options.num_threads = 1 + (uint32_t)i % 3;
			size_t size = fixture_element_bytes(options.image.dtype);
			uint8_t *got = fixture_load(path, SAMPLES, &options, NULL, "image", PIXELS * size);
			for (size_t k = 0; k < (size_t)SAMPLES * PIXELS && size == 4; k++) {
				float value;
				memcpy(&value, got + 4 * k, 4);
				assert_true(value == ((float)bytes[k] - 100) / 50);
			}
			for (size_t k = 0; k < (size_t)SAMPLES * PIXELS && size == 2; k++) {
				uint16_t half;
				memcpy(&half, got + 2 * k, 2);
				/* The sign, which no rounding changes. */
				assert_int_equal(half >> 15, bytes[k] < 100);
			}
			if (size == 1)
				assert_memory_equal(got, bytes, (size_t)SAMPLES * PIXELS);
			free(got);
		}
		free(bytes);
	}
}

/* A view of its own beside an RGB one, with the same draws as alone. */
static void views_may_be_grey(void **state)
{
	const char *path = *state;
	beton_loader_options alone = grey_options(), several = grey_options();
	beton_image_options views[2] = {alone.image, alone.image};
	views[1].color = BETON_COLOR_RGB;
	views[1].layout = BETON_NCHW;
	several.views = views;
	several.num_views = 2;
	alone.drawn = several.drawn = true;
	uint8_t *expected = fixture_load(path, SAMPLES, &alone, NULL, "image", PIXELS);
	uint8_t *got = fixture_load(path, SAMPLES, &several, NULL, "image", PIXELS);
	assert_memory_equal(got, expected, SAMPLES * PIXELS);
	uint8_t *rgb = fixture_load(path, SAMPLES, &several, NULL, "image.1", 3 * PIXELS);
	free(rgb);
	/* Draws equal RGB pictures'. */
	uint8_t *drawn = fixture_load(path, SAMPLES, &alone, NULL, "image.drawn", 5 * sizeof(double));
	alone.image.color = BETON_COLOR_RGB;
	uint8_t *of_rgb = fixture_load(path, SAMPLES, &alone, NULL, "image.drawn", 5 * sizeof(double));
	assert_memory_equal(drawn, of_rgb, SAMPLES * 5 * sizeof(double));
	free(drawn);
	free(of_rgb);
	free(expected);
	free(got);
}

static void iterators_choose_sizes(void **state)
{
	const char *path = *state;
	beton_loader_options options = grey_options(), small = grey_options();
	beton_iterator_options sizes;
	beton_iterator_options_init(&sizes);
	sizes.width[0] = small.image.width = 9;
	sizes.height[0] = small.image.height = 7;
	uint8_t *expected = fixture_load(path, SAMPLES, &small, NULL, "image", 63);
	uint8_t *got = fixture_load(path, SAMPLES, &options, &sizes, "image", 63);
	assert_memory_equal(got, expected, SAMPLES * 63);
	free(expected);
	free(got);
}

/* A picture of its place's size with padding of one byte around it. */
static void padding_surrounds_one_channel(void **state)
{
	const char *path = *state;
	for (int i = 0; i < 8; i++) {
		uint64_t sample = 3 + (uint64_t)i;
		beton_loader_options options = grey_options();
		options.order = BETON_ORDER_LIST;
		options.indices = &sample;
		options.num_indices = 1;
		options.drawn = true;
		options.image.layout = (beton_layout)(i % 2);
		options.image.pixels = (beton_pixels)(i % 3);
		options.image.fit = BETON_FIT_PAD_CENTER + (uint32_t)i / 4;
		options.image.pad[0] = 77;
		options.image.width = 25;
		uint8_t *drawn = fixture_load(path, SAMPLES, &options, NULL, "image.drawn", 9 * sizeof(double));
		double place[4];
		memcpy(place, drawn + (sample * 9 + 5) * sizeof(double), sizeof(place));
		uint8_t *padded = fixture_load(path, SAMPLES, &options, NULL, "image", 25 * HEIGHT);
		options.image.fit = BETON_FIT_STRETCH;
		options.image.pad[0] = 0;
		options.image.width = (uint32_t)place[2];
		options.image.height = (uint32_t)place[3];
		size_t bytes = (size_t)options.image.width * options.image.height;
		uint8_t *plain = fixture_load(path, SAMPLES, &options, NULL, "image", bytes);
		for (uint32_t y = 0; y < HEIGHT; y++)
			for (uint32_t x = 0; x < 25; x++) {
				double in_x = x - place[0], in_y = y - place[1];
				bool inside = in_x >= 0 && in_x < place[2] && in_y >= 0 && in_y < place[3];
				size_t at = inside ? (size_t)in_y * options.image.width + (size_t)in_x : 0;
				assert_int_equal(padded[sample * 25 * HEIGHT + y * 25 + x],
						 inside ? plain[sample * bytes + at] : 77);
			}
		free(drawn);
		free(padded);
		free(plain);
	}
}

/* All operations that grey pictures may have; moves of pixels equal RGB's. */
static int invert(const beton_operation_call *call)
{
	if (call->channels != 1)
		return 1;
	for (uint32_t i = 0; i < call->width * call->height; i++)
		call->pixels[i] = (uint8_t)(255 - call->pixels[i]);
	return 0;
}

static beton_operation make(beton_operation_kind kind)
{
	beton_operation operation;
	beton_loader_operation_init(&operation, kind);
	operation.probability = 1;
	operation.fill[0] = operation.fill[1] = operation.fill[2] = 33;
	if (kind == BETON_TRANSLATE || kind == BETON_CUTOUT)
		operation.size = 9;
	if (kind == BETON_ROTATE)
		operation.range[1] = 30;
	if (kind == BETON_SHIFT)
		operation.range[0] = 3;
	if (kind == BETON_POSTERIZE)
		operation.size = 3;
	if (kind >= BETON_BRIGHTNESS && kind <= BETON_SATURATION)
		operation.range[1] = 1.7;
	if (kind == BETON_COLOR_JITTER)
		operation.jitter[0] = operation.jitter[1] = 0.4;
	return operation;
}

enum { CANVAS_WIDTH = 40, CANVAS_HEIGHT = 30, CANVAS_PIXELS = CANVAS_WIDTH * CANVAS_HEIGHT };

/* Neither the darkest nor the brightest bytes. */
static uint8_t flat_pixel(uint32_t k)
{
	return (uint8_t)(40 + fixture_pixel(2, k % CANVAS_WIDTH, k / CANVAS_WIDTH, 0) / 2);
}

/* Applies it to a canvas with R = G = B, and to one with a single channel. */
static void apply_both(beton_operation *operation, uint8_t grey[CANVAS_PIXELS], uint8_t rgb[CANVAS_PIXELS * 3])
{
	const bt_random random = {.seed = 3, .epoch = 1, .sample = 5};
	beton_image_options options = {
		.operations = operation, .num_operations = 1, .width = CANVAS_WIDTH, .height = CANVAS_HEIGHT};
	bt_canvas canvas = {0};
	for (uint32_t channels = 1; channels <= 3; channels += 2) {
		assert_ok(bt_canvas_begin(&canvas, CANVAS_WIDTH, CANVAS_HEIGHT, channels, 1, err));
		for (uint32_t i = 0; i < CANVAS_PIXELS * channels; i++)
			canvas.image.data[i] = flat_pixel(i / channels);
		assert_ok(bt_canvas_apply(&canvas, &options, &random, NULL, err));
		memcpy(channels == 1 ? grey : rgb, canvas.image.data, bt_image_bytes(&canvas.image));
	}
	bt_canvas_free(&canvas);
}

static void operations_do_what_they_do_to_rgb(void **state)
{
	(void)state;
	static const beton_operation_kind kinds[] = {
		BETON_FLIP_HORIZONTAL, BETON_FLIP_VERTICAL, BETON_TRANSLATE, BETON_ROTATE,    BETON_CUTOUT,
		BETON_ERASE,           BETON_BRIGHTNESS,    BETON_SOLARIZE,  BETON_POSTERIZE, BETON_INVERT,
		BETON_EQUALIZE,        BETON_AUTOCONTRAST,  BETON_SHARPNESS, BETON_BLUR,      BETON_SHIFT};
	static uint8_t grey[CANVAS_PIXELS], rgb[CANVAS_PIXELS * 3];
	for (size_t i = 0; i < 2 * sizeof(kinds) / sizeof(*kinds); i++) {
		beton_operation operation = make(kinds[i / 2]);
		operation.bilinear = i % 2;
		operation.padding = i % 2 ? BETON_PADDING_REFLECT : BETON_PADDING_FILL;
		if (operation.kind == BETON_SHARPNESS)
			operation.range[0] = operation.range[1] = 2;
		apply_both(&operation, grey, rgb);
		uint32_t changed = 0;
		for (uint32_t k = 0; k < CANVAS_PIXELS; k++) {
			changed += grey[k] != flat_pixel(k);
			for (uint32_t c = 0; c < 3; c++)
				if (rgb[k * 3 + c] != grey[k])
					fail_msg("kind %d: pixel %u is %u, in channel %u of RGB %u",
						 (int)operation.kind, k, grey[k], c, rgb[k * 3 + c]);
		}
		if (changed <= CANVAS_PIXELS / 20)
			fail_msg("kind %d changes %u pixels", (int)operation.kind, changed);
	}
}

/* torchvision's adjust_contrast of one channel: about the mean of its bytes. */
static void contrast_is_about_the_mean(void **state)
{
	(void)state;
	static uint8_t grey[CANVAS_PIXELS], rgb[CANVAS_PIXELS * 3];
	beton_operation operation = make(BETON_CONTRAST);
	operation.range[0] = operation.range[1] = 0;
	apply_both(&operation, grey, rgb);
	uint32_t sum = 0;
	for (uint32_t k = 0; k < CANVAS_PIXELS; k++)
		sum += flat_pixel(k);
	for (uint32_t k = 0; k < CANVAS_PIXELS; k++)
		assert_int_equal(grey[k], sum / CANVAS_PIXELS);
}

static void operations_run_in_batches(void **state)
{
	const char *path = *state;
	static float mask[PIXELS], alpha[PIXELS];
	static const uint64_t poisoned[] = {1, 2};
	for (int k = 0; k < PIXELS; k++) {
		mask[k] = 200;
		alpha[k] = 1;
	}
	beton_loader_options options = grey_options();
	uint8_t *plain = fixture_load(path, SAMPLES, &options, NULL, "image", PIXELS);
	const beton_operation_kind kinds[] = {BETON_RAND_AUGMENT, BETON_TRIVIAL_AUGMENT, BETON_COLOR_JITTER,
					      BETON_ERASE,        BETON_POISON,          BETON_CUSTOM,
					      BETON_CONTRAST};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		beton_operation operation = make(kinds[i]);
		operation.noise = kinds[i] == BETON_ERASE;
		operation.mask = mask;
		operation.alpha = alpha;
		operation.indices = poisoned;
		operation.num_indices = 2;
		operation.apply = invert;
		options.image.operations = &operation;
		options.image.num_operations = 1;
		uint8_t *got = fixture_load(path, SAMPLES, &options, NULL, "image", PIXELS);
		assert_memory_not_equal(got, plain, SAMPLES * PIXELS);
		for (int k = 0; k < SAMPLES * PIXELS; k++) {
			if (kinds[i] == BETON_POISON)
				assert_int_equal(got[k], k / PIXELS == 1 || k / PIXELS == 2 ? 200 : plain[k]);
		}
		free(got);
	}
	free(plain);
}

static void mixing_mixes_one_channel(void **state)
{
	const char *path = *state;
	for (int i = 0; i < 4; i++) {
		beton_batch_operation operation;
		beton_loader_batch_operation_init(&operation, i % 2 ? BETON_BATCH_CUTMIX : BETON_BATCH_MIXUP);
		beton_loader_options options = grey_options();
		options.batch_size = SAMPLES;
		options.image.layout = (beton_layout)(i / 2);
		uint8_t *plain = fixture_load(path, SAMPLES, &options, NULL, "image", PIXELS);
		options.batch_operations = &operation;
		options.num_batch_operations = 1;
		beton_loader *loader;
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		fixture_start(&iterator, loader, 2, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		const uint8_t *got = fixture_find(batch, "image")->data;
		const int64_t *partner = fixture_find(batch, "image.partner")->data;
		const float *lambda = fixture_find(batch, "image.lambda")->data;
		const int32_t *box = i % 2 ? fixture_find(batch, "image.box")->data : NULL;
		for (uint32_t row = 0; row < SAMPLES; row++)
			for (int k = 0; k < PIXELS; k++) {
				const uint8_t *own = plain + batch->sample_ids[row] * PIXELS;
				const uint8_t *other = plain + batch->sample_ids[partner[row]] * PIXELS;
				int x = k % WIDTH, y = k / WIDTH;
				const int32_t *b = box ? box + 4 * (size_t)row : NULL;
				bool in = b && x >= b[0] && x < b[0] + b[2] && y >= b[1] && y < b[1] + b[3];
				double l = (double)lambda[row];
				int expected = b ? (in ? other : own)[k] : (int)(own[k] * l + other[k] * (1 - l) + 0.5);
				assert_int_equal(got[row * PIXELS + (uint32_t)k], expected);
			}
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
		free(plain);
	}
}

/* A damaged sample is treated as any other. */
static void policies_hold(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, 4);
	for (int policy = 0; policy < 3; policy++) {
		beton_loader_options options = grey_options();
		options.on_error = (beton_on_error)policy;
		options.verify = false;
		options.order = BETON_ORDER_SEQUENTIAL;
		beton_loader *loader;
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		uint32_t seen = 0;
		int failures = 0, result;
		assert_ok(beton_loader_open(&loader, path, &options, err));
		fixture_start(&iterator, loader, 0, 0);
		while ((result = beton_iterator_next(iterator, &batch, -1, NULL)) != BETON_END)
			if (result == BETON_OK) {
				seen += batch->count;
				beton_batch_release(&batch);
			} else {
				failures++;
			}
		assert_int_equal(failures, policy == BETON_ON_ERROR_FAIL);
		assert_int_equal(seen, policy == BETON_ON_ERROR_FAIL   ? SAMPLES - BATCH
				       : policy == BETON_ON_ERROR_SKIP ? SAMPLES - 1
								       : SAMPLES);
		fixture_close(&loader, &iterator);
	}
	fixture_remove(path);
}

static void what_needs_colours_is_refused(void **state)
{
	const char *path = *state;
	beton_loader_options options = grey_options();
	beton_operation operations[2] = {make(BETON_INVERT), make(BETON_HUE)};
	options.image.operations = operations;
	options.image.num_operations = 2;
	fixture_refuse(path, &options, "image.operations[1].kind is HUE, but image.color is GREY");
	operations[1] = make(BETON_SATURATION);
	fixture_refuse(path, &options, "image.operations[1].kind is SATURATION, but image.color is GREY");
	operations[1] = make(BETON_GRAYSCALE);
	fixture_refuse(path, &options, "image.operations[1].kind is GRAYSCALE, but image.color is GREY");
	operations[1] = make(BETON_COLOR_JITTER);
	operations[1].jitter[2] = 0.25;
	fixture_refuse(path, &options, "image.operations[1].jitter[2] (saturation) is 0.25, but image.color is GREY");
	operations[1] = make(BETON_COLOR_JITTER);
	operations[1].jitter[3] = 0.5;
	fixture_refuse(path, &options, "image.operations[1].jitter[3] (hue) is 0.5, but image.color is GREY");
	beton_image_options view = options.image;
	view.num_operations = 0;
	view.color = 2;
	options = grey_options();
	options.views = &view;
	options.num_views = 1;
	fixture_refuse(path, &options, "views[0].color is 2, not 0 to 1");
	options = grey_options();
	options.image.output = BETON_IMAGE_STORED;
	fixture_refuse(path, &options, "image.color is given, but image.output is BETON_IMAGE_STORED");
}

static int setup(void **state)
{
	*state = fixture_write(SAMPLES, -1);
	return 0;
}

static int teardown(void **state)
{
	fixture_remove(*state);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	pixels_path = argv[1];
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(jpegs_give_libjpeg_s_luma),
		cmocka_unit_test(cmyk_is_grey_by_way_of_rgb),
		cmocka_unit_test(damage_to_chroma_is_found),
		cmocka_unit_test(the_formulas_are_pillow_s_and_opencv_s),
		cmocka_unit_test(batches_are_pillow_s_and_opencv_s),
		cmocka_unit_test(shapes_have_one_channel),
		cmocka_unit_test(every_format_holds_the_same_pixels),
		cmocka_unit_test(views_may_be_grey),
		cmocka_unit_test(iterators_choose_sizes),
		cmocka_unit_test(padding_surrounds_one_channel),
		cmocka_unit_test(operations_do_what_they_do_to_rgb),
		cmocka_unit_test(contrast_is_about_the_mean),
		cmocka_unit_test(operations_run_in_batches),
		cmocka_unit_test(mixing_mixes_one_channel),
		cmocka_unit_test(policies_hold),
		cmocka_unit_test(what_needs_colours_is_refused),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
