/* SPDX-License-Identifier: Apache-2.0
 *
 * Loader, iterators, batches and exported tensors are closed in any order: destructors of other languages do. */
#include "fixture.h"

#include <dlpack/dlpack.h>
#include <pthread.h>
#include <string.h>

enum { N = 24, BATCH = 4, THINGS = 6 };

static char *file;

/* The things to close. */
typedef struct things {
	beton_loader *loader;
	beton_iterator *iterators[2];
	beton_batch *batch;      /* of the first iterator */
	beton_batch *retained;   /* the same once more */
	DLManagedTensor *tensor; /* of a batch of the second */
	uint64_t ids[BATCH];     /* of the batch */
} things;

static void open_things(things *all)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = BETON_ORDER_RANDOM;
	*all = (things){0};
	assert_ok(beton_loader_open(&all->loader, file, &options, err));
	beton_batch *exported;
	for (uint64_t i = 0; i < 2; i++)
		assert_ok(beton_iterator_open(&all->iterators[i], all->loader, i, 0, err));
	assert_ok(beton_iterator_next(all->iterators[0], &all->batch, -1, err));
	assert_ok(beton_iterator_next(all->iterators[1], &exported, -1, err));
	beton_batch_retain(all->batch);
	all->retained = all->batch;
	memcpy(all->ids, all->batch->sample_ids, sizeof(all->ids));
	assert_ok(beton_batch_dlpack(exported, 1, &all->tensor, err));
	beton_batch_release(&exported);
}

static void close_thing(things *all, int which)
{
	switch (which) {
	case 0:
		beton_loader_close(&all->loader);
		break;
	case 1:
	case 2:
		beton_iterator_close(&all->iterators[which - 1]);
		break;
	case 3:
		beton_batch_release(&all->batch);
		break;
	case 4:
		beton_batch_release(&all->retained);
		break;
	default:
		all->tensor->deleter(all->tensor);
		all->tensor = NULL;
	}
}

/* The remaining things work as far as they can. */
static void check_things(things *all)
{
	beton_loader_state state;
	beton_error fault;
	for (int i = 0; i < 2; i++)
		if (all->iterators[i])
			assert_int_equal(beton_iterator_get_state(all->iterators[i], &state, &fault),
					 all->loader ? BETON_OK : BETON_STATE);
	if (!all->loader && all->iterators[0]) {
		beton_batch *batch;
		assert_int_equal(beton_iterator_next(all->iterators[0], &batch, -1, &fault), BETON_STATE);
		assert_non_null(strstr(fault.message, "closed"));
		assert_null(batch);
	}
	const beton_batch *first = all->batch ? all->batch : all->retained;
	for (int i = 0; first && i < BATCH; i++) {
		assert_int_equal(first->sample_ids[i], all->ids[i]);
		assert_int_equal(((const int64_t *)first->tensors[0].data)[i], 3 * all->ids[i]);
	}
	if (all->tensor) {
		const DLTensor *tensor = &all->tensor->dl_tensor;
		uint8_t *pixels = tensor->data;
		pixels[0] ^= pixels[tensor->shape[0] * tensor->strides[0] - 1];
	}
}

/* The next permutation in lexical order; false after the last one. */
static bool permute(int order[THINGS])
{
	int i = THINGS - 1, k = THINGS - 1;
	while (i > 0 && order[i - 1] > order[i])
		i--;
	if (i == 0)
		return false;
	while (order[k] < order[i - 1])
		k--;
	int swapped = order[i - 1];
	order[i - 1] = order[k];
	order[k] = swapped;
	for (k = THINGS - 1; i < k; i++, k--) {
		swapped = order[i];
		order[i] = order[k];
		order[k] = swapped;
	}
	return true;
}

static void any_order_of_closing(void **state)
{
	(void)state;
	int order[THINGS] = {0, 1, 2, 3, 4, 5}, count = 0;
	do {
		things all;
		open_things(&all);
		for (int i = 0; i < THINGS; i++) {
			close_thing(&all, order[i]);
			check_things(&all);
		}
	} while (permute(order) && ++count);
	assert_int_equal(count + 1, 720);
}

typedef struct closer {
	things *all;
	int which;
	pthread_barrier_t *start;
} closer;

static void *close_one(void *argument)
{
	closer *self = argument;
	pthread_barrier_wait(self->start);
	close_thing(self->all, self->which);
	return NULL;
}

static void all_are_closed_at_once(void **state)
{
	(void)state;
	for (int round = 0; round < 50; round++) {
		things all;
		pthread_t threads[THINGS];
		closer closers[THINGS];
		pthread_barrier_t start;
		open_things(&all);
		assert_int_equal(pthread_barrier_init(&start, NULL, THINGS), 0);
		for (int i = 0; i < THINGS; i++) {
			closers[i] = (closer){&all, i, &start};
			assert_int_equal(pthread_create(&threads[i], NULL, close_one, &closers[i]), 0);
		}
		for (int i = 0; i < THINGS; i++)
			pthread_join(threads[i], NULL);
		pthread_barrier_destroy(&start);
	}
}

static int set_up(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(any_order_of_closing),
		cmocka_unit_test(all_are_closed_at_once),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
