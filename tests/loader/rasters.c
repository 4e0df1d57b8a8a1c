/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of rasters: RGB rasters beside images of the same pixels, every type and layout, and every other option.
 */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/half.h"

enum { SAMPLES = 14, BATCH = 4, WIDTH = 16, HEIGHT = 12, PIXELS = WIDTH * HEIGHT, DEEP = 5 };

static char *file;

static uint16_t sample_of(uint32_t i)
{
	return (uint16_t)(i * 2654435761u >> 13);
}

/* ---- files ---- */

/* depth: 16 bits, one channel; deep: 16 bits, DEEP; image and rgb: the same pixels; packed: deep, compressed. */
enum { LABEL, IMAGE, RGB, DEPTH, DEEP_FIELD, PACKED, BOX, FIELDS };
static const beton_field fields[FIELDS] = {
	{.name = "label", .type = BETON_FIELD_INT},
	{.name = "image", .type = BETON_FIELD_IMAGE},
	{.name = "rgb", .type = BETON_FIELD_RASTER, .dtype = "|u1", .ndim = 1, .shape = {3}},
	{.name = "depth", .type = BETON_FIELD_RASTER, .dtype = "<u2", .ndim = 1, .shape = {1}},
	{.name = "deep", .type = BETON_FIELD_RASTER, .dtype = "<u2", .ndim = 1, .shape = {DEEP}},
	{.name = "packed",
	 .type = BETON_FIELD_RASTER,
	 .dtype = "<u2",
	 .ndim = 1,
	 .shape = {DEEP},
	 .compression = BETON_COMPRESSION_ZSTD},
	{.name = "box", .type = BETON_FIELD_NDARRAY, .dtype = "<f4", .ndim = 1, .shape = {4}}};

static uint16_t *make_samples(uint64_t sample, uint32_t width, uint32_t height, uint32_t channels)
{
	uint16_t *out = malloc((size_t)width * height * channels * sizeof(*out));
	assert_non_null(out);
	for (uint32_t i = 0; i < width * height * channels; i++)
		out[i] = sample_of(i + (uint32_t)sample * 1000);
	return out;
}

static char *write_file(void)
{
	char *path = fixture_write(1, -1);
	beton_writer *writer = NULL;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	assert_ok(beton_writer_open(&writer, path, fields, FIELDS, &options, err));
	for (uint64_t i = 0; i < SAMPLES; i++) {
		uint32_t width, height;
		fixture_size(i, &width, &height);
		uint64_t pixels = (uint64_t)width * height;
		uint8_t *rgb = fixture_pixels(i, width, height);
		uint16_t *depth = make_samples(i, width, height, 1), *deep = make_samples(i, width, height, DEEP);
		const float box[4] = {1, 2, (float)width / 2, (float)height / 2};
		const beton_input inputs[FIELDS] = {
			{.integer = (int64_t)i},
			{.data = rgb, .size = pixels * 3, .mode = BETON_IMAGE_RAW, .width = width, .height = height},
			{.data = rgb, .size = pixels * 3, .width = width, .height = height},
			{.data = depth, .size = pixels * 2, .width = width, .height = height},
			{.data = deep, .size = pixels * 2 * DEEP, .width = width, .height = height},
			{.data = deep, .size = pixels * 2 * DEEP, .width = width, .height = height},
			{.data = box, .size = sizeof(box)}};
		assert_ok(beton_writer_append(writer, inputs, err));
		free(rgb);
		free(depth);
		free(deep);
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return path;
}

static beton_loader_options raster_options(const char *field)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = BETON_ORDER_RANDOM;
	options.image.field = field;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.image.dtype = strcmp(field, "rgb") == 0 || strcmp(field, "image") == 0 ? BETON_UINT8 : BETON_UINT16;
	return options;
}

/* Whatever the options, what an image of the same pixels gives. */
static void rgb_rasters_are_like_images(void **state)
{
	(void)state;
	static const float statistics[6] = {100, 50, 90, 60, 110, 40.5f};
	static const beton_dtype dtypes[] = {BETON_UINT8, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	for (int i = 0; i < 48; i++) {
		beton_loader_options image = raster_options("image");
		image.image.dtype = dtypes[i % 4];
		image.image.layout = (beton_layout)(i / 4 % 2);
		image.image.filter = (beton_filter)(i / 8 % 4);
		image.image.crop = (beton_crop)(i % 3);
		image.image.fit = (uint16_t)(i / 5 % 4);
		image.image.shorter_side = image.image.fit == BETON_FIT_SHORTER_SIDE ? 8 + (uint32_t)i % 20 : 0;
		image.image.pad[0] = image.image.pad[1] = image.image.pad[2] = image.image.fit ? 77 : 0;
		image.image.normalize = image.image.dtype != BETON_UINT8 && i % 3;
		for (int c = 0; c < 3; c++) {
			image.image.mean[c] = statistics[2 * c];
			image.image.std[c] = statistics[2 * c + 1];
		}
		image.drawn = true;
		beton_loader_options raster = image;
		raster.image.field = "rgb";
		raster.image.pad[1] = raster.image.pad[2] = 0;
		raster.image.statistics = image.image.normalize ? statistics : NULL;
		raster.image.num_statistics = image.image.normalize ? 3 : 0;
		size_t bytes = 3 * PIXELS * fixture_element_bytes(image.image.dtype);
		uint8_t *expected = fixture_load(file, SAMPLES, &image, NULL, "image", bytes),
			*got = fixture_load(file, SAMPLES, &raster, NULL, "rgb", bytes);
		if (memcmp(got, expected, SAMPLES * bytes) != 0)
			fail_msg("options %d", i);
		free(expected);
		free(got);
		bytes = (image.image.fit ? 9 : 5) * sizeof(double);
		expected = fixture_load(file, SAMPLES, &image, NULL, "image.drawn", bytes);
		got = fixture_load(file, SAMPLES, &raster, NULL, "rgb.drawn", bytes);
		assert_memory_equal(got, expected, SAMPLES * bytes);
		free(expected);
		free(got);
	}
}

/* Floats are made of the samples, and planes have the elements of rows. */
static void every_format_holds_the_same_samples(void **state)
{
	(void)state;
	static const float statistics[2 * DEEP] = {100, 50, 90.5f, 60, 0, 1, 30000, 10000, 65535, 0.25f};
	static const beton_dtype dtypes[] = {BETON_UINT16, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	static const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_MMAP, BETON_ENGINE_URING};
	static const char *const names[] = {"depth", "deep", "packed"};
	for (int f = 0; f < 3; f++) {
		uint32_t channels = f == 0 ? 1 : DEEP;
		beton_loader_options options = raster_options(names[f]);
		uint16_t *samples =
			(uint16_t *)fixture_load(file, SAMPLES, &options, NULL, names[f], 2 * PIXELS * channels);
		for (int i = 0; i < 16; i++) {
			options.image.dtype = dtypes[i % 4];
			options.image.layout = (beton_layout)(i / 4 % 2);
			options.image.normalize = i >= 8 && options.image.dtype != BETON_UINT16;
			options.image.statistics = options.image.normalize ? statistics : NULL;
			options.image.num_statistics = options.image.normalize ? channels : 0;
			options.engine = engines[i % 3];
			options.num_threads = 1 + (uint32_t)i % 3;
			size_t size = fixture_element_bytes(options.image.dtype), row = PIXELS * (size_t)channels;
			uint8_t *got = fixture_load(file, SAMPLES, &options, NULL, names[f], row * size);
			for (size_t k = 0; k < SAMPLES * row; k++) {
				size_t in_row = k % row, pixel = in_row / channels, c = in_row % channels;
				size_t at = options.image.layout == BETON_NHWC ? in_row : c * PIXELS + pixel;
				const uint8_t *element = got + (k - in_row + at) * size;
				float value = samples[k], found;
				uint16_t half;
				if (options.image.normalize)
					value = (value - statistics[2 * c]) / statistics[2 * c + 1];
				memcpy(&half, element, 2);
				switch (options.image.dtype) {
				case BETON_UINT16:
					assert_int_equal(half, samples[k]);
					break;
				case BETON_FLOAT32:
					memcpy(&found, element, 4);
					assert_true(found == value);
					break;
				case BETON_FLOAT16:
					assert_int_equal(half, bt_float16(value));
					break;
				default:
					assert_int_equal(half, bt_bfloat16(value));
				}
			}
			free(got);
		}
		free(samples);
	}
}

static void compressed_rasters_are_the_same(void **state)
{
	(void)state;
	beton_loader_options plain = raster_options("deep"), packed = raster_options("packed");
	size_t bytes = 2 * PIXELS * DEEP;
	uint8_t *expected = fixture_load(file, SAMPLES, &plain, NULL, "deep", bytes),
		*got = fixture_load(file, SAMPLES, &packed, NULL, "packed", bytes);
	assert_memory_equal(got, expected, SAMPLES * bytes);
	free(got);
	/* Within a limit, too. */
	packed.memory_limit = 40 << 20;
	packed.num_threads = 1;
	got = fixture_load(file, SAMPLES, &packed, NULL, "packed", bytes);
	assert_memory_equal(got, expected, SAMPLES * bytes);
	free(expected);
	free(got);
}

/* A whole raster of its own size is the one in the file. */
static void whole_rasters_are_as_stored(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < SAMPLES; i++) {
		beton_loader_options options = raster_options("deep");
		options.order = BETON_ORDER_LIST;
		options.indices = &i;
		options.num_indices = 1;
		options.image.crop = BETON_CROP_NONE;
		options.image.flip_probability = 0;
		fixture_size(i, &options.image.width, &options.image.height);
		size_t bytes = 2 * (size_t)options.image.width * options.image.height * DEEP;
		uint8_t *got = fixture_load(file, SAMPLES, &options, NULL, "deep", bytes);
		uint16_t *expected = make_samples(i, options.image.width, options.image.height, DEEP);
		assert_memory_equal(got + i * bytes, expected, bytes);
		free(got);
		free(expected);
	}
}

/* ---- beside other options ---- */

static void iterators_and_views_work(void **state)
{
	(void)state;
	beton_loader_options options = raster_options("deep"), small = options;
	beton_iterator_options sizes;
	beton_iterator_options_init(&sizes);
	sizes.width[0] = small.image.width = 9;
	sizes.height[0] = small.image.height = 7;
	size_t bytes = 2 * 63 * DEEP;
	uint8_t *expected = fixture_load(file, SAMPLES, &small, NULL, "deep", bytes),
		*got = fixture_load(file, SAMPLES, &options, &sizes, "deep", bytes);
	assert_memory_equal(got, expected, SAMPLES * bytes);
	free(got);
	free(expected);
	/* Two of one field, one of another, and an image. */
	beton_image_options views[4] = {options.image, options.image, options.image, options.image};
	views[1].dtype = BETON_FLOAT32;
	views[1].layout = BETON_NCHW;
	views[2].field = "packed";
	views[3].field = "image";
	views[3].dtype = BETON_UINT8;
	beton_loader_options several = options;
	several.views = views;
	several.num_views = 4;
	bytes = 2 * PIXELS * DEEP;
	expected = fixture_load(file, SAMPLES, &options, NULL, "deep", bytes);
	got = fixture_load(file, SAMPLES, &several, NULL, "deep", bytes);
	assert_memory_equal(got, expected, SAMPLES * bytes);
	free(got);
	free(expected);
	free(fixture_load(file, SAMPLES, &several, NULL, "deep.1", 2 * bytes));
	free(fixture_load(file, SAMPLES, &several, NULL, "packed", bytes));
	free(fixture_load(file, SAMPLES, &several, NULL, "image", 3 * PIXELS));
}

static void boxes_move_along(void **state)
{
	(void)state;
	beton_loader_options image = raster_options("image"), raster = raster_options("deep");
	const beton_geometry geometry = {.field = "box", .kind = BETON_BOXES_XYXY};
	image.geometry = raster.geometry = &geometry;
	image.num_geometry = raster.num_geometry = 1;
	uint8_t *expected = fixture_load(file, SAMPLES, &image, NULL, "box", 4 * sizeof(float));
	uint8_t *got = fixture_load(file, SAMPLES, &raster, NULL, "box", 4 * sizeof(float));
	assert_memory_equal(got, expected, SAMPLES * 4 * sizeof(float));
	free(got);
	free(expected);
}

static void stored_bytes_are_the_samples(void **state)
{
	(void)state;
	beton_loader_options options = raster_options("depth");
	options.image.dtype = BETON_UINT8;
	options.image.output = BETON_IMAGE_STORED;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	const int64_t *offsets = fixture_find(batch, "depth.offsets")->data;
	const int32_t *shapes = fixture_find(batch, "depth.shape")->data;
	for (uint32_t i = 0; i < batch->count; i++) {
		uint32_t width, height;
		fixture_size(batch->sample_ids[i], &width, &height);
		uint16_t *expected = make_samples(batch->sample_ids[i], width, height, 1);
		assert_int_equal(shapes[3 * i], height);
		assert_int_equal(shapes[3 * i + 1], width);
		assert_int_equal(shapes[3 * i + 2], BETON_IMAGE_RAW);
		assert_int_equal(offsets[i + 1] - offsets[i], 2 * width * height);
		assert_memory_equal((const uint8_t *)fixture_find(batch, "depth")->data + offsets[i], expected,
				    2 * (size_t)width * height);
		free(expected);
	}
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
}

static void mixing_mixes_samples(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		beton_batch_operation operation;
		beton_loader_batch_operation_init(&operation, i % 2 ? BETON_BATCH_CUTMIX : BETON_BATCH_MIXUP);
		beton_loader_options options = raster_options("deep");
		options.batch_size = SAMPLES;
		options.image.layout = (beton_layout)(i / 2);
		size_t count = PIXELS * DEEP;
		uint16_t *plain = (uint16_t *)fixture_load(file, SAMPLES, &options, NULL, "deep", 2 * count);
		options.batch_operations = &operation;
		options.num_batch_operations = 1;
		beton_loader *loader;
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		assert_ok(beton_loader_open(&loader, file, &options, err));
		fixture_start(&iterator, loader, 2, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		const uint16_t *got = fixture_find(batch, "deep")->data;
		const int64_t *partner = fixture_find(batch, "deep.partner")->data;
		const float *lambda = fixture_find(batch, "deep.lambda")->data;
		const int32_t *box = i % 2 ? fixture_find(batch, "deep.box")->data : NULL;
		for (uint32_t row = 0; row < SAMPLES; row++)
			for (size_t k = 0; k < count; k++) {
				const uint16_t *own = plain + batch->sample_ids[row] * count;
				const uint16_t *other = plain + batch->sample_ids[partner[row]] * count;
				int pixel = (int)(i / 2 ? k % PIXELS : k / DEEP), x = pixel % WIDTH, y = pixel / WIDTH;
				const int32_t *b = box ? box + 4 * (size_t)row : NULL;
				bool in = b && x >= b[0] && x < b[0] + b[2] && y >= b[1] && y < b[1] + b[3];
				double l = (double)lambda[row];
				int expected = b ? (in ? other : own)[k] : (int)(own[k] * l + other[k] * (1 - l) + 0.5);
				assert_int_equal(got[row * count + k], expected);
			}
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
		free(plain);
	}
}

/* ---- operations ---- */

static int invert(const beton_operation_call *call)
{
	uint16_t *samples = (uint16_t *)(void *)call->pixels;
	if (call->channels != DEEP || call->item_bytes != 2 || call->width != WIDTH || call->height != HEIGHT)
		return 1;
	for (uint32_t i = 0; i < PIXELS * DEEP; i++)
		samples[i] = (uint16_t)(65535 - samples[i]);
	return 0;
}

static beton_operation make(beton_operation_kind kind)
{
	beton_operation operation;
	beton_loader_operation_init(&operation, kind);
	operation.probability = 1;
	operation.apply = invert;
	if (kind == BETON_TRANSLATE || kind == BETON_CUTOUT)
		operation.size = 5;
	if (kind == BETON_ROTATE)
		operation.range[0] = operation.range[1] = 30;
	if (kind == BETON_SHIFT)
		operation.range[0] = 3;
	return operation;
}

/* Channel 0 of deep moves as RGB's red does, which is the upper byte of the same numbers. */
static void pixels_move_as_those_of_images(void **state)
{
	(void)state;
	static const beton_operation_kind kinds[] = {BETON_FLIP_HORIZONTAL, BETON_FLIP_VERTICAL, BETON_TRANSLATE,
						     BETON_ROTATE,          BETON_CUTOUT,        BETON_ERASE,
						     BETON_SHIFT,           BETON_CUSTOM};
	beton_loader_options options = raster_options("deep");
	size_t count = PIXELS * DEEP;
	uint16_t *plain = (uint16_t *)fixture_load(file, SAMPLES, &options, NULL, "deep", 2 * count);
	options.image.flip_probability = 0;
	uint16_t *unflipped = (uint16_t *)fixture_load(file, SAMPLES, &options, NULL, "deep", 2 * count);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		beton_operation operation = make(kinds[i]);
		options.image.operations = &operation;
		options.image.num_operations = 1;
		uint16_t *got = (uint16_t *)fixture_load(file, SAMPLES, &options, NULL, "deep", 2 * count);
		assert_memory_not_equal(got, unflipped, SAMPLES * 2 * count);
		for (size_t k = 0; k < SAMPLES * count; k++) {
			uint32_t pixel = (uint32_t)(k % count / DEEP), x = pixel % WIDTH, y = pixel / WIDTH;
			size_t row = k - k % count, c = k % DEEP;
			uint32_t from = kinds[i] == BETON_FLIP_HORIZONTAL ? y * WIDTH + WIDTH - 1 - x
					: kinds[i] == BETON_FLIP_VERTICAL ? (HEIGHT - 1 - y) * WIDTH + x
					: x >= 3                          ? pixel - 3
									  : UINT32_MAX;
			if (kinds[i] == BETON_CUSTOM)
				assert_int_equal(got[k], 65535 - unflipped[k]);
			else if (kinds[i] == BETON_CUTOUT || kinds[i] == BETON_ERASE)
				assert_true(got[k] == unflipped[k] || got[k] == 0);
			else if (kinds[i] != BETON_TRANSLATE && kinds[i] != BETON_ROTATE)
				assert_int_equal(got[k], from == UINT32_MAX ? 0 : unflipped[row + from * DEEP + c]);
		}
		free(got);
	}
	free(plain);
	free(unflipped);
}

/* A rotation draws and moves as it does in a picture of one byte a pixel. */
static void rotations_are_those_of_images(void **state)
{
	(void)state;
	beton_operation operation = make(BETON_ROTATE);
	operation.range[0] = -90;
	beton_loader_options image = raster_options("image"), raster = raster_options("rgb");
	image.image.operations = raster.image.operations = &operation;
	image.image.num_operations = raster.image.num_operations = 1;
	uint8_t *expected = fixture_load(file, SAMPLES, &image, NULL, "image", 3 * PIXELS),
		*got = fixture_load(file, SAMPLES, &raster, NULL, "rgb", 3 * PIXELS);
	assert_memory_equal(got, expected, SAMPLES * 3 * PIXELS);
	free(expected);
	free(got);
}

/* ---- what is refused ---- */

static void wrong_types_are_refused(void **state)
{
	(void)state;
	beton_loader_options options = raster_options("depth");
	options.image.dtype = BETON_UINT8;
	fixture_refuse(file, &options,
		       "image.dtype is BETON_UINT8, not BETON_UINT16 or floats, but field 'depth' holds rasters of 1 "
		       "channels with 16 bits");
	options = raster_options("rgb");
	options.image.dtype = BETON_UINT16;
	fixture_refuse(file, &options, "image.dtype is BETON_UINT16, not BETON_UINT8 or floats, but field 'rgb'");
	options = raster_options("image");
	options.image.dtype = BETON_UINT16;
	fixture_refuse(file, &options, "image.dtype is BETON_UINT16, but field 'image' holds RGB images of 8 bits");
	options = raster_options("depth");
	options.image.color = BETON_COLOR_GREY;
	fixture_refuse(file, &options, "image.color is BETON_COLOR_GREY, but field 'depth'");
	options = raster_options("depth");
	options.image.pixels = BETON_PIXELS_TORCHVISION;
	fixture_refuse(file, &options, "image.pixels is not BETON_PIXELS_FAST, but field 'depth'");
	options = raster_options("depth");
	options.image.fit = BETON_FIT_PAD_CENTER;
	options.image.pad[1] = 3;
	fixture_refuse(file, &options, "image.pad[1] or pad[2] is given");
	options = raster_options("rgb");
	options.image.fit = BETON_FIT_PAD_CENTER;
	options.image.pad[0] = 256;
	fixture_refuse(file, &options, "image.pad[0] is above 255, but field 'rgb'");
	options = raster_options("image");
	options.image.fit = BETON_FIT_PAD_CENTER;
	options.image.pad[0] = 256;
	fixture_refuse(file, &options, "image.pad[0] is 256, not 0 to 255");
	options = raster_options("packed");
	options.image.dtype = BETON_UINT8;
	options.image.output = BETON_IMAGE_STORED;
	fixture_refuse(file, &options, "image.output is BETON_IMAGE_STORED, but field 'packed' is compressed");
}

static void wrong_statistics_are_refused(void **state)
{
	(void)state;
	const float bad[2 * DEEP] = {1, 2, NAN, 1, 1, 1, 1, 0};
	beton_loader_options options = raster_options("deep");
	options.image.normalize = true;
	fixture_refuse(file, &options, "image.normalize is true, but image.dtype is BETON_UINT16, not floats");
	options.image.dtype = BETON_FLOAT32;
	fixture_refuse(file, &options, "image.num_statistics is 0, but field 'deep' has 5 channels");
	options.image.num_statistics = DEEP;
	fixture_refuse(file, &options, "image.statistics is NULL, but image.num_statistics is 5");
	options.image.statistics = bad;
	fixture_refuse(file, &options, "image.statistics[2], the mean of channel 1, is nan, not finite");
	options.image.statistics = bad + 4;
	options.image.num_statistics = 1;
	options.image.field = "depth";
	beton_loader *loader;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	assert_null(beton_loader_get_options(loader)->image.statistics);
	beton_loader_close(&loader);
	options.image.statistics = bad + 6;
	fixture_refuse(file, &options, "image.statistics[1], the std of channel 0, is 0, not finite and above 0");
	options = raster_options("image");
	options.image.num_statistics = 1;
	options.image.statistics = bad;
	fixture_refuse(file, &options, "image.num_statistics is given, but field 'image' holds RGB images");
	options = raster_options("depth");
	options.image.dtype = BETON_UINT8;
	options.image.num_statistics = 1;
	options.image.statistics = bad;
	options.image.output = BETON_IMAGE_STORED;
	fixture_refuse(file, &options, "image.num_statistics is given, but image.output is BETON_IMAGE_STORED");
}

static void colouring_operations_are_refused(void **state)
{
	(void)state;
	static const struct {
		beton_operation_kind kind;
		const char *name;
	} kinds[] = {{BETON_BRIGHTNESS, "BRIGHTNESS"},
		     {BETON_CONTRAST, "CONTRAST"},
		     {BETON_SATURATION, "SATURATION"},
		     {BETON_HUE, "HUE"},
		     {BETON_COLOR_JITTER, "COLOR_JITTER"},
		     {BETON_GRAYSCALE, "GRAYSCALE"},
		     {BETON_SOLARIZE, "SOLARIZE"},
		     {BETON_POSTERIZE, "POSTERIZE"},
		     {BETON_INVERT, "INVERT"},
		     {BETON_EQUALIZE, "EQUALIZE"},
		     {BETON_AUTOCONTRAST, "AUTOCONTRAST"},
		     {BETON_SHARPNESS, "SHARPNESS"},
		     {BETON_BLUR, "BLUR"},
		     {BETON_RAND_AUGMENT, "RAND_AUGMENT"},
		     {BETON_TRIVIAL_AUGMENT, "TRIVIAL_AUGMENT"},
		     {BETON_POISON, "POISON"}};
	static const float mask[PIXELS * 3], alpha[PIXELS];
	beton_loader_options options = raster_options("deep");
	beton_operation operation;
	options.image.operations = &operation;
	options.image.num_operations = 1;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		char message[96];
		operation = make(kinds[i].kind);
		operation.mask = mask;
		operation.alpha = alpha;
		snprintf(message, sizeof(message), "image.operations[0].kind is %s, but field 'deep' holds rasters",
			 kinds[i].name);
		fixture_refuse(file, &options, message);
	}
	operation = make(BETON_ROTATE);
	operation.bilinear = true;
	fixture_refuse(file, &options,
		       "image.operations[0].kind is ROTATE with bilinear, but field 'deep' holds rasters");
	operation = make(BETON_ERASE);
	operation.noise = true;
	fixture_refuse(file, &options, "image.operations[0].kind is ERASE with noise, but field 'deep' holds rasters");
	operation = make(BETON_CUTOUT);
	operation.fill[1] = 1;
	fixture_refuse(file, &options, "image.operations[0].fill is not 0, but field 'deep' holds rasters");
}

/* Files of one data set have rasters of the same channels and bits. */
static void files_agree(void **state)
{
	(void)state;
	char *path = fixture_write(1, -1);
	beton_field other[FIELDS];
	memcpy(other, fields, sizeof(fields));
	other[DEPTH].shape[0] = 2;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, other, FIELDS, NULL, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	const beton_source sources[] = {{.path = file}, {.path = path}};
	beton_loader_options options = raster_options("depth");
	beton_loader *loader = NULL;
	beton_error err;
	assert_int_not_equal(beton_loader_open_many(&loader, sources, 2, &options, &err), BETON_OK);
	assert_non_null(strstr(err.message, "field 'depth' is not of the type or shape"));
	fixture_remove(path);
}

/* A file with one raster, compressed or not. */
static char *write_one(beton_compression compression)
{
	char *path = fixture_write(1, -1);
	beton_field field = fields[DEPTH];
	beton_writer *writer = NULL;
	uint16_t *samples = calloc(40 * 40, sizeof(*samples));
	assert_non_null(samples);
	field.compression = compression;
	assert_ok(beton_writer_open(&writer, path, &field, 1, NULL, err));
	assert_ok(beton_writer_append(writer, &(beton_input){.data = samples, .size = 3200, .width = 40, .height = 40},
				      err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	free(samples);
	return path;
}

/* One file's rasters may be compressed, and another's not; only then can what is stored not be handed out. */
static void files_differ_in_compression(void **state)
{
	(void)state;
	char *plain = write_one(BETON_COMPRESSION_NONE), *packed = write_one(BETON_COMPRESSION_ZSTD);
	const beton_source sources[] = {{.path = plain}, {.path = packed}};
	for (int stored = 0; stored < 2; stored++) {
		beton_loader_options options = fixture_options(1, 1);
		options.image.dtype = stored ? BETON_UINT8 : BETON_UINT16;
		options.image.output = stored ? BETON_IMAGE_STORED : BETON_IMAGE_DECODED;
		options.image.stored_bytes = stored ? 4096 : 0;
		beton_loader *loader;
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		beton_error fault;
		assert_ok(beton_loader_open_many(&loader, sources, 2, &options, err));
		fixture_start(&iterator, loader, 0, 0);
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		beton_batch_release(&batch);
		int result = beton_iterator_next(iterator, &batch, -1, &fault);
		assert_int_equal(result, stored ? BETON_INVALID_ARGUMENT : BETON_OK);
		if (stored) {
			assert_non_null(strstr(fault.message, packed));
			assert_non_null(strstr(fault.message, "field 'depth' is compressed"));
			assert_int_equal(fault.sample, 1);
		}
		beton_batch_release(&batch);
		fixture_close(&loader, &iterator);
	}
	fixture_remove(plain);
	fixture_remove(packed);
}

/* A byte of a sample's raster becomes another one, or, the second time, what it was. */
static void change_byte(uint64_t sample)
{
	beton_reader *reader;
	beton_value value;
	assert_ok(beton_reader_open(&reader, file, err));
	assert_ok(beton_reader_value(reader, sample, DEEP_FIELD, &value, err));
	beton_reader_close(&reader);
	FILE *stream = fopen(file, "r+b");
	assert_non_null(stream);
	fseek(stream, (long)value.blob.offset + 7, SEEK_SET);
	int byte = fgetc(stream);
	fseek(stream, (long)value.blob.offset + 7, SEEK_SET);
	fputc(byte ^ 1, stream);
	fclose(stream);
}

/* Loads an epoch. Returns how many samples came; *lost: how many batches did not. */
static uint32_t count_samples(const beton_loader_options *options, uint32_t *lost)
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	uint32_t seen = 0;
	*lost = 0;
	assert_ok(beton_loader_open(&loader, file, options, err));
	fixture_start(&iterator, loader, 0, 0);
	for (int result; (result = beton_iterator_next(iterator, &batch, -1, NULL)) != BETON_END;) {
		if (result != BETON_OK) {
			assert_int_equal(result, BETON_SAMPLE_CORRUPT);
			++*lost;
			continue;
		}
		seen += batch->count;
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
	return seen;
}

/* A sample whose bytes changed is treated by the policy, also the first one. */
static void damage_is_found(void **state)
{
	(void)state;
	for (uint64_t sample = 0; sample < 4; sample += 3) {
		uint32_t lost;
		beton_loader_options options = raster_options("deep");
		options.order = BETON_ORDER_SEQUENTIAL;
		change_byte(sample);
		options.on_error = BETON_ON_ERROR_SKIP;
		assert_int_equal(count_samples(&options, &lost), SAMPLES - 1);
		assert_int_equal(lost, 0);
		options.on_error = BETON_ON_ERROR_SUBSTITUTE;
		assert_int_equal(count_samples(&options, &lost), SAMPLES);
		assert_int_equal(lost, 0);
		options.on_error = BETON_ON_ERROR_FAIL;
		assert_int_equal(count_samples(&options, &lost), SAMPLES - BATCH);
		assert_int_equal(lost, 1);
		change_byte(sample);
		assert_int_equal(count_samples(&options, &lost), SAMPLES);
	}
}

/* A file without images has its first raster for one. */
static void rasters_alone_need_no_name(void **state)
{
	(void)state;
	char *path = fixture_write(1, -1), *kept = file;
	beton_writer *writer = NULL;
	uint16_t *depth = make_samples(0, 20, 20, 1);
	assert_ok(beton_writer_open(&writer, path, &fields[DEPTH], 1, NULL, err));
	for (int i = 0; i < SAMPLES; i++)
		assert_ok(beton_writer_append(
			writer, &(beton_input){.data = depth, .size = 800, .width = 20, .height = 20}, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	file = path;
	beton_loader_options options = raster_options("depth");
	options.image.field = NULL;
	free(fixture_load(file, SAMPLES, &options, NULL, "depth", 2 * PIXELS));
	file = kept;
	fixture_remove(path);
	free(depth);
	/* Its options do not matter where it is not an output. */
	static const char *const label[] = {"label"};
	options = fixture_options(BATCH, 1);
	options.fields = label;
	options.num_fields = 1;
	options.image.field = "depth";
	free(fixture_load(file, SAMPLES, &options, NULL, "label", 8));
}

static int setup(void **state)
{
	(void)state;
	file = write_file();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rgb_rasters_are_like_images),
		cmocka_unit_test(every_format_holds_the_same_samples),
		cmocka_unit_test(compressed_rasters_are_the_same),
		cmocka_unit_test(whole_rasters_are_as_stored),
		cmocka_unit_test(iterators_and_views_work),
		cmocka_unit_test(boxes_move_along),
		cmocka_unit_test(stored_bytes_are_the_samples),
		cmocka_unit_test(mixing_mixes_samples),
		cmocka_unit_test(pixels_move_as_those_of_images),
		cmocka_unit_test(rotations_are_those_of_images),
		cmocka_unit_test(wrong_types_are_refused),
		cmocka_unit_test(wrong_statistics_are_refused),
		cmocka_unit_test(colouring_operations_are_refused),
		cmocka_unit_test(files_agree),
		cmocka_unit_test(files_differ_in_compression),
		cmocka_unit_test(damage_is_found),
		cmocka_unit_test(rasters_alone_need_no_name),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
