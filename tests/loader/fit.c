/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures that keep their aspect, with padding or cut off: places and pixels of Pillow and torchvision
 * (tests/golden/fits.txt), and through the loader, whatever the mode, the same elements as of the whole resized
 * picture, with elements of the padding's colour around them. fit FITS: that file. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "loader/pixels/kernels.h"
#include "loader/pixels/transform.h"
#include "tests/support/numbers.h"

enum { PICTURES = 11, COLOUR = PICTURES - 1 }; /* COLOUR: a picture of the padding's colour alone */

typedef struct golden_picture {
	uint32_t size[2];
	uint32_t out[2];
	uint64_t digest[2]; /* PAD_CENTER, PAD_CORNER */
	uint32_t side;      /* of SHORTER_SIDE, and its digest, with black padding */
	uint64_t cut_digest;
} golden_picture;

static const char *fits_path;
static golden_picture golden_pictures[COLOUR];
static uint16_t golden_pad[3];

static char *file;
static beton_operation operations[2];
static beton_batch_operation mixing[2];

static void read_u32(numbers_table *table, uint32_t *to, int count)
{
	for (int i = 0; i < count; i++)
		to[i] = numbers_u32(table);
}

/* The padding's colour, and the pictures. */
static void read_pictures(void)
{
	int count = 0;
	numbers_table table = numbers_open(fits_path);
	numbers_next(&table, "pad");
	for (int c = 0; c < 3; c++)
		golden_pad[c] = (uint16_t)numbers_u32(&table);
	for (; numbers_next(&table, "picture"); count++) {
		assert_true(count < COLOUR);
		golden_picture *golden = &golden_pictures[count];
		read_u32(&table, golden->size, 2);
		read_u32(&table, golden->out, 2);
		golden->digest[0] = numbers_u64(&table);
		golden->digest[1] = numbers_u64(&table);
		golden->side = numbers_u32(&table);
		golden->cut_digest = numbers_u64(&table);
	}
	numbers_close(&table);
	assert_int_equal(count, COLOUR);
}

static void check_place(const beton_image_options *image, uint32_t width, uint32_t height, const int64_t expected[4])
{
	const bt_rect crop = {.x = 3, .y = 5, .width = width, .height = height};
	bt_placement place = bt_crop_fit(image, &crop);
	if (place.x != expected[0] || place.y != expected[1] || place.width != expected[2] ||
	    place.height != expected[3])
		fail_msg("%u x %u in %u x %u, fit %u: at %d %d, %u x %u", width, height, image->width, image->height,
			 image->fit, place.x, place.y, place.width, place.height);
}

/* The row's next four numbers: x, y, width, height. */
static void check_golden_place(numbers_table *table, const beton_image_options *image, const uint32_t crop[2])
{
	int64_t place[4];
	for (int i = 0; i < 4; i++)
		place[i] = (int64_t)numbers_double(table);
	check_place(image, crop[0], crop[1], place);
}

/* A row: the crop, the output, the place of PAD_CENTER and of PAD_CORNER. */
static void places_are_those_of_pillow(void **state)
{
	(void)state;
	uint32_t crop[2], out[2];
	numbers_table table = numbers_open(fits_path);
	while (numbers_next(&table, "place")) {
		read_u32(&table, crop, 2);
		read_u32(&table, out, 2);
		for (uint32_t k = 0; k < 2; k++) {
			const beton_image_options image = {
				.width = out[0], .height = out[1], .fit = BETON_FIT_PAD_CENTER + k};
			check_golden_place(&table, &image, crop);
		}
	}
	numbers_close(&table);
}

/* A row: the crop, the output, the shorter side, the place. */
static void places_are_those_of_torchvision(void **state)
{
	(void)state;
	uint32_t crop[2], out[2];
	numbers_table table = numbers_open(fits_path);
	while (numbers_next(&table, "cut")) {
		read_u32(&table, crop, 2);
		read_u32(&table, out, 2);
		const beton_image_options image = {.width = out[0],
						   .height = out[1],
						   .fit = BETON_FIT_SHORTER_SIDE,
						   .shorter_side = numbers_u32(&table)};
		check_golden_place(&table, &image, crop);
	}
	numbers_close(&table);
}

/* Crops that Pillow has no answer for. */
static void places_of_small_and_thin_crops(void **state)
{
	(void)state;
	beton_image_options image = {.width = 64, .height = 40, .fit = BETON_FIT_PAD_CENTER};
	check_place(&image, 60000, 1, (const int64_t[]){0, 20, 64, 1});
	check_place(&image, 1, 60000, (const int64_t[]){32, 0, 1, 40});
	check_place(&image, 32, 10, (const int64_t[]){0, 10, 64, 20});
	image.keep_small = 1;
	check_place(&image, 32, 10, (const int64_t[]){16, 15, 32, 10});
	check_place(&image, 64, 10, (const int64_t[]){0, 15, 64, 10});
	check_place(&image, 128, 20, (const int64_t[]){0, 15, 64, 10});
	image.fit = BETON_FIT_PAD_CORNER;
	check_place(&image, 3, 39, (const int64_t[]){0, 0, 3, 39});
	image.fit = BETON_FIT_SHORTER_SIDE;
	image.shorter_side = 65535;
	check_place(&image, 65535, 1, (const int64_t[]){-2147418080, -32748, 4294836225, 65535});
	image.fit = BETON_FIT_STRETCH;
	image.keep_small = 0;
	check_place(&image, 3, 39, (const int64_t[]){0, 0, 64, 40});
}

/* ---- files ---- */

static uint8_t *make_pixels(uint64_t picture, uint32_t *width, uint32_t *height)
{
	*width = picture == COLOUR ? 9 : golden_pictures[picture].size[0];
	*height = picture == COLOUR ? 7 : golden_pictures[picture].size[1];
	uint8_t *pixels = fixture_pixels(picture, *width, *height);
	for (uint32_t i = 0; picture == COLOUR && i < *width * *height * 3; i++)
		pixels[i] = (uint8_t)golden_pad[i % 3];
	return pixels;
}

static void append(beton_writer *writer, uint64_t picture, bool jpeg)
{
	beton_input inputs[2] = {{.integer = (int64_t)picture % 3}, {.mode = BETON_IMAGE_RAW}};
	uint8_t *pixels = make_pixels(picture, &inputs[1].width, &inputs[1].height), *bytes = NULL;
	inputs[1].data = pixels;
	inputs[1].size = (uint64_t)inputs[1].width * inputs[1].height * 3;
	if (jpeg) {
		unsigned long size;
		bytes = fixture_jpeg(pixels, inputs[1].width, inputs[1].height,
				     (fixture_jpeg_options){.grey = picture % 4 == 3}, &size);
		inputs[1].data = bytes;
		inputs[1].size = size;
		inputs[1].mode = BETON_IMAGE_JPEG;
	}
	assert_ok(beton_writer_append(writer, inputs, err));
	free(bytes);
	free(pixels);
}

/* {label, image}: the pictures as raw pixels; then all of them but COLOUR as JPEGs; the last one damaged. */
static int set_up(void **state)
{
	(void)state;
	read_pictures();
	file = fixture_write(1, -1);
	remove(file);
	const beton_field fields[2] = {{.name = "label", .type = BETON_FIELD_INT},
				       {.name = "image", .type = BETON_FIELD_IMAGE}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, file, fields, 2, &options, err));
	for (uint64_t i = 0; i < PICTURES; i++)
		append(writer, i, false);
	for (uint64_t i = 0; i < COLOUR; i++)
		append(writer, i, true);
	const beton_input damaged[2] = {{0}, {.data = "no JPEG", .size = 7, .width = 8, .height = 8}};
	assert_ok(beton_writer_append(writer, damaged, err));
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	beton_loader_operation_init(&operations[0], BETON_TRANSLATE);
	operations[0].size = 3;
	beton_loader_operation_init(&operations[1], BETON_SOLARIZE);
	operations[1].probability = 0.5;
	beton_loader_batch_operation_init(&mixing[0], BETON_BATCH_MIXUP);
	beton_loader_batch_operation_init(&mixing[1], BETON_BATCH_CUTMIX);
	mixing[0].probability = mixing[1].probability = 0.4;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

enum { GOOD = PICTURES + COLOUR, ALL };

static beton_loader_options make_options(uint32_t width, uint32_t height, beton_fit fit)
{
	beton_loader_options options = fixture_options(1, 1);
	options.drawn = true;
	options.image.width = width;
	options.image.height = height;
	options.image.fit = fit;
	options.image.shorter_side = fit == BETON_FIT_SHORTER_SIDE ? 29 : 0;
	for (int c = 0; c < 3 && fit != BETON_FIT_STRETCH; c++)
		options.image.pad[c] = golden_pad[c];
	return options;
}

/* One sample, with the draws that it has in any order. */
typedef struct loaded {
	beton_loader *loader;
	beton_iterator *iterator;
	beton_batch *batch;
	const uint8_t *pixels;
	const double *drawn;
	uint32_t numbers; /* in drawn */
} loaded;

static loaded load(beton_loader_options options, uint64_t sample)
{
	loaded out = {0};
	options.order = BETON_ORDER_LIST;
	options.indices = &sample;
	options.num_indices = 1;
	assert_ok(beton_loader_open(&out.loader, file, &options, err));
	fixture_start(&out.iterator, out.loader, 2, 0);
	assert_ok(beton_iterator_next(out.iterator, &out.batch, -1, err));
	const beton_tensor *drawn = fixture_find(out.batch, "image.drawn");
	out.pixels = fixture_find(out.batch, "image")->data;
	out.drawn = drawn->data;
	out.numbers = (uint32_t)drawn->shape[1];
	return out;
}

static void unload(loaded *in)
{
	beton_batch_release(&in->batch);
	fixture_close(&in->loader, &in->iterator);
}

static void pixels_are_those_of_torchvision(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < COLOUR; i++) {
		const golden_picture *golden = &golden_pictures[i];
		beton_loader_options options = make_options(golden->out[0], golden->out[1], BETON_FIT_SHORTER_SIDE);
		options.image.shorter_side = golden->side;
		options.image.pixels = BETON_PIXELS_TORCHVISION;
		memset(options.image.pad, 0, sizeof(options.image.pad));
		loaded found = load(options, i);
		if (XXH3_64bits(found.pixels, (size_t)golden->out[0] * golden->out[1] * 3) != golden->cut_digest)
			fail_msg("picture %d", (int)i);
		unload(&found);
	}
}

static void pixels_are_those_of_pillow(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < COLOUR; i++)
		for (int k = 0; k < 2; k++) {
			const golden_picture *golden = &golden_pictures[i];
			beton_loader_options options =
				make_options(golden->out[0], golden->out[1], BETON_FIT_PAD_CENTER + k);
			options.image.pixels = BETON_PIXELS_TORCHVISION;
			loaded found = load(options, i);
			size_t bytes = (size_t)golden->out[0] * golden->out[1] * 3;
			if (XXH3_64bits(found.pixels, bytes) != golden->digest[k])
				fail_msg("picture %d, fit %d", (int)i, BETON_FIT_PAD_CENTER + k);
			unload(&found);
		}
}

/* ---- the same elements as without padding ---- */

static uint32_t channels_of(const beton_image_options *image)
{
	return image->color == BETON_COLOR_GREY ? 1 : 3;
}

static const uint8_t *element(const beton_image_options *image, const uint8_t *pixels, uint32_t x, uint32_t y,
			      uint32_t c)
{
	size_t at = image->layout == BETON_NHWC ? ((size_t)y * image->width + x) * channels_of(image) + c
						: ((size_t)c * image->height + y) * image->width + x;
	return pixels + at * fixture_element_bytes(image->dtype);
}

/* A sample beside one of the size of its place, and one of the padding's colour. */
static void check_elements(const beton_loader_options *options, uint64_t sample)
{
	const beton_image_options *image = &options->image;
	loaded padded = load(*options, sample);
	const double *place = padded.drawn + padded.numbers - 4;
	beton_loader_options plain = *options;
	plain.image.fit = BETON_FIT_STRETCH;
	plain.image.keep_small = plain.image.shorter_side = 0;
	memset(plain.image.pad, 0, sizeof(plain.image.pad));
	plain.image.width = (uint32_t)place[2];
	plain.image.height = (uint32_t)place[3];
	loaded picture = load(plain, sample), colour = load(plain, COLOUR);
	assert_int_equal(padded.numbers, picture.numbers + 4);
	assert_memory_equal(padded.drawn, picture.drawn, picture.numbers * sizeof(double));
	size_t bytes = fixture_element_bytes(image->dtype);
	for (uint32_t y = 0; y < image->height; y++)
		for (uint32_t x = 0; x < image->width; x++)
			for (uint32_t c = 0; c < channels_of(image); c++) {
				bool inside = x >= place[0] && x < place[0] + place[2] && y >= place[1] &&
					      y < place[1] + place[3];
				const uint8_t *expected =
					inside ? element(&plain.image, picture.pixels, x - (uint32_t)(int32_t)place[0],
							 y - (uint32_t)(int32_t)place[1], c)
					       : element(&plain.image, colour.pixels, 0, 0, c);
				if (memcmp(element(image, padded.pixels, x, y, c), expected, bytes) != 0)
					fail_msg("sample %d, fit %u, at %u %u %u, place %g %g %g %g", (int)sample,
						 image->fit, x, y, c, place[0], place[1], place[2], place[3]);
			}
	unload(&padded);
	unload(&picture);
	unload(&colour);
}

static void elements_are_the_same_in_every_mode(void **state)
{
	(void)state;
	static const beton_dtype dtypes[] = {BETON_UINT8, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	for (uint32_t i = 0; i < 288; i++) {
		beton_loader_options options = make_options(33, i % 5 ? 41 : 18, BETON_FIT_PAD_CENTER + i / 7 % 3);
		options.image.dtype = dtypes[i % 4];
		options.image.normalize = i % 4 > 0 && i % 3 > 0;
		options.image.layout = i / 2 % 2 ? BETON_NCHW : BETON_NHWC;
		options.image.crop = (beton_crop)(i / 4 % 3);
		options.image.flip_probability = 0.5;
		options.image.keep_small = options.image.fit != BETON_FIT_SHORTER_SIDE && i % 7 > 3;
		if (options.image.shorter_side)
			options.image.shorter_side = 20 + i % 25;
		options.image.pixels = (beton_pixels)(i / 12 % 3);
		if (i % 5 == 3) { /* the grey picture of the padding's colour, by Pillow's and OpenCV's formula */
			options.image.color = BETON_COLOR_GREY;
			options.image.pad[0] = 98;
			options.image.pad[1] = options.image.pad[2] = 0;
		}
		if (i >= 144)
			options.image.filter = (beton_filter)(i / 12 % 4);
		check_elements(&options, i % GOOD);
	}
}

/* Streaming stores need batches that leave the caches. */
static void so_they_are_past_the_caches(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		beton_loader_options options = make_options(225, 230, BETON_FIT_PAD_CENTER);
		options.batch_size = 100;
		options.image.dtype = i < 2 ? BETON_UINT8 : BETON_FLOAT32;
		options.image.layout = i % 2 ? BETON_NCHW : BETON_NHWC;
		check_elements(&options, (uint64_t)i);
	}
}

/* A picture of planes or of RGB, whose places have no alignment. */
static void *transformed(const bt_kernels *kernels, const bt_image_format *format, const uint8_t *pixels, bool rgb,
			 bool cut)
{
	const bt_placement place = cut ? (bt_placement){.x = -35, .y = 3, .width = 130, .height = 77}
				       : (bt_placement){.x = 5, .y = 3, .width = 37, .height = 21};
	const bt_plane plane = {pixels, rgb ? 240 : 80, 80, 20, rgb ? 3 : 1, 1.5, 2, 61, 17};
	const bt_picture picture = {rgb ? BT_RGB : BT_YCC, {plane, plane, plane}};
	bt_transformer transformer = {0};
	for (int i = 0; i < 3; i++)
		transformer.planes[i].kernels = kernels;
	void *out = malloc(bt_image_format_bytes(format));
	assert_non_null(out);
	assert_ok(bt_transform(&transformer, &picture, true, &place, format, out, err));
	bt_transformer_free(&transformer);
	return out;
}

static void instruction_sets_give_the_same_bytes(void **state)
{
	(void)state;
	uint8_t *pixels = fixture_pixels(5, 80, 20);
	for (int i = 0; i < 32; i++) {
		beton_loader_options options = make_options(53, 31, BETON_FIT_PAD_CENTER);
		options.image.layout = i & 1 ? BETON_NCHW : BETON_NHWC;
		options.image.dtype = i & 2 ? BETON_FLOAT32 : i & 4 ? BETON_BFLOAT16 : BETON_UINT8;
		options.image.normalize = i & 2;
		bt_image_format format;
		bt_image_format_init(&format, &options);
		void *plain = transformed(&bt_kernels_c, &format, pixels, i & 8, i & 16);
		for (unsigned k = 0; bt_kernels_get(k); k++) {
			void *fast = transformed(bt_kernels_get(k), &format, pixels, i & 8, i & 16);
			assert_memory_equal(fast, plain, bt_image_format_bytes(&format));
			free(fast);
		}
		free(plain);
	}
	free(pixels);
}

/* Views draw each for itself; these draw nothing. */
static void views_have_fits_of_their_own(void **state)
{
	(void)state;
	beton_image_options views[3];
	for (uint32_t i = 0; i < 3; i++)
		views[i] = make_options(40 + i, 31, BETON_FIT_PAD_CENTER + i).image;
	beton_loader_options options = make_options(1, 1, BETON_FIT_STRETCH);
	options.views = views;
	options.num_views = 3;
	for (uint64_t sample = 0; sample < GOOD; sample++) {
		loaded all = load(options, sample);
		for (int i = 0; i < 3; i++) {
			beton_loader_options alone = make_options(1, 1, BETON_FIT_STRETCH);
			alone.image = views[i];
			loaded one = load(alone, sample);
			char name[32];
			snprintf(name, sizeof(name), i ? "image.%d" : "image", i);
			const beton_tensor *image = fixture_find(all.batch, name);
			assert_memory_equal(image->data, one.pixels, (size_t)views[i].width * views[i].height * 3);
			snprintf(name, sizeof(name), i ? "image.%d.drawn" : "image.drawn", i);
			assert_memory_equal(fixture_find(all.batch, name)->data, one.drawn, 9 * sizeof(double));
			unload(&one);
		}
		unload(&all);
	}
}

/* ---- batches ---- */

/* Digests of each output's rows of two epochs. */
static XXH64_hash_t digest(const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	XXH3_state_t *hash = XXH3_createState();
	XXH3_64bits_reset(hash);
	assert_ok(beton_loader_open(&loader, file, options, err));
	for (uint64_t epoch = 0; epoch < 2; epoch++) {
		fixture_start(&iterator, loader, epoch, 0);
		for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;
		     beton_batch_release(&batch)) {
			const beton_tensor *image = fixture_find(batch, "image"),
					   *drawn = fixture_find(batch, "image.drawn");
			size_t bytes = fixture_element_bytes(image->dtype) * 3 * (size_t)options->image.width *
				       options->image.height;
			XXH3_64bits_update(hash, image->data, batch->count * bytes);
			XXH3_64bits_update(hash, drawn->data, batch->count * (size_t)drawn->shape[1] * sizeof(double));
		}
	}
	fixture_close(&loader, &iterator);
	XXH64_hash_t out = XXH3_64bits_digest(hash);
	XXH3_freeState(hash);
	return out;
}

/* Slots are used again and again, by pictures of other places; each epoch's bytes are as in new memory. */
static void batches_do_not_depend_on_threads_engines_and_slots(void **state)
{
	(void)state;
	static const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_URING, BETON_ENGINE_MMAP};
	for (int i = 0; i < 12; i++) {
		beton_loader_options options = make_options(30, 27, BETON_FIT_PAD_CENTER + i % 3);
		options.batch_size = 4;
		options.order = BETON_ORDER_RANDOM;
		options.on_error = i & 4 ? BETON_ON_ERROR_SKIP : BETON_ON_ERROR_SUBSTITUTE;
		options.image.crop = BETON_CROP_RANDOM;
		options.image.flip_probability = 0.5;
		options.image.layout = i & 2 ? BETON_NCHW : BETON_NHWC;
		options.image.dtype = i & 1 ? BETON_FLOAT16 : BETON_UINT8;
		options.image.operations = operations;
		options.image.num_operations = i & 4 ? 2 : 0;
		options.batch_operations = mixing;
		options.num_batch_operations = i & 2 ? 2 : 0;
		XXH64_hash_t one = digest(&options);
		for (uint32_t threads = 1; threads <= 5; threads += 2) {
			options.num_threads = threads;
			options.engine = engines[threads / 2];
			options.batches_ahead = 1 + threads / 3;
			options.batches_leased = 1;
			assert_true(digest(&options) == one);
		}
	}
}

static void operations_see_the_padding(void **state)
{
	(void)state;
	beton_operation invert;
	beton_loader_operation_init(&invert, BETON_INVERT);
	beton_loader_options options = make_options(64, 64, BETON_FIT_PAD_CORNER);
	options.image.flip_probability = 1;
	options.image.operations = &invert;
	options.image.num_operations = 1;
	loaded found = load(options, 2); /* 31 x 90 becomes 22 x 64 */
	assert_true(found.numbers == 13 && found.drawn[5] == 1 && found.drawn[9] == 0 && found.drawn[11] == 22);
	for (uint32_t x = 22; x < 64; x++)
		for (uint32_t c = 0; c < 3; c++)
			assert_int_equal(*element(&options.image, found.pixels, x, x, c), 255 - golden_pad[c]);
	loaded plain = load(make_options(22, 64, BETON_FIT_STRETCH), 2);
	const beton_image_options narrow = {.width = 22, .height = 64};
	for (uint32_t x = 0; x < 22; x++)
		assert_int_equal(*element(&options.image, found.pixels, x, 9, 1),
				 255 - *element(&narrow, plain.pixels, 21 - x, 9, 1));
	unload(&found);
	unload(&plain);
}

/* The part that is cut out is that of the whole resized picture, also where that is decoded at a smaller scale which
 * the part alone would not have. */
static void a_part_has_the_scale_of_the_whole(void **state)
{
	(void)state;
	enum { SIDE = 70, CUT = 3, PIXEL = 3 };
	static const uint32_t sizes[] = {141, 281, 282, 561, 564};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		char *kept = file;
		uint32_t size = sizes[i];
		uint8_t *pixels = fixture_pixels(1, size, size);
		unsigned long bytes;
		uint8_t *jpeg = fixture_jpeg(pixels, size, size, (fixture_jpeg_options){0}, &bytes);
		file = fixture_write_picture(&(beton_input){
			.data = jpeg, .size = bytes, .mode = BETON_IMAGE_JPEG, .width = size, .height = size});
		beton_loader_options options = make_options(SIDE, SIDE, BETON_FIT_SHORTER_SIDE);
		options.image.shorter_side = SIDE;
		loaded whole = load(options, 0);
		options.image.width = options.image.height = CUT;
		loaded part = load(options, 0);
		size_t first = (SIDE - CUT + 1) / 2;
		for (size_t y = 0; y < CUT; y++)
			assert_memory_equal(part.pixels + y * CUT * PIXEL,
					    whole.pixels + ((first + y) * SIDE + first) * PIXEL, CUT * PIXEL);
		unload(&whole);
		unload(&part);
		fixture_remove(file);
		file = kept;
		free(jpeg);
		free(pixels);
	}
}

/* ---- what is refused ---- */

static void what_cannot_be_is_refused(void **state)
{
	(void)state;
	beton_loader_options options = make_options(16, 16, BETON_FIT_STRETCH);
	options.image.fit = BETON_FIT_SHORTER_SIDE + 1;
	fixture_refuse(file, &options, "image.fit is 4, not 0 to 3");
	options.image.fit = BETON_FIT_STRETCH;
	options.image.keep_small = 1;
	fixture_refuse(file, &options, "image.keep_small is 1, but image.fit is 0, not one of PAD");
	options.image.keep_small = 0;
	options.image.pad[1] = 9;
	fixture_refuse(file, &options, "image.pad[1] is 9, but image.fit is BETON_FIT_STRETCH");
	options.image.fit = BETON_FIT_PAD_CENTER;
	options.image.pad[2] = 256;
	fixture_refuse(file, &options, "image.pad[2] is 256, not 0 to 255");
	options.image.pad[2] = 0;
	options.image.pad[3] = 1;
	fixture_refuse(file, &options, "image.pad[3] is 1, not 0 to 0");
	options.image.pad[3] = 0;
	options.image.keep_small = 2;
	fixture_refuse(file, &options, "image.keep_small is 2, not 0 to 1");
	options.image.keep_small = 0;
	options.image.shorter_side = 3;
	fixture_refuse(file, &options, "image.shorter_side is 3, not 0 to 0");
	options.image.fit = BETON_FIT_SHORTER_SIDE;
	options.image.shorter_side = 0;
	fixture_refuse(file, &options, "image.shorter_side is 0, not 1 to 65535");
	options.image.shorter_side = 65536;
	fixture_refuse(file, &options, "image.shorter_side is 65536, not 1 to 65535");
	options.image.shorter_side = 20;
	options.image.keep_small = 1;
	fixture_refuse(file, &options, "image.keep_small is 1, but image.fit is 3, not one of PAD");
	options.image.keep_small = 0;
	options.image.output = BETON_IMAGE_STORED;
	fixture_refuse(file, &options, "image.fit is given, but image.output is BETON_IMAGE_STORED");
	beton_image_options views[2] = {options.image, options.image};
	views[0].output = views[1].output = BETON_IMAGE_DECODED;
	views[1].fit = 7;
	options = make_options(16, 16, BETON_FIT_STRETCH);
	options.views = views;
	options.num_views = 2;
	fixture_refuse(file, &options, "views[1].fit is 7, not 0 to 3");
}

int main(int argc, char **argv)
{
	fits_path = argc > 1 ? argv[1] : NULL;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(places_are_those_of_pillow),
		cmocka_unit_test(places_are_those_of_torchvision),
		cmocka_unit_test(places_of_small_and_thin_crops),
		cmocka_unit_test(pixels_are_those_of_pillow),
		cmocka_unit_test(pixels_are_those_of_torchvision),
		cmocka_unit_test(elements_are_the_same_in_every_mode),
		cmocka_unit_test(so_they_are_past_the_caches),
		cmocka_unit_test(instruction_sets_give_the_same_bytes),
		cmocka_unit_test(views_have_fits_of_their_own),
		cmocka_unit_test(batches_do_not_depend_on_threads_engines_and_slots),
		cmocka_unit_test(operations_see_the_padding),
		cmocka_unit_test(a_part_has_the_scale_of_the_whole),
		cmocka_unit_test(what_cannot_be_is_refused),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
