/* SPDX-License-Identifier: Apache-2.0
 *
 * Every allocation and thread start of open, start, next and close fails once: the call must say so, leak nothing (the
 * leak sanitizer looks) and leave a loader that can be closed. The linker puts the functions below before the C
 * library's (--wrap), for the objects of the loader alone. */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The number of calls that succeed before one fails; below 0: all succeed. */
static atomic_long countdown = -1;

static bool fails(void)
{
	return atomic_load(&countdown) >= 0 && atomic_fetch_sub(&countdown, 1) == 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
void *__real_mmap(void *place, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *place, size_t size, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
	return fails() ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

void *__wrap_mmap(void *place, size_t size, int protection, int flags, int fd, off_t offset)
{
	errno = ENOMEM;
	return fails() ? MAP_FAILED : __real_mmap(place, size, protection, flags, fd, offset);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
	return fails() ? EAGAIN : __real_pthread_create(thread, attributes, run, argument);
}

static bool expected(int code)
{
	return code == BETON_OK || code == BETON_NO_MEMORY || code == BETON_SYSTEM;
}

/* Two epochs with the k-th call failing; true if that many calls were made. */
static bool run(const char *file, const beton_loader_options *base, long k)
{
	beton_loader_options options = *base;
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_error fault = {0};
	atomic_store(&countdown, k);
	int code = beton_loader_open(&loader, file, &options, &fault);
	if (code) {
		bool hit = atomic_exchange(&countdown, -1) < 0;
		assert_true(hit && expected(code));
		assert_null(loader);
		assert_int_equal(fault.code, code);
		assert_true(fault.message[0]);
		return true;
	}
	uint32_t samples = 0, lost = 0, missing = 0;
	beton_iterator_options epochs;
	beton_iterator_options_init(&epochs);
	epochs.epochs = 2;
	/* An order that is drawn as a whole takes memory when an epoch begins. */
	code = beton_iterator_open_with(&iterator, loader, &epochs, NULL);
	if (code) {
		assert_true(atomic_exchange(&countdown, -1) < 0 && code == BETON_NO_MEMORY);
		fixture_close(&loader, &iterator);
		return true;
	}
	for (uint32_t ends = 0; ends < 2;) {
		beton_batch *batch;
		code = beton_iterator_next(iterator, &batch, -1, &fault);
		if (code == BETON_OK)
			samples += batch->count;
		beton_batch_release(&batch);
		ends += code == BETON_END;
		if (code == BETON_OK || code == BETON_END)
			continue;
		assert_true(expected(code));
		/* Memory for the order of the second epoch, which is tried again. */
		if (fault.sample == -1) {
			assert_true(ends == 1 && code == BETON_NO_MEMORY);
			missing++;
			continue;
		}
		assert_in_range(fault.sample, 0, 15);
		lost++;
	}
	bool hit = atomic_exchange(&countdown, -1) < 0;
	assert_int_equal(samples + lost * 4, 2 * 16);
	assert_true(lost + missing <= 1);
	fixture_close(&loader, &iterator);
	return hit;
}

static void check_all(const char *file, const beton_loader_options *options)
{
	long k = 0;
	while (run(file, options, k))
		k++;
	assert_true(k > 15);
}

static void every_allocation_may_fail(void **state)
{
	(void)state;
	char *file = fixture_write(16, -1);
	beton_loader_options options = fixture_options(4, 2);
	beton_operation operations[2];
	beton_loader_operation_init(&operations[0], BETON_BLUR);
	beton_loader_operation_init(&operations[1], BETON_RAND_AUGMENT);
	options.image.operations = operations;
	options.image.num_operations = 2;
	beton_batch_operation mixup;
	beton_loader_batch_operation_init(&mixup, BETON_BATCH_MIXUP);
	options.batch_operations = &mixup;
	options.num_batch_operations = 1;
	static const uint64_t replaced[] = {1, 2};
	options.replacements = &(beton_replacement){"label", replaced, 2, 5};
	options.num_replacements = 1;
	beton_image_options views[3] = {options.image, options.image, options.image};
	views[1].num_operations = 1;
	views[2].num_operations = 0;
	views[2].output = BETON_IMAGE_STORED;
	options.views = views;
	options.num_views = 3;
	options.max_bytes = 4;
	options.ragged = true;
	options.drawn = true;
	options.engine = BETON_ENGINE_MMAP;
	check_all(file, &options);
	options.engine = BETON_ENGINE_THREADS;
	check_all(file, &options);
	fixture_remove(file);
}

static void every_allocation_of_orders_may_fail(void **state)
{
	(void)state;
	char *file = fixture_write(16, -1);
	double weights[16];
	uint64_t list[16];
	for (uint64_t i = 0; i < 16; i++) {
		weights[i] = 1;
		list[i] = i;
	}
	for (int order = 0; order <= BETON_ORDER_UNIFORM; order++) {
		beton_loader_options options = fixture_options(4, 1);
		bool weighted = order == BETON_ORDER_WEIGHTED || order == BETON_ORDER_WEIGHTED_UNIQUE;
		options.order = (beton_order)order;
		options.indices = list;
		options.num_indices = 16;
		options.weights = weighted ? weights : NULL;
		options.num_weights = weighted ? 16 : 0;
		if (order != BETON_ORDER_CALLBACK)
			check_all(file, &options);
	}
	fixture_remove(file);
}

/* 16 samples of {a raster of 16 bits, compressed; one of 8 bits}. */
static void write_rasters(const char *path)
{
	static const beton_field fields[] = {
		{.name = "deep",
		 .type = BETON_FIELD_RASTER,
		 .dtype = "<u2",
		 .ndim = 1,
		 .shape = {5},
		 .compression = BETON_COMPRESSION_ZSTD},
		{.name = "rgba", .type = BETON_FIELD_RASTER, .dtype = "|u1", .ndim = 1, .shape = {4}}};
	static const uint8_t samples[30 * 20 * 10];
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, 2, NULL, err));
	for (uint32_t i = 0; i < 16; i++) {
		const uint32_t width = 15 + i, height = 20;
		const beton_input inputs[] = {
			{.data = samples, .size = (uint64_t)width * height * 10, .width = width, .height = height},
			{.data = samples, .size = (uint64_t)width * height * 4, .width = width, .height = height}};
		assert_ok(beton_writer_append(writer, inputs, err));
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static void every_allocation_of_rasters_may_fail(void **state)
{
	(void)state;
	char *file = fixture_write(1, -1);
	static const float statistics[10] = {1, 2, 1, 2, 1, 2, 1, 2, 1, 2};
	write_rasters(file);
	beton_loader_options options = fixture_options(4, 2);
	beton_operation operation;
	beton_loader_operation_init(&operation, BETON_ROTATE);
	operation.range[1] = 30;
	options.image.field = "deep";
	options.image.dtype = BETON_FLOAT32;
	options.image.normalize = true;
	options.image.statistics = statistics;
	options.image.num_statistics = 5;
	beton_image_options views[2] = {options.image, options.image};
	views[0].layout = BETON_NCHW;
	views[0].operations = &operation;
	views[0].num_operations = 1;
	views[1].field = "rgba";
	views[1].num_statistics = 4;
	options.views = views;
	options.num_views = 2;
	check_all(file, &options);
	fixture_remove(file);
}

static void every_allocation_of_windows_may_fail(void **state)
{
	(void)state;
	char file[] = "/tmp/beton-allocation-XXXXXX";
	const uint16_t tokens[16 * 5 + 1] = {1, 2, 3};
	int fd = mkstemp(file);
	assert_true(fd >= 0 && write(fd, tokens, sizeof(tokens)) == sizeof(tokens));
	assert_int_equal(close(fd), 0);
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.batch_size = 4;
	options.num_threads = 1;
	options.tokens.window = 5;
	options.tokens.format = BETON_TOKENS_RAW;
	check_all(file, &options);
	assert_int_equal(unlink(file), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail),
					   cmocka_unit_test(every_allocation_of_orders_may_fail),
					   cmocka_unit_test(every_allocation_of_rasters_may_fail),
					   cmocka_unit_test(every_allocation_of_windows_may_fail)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
