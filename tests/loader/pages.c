/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages ahead of their use: every part of the file that an epoch needs is announced once, before its window begins, and
 * by every rank the same. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "loader/io/io.h"
#include "loader/io/pages.h"
#include "loader/order/order_quasi.h"
#include "loader/state.h"

enum { N = 3000, SIDE = 40, RANGES_MAX = 4096 };

static char *file;

static int write_file(void **state)
{
	(void)state;
	file = fixture_write(1, -1);
	const beton_field fields[] = {{.name = "label", .type = BETON_FIELD_INT},
				      {.name = "image", .type = BETON_FIELD_IMAGE}};
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.page_size = BETON_PAGE_SIZE_MIN;
	beton_writer *writer = NULL;
	assert_ok(beton_writer_open(&writer, file, fields, 2, &options, err));
	for (uint64_t i = 0; i < N; i++) {
		uint8_t *pixels = fixture_pixels(i, SIDE, SIDE);
		const beton_input inputs[] = {{.integer = (int64_t)i},
					      {.data = pixels,
					       .size = SIDE * SIDE * 3,
					       .mode = BETON_IMAGE_RAW,
					       .width = SIDE,
					       .height = SIDE}};
		assert_ok(beton_writer_append(writer, inputs, err));
		free(pixels);
	}
	assert_ok(beton_writer_finish(writer, err));
	beton_writer_close(&writer);
	return 0;
}

static int remove_file(void **state)
{
	(void)state;
	fixture_remove(file);
	return 0;
}

/* ---- announcements to the system ---- */

typedef struct range {
	off_t begin;
	off_t size;
} range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static range ranges[RANGES_MAX];
static size_t num_ranges;
static bool cached;

static int note_advice(int fd, off_t offset, off_t size, int advice)
{
	(void)fd;
	assert_int_equal(advice, POSIX_FADV_WILLNEED);
	pthread_mutex_lock(&lock);
	assert_true(num_ranges < RANGES_MAX);
	ranges[num_ranges++] = (range){offset, size};
	pthread_mutex_unlock(&lock);
	return ENOSYS; /* a hint may be refused */
}

static ssize_t read_at(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
	if (flags & RWF_NOWAIT && !cached) {
		errno = EAGAIN;
		return -1;
	}
	return preadv2(fd, parts, count, offset, flags);
}

static bt_io noting_io(void)
{
	bt_io io = bt_io_system;
	io.fadvise = note_advice;
	io.preadv2 = read_at;
	return io;
}

static beton_loader_options make_options(beton_order order)
{
	beton_loader_options options = fixture_options(64, 2);
	options.order = order;
	options.window_pages = 2;
	return options;
}

/* Waits until all due pages are announced: the announcing thread may be late, and leaves out pages that are over. */
static void wait_for_announcements(const beton_loader *loader, beton_iterator *iterator)
{
	for (bool behind = loader->pages.is_running; behind;) {
		uint64_t begin, end;
		pthread_mutex_lock(&loader->pool->lock);
		behind = bt_pages_due(iterator, &begin, &end) != NULL;
		pthread_mutex_unlock(&loader->pool->lock);
		nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
	}
}

/* Epochs; what was announced is in ranges, in the order of time. next_from: the ranges that were there when each
 * epoch's last batch was given. */
static void run_epochs(const beton_loader_options *options, uint64_t position, uint64_t epochs, size_t *next_from)
{
	bt_io io = noting_io();
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_iterator_options from;
	beton_iterator_options_init(&from);
	from.epoch = 3;
	from.position = position;
	from.epochs = epochs;
	num_ranges = 0;
	assert_ok(bt_loader_open(&loader, &(beton_source){.path = file}, 1, options, &io, err));
	assert_ok(beton_iterator_open_with(&iterator, loader, &from, err));
	wait_for_announcements(loader, iterator);
	for (uint64_t epoch = 0; epoch < epochs; epoch++) {
		beton_batch *batch;
		beton_error fault;
		int result;
		while ((result = beton_iterator_next(iterator, &batch, -1, &fault)) == BETON_OK) {
			for (uint32_t i = 0; i < batch->count; i++)
				assert_int_equal(((int64_t *)batch->tensors[0].data)[i], batch->sample_ids[i]);
			beton_batch_release(&batch);
			wait_for_announcements(loader, iterator);
		}
		assert_int_equal(result, BETON_END);
		pthread_mutex_lock(&lock);
		next_from[epoch] = num_ranges;
		pthread_mutex_unlock(&lock);
	}
	fixture_close(&loader, &iterator);
}

/* One epoch. */
static void run(const beton_loader_options *options, uint64_t position)
{
	size_t ignored;
	run_epochs(options, position, 1, &ignored);
}

static int compare(const void *a, const void *b)
{
	const range *left = a, *right = b;
	return left->begin < right->begin ? -1 : left->begin > right->begin;
}

/* Each sample's blob lies in just one of the ranges, which do not overlap. */
static void check_whole_file(void)
{
	beton_reader *reader = NULL;
	assert_ok(beton_reader_open(&reader, file, err));
	qsort(ranges, num_ranges, sizeof(*ranges), compare);
	for (size_t i = 1; i < num_ranges; i++)
		assert_true(ranges[i - 1].begin + ranges[i - 1].size <= ranges[i].begin);
	size_t at = 0;
	for (uint64_t i = 0; i < N; i++) {
		beton_value value;
		assert_ok(beton_reader_value(reader, i, 1, &value, err));
		off_t begin = (off_t)value.blob.offset, end = begin + (off_t)value.blob.size;
		while (at < num_ranges && ranges[at].begin + ranges[at].size <= begin)
			at++;
		assert_true(at < num_ranges && ranges[at].begin <= begin && end <= ranges[at].begin + ranges[at].size);
	}
	beton_reader_close(&reader);
}

static void every_part_is_announced_once(void **state)
{
	(void)state;
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_QUASI_RANDOM};
	for (int i = 0; i < 2; i++) {
		beton_loader_options options = make_options(orders[i]);
		run(&options, 0);
		/* About a page each. */
		assert_in_range(num_ranges, 5, 20);
		check_whole_file();
		/* A rank of several needs all of them, too. */
		range expected[RANGES_MAX];
		size_t count = num_ranges;
		memcpy(expected, ranges, sizeof(ranges));
		options.world_size = 3;
		options.rank = 2;
		options.batch_size = 16; /* so that what is begun at once ends within the first run */
		run(&options, 0);
		qsort(ranges, num_ranges, sizeof(*ranges), compare);
		assert_int_equal(num_ranges, count);
		assert_memory_equal(ranges, expected, count * sizeof(*ranges));
		/* A batch of all ranks together may need many of them. What is claimed before it was announced is left
		 * out: at most what is begun at once. */
		options.world_size = 16;
		options.rank = 1;
		options.batch_size = 64;
		options.batches_ahead = 1;
		run(&options, 0);
		assert_in_range(num_ranges, count - 3, count);
	}
}

/* The beginning of the next epoch is announced before this one has ended; and no page twice. */
static void the_next_epoch_is_announced_too(void **state)
{
	(void)state;
	const beton_order orders[] = {BETON_ORDER_SEQUENTIAL, BETON_ORDER_QUASI_RANDOM};
	for (int i = 0; i < 2; i++) {
		beton_loader_options options = make_options(orders[i]);
		options.batch_size = 16; /* so that what is begun at once ends within the first run */
		size_t behind[3];
		run_epochs(&options, 0, 1, behind);
		size_t of_one = num_ranges;
		run_epochs(&options, 0, 3, behind);
		assert_true(behind[0] > of_one && behind[1] > 2 * of_one);
		assert_int_equal(behind[2], 3 * of_one);
		for (size_t epoch = 0; epoch < 3; epoch++) {
			range all[RANGES_MAX];
			memcpy(all, ranges, sizeof(ranges));
			memmove(ranges, &ranges[epoch * of_one], of_one * sizeof(*ranges));
			num_ranges = of_one;
			check_whole_file();
			memcpy(ranges, all, sizeof(ranges));
		}
	}
}

static void a_rest_announces_the_rest(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_SEQUENTIAL);
	run(&options, 0);
	size_t all = num_ranges;
	run(&options, N / 2 / 64 * 64);
	assert_in_range(num_ranges, all / 2, all / 2 + 2);
}

static void nothing_is_announced_in_vain(void **state)
{
	(void)state;
	beton_loader_options options = make_options(BETON_ORDER_QUASI_RANDOM);
	cached = true;
	run(&options, 0);
	assert_int_equal(num_ranges, 0);
	cached = false;
	options.direct = true;
	run(&options, 0);
	assert_int_equal(num_ranges, 0);
	options = make_options(BETON_ORDER_RANDOM);
	run(&options, 0);
	assert_int_equal(num_ranges, 0);
}

/* ---- which runs are due ---- */

static void runs_are_due_before_their_window(void **state)
{
	(void)state;
	const uint64_t cases[][3] = {{1000, 10, 4}, {1003, 10, 4}, {1, 1, 1},   {64, 64, 2},
				     {65, 64, 1},   {977, 13, 7},  {50, 3, 100}};
	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		uint64_t n = cases[c][0];
		bt_quasi quasi = bt_quasi_make(n, cases[c][1], cases[c][2], 5 + c);
		uint64_t runs = (n + quasi.run - 1) / quasi.run, last_end = 0;
		uint64_t *place = calloc(n, sizeof(*place)); /* of each entry's run */
		uint32_t *seen = calloc(n, sizeof(*seen));
		for (uint64_t r = 0; r < runs; r++) {
			uint64_t first, last;
			bt_quasi_run(&quasi, r, &first, &last);
			for (uint64_t e = first; e <= last; e++) {
				place[e] = r;
				seen[e]++;
			}
		}
		for (uint64_t e = 0; e < n; e++)
			assert_int_equal(seen[e], 1);
		for (uint64_t p = 0; p < n; p++) {
			uint64_t begin, end;
			bt_quasi_due(&quasi, p, &begin, &end);
			assert_true(begin <= place[bt_quasi_at(&quasi, p)] && place[bt_quasi_at(&quasi, p)] < end);
			assert_true(end >= last_end && end <= runs);
			last_end = end;
		}
		assert_int_equal(last_end, runs);
		free(place);
		free(seen);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_part_is_announced_once),     cmocka_unit_test(the_next_epoch_is_announced_too),
		cmocka_unit_test(a_rest_announces_the_rest),        cmocka_unit_test(nothing_is_announced_in_vain),
		cmocka_unit_test(runs_are_due_before_their_window),
	};
	return cmocka_run_group_tests(tests, write_file, remove_file);
}
