/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterators that are cancelled: while they wait for a file system that hangs, at any other time, and while they and
 * their loader are closed by other threads. */
#include "faults.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "loader/state.h"

enum { N = 24, BATCH = 4, ROUNDS = 100 };

static char *file;

static beton_loader *open_loader(void)
{
	beton_loader *loader = NULL;
	beton_loader_options options = fixture_options(BATCH, 2);
	assert_ok(bt_loader_open(&loader, &(beton_source){.path = file}, 1, &options, &fault_io, err));
	return loader;
}

/* All reads that are not in the page cache hang, and none is in it. */
static void hang(void)
{
	no_faults();
	close_gate();
	faults.cold = true;
	find_values(file, &faults.gate_from, &faults.gate_to);
	atomic_store(&faults.block, true);
}

static void expect_cancelled(beton_iterator *iterator, int64_t timeout_ms)
{
	beton_batch *batch;
	beton_error fault = {0};
	assert_int_equal(beton_iterator_next(iterator, &batch, timeout_ms, &fault), BETON_CANCELLED);
	assert_null(batch);
	assert_non_null(strstr(fault.message, "cancelled"));
}

static void *cancel_it(void *iterator)
{
	while (atomic_load(&faults.blocked) == 0)
		sched_yield();
	beton_iterator_cancel(iterator);
	return NULL;
}

static void a_wait_ends(void **state)
{
	(void)state;
	hang();
	beton_loader *loader = open_loader();
	beton_iterator *iterator = NULL;
	beton_loader_state place;
	pthread_t canceller;
	fixture_start(&iterator, loader, 1, BATCH);
	assert_int_equal(pthread_create(&canceller, NULL, cancel_it, iterator), 0);
	expect_cancelled(iterator, -1);
	pthread_join(canceller, NULL);
	/* It stays so, also when the reads have come. */
	expect_cancelled(iterator, -1);
	assert_ok(beton_iterator_get_state(iterator, &place, err));
	open_gate();
	expect_cancelled(iterator, 1000);
	beton_iterator_close(&iterator);
	/* Another one goes on there. */
	beton_batch *batch;
	assert_ok(beton_iterator_open_state(&iterator, loader, &place, err));
	for (int i = 1; i < N / BATCH; i++) {
		assert_ok(beton_iterator_next(iterator, &batch, -1, err));
		assert_int_equal(batch->position, i * BATCH);
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
	no_faults();
}

static void at_any_time(void **state)
{
	(void)state;
	beton_loader *loader = open_loader();
	beton_iterator *first = NULL, *other = NULL;
	beton_batch *held, *batch;
	beton_iterator_cancel(NULL);
	fixture_start(&first, loader, 0, 0);
	fixture_start(&other, loader, 0, 0);
	assert_ok(beton_iterator_next(first, &held, -1, err));
	beton_iterator_cancel(first);
	beton_iterator_cancel(first);
	expect_cancelled(first, 0);
	assert_int_equal(held->count, BATCH);
	/* The other one is not touched by it. */
	for (int i = 0; i < N / BATCH; i++) {
		assert_ok(beton_iterator_next(other, &batch, -1, err));
		beton_batch_release(&batch);
	}
	assert_int_equal(beton_iterator_next(other, &batch, -1, NULL), BETON_END);
	beton_iterator_cancel(other);
	expect_cancelled(other, -1);
	beton_loader_close(&loader);
	expect_cancelled(first, -1);
	beton_iterator_cancel(first);
	beton_iterator_close(&first);
	beton_iterator_close(&other);
	assert_int_equal(((const int64_t *)held->tensors[0].data)[1], 3);
	beton_batch_release(&held);
}

static void *consume(void *argument)
{
	beton_iterator *iterator = argument;
	beton_batch *batch;
	int result;
	while ((result = beton_iterator_next(iterator, &batch, -1, NULL)) == BETON_OK)
		beton_batch_release(&batch);
	/* The epoch may have ended before it was cancelled. */
	while (result == BETON_END)
		result = beton_iterator_next(iterator, &batch, -1, NULL);
	assert_true(result == BETON_CANCELLED || result == BETON_STATE);
	while (result == BETON_STATE)
		result = beton_iterator_next(iterator, &batch, -1, NULL);
	/* The other thread may be in its call still. */
	beton_iterator_close(&iterator);
	return NULL;
}

static void *close_it(void *argument)
{
	beton_loader *loader = argument;
	beton_loader_close(&loader);
	return NULL;
}

static void while_others_close(void **state)
{
	(void)state;
	no_faults();
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t consumer, closer;
		beton_loader *loader = open_loader();
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 0, 0);
		assert_int_equal(pthread_create(&consumer, NULL, consume, iterator), 0);
		assert_int_equal(pthread_create(&closer, NULL, close_it, loader), 0);
		for (int i = 0; i < round % 7; i++)
			sched_yield();
		beton_iterator_cancel(iterator);
		pthread_join(consumer, NULL);
		pthread_join(closer, NULL);
	}
}

static int set_up(void **state)
{
	(void)state;
	sem_init(&gate, 0, 0);
	file = fixture_write(N, -1);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(file);
	sem_destroy(&gate);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wait_ends),
		cmocka_unit_test(at_any_time),
		cmocka_unit_test(while_others_close),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
