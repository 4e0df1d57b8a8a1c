/* SPDX-License-Identifier: Apache-2.0
 *
 * Flips that alternate between epochs: which pictures are flipped, and that it depends on seed and sample alone. */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 400, EPOCHS = 4, IMAGE = 16 * 12 * 3 };

static char *file;

static int setup(void **state)
{
	(void)state;
	file = fixture_write(SAMPLES, -1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

static beton_loader_options alternating(void)
{
	beton_loader_options options = fixture_options(16, 2);
	options.order = BETON_ORDER_RANDOM;
	options.seed = 5;
	options.drawn = true;
	options.image.flip_mode = BETON_FLIP_ALTERNATE;
	options.image.flip_probability = 0.5;
	return options;
}

/* Notes which samples of the options' rank are flipped in an epoch, from a position on. */
static int note(const beton_loader_options *options, uint64_t epoch, uint64_t position, const char *output,
		double flipped[SAMPLES])
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	int seen = 0;
	assert_ok(beton_loader_open(&loader, file, options, err));
	fixture_start(&iterator, loader, epoch, position);
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		const beton_tensor *drawn = fixture_find(batch, output);
		for (uint32_t i = 0; i < batch->count; i++, seen++)
			flipped[batch->sample_ids[i]] = ((const double *)drawn->data)[i * drawn->shape[1] + 4];
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
	return seen;
}

static int sum(const double flipped[SAMPLES])
{
	double total = 0;
	for (int i = 0; i < SAMPLES; i++)
		total += flipped[i];
	return (int)total;
}

static int count_equal(const double a[SAMPLES], const double b[SAMPLES])
{
	int equal = 0;
	for (int i = 0; i < SAMPLES; i++)
		equal += a[i] == b[i];
	return equal;
}

static void every_other_epoch_shows_the_other_side(void **state)
{
	(void)state;
	static double flipped[EPOCHS][SAMPLES];
	beton_loader_options options = alternating();
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++)
		assert_int_equal(note(&options, epoch, 0, "image.drawn", flipped[epoch]), SAMPLES);
	assert_in_range(sum(flipped[0]), SAMPLES * 2 / 5, SAMPLES * 3 / 5);
	assert_int_equal(count_equal(flipped[0], flipped[2]), SAMPLES);
	assert_int_equal(count_equal(flipped[1], flipped[3]), SAMPLES);
	assert_int_equal(count_equal(flipped[0], flipped[1]), 0);

	options.image.flip_probability = 0.25;
	note(&options, 2, 0, "image.drawn", flipped[0]);
	assert_in_range(sum(flipped[0]), SAMPLES / 6, SAMPLES / 3);
	note(&options, 7, 0, "image.drawn", flipped[1]);
	assert_int_equal(count_equal(flipped[0], flipped[1]), 0);
}

static void random_flips_are_drawn_anew(void **state)
{
	(void)state;
	static double flipped[2][SAMPLES];
	beton_loader_options options = alternating();
	options.image.flip_mode = BETON_FLIP_RANDOM;
	for (uint64_t i = 0; i < 2; i++)
		note(&options, 2 * i, 0, "image.drawn", flipped[i]);
	assert_in_range(count_equal(flipped[0], flipped[1]), SAMPLES * 2 / 5, SAMPLES * 3 / 5);
}

static void seeds_and_views_have_draws_of_their_own(void **state)
{
	(void)state;
	static double flipped[3][SAMPLES];
	beton_loader_options options = alternating();
	const beton_image_options views[2] = {options.image, options.image};
	note(&options, 0, 0, "image.drawn", flipped[0]);
	options.views = views;
	options.num_views = 2;
	note(&options, 0, 0, "image.drawn", flipped[1]);
	assert_int_equal(count_equal(flipped[0], flipped[1]), SAMPLES);
	note(&options, 0, 0, "image.1.drawn", flipped[1]);
	assert_in_range(count_equal(flipped[0], flipped[1]), SAMPLES * 2 / 5, SAMPLES * 3 / 5);
	options.seed++;
	note(&options, 0, 0, "image.drawn", flipped[2]);
	assert_in_range(count_equal(flipped[0], flipped[2]), SAMPLES * 2 / 5, SAMPLES * 3 / 5);
}

static void nothing_but_seed_and_sample_matters(void **state)
{
	(void)state;
	static double expected[SAMPLES], flipped[SAMPLES];
	static const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_RANDOM, BETON_ORDER_QUASI_RANDOM};
	static const beton_engine engines[] = {BETON_ENGINE_MMAP, BETON_ENGINE_THREADS, BETON_ENGINE_URING};
	beton_loader_options options = alternating();
	note(&options, 1, 0, "image.drawn", expected);
	for (int i = 0; i < 9; i++) {
		options.order = orders[i % 3];
		options.engine = engines[i / 3];
		options.num_threads = 1 + (uint32_t)i % 4;
		options.batch_size = 7 + (uint32_t)i;
		memset(flipped, 0xff, sizeof(flipped));
		note(&options, 1, 0, "image.drawn", flipped);
		assert_int_equal(count_equal(expected, flipped), SAMPLES);
	}

	/* The rest of an epoch, on two ranks. */
	options = alternating();
	options.world_size = 2;
	memset(flipped, 0xff, sizeof(flipped));
	int seen = 0;
	for (options.rank = 0; options.rank < 2; options.rank++)
		seen += note(&options, 1, 192, "image.drawn", flipped);
	assert_int_equal(seen, SAMPLES - 192);
	for (int i = 0; i < SAMPLES; i++)
		if (flipped[i] == 0 || flipped[i] == 1) {
			assert_true(flipped[i] == expected[i]);
			seen--;
		}
	assert_int_equal(seen, 0);
}

static void load(const beton_loader_options *options, uint64_t epoch, uint8_t *pixels)
{
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, file, options, err));
	fixture_start(&iterator, loader, epoch, 0);
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		for (uint32_t i = 0; i < batch->count; i++)
			memcpy(pixels + batch->sample_ids[i] * IMAGE,
			       (const uint8_t *)fixture_find(batch, "image")->data + i * IMAGE, IMAGE);
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
}

/* Operations draw what they would without: the mode concerns the flip alone. */
static void pixels_are_those_of_the_mirror_image(void **state)
{
	(void)state;
	static uint8_t plain[SAMPLES * IMAGE], pixels[SAMPLES * IMAGE];
	static double flipped[SAMPLES];
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_TRANSLATE);
	operation.size = 3;
	beton_loader_options options = alternating();
	options.image.operations = &operation;
	options.image.num_operations = 1;
	note(&options, 3, 0, "image.drawn", flipped);
	load(&options, 3, pixels);
	options.image.flip_mode = BETON_FLIP_RANDOM;
	options.image.flip_probability = 0;
	load(&options, 3, plain);
	for (int i = 0; i < SAMPLES * IMAGE; i++) {
		int row = i / 48 * 48, x = i % 48 / 3, c = i % 3;
		int from = flipped[i / IMAGE] == 1 ? row + (15 - x) * 3 + c : i;
		assert_int_equal(pixels[i], plain[from]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_other_epoch_shows_the_other_side),
		cmocka_unit_test(random_flips_are_drawn_anew),
		cmocka_unit_test(seeds_and_views_have_draws_of_their_own),
		cmocka_unit_test(nothing_but_seed_and_sample_matters),
		cmocka_unit_test(pixels_are_those_of_the_mirror_image),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
