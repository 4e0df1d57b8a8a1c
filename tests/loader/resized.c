/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterators with pictures of other sizes than the loader's: their batches equal, byte for byte, the batches of a loader
 * of that size. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sized.h"

enum { N = 40, DAMAGED = 13, BATCH = 6, EPOCH = 3 };

static char *file;
static beton_operation operations[3];
static beton_batch_operation mixing[2];

static int set_up(void **state)
{
	(void)state;
	file = fixture_write(N, DAMAGED);
	const beton_operation_kind kinds[] = {BETON_TRANSLATE, BETON_BLUR, BETON_CUTOUT};
	for (int i = 0; i < 3; i++) {
		beton_loader_operation_init(&operations[i], kinds[i]);
		operations[i].size = 5;
	}
	operations[0].padding = BETON_PADDING_REFLECT;
	beton_loader_batch_operation_init(&mixing[0], BETON_BATCH_MIXUP);
	beton_loader_batch_operation_init(&mixing[1], BETON_BATCH_CUTMIX);
	mixing[0].per_sample = true;
	mixing[0].probability = mixing[1].probability = 0.4;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

/* ---- comparing ---- */

static beton_loader *open_loader(const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, file, options, err));
	return loader;
}

static beton_iterator *open_sized(beton_loader *loader, uint32_t height, uint32_t width)
{
	beton_iterator_options options;
	beton_iterator *iterator = NULL;
	beton_iterator_options_init(&options);
	options.epoch = EPOCH;
	options.height[0] = height;
	options.width[0] = width;
	assert_ok(beton_iterator_open_with(&iterator, loader, &options, err));
	return iterator;
}

static size_t tensor_bytes(const beton_tensor *tensor)
{
	static const size_t sizes[] = {
		[BETON_UINT8] = 1,   [BETON_FLOAT32] = 4,  [BETON_INT64] = 8, [BETON_FLOAT64] = 8,
		[BETON_FLOAT16] = 2, [BETON_BFLOAT16] = 2, [BETON_INT32] = 4};
	size_t bytes = sizes[tensor->dtype];
	for (uint32_t i = 0; i < tensor->ndim; i++)
		bytes *= (size_t)tensor->shape[i];
	return bytes;
}

static void check_same_batch(const beton_batch *a, const beton_batch *b)
{
	assert_int_equal(a->count, b->count);
	assert_int_equal(a->position, b->position);
	assert_int_equal(a->num_tensors, b->num_tensors);
	assert_memory_equal(a->sample_ids, b->sample_ids, a->count * sizeof(*a->sample_ids));
	for (uint32_t i = 0; i < a->num_tensors; i++) {
		const beton_tensor *x = &a->tensors[i], *y = &b->tensors[i];
		assert_string_equal(x->name, y->name);
		assert_int_equal(x->ndim, y->ndim);
		assert_memory_equal(x->shape, y->shape, sizeof(x->shape));
		if (memcmp(x->data, y->data, tensor_bytes(x)) != 0)
			fail_msg("position %llu: '%s' differs", (unsigned long long)a->position, x->name);
	}
}

/* Both iterators' next batches are the same; false at their end. */
static bool next_same(beton_iterator *a, beton_iterator *b)
{
	beton_batch *x, *y;
	beton_error fault;
	int result = beton_iterator_next(a, &x, -1, &fault);
	assert_int_equal(beton_iterator_next(b, &y, -1, NULL), result);
	if (result != BETON_OK) {
		if (result != BETON_END)
			fail_msg("%s", fault.message);
		return false;
	}
	check_same_batch(x, y);
	beton_batch_release(&x);
	beton_batch_release(&y);
	return true;
}

static beton_loader_options make_options(uint32_t height, uint32_t width)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = BETON_ORDER_RANDOM;
	options.on_error = BETON_ON_ERROR_SUBSTITUTE;
	options.image.height = height;
	options.image.width = width;
	options.image.crop = BETON_CROP_RANDOM;
	options.image.flip_probability = 0.5;
	options.drawn = true;
	return options;
}

/* An iterator of `large` with small pictures, and one of a loader of this size, while another one has the loader's. */
static void check_small(beton_loader_options options)
{
	beton_loader *large = open_loader(&options);
	options.image.height = 18;
	options.image.width = 21;
	beton_loader *small = open_loader(&options);
	beton_iterator *whole = open_sized(large, 0, 0), *sized = open_sized(large, 18, 21);
	beton_iterator *own = NULL;
	fixture_start(&own, small, EPOCH, 0);
	uint32_t batches = 0;
	while (next_same(sized, own)) {
		beton_batch *batch;
		assert_ok(beton_iterator_next(whole, &batch, -1, err));
		uint32_t image = 0;
		while (strcmp(batch->tensors[image].name, "image") != 0)
			image++;
		const int64_t *shape = batch->tensors[image].shape;
		bool planes = options.image.layout == BETON_NCHW;
		assert_int_equal(shape[planes ? 2 : 1], 33);
		assert_int_equal(shape[planes ? 3 : 2], 40);
		beton_batch_release(&batch);
		batches++;
	}
	assert_int_equal(batches, (N + BATCH - 1) / BATCH);
	beton_iterator_close(&whole);
	fixture_close(&large, &sized);
	fixture_close(&small, &own);
}

static void pictures_are_those_of_a_loader_of_that_size(void **state)
{
	(void)state;
	for (int pixels = BETON_PIXELS_FAST; pixels <= BETON_PIXELS_TORCHVISION; pixels++)
		for (int floats = 0; floats < 2; floats++)
			for (int crop = BETON_CROP_NONE; crop <= BETON_CROP_CENTER; crop++) {
				beton_loader_options options = make_options(33, 40);
				options.image.pixels = (beton_pixels)pixels;
				options.image.crop = (beton_crop)crop;
				options.image.dtype = floats ? BETON_FLOAT16 : BETON_UINT8;
				options.image.layout = floats ? BETON_NCHW : BETON_NHWC;
				options.image.normalize = floats;
				check_small(options);
			}
}

static void so_are_padded_ones(void **state)
{
	(void)state;
	for (uint16_t fit = BETON_FIT_PAD_CENTER; fit <= BETON_FIT_SHORTER_SIDE; fit++) {
		beton_loader_options options = make_options(33, 40);
		options.image.fit = fit;
		options.image.pad[0] = 114;
		options.image.keep_small = fit == BETON_FIT_PAD_CENTER;
		options.image.shorter_side = fit == BETON_FIT_SHORTER_SIDE ? 36 : 0;
		options.image.operations = operations;
		options.image.num_operations = fit == BETON_FIT_PAD_CORNER ? 0 : 3;
		check_small(options);
	}
}

static void so_are_operations_and_rows_that_move(void **state)
{
	(void)state;
	for (int mixes = 0; mixes < 2; mixes++)
		for (int policy = BETON_ON_ERROR_SKIP; policy <= BETON_ON_ERROR_SUBSTITUTE; policy++) {
			beton_loader_options options = make_options(33, 40);
			options.on_error = (beton_on_error)policy;
			options.image.operations = operations;
			options.image.num_operations = 3;
			options.batch_operations = mixing;
			options.num_batch_operations = mixes ? 2 : 0;
			options.image.layout = mixes ? BETON_NCHW : BETON_NHWC;
			check_small(options);
		}
}

/* The sizes of one loader's iterators change from epoch to epoch, and in the middle of one. */
static void sizes_follow_each_other(void **state)
{
	(void)state;
	const uint32_t sides[] = {32, 8, 24, 32, 1, 31};
	beton_loader_options options = make_options(32, 32);
	beton_loader *loader = open_loader(&options);
	for (int i = 0; i < 6; i++) {
		options.image.height = options.image.width = sides[i];
		beton_loader *alone = open_loader(&options);
		beton_iterator *sized = open_sized(loader, sides[i], sides[i]), *own = open_sized(alone, 0, 0);
		for (int k = 0; k < i % 3 || (i % 3 == 0 && k < 100); k++)
			if (!next_same(sized, own))
				break;
		beton_iterator_close(&sized);
		fixture_close(&alone, &own);
	}
	beton_loader_close(&loader);
}

static void views_have_sizes_of_their_own(void **state)
{
	(void)state;
	beton_loader_options options = make_options(32, 32);
	beton_image_options views[3] = {options.image, options.image, options.image};
	options.views = views;
	options.num_views = 3;
	views[1].height = views[1].width = 20;
	views[2].dtype = BETON_FLOAT32;
	beton_loader *loader = open_loader(&options);
	views[1].height = 10;
	views[2].height = views[2].width = 16;
	beton_loader *alone = open_loader(&options);
	beton_iterator_options sizes;
	beton_iterator_options_init(&sizes);
	sizes.epoch = EPOCH;
	sizes.height[1] = 10;
	sizes.height[2] = sizes.width[2] = 16;
	beton_iterator *sized = NULL, *own = open_sized(alone, 0, 0);
	assert_ok(beton_iterator_open_with(&sized, loader, &sizes, err));
	while (next_same(sized, own))
		;
	fixture_close(&loader, &sized);
	fixture_close(&alone, &own);
}

/* A batch is what it was after iterator and loader are gone. */
static void a_batch_keeps_its_size(void **state)
{
	(void)state;
	const beton_loader_options options = make_options(32, 32);
	beton_loader *loader = open_loader(&options), *other = open_loader(&options);
	beton_iterator *iterator = open_sized(loader, 16, 12), *own = open_sized(other, 16, 12);
	beton_batch *kept, *batch;
	assert_ok(beton_iterator_next(iterator, &kept, -1, err));
	fixture_close(&loader, &iterator);
	assert_ok(beton_iterator_next(own, &batch, -1, err));
	check_same_batch(kept, batch);
	assert_int_equal(kept->tensors[1].shape[2], 12);
	beton_batch_release(&batch);
	beton_batch_release(&kept);
	fixture_close(&other, &own);
}

static void a_state_is_continued_at_another_size(void **state)
{
	(void)state;
	const beton_loader_options options = make_options(32, 32);
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator = open_sized(loader, 16, 16), *whole = open_sized(loader, 0, 0);
	beton_batch *batch;
	for (int i = 0; i < 2; i++) {
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		beton_batch_release(&batch);
		assert_ok(beton_iterator_next(whole, &batch, -1, err));
		beton_batch_release(&batch);
	}
	beton_loader_state place;
	assert_ok(beton_iterator_get_state(iterator, &place, err));
	beton_iterator_close(&iterator);
	beton_iterator_options sizes;
	beton_iterator_options_init(&sizes);
	sizes.state = &place;
	assert_ok(beton_iterator_open_with(&iterator, loader, &sizes, err));
	while (next_same(iterator, whole))
		;
	beton_iterator_close(&whole);
	fixture_close(&loader, &iterator);
}

/* ---- what is refused ---- */

static void expect_refused(const beton_loader_options *options, const beton_iterator_options *sizes, const char *words)
{
	beton_loader *loader = open_loader(options);
	beton_iterator *iterator;
	beton_error fault = {0};
	assert_int_equal(beton_iterator_open_with(&iterator, loader, sizes, &fault), BETON_INVALID_ARGUMENT);
	assert_null(iterator);
	if (!strstr(fault.message, words))
		fail_msg("'%s' lacks '%s'", fault.message, words);
	beton_loader_close(&loader);
}

static beton_iterator_options sized(uint32_t view, uint32_t height, uint32_t width)
{
	beton_iterator_options options;
	beton_iterator_options_init(&options);
	options.height[view] = height;
	options.width[view] = width;
	return options;
}

static void sizes_that_cannot_be(void **state)
{
	(void)state;
	beton_loader_options options = make_options(32, 24);
	beton_iterator_options sizes = sized(0, 33, 24);
	expect_refused(&options, &sizes, "height[0] and width[0] are 33 x 24, more than the loader's 32 x 24");
	sizes = sized(0, 0, 25);
	expect_refused(&options, &sizes, "are 32 x 25, more than");
	sizes = sized(1, 16, 0);
	expect_refused(&options, &sizes, "height[1] and width[1] are 16 x 0, but the loader has no pictures");
	options.image.operations = operations;
	options.image.num_operations = 3;
	sizes = sized(0, 20, 5);
	expect_refused(&options, &sizes, "with the iterator's height and width: loader options: image.operations[0]");
	beton_image_options views[2] = {options.image, options.image};
	options.views = views;
	options.num_views = 2;
	options.batch_operations = mixing;
	options.num_batch_operations = 2;
	sizes = sized(1, 16, 24);
	expect_refused(&options, &sizes, "views[1] is of 24 x 16 pixels");
	const char *const label = "label";
	options = make_options(32, 24);
	options.fields = &label;
	options.num_fields = 1;
	sizes = sized(0, 16, 16);
	expect_refused(&options, &sizes, "has no pictures");
}

static void a_mask_has_one_size(void **state)
{
	(void)state;
	static const float mask[32 * 24 * 3], alpha[32 * 24];
	beton_operation poison;
	beton_loader_operation_init(&poison, BETON_POISON);
	poison.mask = mask;
	poison.alpha = alpha;
	beton_loader_options options = make_options(32, 24);
	options.image.operations = &poison;
	options.image.num_operations = 1;
	beton_iterator_options sizes = sized(0, 31, 24);
	expect_refused(&options, &sizes, "the mask of operation 0 (POISON) is of 32 x 24 pixels");
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator = open_sized(loader, 32, 24);
	fixture_close(&loader, &iterator);
}

static void places_that_cannot_be(void **state)
{
	(void)state;
	const beton_loader_options options = make_options(32, 24);
	beton_iterator_options place;
	beton_iterator_options_init(&place);
	place.position = N + 1;
	expect_refused(&options, &place, "position 41 is beyond the 40 of an epoch");
	const beton_loader_state none = {{0}};
	place.state = &none;
	expect_refused(&options, &place, "state is given, and so are epoch 0 and position 41");
	beton_loader *loader = open_loader(&options);
	beton_iterator *iterator;
	assert_int_equal(beton_iterator_open_state(&iterator, loader, NULL, NULL), BETON_INVALID_ARGUMENT);
	assert_ok(beton_iterator_open_with(&iterator, loader, NULL, err));
	assert_int_equal(beton_iterator_batches_left(iterator), (N + BATCH - 1) / BATCH);
	fixture_close(&loader, &iterator);
}

static beton_loader *opened;

static int open_with(const void *options, beton_error *err)
{
	beton_iterator *iterator;
	int result = beton_iterator_open_with(&iterator, opened, options, err);
	beton_iterator_close(&iterator);
	return result;
}

static void options_of_every_size(void **state)
{
	(void)state;
	const beton_loader_options options = make_options(32, 24);
	const beton_iterator_options good = sized(0, 16, 16);
	opened = open_loader(&options);
	sized_check(&(sized_options){"beton_iterator_open_with", &good, sizeof(good), open_with});
	beton_loader_close(&opened);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pictures_are_those_of_a_loader_of_that_size),
		cmocka_unit_test(so_are_padded_ones),
		cmocka_unit_test(so_are_operations_and_rows_that_move),
		cmocka_unit_test(sizes_follow_each_other),
		cmocka_unit_test(views_have_sizes_of_their_own),
		cmocka_unit_test(a_batch_keeps_its_size),
		cmocka_unit_test(a_state_is_continued_at_another_size),
		cmocka_unit_test(sizes_that_cannot_be),
		cmocka_unit_test(a_mask_has_one_size),
		cmocka_unit_test(places_that_cannot_be),
		cmocka_unit_test(options_of_every_size),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
