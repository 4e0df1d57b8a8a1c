/* SPDX-License-Identifier: Apache-2.0
 *
 * The option memory_limit: too little is refused with the least that can work, that works, and it is kept. */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 384, WIDTH = 160, HEIGHT = 120, LARGE = 3000 };

static char *file;  /* N pictures of WIDTH x HEIGHT */
static char *large; /* LARGE x LARGE: baseline, progressive, raw of no size, then a small one */

static beton_writer *begin(const char *path)
{
	const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = 8 << 20;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, &field, 1, &options, err));
	return writer;
}

static void append(beton_writer *writer, const uint8_t *jpeg, unsigned long size, uint32_t width, uint32_t height)
{
	const beton_input input = {.data = jpeg,
				   .size = size,
				   .mode = BETON_IMAGE_JPEG,
				   .width = (uint16_t)width,
				   .height = (uint16_t)height};
	assert_ok(beton_writer_append(writer, &input, err));
}

static void end(beton_writer *writer)
{
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
}

static void append_new(beton_writer *writer, uint32_t width, uint32_t height, fixture_jpeg_options options, int times)
{
	uint8_t *pixels = fixture_pixels(7, width, height);
	unsigned long size;
	uint8_t *jpeg = fixture_jpeg(pixels, width, height, options, &size);
	for (int i = 0; i < times; i++)
		append(writer, jpeg, size, width, height);
	free(jpeg);
	free(pixels);
}

static int write_files(void **state)
{
	(void)state;
	file = fixture_write(1, -1);
	beton_writer *writer = begin(file);
	append_new(writer, WIDTH, HEIGHT, (fixture_jpeg_options){.horizontal = 2, .vertical = 2}, N);
	end(writer);
	large = fixture_write(1, -1);
	writer = begin(large);
	append_new(writer, LARGE, LARGE, (fixture_jpeg_options){.grey = true}, 1);
	append_new(writer, LARGE, LARGE, (fixture_jpeg_options){.grey = true, .progressive = true}, 1);
	append_new(writer, 64, 64, (fixture_jpeg_options){0}, 1);
	end(writer);
	return 0;
}

static int remove_files(void **state)
{
	(void)state;
	fixture_remove(file);
	fixture_remove(large);
	return 0;
}

static beton_loader_options make_options(beton_engine engine)
{
	beton_loader_options options = fixture_options(64, 2);
	options.image.height = options.image.width = 224;
	options.image.crop = BETON_CROP_RANDOM;
	options.order = BETON_ORDER_RANDOM;
	options.engine = engine;
	return options;
}

/* The least limit, as the message of a refusal names it. */
static uint64_t least_limit(const char *path, beton_loader_options options)
{
	beton_loader *loader = NULL;
	beton_error fault;
	options.memory_limit = 1;
	assert_int_equal(beton_loader_open(&loader, path, &options, &fault), BETON_INVALID_ARGUMENT);
	const char *number = strstr(fault.message, "memory_limit is 1; the least that can work is ");
	assert_non_null(number);
	unsigned long long least = 0;
	assert_int_equal(sscanf(number, "memory_limit is 1; the least that can work is %llu:", &least), 1);
	return least;
}

static uint32_t run_epoch(const char *path, const beton_loader_options *options)
{
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	fixture_start(&iterator, loader, 0, 0);
	beton_batch *batch, *last = NULL;
	beton_error fault;
	uint32_t samples = 0;
	int result;
	while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) != BETON_END) {
		if (result)
			fprintf(stderr, "%s\n", fault.message);
		samples += result ? 0 : batch->count;
		beton_batch_release(&last);
		last = batch;
	}
	beton_batch_release(&last);
	fixture_close(&loader, &iterator);
	return samples;
}

static void the_least_limit_that_is_named_works(void **state)
{
	(void)state;
	for (int engine = BETON_ENGINE_AUTO; engine <= BETON_ENGINE_URING; engine++) {
		beton_loader_options options = make_options((beton_engine)engine);
		uint64_t least = least_limit(file, options);
		options.memory_limit = least - 1;
		beton_loader *loader = NULL;
		assert_int_equal(beton_loader_open(&loader, file, &options, NULL), BETON_INVALID_ARGUMENT);
		options.memory_limit = least;
		assert_int_equal(run_epoch(file, &options), N);
	}
}

static void write_texts(const char *path, uint32_t num_fields, uint32_t page_size, bool packed)
{
	beton_field *fields = calloc(num_fields, sizeof(*fields));
	beton_input *values = calloc(num_fields, sizeof(*values));
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = page_size;
	assert_true(fields && values);
	for (uint32_t i = 0; i < num_fields; i++) {
		fields[i].type = BETON_FIELD_BYTES;
		fields[i].compression = packed ? BETON_COMPRESSION_ZSTD : BETON_COMPRESSION_NONE;
		snprintf(fields[i].name, sizeof(fields[i].name), "f%u", i);
	}
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, path, fields, num_fields, &options, err));
	for (uint32_t k = 0; k < 5; k++) {
		for (uint32_t i = 0; i < num_fields; i++)
			values[i] = (beton_input){.data = "0123456789", .size = k == 4 && i == 0 ? 3 : k % 3};
		assert_ok(beton_writer_append(writer, values, err));
	}
	end(writer);
	free(fields);
	free(values);
}

/* The least limit follows what a sample can have, not the size of a page or the number of fields. */
static void texts_need_little(void **state)
{
	(void)state;
	char *path = fixture_write(1, -1);
	beton_loader_options options = fixture_options(2, 2);
	options.max_bytes = 2;
	for (int packed = 0; packed < 2; packed++) {
		write_texts(path, 1, UINT32_C(1) << 28, packed);
		assert_true(least_limit(path, options) < (UINT64_C(32) << 20));
	}
	for (int engine = BETON_ENGINE_AUTO; engine <= BETON_ENGINE_URING; engine++) {
		options.engine = (beton_engine)engine;
		options.memory_limit = least_limit(path, options);
		/* One sample of batches of two is too long, and so one batch is lost. */
		assert_int_equal(run_epoch(path, &options), 4);
	}
	options.engine = BETON_ENGINE_AUTO;
	options.memory_limit = 0;
	options.batch_size = 1;
	write_texts(path, 3000, BETON_PAGE_SIZE_DEFAULT, false);
	assert_int_equal(run_epoch(path, &options), 4);
	options.max_bytes = 3;
	assert_int_equal(run_epoch(path, &options), 5);
	fixture_remove(path);
}

static void one_iterator_has_the_limit_for_itself(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ENGINE_AUTO);
	options.memory_limit = least_limit(file, options);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL, *second = NULL;
	beton_error fault;
	assert_ok(beton_loader_open(&loader, file, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	assert_int_equal(beton_iterator_open(&second, loader, 0, 0, &fault), BETON_NO_MEMORY);
	assert_non_null(strstr(fault.message, "memory_limit"));
	fixture_start(&iterator, loader, 1, 0);
	fixture_close(&loader, &iterator);
}

/* The picture that does not fit is named, and what is missing; the others come. */
static void a_picture_that_does_not_fit_is_an_error(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ENGINE_THREADS);
	options.order = BETON_ORDER_SEQUENTIAL;
	options.batch_size = 1;
	options.image.crop = BETON_CROP_NONE;
	options.image.height = options.image.width = LARGE / 2 + 1; /* so that it is not decoded at half of its size */
	options.memory_limit = least_limit(large, options);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, large, &options, err));
	fixture_start(&iterator, loader, 0, 0);
	for (int64_t i = 0; i < 3; i++) {
		beton_batch *batch;
		beton_error fault;
		int result = beton_iterator_next(iterator, &batch, -1, &fault);
		assert_int_equal(result, i < 2 ? BETON_NO_MEMORY : BETON_OK);
		if (i < 2) {
			assert_int_equal(fault.sample, i);
			assert_non_null(strstr(fault.message, "option memory_limit leaves each thread "));
		}
		beton_batch_release(&batch);
	}
	fixture_close(&loader, &iterator);
	/* Without the limit they come, and with one that has room for the pixels, all but the progressive one, whose
	 * coefficients are twice as many bytes. */
	options.memory_limit += 24 << 20;
	assert_int_equal(run_epoch(large, &options), 2);
	options.memory_limit = 0;
	assert_int_equal(run_epoch(large, &options), 3);
}

/* A line of /proc/self/status, in bytes. */
static uint64_t own_memory(const char *name)
{
	FILE *stream = fopen("/proc/self/status", "r");
	assert_non_null(stream);
	char line[256];
	unsigned long long kilobytes = 0;
	while (fgets(line, sizeof(line), stream))
		if (strncmp(line, name, strlen(name)) == 0)
			sscanf(line + strlen(name), " %llu", &kilobytes);
	assert_int_equal(fclose(stream), 0);
	return kilobytes * 1024;
}

/* The work of the separate process, whose peak begins with it. Returns its exit status. */
static int measure(char **arguments)
{
	beton_loader_options options = make_options((beton_engine)atoi(arguments[1]));
	file = arguments[0];
	options.direct = atoi(arguments[2]);
	options.read_ahead = (uint32_t)atoi(arguments[3]);
	options.memory_limit = strtoull(arguments[4], NULL, 10);
	uint64_t before = own_memory("VmRSS:");
	if (run_epoch(file, &options) != N)
		return 1;
	uint64_t grown = own_memory("VmHWM:") - before;
	printf("engine %s, direct %s, read_ahead %s: %llu bytes, the limit is %s\n", arguments[1], arguments[2],
	       arguments[3], (unsigned long long)grown, arguments[4]);
	/* A limit of many times what is needed would be kept by anything. */
	return grown > options.memory_limit ? 2 : grown < options.memory_limit / 4 ? 3 : 0;
}

static void check_kept(const beton_loader_options *options)
{
	char numbers[4][32];
	snprintf(numbers[0], sizeof(numbers[0]), "%d", options->engine);
	snprintf(numbers[1], sizeof(numbers[1]), "%d", options->direct);
	snprintf(numbers[2], sizeof(numbers[2]), "%u", options->read_ahead);
	snprintf(numbers[3], sizeof(numbers[3]), "%llu", (unsigned long long)options->memory_limit);
	fflush(NULL);
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		execl("/proc/self/exe", "test-loader-memory", file, numbers[0], numbers[1], numbers[2], numbers[3],
		      NULL);
		_exit(127);
	}
	int status = 0;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_limit_is_kept(void **state)
{
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* they take memory of their own */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
	skip();
#endif
#endif
	for (int engine = BETON_ENGINE_MMAP; engine <= BETON_ENGINE_URING; engine++)
		for (int direct = 0; direct <= (engine != BETON_ENGINE_MMAP); direct++) {
			beton_loader_options options = make_options((beton_engine)engine);
			options.direct = direct;
			options.memory_limit = least_limit(file, options);
			/* A mapping of a file is the page cache's memory, but counts as the process's. */
			if (engine != BETON_ENGINE_MMAP)
				check_kept(&options);
			options.memory_limit += 16 << 20;
			options.read_ahead = 64;
			if (engine != BETON_ENGINE_MMAP)
				check_kept(&options);
		}
}

int main(int argc, char **argv)
{
	if (argc == 6)
		return measure(argv + 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_limit_that_is_named_works),
		cmocka_unit_test(one_iterator_has_the_limit_for_itself),
		cmocka_unit_test(a_picture_that_does_not_fit_is_an_error),
		cmocka_unit_test(texts_need_little),
		cmocka_unit_test(the_limit_is_kept),
	};
	return cmocka_run_group_tests(tests, write_files, remove_files);
}
