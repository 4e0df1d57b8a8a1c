/* SPDX-License-Identifier: Apache-2.0
 *
 * Loaders that are closed while their reads hang: by the table of system calls, whose reads do not end until the gate
 * is opened. Afterwards nothing is left: no thread, no descriptor, no memory. */
#include "faults.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "loader/state.h"

enum { N = 24, BATCH = 4 };

static char *file;

/* Threads end, and files are closed, a moment after the gate is opened. */
static void wait_until_back(int threads, int files)
{
	while (fixture_threads() > threads || fixture_files() > files)
		fixture_pause();
}

/* Memory lent to a loader, which is unmapped once it was given back. */
typedef struct lent {
	uint64_t indices[N];
	atomic_int calls;
} lent;

static uint64_t reverse(void *context, uint64_t epoch, uint64_t position)
{
	(void)epoch;
	atomic_fetch_add(&((lent *)context)->calls, 1);
	return N - 1 - position;
}

static int leave_pixels(const beton_operation_call *call)
{
	atomic_fetch_add(&((lent *)call->context)->calls, 1);
	return 0;
}

static int leave_batch(const beton_batch_call *call)
{
	atomic_fetch_add(&((lent *)call->context)->calls, 1);
	return 0;
}

static void note_line(void *context, beton_log_level level, const char *line)
{
	(void)level;
	(void)line;
	atomic_fetch_add(&((lent *)context)->calls, 1);
}

static atomic_int allocated;

static beton_loader *open_loader(beton_engine engine, lent *own)
{
	static beton_operation operation;
	static beton_batch_operation batch_operation;
	static beton_replacement replacement;
	beton_loader *loader = NULL;
	beton_loader_options options = fixture_options(BATCH, 3);
	options.engine = engine;
	options.on_error = BETON_ON_ERROR_SUBSTITUTE;
	options.allocator = fixture_allocator(&allocated);
	if (own) {
		for (uint64_t i = 0; i < N; i++)
			own->indices[i] = i;
		beton_loader_operation_init(&operation, BETON_CUSTOM);
		operation.apply = leave_pixels;
		operation.context = own;
		options.image.operations = &operation;
		options.image.num_operations = 1;
		beton_loader_batch_operation_init(&batch_operation, BETON_BATCH_CUSTOM);
		batch_operation.apply = leave_batch;
		batch_operation.context = own;
		options.batch_operations = &batch_operation;
		options.num_batch_operations = 1;
		replacement =
			(beton_replacement){.field = "label", .indices = own->indices, .num_indices = N, .value = 7};
		options.replacements = &replacement;
		options.num_replacements = 1;
		options.order = BETON_ORDER_CALLBACK;
		options.order_callback = reverse;
		options.order_context = own;
		options.log = note_line;
		options.log_context = own;
	}
	assert_ok(bt_loader_open(&loader, &(beton_source){.path = file}, 1, &options, &fault_io, err));
	return loader;
}

/* Before a loader is opened: what will hang, values or metadata. */
static void prepare(bool values)
{
	off_t from, to;
	find_values(file, &from, &to);
	no_faults();
	close_gate();
	faults.cold = true;
	faults.gate_from = values ? from : 0;
	faults.gate_to = values ? to : from;
}

static void hang(void)
{
	atomic_store(&faults.block, true);
}

static void wait_for_hang(void)
{
	while (atomic_load(&faults.blocked) == 0)
		sched_yield();
}

static void expect_late(beton_loader **loader, int64_t timeout_ms)
{
	beton_error fault = {0};
	assert_int_equal(beton_loader_close_within(loader, timeout_ms, &fault), BETON_TIMEOUT);
	assert_null(*loader);
	assert_int_equal(fault.code, BETON_TIMEOUT);
	if (!strstr(fault.message, file) || !strstr(fault.message, "not closed"))
		fail_msg("%s", fault.message);
}

static void closes_while(beton_engine engine, bool values, int64_t timeout_ms)
{
	prepare(values);
	int threads = fixture_threads(), files = fixture_files();
	lent *own = calloc(1, sizeof(*own));
	beton_loader *loader = open_loader(engine, own);
	beton_iterator *iterator = NULL;
	hang();
	fixture_start(&iterator, loader, 0, 0);
	wait_for_hang();
	expect_late(&loader, timeout_ms);
	free(own);
	beton_batch *batch;
	assert_int_equal(beton_iterator_next(iterator, &batch, -1, NULL), BETON_STATE);
	beton_iterator_close(&iterator);
	assert_true(fixture_threads() > threads);
	open_gate();
	wait_until_back(threads, files);
	assert_int_equal(atomic_load(&allocated), 0);
}

static void reads_that_hang(void **state)
{
	(void)state;
	const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_URING};
	const int64_t timeouts[] = {0, 1, 50};
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < 3; k++) {
			closes_while(engines[i], true, timeouts[k]);
			closes_while(engines[i], false, timeouts[k]);
		}
	closes_while(BETON_ENGINE_MMAP, false, 20);
	no_faults();
}

/* It says where. */
static void the_read_is_named(void **state)
{
	(void)state;
	const beton_engine engines[] = {BETON_ENGINE_THREADS, BETON_ENGINE_URING};
	for (int i = 0; i < 2; i++) {
		prepare(true);
		int threads = fixture_threads(), files = fixture_files();
		beton_loader *loader = open_loader(engines[i], NULL);
		beton_iterator *iterator = NULL;
		beton_error fault;
		hang();
		fixture_start(&iterator, loader, 0, 0);
		wait_for_hang();
		beton_iterator_close(&iterator);
		assert_int_equal(beton_loader_close_within(&loader, 100, &fault), BETON_TIMEOUT);
		const char *place = strstr(fault.message, "a read at offset ");
		if (!place)
			fail_msg("%s", fault.message);
		assert_in_range(atoll(place + 17), faults.gate_from, faults.gate_to - 1);
		open_gate();
		wait_until_back(threads, files);
		assert_int_equal(atomic_load(&allocated), 0);
	}
	no_faults();
}

/* The consumer's batches outlive the loader, and go back when they are released. */
static void batches_outlive_it(void **state)
{
	(void)state;
	prepare(true);
	int threads = fixture_threads(), files = fixture_files();
	beton_loader *loader = open_loader(BETON_ENGINE_THREADS, NULL);
	beton_iterator *iterator = NULL;
	beton_batch *first, *second;
	fixture_start(&iterator, loader, 0, 0);
	assert_ok(beton_iterator_next(iterator, &first, -1, err));
	assert_ok(beton_iterator_next(iterator, &second, -1, err));
	beton_iterator_close(&iterator);
	hang();
	fixture_start(&iterator, loader, 1, 0);
	wait_for_hang();
	expect_late(&loader, 0);
	/* The consumer's, and the threads'. */
	int before = atomic_load(&allocated);
	assert_true(before > 2);
	beton_batch_release(&first);
	assert_int_equal(atomic_load(&allocated), before - 1);
	beton_iterator_close(&iterator);
	open_gate();
	wait_until_back(threads, files);
	assert_int_equal(atomic_load(&allocated), 1);
	assert_int_equal(((const int64_t *)second->tensors[0].data)[1], 3 * (BATCH + 1));
	beton_batch_release(&second);
	assert_int_equal(atomic_load(&allocated), 0);
	no_faults();
}

static void *let_go(void *argument)
{
	(void)argument;
	for (int i = 0; i < 20; i++)
		fixture_pause();
	open_gate();
	return NULL;
}

/* If the reads end in time, close frees everything before it returns. */
static void reads_that_end_in_time(void **state)
{
	(void)state;
	const int64_t timeouts[] = {-1, INT64_MAX, 1000000, 0};
	for (int i = 0; i < 4; i++) {
		prepare(true);
		int threads = fixture_threads(), files = fixture_files();
		pthread_t opener;
		beton_loader *loader = open_loader(BETON_ENGINE_THREADS, NULL);
		beton_iterator *iterator = NULL;
		beton_error fault = {0};
		hang();
		fixture_start(&iterator, loader, 0, 0);
		wait_for_hang();
		assert_int_equal(pthread_create(&opener, NULL, let_go, NULL), 0);
		int result = BETON_OK;
		if (timeouts[i] == 0)
			beton_loader_close(&loader);
		else
			result = beton_loader_close_within(&loader, timeouts[i], &fault);
		if (result != BETON_OK)
			fail_msg("%s", fault.message);
		assert_null(loader);
		assert_int_equal(atomic_load(&allocated), 0);
		pthread_join(opener, NULL);
		assert_int_equal(fixture_files(), files);
		wait_until_back(threads, files);
		beton_iterator_close(&iterator);
	}
	no_faults();
}

typedef struct waiting {
	beton_iterator *iterator;
	int result;
} waiting;

static void *wait_for_batch(void *argument)
{
	waiting *self = argument;
	beton_batch *batch;
	while ((self->result = beton_iterator_next(self->iterator, &batch, -1, NULL)) == BETON_OK)
		beton_batch_release(&batch);
	beton_iterator_close(&self->iterator);
	return NULL;
}

static void *cancel(void *argument)
{
	beton_iterator_cancel(argument);
	return NULL;
}

/* Waiting consumers, one of them cancelled, while the loader is closed and the gate opened. */
static void all_at_once(void **state)
{
	(void)state;
	for (int round = 0; round < 40; round++) {
		prepare(round % 4 < 2);
		int threads = fixture_threads(), files = fixture_files();
		beton_loader *loader = open_loader(round % 2 ? BETON_ENGINE_THREADS : BETON_ENGINE_URING, NULL);
		waiting consumers[2] = {{0}};
		pthread_t ids[2], canceller, opener;
		hang();
		for (int i = 0; i < 2; i++)
			fixture_start(&consumers[i].iterator, loader, (uint64_t)i, 0);
		wait_for_hang();
		/* It is cancelled before the consumer, which closes it, can be there. */
		assert_int_equal(pthread_create(&canceller, NULL, cancel, consumers[0].iterator), 0);
		pthread_join(canceller, NULL);
		for (int i = 0; i < 2; i++)
			assert_int_equal(pthread_create(&ids[i], NULL, wait_for_batch, &consumers[i]), 0);
		assert_int_equal(pthread_create(&opener, NULL, let_go, NULL), 0);
		int result = beton_loader_close_within(&loader, round % 5 * 8, NULL);
		assert_true(result == BETON_OK || result == BETON_TIMEOUT);
		pthread_join(opener, NULL);
		for (int i = 0; i < 2; i++)
			pthread_join(ids[i], NULL);
		assert_int_equal(consumers[0].result, BETON_CANCELLED);
		/* The gate may have been opened before the loader was closed. */
		assert_true(consumers[1].result == BETON_STATE || consumers[1].result == BETON_END);
		wait_until_back(threads, files);
		assert_int_equal(atomic_load(&allocated), 0);
	}
	no_faults();
}

/* Ten seconds of it, as in the next one. */
static void the_log_is_told(void **state)
{
	(void)state;
	prepare(true);
	int threads = fixture_threads(), files = fixture_files();
	beton_loader *loader = NULL;
	beton_loader_options options = fixture_options(BATCH, 2);
	options.log = count_line;
	assert_ok(bt_loader_open(&loader, &(beton_source){.path = file}, 1, &options, &fault_io, err));
	beton_iterator *iterator = NULL;
	hang();
	fixture_start(&iterator, loader, 0, 0);
	wait_for_hang();
	fixture_close(&loader, &iterator);
	assert_int_equal(atomic_load(&faults.lines), 1);
	if (!strstr(faults.line, file) || !strstr(faults.line, "a read at offset"))
		fail_msg("%s", faults.line);
	open_gate();
	wait_until_back(threads, files);
	no_faults();
}

static atomic_bool log_began, log_ended;

static void log_slowly(void *context, beton_log_level level, const char *line)
{
	(void)level;
	(void)line, (void)context;
	atomic_store(&log_began, true);
	for (int i = 0; i < 300; i++)
		fixture_pause();
	atomic_store(&log_ended, true);
}

/* Memory lent to a loader may go when it is closed, also if a consumer is calling it just then. */
static void the_log_is_waited_for(void **state)
{
	(void)state;
	prepare(false);
	int threads = fixture_threads(), files = fixture_files();
	beton_loader *loader = NULL;
	beton_loader_options options = fixture_options(BATCH, 2);
	options.log = log_slowly;
	assert_ok(bt_loader_open(&loader, &(beton_source){.path = file}, 1, &options, &fault_io, err));
	waiting consumer = {0};
	pthread_t id;
	hang();
	fixture_start(&consumer.iterator, loader, 0, 0);
	assert_int_equal(pthread_create(&id, NULL, wait_for_batch, &consumer), 0);
	while (!atomic_load(&log_began))
		fixture_pause();
	beton_loader_close_within(&loader, 0, NULL);
	assert_true(atomic_load(&log_ended));
	pthread_join(id, NULL);
	assert_int_equal(consumer.result, BETON_STATE);
	open_gate();
	wait_until_back(threads, files);
	no_faults();
}

static int set_up(void **state)
{
	(void)state;
	sem_init(&gate, 0, 0);
	file = fixture_write(N, -1);
	/* A sanitizer may start a thread of its own with the first one. */
	pthread_t first;
	assert_int_equal(pthread_create(&first, NULL, let_go, NULL), 0);
	pthread_join(first, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	fixture_remove(file);
	sem_destroy(&gate);
	return 0;
}

int main(int argc, char **argv)
{
	(void)argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_that_hang),    cmocka_unit_test(the_read_is_named),
		cmocka_unit_test(batches_outlive_it), cmocka_unit_test(reads_that_end_in_time),
		cmocka_unit_test(all_at_once),
	};
	const struct CMUnitTest slow[] = {
		cmocka_unit_test(the_log_is_told),
		cmocka_unit_test(the_log_is_waited_for),
	};
	return argc > 1 ? cmocka_run_group_tests(slow, set_up, tear_down)
			: cmocka_run_group_tests(tests, set_up, tear_down);
}
