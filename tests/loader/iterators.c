/* SPDX-License-Identifier: Apache-2.0
 *
 * Iterators, the life of batches, deadlines, and what is done about bad samples. */
#include "fixture.h"

#include <dlpack/dlpack.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { N = 60, DAMAGED = 13 };

static char *file, *damaged;

static int write_files(void **state)
{
	(void)state;
	file = fixture_write(N, -1);
	damaged = fixture_write(N, DAMAGED);
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	fixture_remove(file);
	fixture_remove(damaged);
	return 0;
}

static beton_loader *open_loader(const char *path, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	return loader;
}

static beton_loader_options shuffled(uint32_t batch_size, uint32_t threads)
{
	beton_loader_options options = fixture_options(batch_size, threads);
	options.order = BETON_ORDER_RANDOM;
	options.image.crop = BETON_CROP_RANDOM;
	return options;
}

/* ---- several at once ---- */

typedef struct consumer {
	beton_loader *loader;
	uint64_t epoch;
	uint64_t sum; /* of ids and pixels, each with its place */
	uint32_t batches;
	pthread_t thread;
} consumer;

static void add(consumer *self, const beton_batch *batch)
{
	const beton_tensor *image = &batch->tensors[1];
	const uint8_t *pixels = image->data;
	size_t bytes = (size_t)(image->shape[1] * image->shape[2] * image->shape[3]);
	for (uint32_t i = 0; i < batch->count; i++) {
		self->sum = self->sum * 31 + batch->sample_ids[i];
		for (size_t k = 0; k < bytes; k++)
			self->sum = self->sum * 31 + pixels[i * bytes + k];
	}
	self->batches++;
}

static void *consume(void *argument)
{
	consumer *self = argument;
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, self->loader, self->epoch, 0);
	beton_batch *batch;
	while (beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK) {
		add(self, batch);
		beton_batch_release(&batch);
	}
	beton_iterator_close(&iterator);
	return NULL;
}

static void iterators_at_once_give_what_each_gives_alone(void **state)
{
	(void)state;
	beton_loader_options options = shuffled(4, 3);
	beton_loader *loader = open_loader(file, &options);
	consumer together[4], alone[4];
	for (int i = 0; i < 4; i++) {
		together[i] = alone[i] = (consumer){.loader = loader, .epoch = (uint64_t)i / 2};
		consume(&alone[i]);
		assert_int_equal(alone[i].batches, N / 4);
	}
	assert_true(alone[0].sum == alone[1].sum && alone[1].sum != alone[2].sum);
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&together[i].thread, NULL, consume, &together[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(together[i].thread, NULL);
		assert_int_equal(together[i].batches, N / 4);
		assert_true(together[i].sum == alone[i].sum);
	}
	beton_loader_close(&loader);
}

static void one_thread_may_use_iterators_in_turns(void **state)
{
	(void)state;
	beton_loader_options options = shuffled(4, 2);
	options.batches_leased = 1;
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterators[3] = {NULL};
	for (uint64_t i = 0; i < 3; i++)
		assert_ok(beton_iterator_open(&iterators[i], loader, i, i * 4, err));
	for (uint64_t b = 0; b < 4; b++)
		for (uint64_t i = 0; i < 3; i++) {
			beton_batch *batch;
			assert_ok(beton_iterator_next(iterators[i], &batch, -1, err));
			assert_int_equal(batch->epoch, i);
			assert_int_equal(batch->position, (b + i) * 4);
			beton_batch_release(&batch);
		}
	/* One is closed early; the others go on. */
	beton_iterator_close(&iterators[1]);
	beton_batch *batch;
	assert_ok(beton_iterator_next(iterators[2], &batch, -1, err));
	assert_int_equal(batch->position, 24);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterators[0]);
	beton_iterator_close(&iterators[2]);
}

/* ---- the life of batches ---- */

static atomic_int allocations;

static void batches_outlive_their_loader(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 2);
	options.batches_leased = 3;
	options.allocator = fixture_allocator(&allocations);
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batches[3];
	for (int i = 0; i < 3; i++)
		assert_ok(beton_iterator_next(iterator, &batches[i], -1, err));
	assert_true(atomic_load(&allocations) >= 3);
	beton_batch_retain(batches[0]);
	beton_batch *again = batches[0];
	fixture_close(&loader, &iterator);
	assert_int_equal(atomic_load(&allocations), 3);
	beton_batch_release(&batches[0]);
	assert_int_equal(atomic_load(&allocations), 3);
	for (int64_t i = 0; i < 4; i++)
		assert_int_equal(((int64_t *)again->tensors[0].data)[i], 3 * i);
	assert_string_equal(again->tensors[1].name, "image");
	beton_batch_release(&again);
	beton_batch_release(&batches[2]);
	assert_int_equal(atomic_load(&allocations), 1);
	beton_batch_release(&batches[1]);
	assert_int_equal(atomic_load(&allocations), 0);
}

static void a_retained_batch_counts_as_leased(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 2);
	options.batches_leased = 1;
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch, *other;
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	beton_batch_retain(batch);
	other = batch;
	beton_batch_release(&other);
	assert_int_equal(beton_iterator_next(iterator, &other, -1, NULL), BETON_STATE);
	beton_batch_release(&batch);
	assert_ok(beton_iterator_next(iterator, &other, -1, err));
	assert_int_equal(other->position, 4);
	fixture_close(&loader, &iterator);
	beton_batch_release(&other);
}

static void tensors_are_exported_by_dlpack(void **state)
{
	(void)state;
	beton_loader_options options = fixture_options(4, 2);
	options.image.dtype = BETON_BFLOAT16;
	options.image.layout = BETON_NCHW;
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch;
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	DLManagedTensor *label = NULL, *image = NULL, *none;
	beton_error fault;
	assert_ok(beton_batch_dlpack(batch, 0, &label, err));
	assert_ok(beton_batch_dlpack(batch, 1, &image, err));
	assert_int_equal(beton_batch_dlpack(batch, 3, &none, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "no tensor 3: the batch has 3"));
	assert_ptr_equal(image->dl_tensor.data, batch->tensors[1].data);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	const DLTensor *tensor = &label->dl_tensor;
	assert_int_equal(tensor->ndim, 1);
	assert_int_equal(tensor->device.device_type, kDLCPU);
	assert_true(tensor->dtype.code == kDLInt && tensor->dtype.bits == 64 && tensor->dtype.lanes == 1);
	assert_int_equal(((int64_t *)tensor->data)[3], 9);
	tensor = &image->dl_tensor;
	const int64_t shape[] = {4, 3, 12, 16}, strides[] = {576, 192, 16, 1};
	assert_int_equal(tensor->ndim, 4);
	assert_memory_equal(tensor->shape, shape, sizeof(shape));
	assert_memory_equal(tensor->strides, strides, sizeof(strides));
	assert_true(tensor->dtype.code == kDLBfloat && tensor->dtype.bits == 16);
	label->deleter(label);
	image->deleter(image);
}

/* ---- operations of the test's own, which hold workers up or look at their thread ---- */

static sem_t gate;
static atomic_int niceness, cpu;

static int wait_at_gate(const beton_operation_call *call)
{
	if (call->sample == 5)
		while (sem_wait(&gate) != 0)
			;
	return 0;
}

static int look_at_thread(const beton_operation_call *call)
{
	(void)call;
	atomic_store(&niceness, getpriority(PRIO_PROCESS, 0));
	atomic_store(&cpu, sched_getcpu());
	return 0;
}

static beton_operation custom(int (*apply)(const beton_operation_call *))
{
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_CUSTOM);
	operation.apply = apply;
	return operation;
}

static void a_deadline_loses_nothing(void **state)
{
	(void)state;
	sem_init(&gate, 0, 0);
	beton_operation operation = custom(wait_at_gate);
	beton_loader_options options = fixture_options(4, 2);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	beton_loader *loader = open_loader(file, &options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch;
	beton_error fault;
	assert_ok(beton_iterator_next(iterator, &batch, 100000, err));
	beton_batch_release(&batch);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(beton_iterator_next(iterator, &batch, i * 5, &fault), BETON_TIMEOUT);
		assert_null(batch);
	}
	assert_non_null(strstr(fault.message, "batch at position 4: "));
	assert_non_null(strstr(fault.message, " of 4 samples are done after 0.0"));
	assert_non_null(strstr(fault.message, "no read is late"));
	sem_post(&gate);
	for (uint64_t b = 1; b < N / 4; b++) {
		assert_ok(beton_iterator_next(iterator, &batch, INT64_MAX, err));
		assert_int_equal(batch->position, b * 4);
		beton_batch_release(&batch);
	}
	assert_int_equal(beton_iterator_next(iterator, &batch, 0, &fault), BETON_END);
	fixture_close(&loader, &iterator);
	sem_destroy(&gate);
}

static void threads_are_where_they_are_told(void **state)
{
	(void)state;
	cpu_set_t allowed;
	assert_int_equal(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
	int last = CPU_SETSIZE - 1;
	while (!CPU_ISSET(last, &allowed))
		last--;
	beton_operation operation = custom(look_at_thread);
	beton_loader_options options = fixture_options(4, 2);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	options.thread_nice = 3;
	options.cpus = &last;
	options.num_cpus = 1;
	beton_loader *loader = open_loader(file, &options);
	assert_null(beton_loader_get_options(loader)->cpus);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch;
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	int mine = getpriority(PRIO_PROCESS, 0);
	assert_int_equal(atomic_load(&niceness), mine + 3 < 19 ? mine + 3 : 19);
	assert_int_equal(atomic_load(&cpu), last);
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	const int none = 65535;
	beton_error fault;
	options.cpus = &none;
	assert_int_not_equal(beton_loader_open(&loader, file, &options, &fault), BETON_OK);
	assert_non_null(strstr(fault.message, "CPU 65535 (option cpus)"));
}

/* ---- bad samples ---- */

/* All rows of an epoch: ids, and the sum of the pixels; returns the batches' count of bad ones. */
static uint32_t collect(const beton_loader_options *options, uint64_t ids[N], uint64_t *sum, uint32_t *rows)
{
	beton_loader *loader = open_loader(damaged, options);
	beton_iterator *iterator = NULL;
	fixture_start(&iterator, loader, 2, 0);
	consumer self = {0};
	uint32_t bad = 0;
	beton_batch *batch;
	int result;
	beton_error fault;
	*rows = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) == BETON_OK) {
		for (uint32_t i = 0; i < batch->count; i++) {
			assert_int_equal(((int64_t *)batch->tensors[0].data)[i], 3 * batch->sample_ids[i]);
			ids[(*rows)++] = batch->sample_ids[i];
		}
		for (uint32_t i = 0; i < batch->num_tensors; i++)
			assert_int_equal(batch->tensors[i].shape[0], batch->count);
		add(&self, batch);
		bad += batch->bad;
		beton_batch_release(&batch);
	}
	assert_int_equal(result, BETON_END);
	*sum = self.sum;
	uint64_t listed[2];
	size_t count;
	beton_loader_bad_samples(loader, listed, 2, &count);
	assert_int_equal(count, 1);
	assert_int_equal(listed[0], DAMAGED);
	beton_loader_stats stats = {.struct_size = sizeof(stats)};
	beton_loader_get_stats(loader, &stats);
	assert_true(stats.bad_samples >= 1);
	assert_int_equal(stats.samples, *rows);
	assert_int_equal(stats.errors, 0);
	fixture_close(&loader, &iterator);
	return bad;
}

static void bad_samples_are_left_out_or_replaced(void **state)
{
	(void)state;
	for (int policy = BETON_ON_ERROR_SKIP; policy <= BETON_ON_ERROR_SUBSTITUTE; policy++) {
		beton_loader_options options = shuffled(8, 1);
		options.on_error = (beton_on_error)policy;
		uint64_t expected[N], got[N], sum, other_sum;
		uint32_t rows, other_rows;
		assert_int_equal(collect(&options, expected, &sum, &rows), 1);
		assert_int_equal(rows, policy == BETON_ON_ERROR_SKIP ? N - 1 : N);
		beton_loader *loader = open_loader(damaged, &options);
		for (uint32_t i = 0, row = 0; i < N; i++) {
			uint64_t sample = beton_loader_sample_at(loader, 2, i);
			if (sample == DAMAGED && policy == BETON_ON_ERROR_SKIP)
				continue;
			if (sample == DAMAGED)
				assert_int_not_equal(expected[row], DAMAGED);
			else
				assert_int_equal(expected[row], sample);
			row++;
		}
		beton_loader_close(&loader);
		for (uint32_t threads = 2; threads < 9; threads += 3) {
			options.num_threads = threads;
			options.read_ahead = 3 * threads;
			options.engine = threads == 5 ? BETON_ENGINE_MMAP : BETON_ENGINE_URING;
			assert_int_equal(collect(&options, got, &other_sum, &other_rows), 1);
			assert_int_equal(other_rows, rows);
			assert_memory_equal(got, expected, rows * sizeof(*got));
			assert_true(sum == other_sum);
		}
	}
}

static void a_batch_without_a_good_sample_is_lost(void **state)
{
	(void)state;
	const uint64_t list[] = {1, 2, DAMAGED, DAMAGED, 3, 4};
	for (int policy = BETON_ON_ERROR_SKIP; policy <= BETON_ON_ERROR_SUBSTITUTE; policy++) {
		beton_loader_options options = fixture_options(2, 2);
		options.order = BETON_ORDER_LIST;
		options.indices = policy == BETON_ON_ERROR_SKIP ? list : &list[2];
		options.num_indices = policy == BETON_ON_ERROR_SKIP ? 6 : 2;
		options.on_error = (beton_on_error)policy;
		beton_loader *loader = open_loader(damaged, &options);
		beton_iterator *iterator = NULL;
		fixture_start(&iterator, loader, 0, 0);
		for (uint32_t b = 0; b < options.num_indices / 2; b++) {
			beton_batch *batch;
			beton_error fault;
			int result = beton_iterator_next(iterator, &batch, -1, &fault);
			bool bad = policy == BETON_ON_ERROR_SUBSTITUTE || b == 1;
			assert_int_equal(result, bad ? BETON_SAMPLE_CORRUPT : BETON_OK);
			if (bad)
				assert_int_equal(fault.sample, DAMAGED);
			beton_batch_release(&batch);
		}
		fixture_close(&loader, &iterator);
	}
}

/* ---- event loops ---- */

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd wanted = {.fd = fd, .events = POLLIN};
	int result = poll(&wanted, 1, timeout_ms);
	assert_true(result >= 0);
	return result == 1 && wanted.revents == POLLIN;
}

static atomic_bool held;

static int hold_picture(const beton_operation_call *call)
{
	(void)call;
	while (atomic_load(&held))
		sched_yield();
	return 0;
}

static void a_descriptor_tells_of_batches(void **state)
{
	(void)state;
	enum { BATCH = 8, SKIPPED = 2 };
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_CUSTOM);
	operation.apply = hold_picture;
	beton_loader_options options = shuffled(BATCH, 2);
	options.image.operations = &operation;
	options.image.num_operations = 1;
	int files = fixture_files();
	beton_loader *loader = open_loader(damaged, &options);
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	int fd, again, lost = 0;
	uint64_t left = (N + BATCH - 1) / BATCH - SKIPPED;
	atomic_store(&held, true);
	fixture_start(&iterator, loader, 0, SKIPPED * BATCH);
	assert_ok(beton_iterator_descriptor(iterator, &fd, err));
	assert_ok(beton_iterator_descriptor(iterator, &again, err));
	assert_int_equal(fd, again);
	/* While no batch can be done. */
	assert_false(is_readable(fd, 0));
	assert_int_equal(beton_iterator_next(iterator, &batch, 0, NULL), BETON_TIMEOUT);
	assert_int_equal(beton_iterator_batches_left(iterator), left);
	atomic_store(&held, false);
	for (; left > 0; left--) {
		assert_int_equal(beton_iterator_batches_left(iterator), left);
		assert_true(is_readable(fd, -1));
		int result = beton_iterator_next(iterator, &batch, 0, NULL);
		assert_true(result == BETON_OK || result == BETON_SAMPLE_CORRUPT);
		lost += result != BETON_OK;
		beton_batch_release(&batch);
	}
	assert_true(lost <= 1);
	assert_int_equal(beton_iterator_batches_left(iterator), 0);
	for (int i = 0; i < 2; i++) {
		assert_true(is_readable(fd, 0));
		assert_int_equal(beton_iterator_next(iterator, &batch, 0, NULL), BETON_END);
	}
	fixture_close(&loader, &iterator);
	assert_int_equal(fixture_files(), files);
}

/* It was asked for when the batches were ready already, goes out with the last one that is, and comes back. */
static void a_descriptor_follows_the_batches(void **state)
{
	(void)state;
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_CUSTOM);
	operation.apply = hold_picture;
	for (int end = 0; end < 2; end++) {
		beton_loader_options options = shuffled(1, 1);
		options.image.operations = &operation;
		options.image.num_operations = 1;
		options.batches_ahead = 1;
		beton_loader *loader = open_loader(file, &options);
		beton_iterator *iterator = NULL;
		beton_batch *batch;
		int fd;
		atomic_store(&held, false);
		fixture_start(&iterator, loader, 0, 0);
		beton_loader_stats stats = {.struct_size = sizeof(stats)};
		do
			beton_loader_get_stats(loader, &stats);
		while (stats.transform_ns == 0);
		assert_ok(beton_iterator_descriptor(iterator, &fd, err));
		assert_true(is_readable(fd, -1));
		/* The only batch ahead goes out, and the next one cannot be done. */
		atomic_store(&held, true);
		assert_ok(beton_iterator_next(iterator, &batch, 0, err));
		assert_false(is_readable(fd, 0));
		beton_batch_release(&batch);
		if (end)
			beton_iterator_cancel(iterator);
		atomic_store(&held, false);
		if (!end)
			beton_loader_close(&loader);
		assert_true(is_readable(fd, 0));
		assert_int_equal(beton_iterator_next(iterator, &batch, 0, NULL), end ? BETON_CANCELLED : BETON_STATE);
		assert_int_equal(beton_iterator_batches_left(iterator), 0);
		fixture_close(&loader, &iterator);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(iterators_at_once_give_what_each_gives_alone),
		cmocka_unit_test(one_thread_may_use_iterators_in_turns),
		cmocka_unit_test(batches_outlive_their_loader),
		cmocka_unit_test(a_retained_batch_counts_as_leased),
		cmocka_unit_test(tensors_are_exported_by_dlpack),
		cmocka_unit_test(a_deadline_loses_nothing),
		cmocka_unit_test(threads_are_where_they_are_told),
		cmocka_unit_test(bad_samples_are_left_out_or_replaced),
		cmocka_unit_test(a_batch_without_a_good_sample_is_lost),
		cmocka_unit_test(a_descriptor_tells_of_batches),
		cmocka_unit_test(a_descriptor_follows_the_batches),
	};
	return cmocka_run_group_tests(tests, write_files, remove_files);
}
