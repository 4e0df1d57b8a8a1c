/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting samples from several threads: the same bytes as from one, whatever the order, the window and the threads; and
 * the end of waiting threads when one of them fails. */
#include "tests/support/beton_files.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE (UINT32_C(2) << 20)

static const beton_field fields[] = {
	{.name = "id", .type = BETON_FIELD_INT},
	{.name = "bytes", .type = BETON_FIELD_BYTES},
	{.name = "text", .type = BETON_FIELD_JSON},
};

enum { SAMPLES = 3000, LARGEST = 9000 };

static bool left_out(uint64_t index)
{
	return index % 7 == 3;
}

static int put_sample(beton_writer *writer, uint64_t index, beton_error *err)
{
	uint8_t bytes[LARGEST];
	char text[64];
	size_t size = (size_t)(index * 7919 % LARGEST);
	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)(index + i * 11);
	int length = snprintf(text, sizeof(text), "{\"n\": %llu}", (unsigned long long)index);
	const beton_input values[] = {
		{.integer = (int64_t)index}, {.data = bytes, .size = size}, {.data = text, .size = (uint64_t)length}};
	return left_out(index) ? beton_writer_skip(writer, index, err) : beton_writer_put(writer, index, values, err);
}

static beton_writer *open_writer(const char *path, size_t window, uint64_t expected)
{
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = PAGE;
	options.window = window;
	options.expected_samples = expected;
	beton_writer *writer;
	beton_error err;
	if (beton_writer_open(&writer, path, fields, 3, &options, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return writer;
}

static void finish(beton_writer *writer)
{
	beton_error err;
	assert_int_equal(beton_writer_position(writer), SAMPLES);
	uint64_t kept = 0;
	for (uint64_t i = 0; i < SAMPLES; i++)
		kept += !left_out(i);
	assert_int_equal(beton_writer_samples(writer), kept);
	if (beton_writer_finish(writer, &err) != BETON_OK)
		fail_msg("%s", err.message);
	beton_writer_close(&writer);
}

static void expect_equal(const char *one, const char *two)
{
	file_content a = read_file(one);
	file_content b = read_file(two);
	assert_int_equal(a.size, b.size);
	assert_memory_equal(a.data, b.data, a.size);
	free(a.data);
	free(b.data);
}

/* The file that one thread writes in order, without a window. */
static const char *reference(void)
{
	const char *path = in_folder("reference.beton");
	if (access(path, F_OK) == 0)
		return path;
	beton_writer *writer = open_writer(path, 0, 0);
	for (uint64_t i = 0; i < SAMPLES; i++)
		assert_int_equal(put_sample(writer, i, NULL), BETON_OK);
	finish(writer);
	beton_reader *reader = open_good(path);
	assert_int_equal(read_everything(reader), 0);
	/* Skipped indices leave no gap. */
	for (uint64_t i = 0, sample = 0; i < SAMPLES; i++) {
		beton_value value;
		if (left_out(i))
			continue;
		assert_int_equal(beton_reader_value(reader, sample++, 0, &value, NULL), BETON_OK);
		assert_int_equal(value.integer, i);
	}
	beton_reader_close(&reader);
	return path;
}

typedef struct crew {
	beton_writer *writer;
	atomic_ullong next;
	atomic_int refused;
} crew;

/* Takes one index after another, as a program's workers would. */
static void *work(void *argument)
{
	crew *team = argument;
	uint64_t index;
	while ((index = atomic_fetch_add(&team->next, 1)) < SAMPLES)
		if (put_sample(team->writer, index, NULL) != BETON_OK)
			atomic_fetch_add(&team->refused, 1);
	return NULL;
}

static void run_crew(crew *team, int threads)
{
	pthread_t ids[16];
	for (int i = 0; i < threads; i++)
		assert_int_equal(pthread_create(&ids[i], NULL, work, team), 0);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
}

static void test_any_number_of_threads(void **state)
{
	(void)state;
	static const struct {
		int threads;
		size_t window;
	} cases[] = {{1, 0}, {2, 0}, {2, 64 << 20}, {5, 30000}, {16, 64 << 20}, {16, 1}};
	const char *expected = reference();
	const char *path = in_folder("threads.beton");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		crew team = {.writer = open_writer(path, cases[i].window, 0)};
		run_crew(&team, cases[i].threads);
		assert_int_equal(team.refused, 0);
		finish(team.writer);
		expect_equal(path, expected);
	}
}

/* One thread may bring them in any order, as far as the window reaches. */
static void test_any_order(void **state)
{
	(void)state;
	const char *path = in_folder("order.beton");
	for (uint64_t run = 1; run <= SAMPLES; run = run * 5 + 1) {
		beton_writer *writer = open_writer(path, 64 << 20, 0);
		for (uint64_t first = 0; first < SAMPLES; first += run)
			for (uint64_t i = run; i-- > 0;)
				if (first + i < SAMPLES)
					assert_int_equal(put_sample(writer, first + i, NULL), BETON_OK);
		finish(writer);
		expect_equal(path, reference());
	}
}

static void test_indices(void **state)
{
	(void)state;
	const char *path = in_folder("indices.beton");
	beton_writer *writer = open_writer(path, 1 << 20, 0);
	beton_error err;
	assert_int_equal(put_sample(writer, 0, &err), BETON_OK);
	assert_int_equal(put_sample(writer, 0, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(err.sample, 0);
	assert_int_equal(put_sample(writer, 2, &err), BETON_OK);
	assert_int_equal(put_sample(writer, 2, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(put_sample(writer, 3, &err), BETON_OK);
	assert_int_equal(beton_writer_skip(writer, 3, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_writer_put(writer, 1, NULL, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(beton_writer_position(writer), 1);
	/* A gap is named, and can be closed. */
	assert_int_equal(beton_writer_finish(writer, &err), BETON_STATE);
	assert_non_null(strstr(err.message, "sample 1 was not put"));
	assert_int_equal(beton_writer_skip(writer, 1, &err), BETON_OK);
	assert_int_equal(beton_writer_position(writer), 4);
	assert_int_equal(beton_writer_samples(writer), 2);
	const beton_input values[] = {{.integer = 4}, {.size = 0}, {.size = 0}};
	assert_int_equal(beton_writer_append(writer, values, &err), BETON_OK);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_OK);
	beton_writer_close(&writer);
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_info(reader)->num_samples, 3);
	beton_reader_close(&reader);
}

typedef struct waiter {
	beton_writer *writer;
	uint64_t index;
	int result;
	beton_error err;
} waiter;

static void *wait_in_put(void *argument)
{
	waiter *self = argument;
	self->result = put_sample(self->writer, self->index, &self->err);
	return NULL;
}

/* Without a window all wait for sample 0, whose thread gives up. */
static void test_cancel(void **state)
{
	(void)state;
	const char *path = in_folder("cancel.beton");
	waiter waiters[4];
	pthread_t ids[4];
	beton_writer *writer = open_writer(path, 0, 0);
	for (uint64_t i = 0; i < 4; i++) {
		waiters[i] = (waiter){.writer = writer, .index = i + 1};
		assert_int_equal(pthread_create(&ids[i], NULL, wait_in_put, &waiters[i]), 0);
	}
	beton_error err;
	const beton_input bad[] = {{.integer = 0}, {.data = NULL, .size = 1}, {.size = 0}};
	assert_int_equal(beton_writer_put(writer, 0, bad, &err), BETON_INVALID_ARGUMENT);
	beton_writer_cancel(writer);
	for (int i = 0; i < 4; i++) {
		pthread_join(ids[i], NULL);
		assert_int_equal(waiters[i].result, BETON_CANCELLED);
	}
	assert_int_equal(put_sample(writer, 0, &err), BETON_CANCELLED);
	assert_int_equal(beton_writer_finish(writer, &err), BETON_CANCELLED);
	beton_writer_close(&writer);
	assert_int_not_equal(access(path, F_OK), 0);
}

/* After a value that was refused, the index can be put again. */
static void test_again_after_refusal(void **state)
{
	(void)state;
	const char *path = in_folder("again.beton");
	beton_writer *writer = open_writer(path, 0, 0);
	const beton_input bad[] = {{.integer = 0}, {.data = NULL, .size = 1}, {.size = 0}};
	for (uint64_t i = 0; i < SAMPLES; i++) {
		assert_int_equal(beton_writer_put(writer, i, bad, NULL), BETON_INVALID_ARGUMENT);
		assert_int_equal(put_sample(writer, i, NULL), BETON_OK);
	}
	finish(writer);
	expect_equal(path, reference());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_number_of_threads),
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_indices),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_again_after_refusal),
	};
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
