/* SPDX-License-Identifier: Apache-2.0
 *
 * Many threads, early stops and restarts, releases from another thread, two loaders at once: for the thread sanitizer.
 */
#include "fixture.h"

#include <pthread.h>
#include <stdlib.h>

enum { N = 60, EPOCHS = 60 };

static char *file;

static int write_file(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	return 0;
}

static int remove_file(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

static beton_loader *open_loader(uint32_t threads, beton_engine engine)
{
	beton_loader_options options = fixture_options(4, threads);
	options.order = BETON_ORDER_RANDOM;
	options.engine = engine;
	options.image.crop = BETON_CROP_RANDOM;
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	return loader;
}

static void check(const beton_loader *loader, const beton_batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		assert_int_equal(batch->sample_ids[i],
				 beton_loader_sample_at(loader, batch->epoch, batch->position + i));
		assert_int_equal(((int64_t *)batch->tensors[0].data)[i], batch->sample_ids[i] * 3);
	}
}

static void *release(void *batch)
{
	beton_batch_release((beton_batch **)&batch);
	return NULL;
}

/* Leaves each epoch after another number of batches; every third is released by a thread of its own. */
static void restarts(beton_loader *loader)
{
	beton_iterator *iterator = NULL;
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
		fixture_start(&iterator, loader, epoch, epoch % 3 * 4);
		for (uint64_t i = 0; i < epoch % 17; i++) {
			beton_batch *batch = NULL;
			if (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_END)
				break;
			assert_non_null(batch);
			assert_int_equal(batch->epoch, epoch);
			check(loader, batch);
			pthread_t thread;
			if (i % 3 == 0 && pthread_create(&thread, NULL, release, batch) == 0)
				pthread_join(thread, NULL);
			else
				beton_batch_release(&batch);
		}
	}
	beton_iterator_close(&iterator);
}

static void epochs_may_be_left_early(void **state)
{
	(void)state;
	beton_loader *loader = open_loader(8, BETON_ENGINE_THREADS);
	restarts(loader);
	beton_loader_close(&loader);
}

static void loaders_may_be_closed_at_any_time(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 40; i++) {
		beton_loader *loader = open_loader(1 + (uint32_t)i % 4, BETON_ENGINE_MMAP);
		beton_iterator *iterator = NULL;
		if (i % 4)
			fixture_start(&iterator, loader, i, 0);
		beton_batch *batch = NULL;
		if (i % 4 > 1)
			assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		fixture_close(&loader, &iterator);
		beton_batch_release(&batch);
	}
}

static void *restart_thread(void *loader)
{
	restarts(loader);
	return NULL;
}

static void two_loaders_do_not_meet(void **state)
{
	(void)state;
	beton_loader *one = open_loader(3, BETON_ENGINE_THREADS);
	beton_loader *two = open_loader(3, BETON_ENGINE_MMAP);
	beton_iterator *two_iterator = NULL;
	pthread_t thread;
	assert_int_equal(pthread_create(&thread, NULL, restart_thread, one), 0);
	beton_loader_stats stats = {.struct_size = sizeof(stats)};
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
		fixture_start(&two_iterator, two, epoch, 0);
		beton_batch *batch = NULL;
		assert_ok(beton_iterator_next(two_iterator, &batch, -1, err));
		beton_batch_release(&batch);
		beton_loader_get_stats(two, &stats);
		assert_int_equal(stats.batches, epoch + 1);
	}
	pthread_join(thread, NULL);
	beton_loader_close(&one);
	fixture_close(&two, &two_iterator);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(epochs_may_be_left_early),
		cmocka_unit_test(loaders_may_be_closed_at_any_time),
		cmocka_unit_test(two_loaders_do_not_meet),
	};
	return cmocka_run_group_tests(tests, write_file, remove_file);
}
