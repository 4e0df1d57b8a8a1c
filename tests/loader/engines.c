/* SPDX-License-Identifier: Apache-2.0
 *
 * One body of tests over every I/O engine, with faults in the table of system calls below them. The numbers refer to
 * the cases that they cover: 23 errors of the device, 24 short and interrupted reads, 25 stalls, 32 no ring, 33 no
 * registration, 34 completions, 35 closing with reads in flight and fork, 36 direct reads.
 *
 * Usage: test-loader-engines threads|uring. `uring` exits with 77 without io_uring. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef BT_HAVE_URING
#include <liburing.h>
#endif

#include "common/system.h"
#include "faults.h"
#include "loader/io/engine.h"

enum { SAMPLES = 400, DEPTH = 16, LANES = 4 };
enum { ARENA = 4 << 20 };

typedef struct variant {
	const char *name;
	beton_engine which;
	bool direct;
} variant;

static const variant variants_threads[] = {{"mmap", BETON_ENGINE_MMAP, false},
					   {"threads", BETON_ENGINE_THREADS, false},
					   {"threads, direct", BETON_ENGINE_THREADS, true}};
static const variant variants_uring[] = {{"uring", BETON_ENGINE_URING, false},
					 {"uring, direct", BETON_ENGINE_URING, true}};

static const variant *variants;
static size_t num_variants;

static char *path;
static beton_reader *reader;
static uint8_t *content; /* of the file */
static uint64_t file_size;

typedef struct opened {
	const bt_engine_api *api;
	bt_engine *engine;
	bt_lane *lanes[LANES];
	uint8_t *arenas[LANES];
	bt_files *files;
} opened;

static void open_engine(opened *o, const variant *v, uint32_t depth)
{
	const bt_files_config files = {.count = 1, .direct = v->direct, .log = count_line, .io = &fault_io};
	assert_ok(bt_files_open(&o->files, &files, err));
	assert_ok(bt_files_name(o->files, 0, beton_reader_path(reader), err));
	o->files->list[0].size = file_size;
	const bt_engine_config config = {.files = o->files, .lanes = LANES, .depth = depth};
	assert_ok(bt_engine_open(&o->api, &o->engine, v->which, &config, err));
	for (uint32_t i = 0; i < LANES; i++) {
		o->arenas[i] = aligned_alloc(BT_ARENA_ALIGNMENT, ARENA);
		assert_non_null(o->arenas[i]);
		assert_ok(o->api->lane_open(o->engine, i, o->arenas[i], ARENA, &o->lanes[i], err));
	}
}

static void close_engine(opened *o)
{
	for (uint32_t i = 0; i < LANES; i++) {
		o->api->lane_close(&o->lanes[i]);
		assert_null(o->lanes[i]);
		free(o->arenas[i]);
	}
	o->api->close(&o->engine);
	assert_null(o->engine);
	bt_files_close(&o->files);
}

static uint64_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return *state >> 33;
}

static void choose(const opened *o, uint64_t *state, bt_read *read, size_t limit)
{
	*read = (bt_read){.file = &o->files->list[0]};
	uint64_t size = next_random(state) % 8 == 0 ? next_random(state) % limit
						    : next_random(state) % (limit < 20000 ? limit : 20000);
	read->offset = next_random(state) % 16 == 0 ? file_size - size : next_random(state) % (file_size - size);
	if (next_random(state) % 4 == 0)
		read->offset -= read->offset % 4096;
	read->size = size;
}

/* Reads ahead as a worker does: `depth` reads on their way, each in its part of the arena, waited for in their order.
 * Returns how many were wrong; failed reads are counted separately. */
typedef struct outcome {
	int wrong;
	int failed;
	beton_error first;
} outcome;

static outcome read_ahead(opened *o, uint32_t lane, uint32_t depth, uint32_t total, uint64_t seed)
{
	outcome result = {0};
	size_t part = ARENA / depth / BT_ARENA_ALIGNMENT * BT_ARENA_ALIGNMENT;
	bt_read *reads = calloc(depth, sizeof(*reads));
	for (uint32_t i = 0; i < total + depth; i++) {
		bt_read *read = &reads[i % depth];
		if (i >= depth) {
			beton_error fault = {0};
			if (o->api->wait(o->lanes[lane], read, &fault) != BETON_OK) {
				if (!result.failed++)
					result.first = fault;
			} else {
				result.wrong += memcmp(read->bytes, content + read->offset, (size_t)read->size) != 0;
			}
		}
		if (i < total) {
			choose(o, &seed, read,
			       part - 3 * BT_ARENA_ALIGNMENT < 300000 ? part - 3 * BT_ARENA_ALIGNMENT : 300000);
			size_t footprint = o->api->footprint(o->engine, read->offset, read->size);
			result.wrong += footprint > part || footprint % BT_ARENA_ALIGNMENT != 0;
			o->api->submit(o->lanes[lane], read, o->arenas[lane] + part * (i % depth));
		} else {
			reads[i % depth].size = 0;
			reads[i % depth].offset = 0;
			if (i + 1 < total + depth)
				o->api->submit(o->lanes[lane], read, o->arenas[lane] + part * (i % depth));
		}
	}
	free(reads);
	return result;
}

static void expect_right(const variant *v, const char *what)
{
	opened o;
	open_engine(&o, v, DEPTH);
	outcome result = read_ahead(&o, 0, DEPTH, 200, 1);
	if (result.failed || result.wrong)
		fail_msg("%s, %s: %d failed, %d wrong: %s", v->name, what, result.failed, result.wrong,
			 result.first.message);
	close_engine(&o);
}

static void expect_lines(int count)
{
	if (!short_of_memory)
		assert_int_equal(faults.lines, count);
}

#define FOR_EACH_VARIANT(v) for (const variant *v = variants; v < variants + num_variants; v++)

static void same_bytes(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		no_faults();
		expect_right(v, "from the page cache");
		faults.cold = true;
		expect_right(v, "cold");
		opened o;
		open_engine(&o, v, 2);
		/* More reads at once than were announced. */
		outcome result = read_ahead(&o, 1, 64, 300, 2);
		assert_int_equal(result.wrong + result.failed, 0);
		expect_lines(0);
		close_engine(&o);
	}
}

typedef struct lane_thread {
	opened *engine;
	uint32_t lane;
	outcome result;
} lane_thread;

static void *run_lane(void *argument)
{
	lane_thread *self = argument;
	self->result = read_ahead(self->engine, self->lane, DEPTH, 300, 10 + self->lane);
	return NULL;
}

static void lanes_in_threads(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	for (int cold = 0; cold < 2; cold++) {
		no_faults();
		faults.cold = cold;
		faults.most = cold ? 5000 : 0;
		opened o;
		open_engine(&o, v, DEPTH);
		pthread_t threads[LANES];
		lane_thread lanes[LANES];
		for (uint32_t i = 0; i < LANES; i++) {
			lanes[i] = (lane_thread){.engine = &o, .lane = i};
			assert_int_equal(pthread_create(&threads[i], NULL, run_lane, &lanes[i]), 0);
		}
		for (uint32_t i = 0; i < LANES; i++) {
			pthread_join(threads[i], NULL);
			assert_int_equal(lanes[i].result.wrong + lanes[i].result.failed, 0);
		}
		close_engine(&o);
	}
}

static void case_24_short_reads(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		static const unsigned most[] = {513, 4096, 5000, 65536 + 100};
		for (size_t i = 0; i < sizeof(most) / sizeof(*most); i++) {
			no_faults();
			faults.most = most[i];
			expect_right(v, "short");
			faults.cold = true;
			expect_right(v, "short and cold");
		}
	}
}

static void case_24_34_interruptions(void **state)
{
	(void)state;
	static const int numbers[] = {EINTR, EAGAIN, EBUSY, ECANCELED};
	FOR_EACH_VARIANT(v)
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		no_faults();
		faults.cold = true;
		faults.fault = numbers[i];
		faults.count = 1000000;
		faults.every = 3;
		expect_right(v, strerror(numbers[i]));
		expect_lines(0);
	}
}

static void case_23_device_errors(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		if (v->which == BETON_ENGINE_MMAP)
			continue; /* its reads are page faults */
		for (int from = 0; from < 40; from++) {
			no_faults();
			faults.cold = true;
			faults.fault = EIO;
			faults.from = from;
			faults.count = 3;
			expect_right(v, "an error of the device that passes");
		}
		no_faults();
		faults.cold = true;
		faults.fault = EIO;
		faults.count = 1000000;
		opened o;
		open_engine(&o, v, DEPTH);
		bt_read read = {.file = &o.files->list[0], .offset = 4097, .size = 1000};
		o.api->submit(o.lanes[0], &read, o.arenas[0]);
		beton_error fault = {0};
		assert_int_equal(o.api->wait(o.lanes[0], &read, &fault), BETON_IO);
		assert_int_equal(fault.code, BETON_IO);
		assert_non_null(strstr(fault.message, path));
		assert_non_null(strstr(fault.message, "offset 4097"));
		assert_non_null(strstr(fault.message, strerror(EIO)));
		assert_int_equal(faults.calls, 4); /* bounded */
		/* The lane goes on, and loses nothing. */
		faults.fault = 0;
		outcome result = read_ahead(&o, 0, DEPTH, 50, 3);
		assert_int_equal(result.wrong + result.failed, 0);
		close_engine(&o);
	}
}

static void end_of_file(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		no_faults();
		char copy[] = "/tmp/beton-engines-XXXXXX";
		int fd = mkstemp(copy);
		assert_true(fd >= 0);
		assert_int_equal(bt_write_full(fd, content, (size_t)file_size), 0);
		beton_reader *whole = reader;
		assert_ok(beton_reader_open(&reader, copy, err));
		opened o;
		open_engine(&o, v, DEPTH);
		assert_int_equal(ftruncate(fd, (off_t)(file_size / 2 + 100)), 0);
		bt_read read = {.file = &o.files->list[0], .offset = file_size / 2 - 50, .size = 10000};
		o.api->submit(o.lanes[0], &read, o.arenas[0]);
		beton_error fault = {0};
		assert_int_equal(o.api->wait(o.lanes[0], &read, &fault), BETON_FILE_CHANGED);
		assert_non_null(strstr(fault.message, copy));
		char end[64];
		snprintf(end, sizeof(end), ": ends at byte %llu, in the 10000 bytes",
			 (unsigned long long)(file_size / 2 + 100));
		assert_true(strstr(fault.message, end) || strstr(fault.message, "shrank"));
		/* Where nothing is left, the end is not known. */
		read = (bt_read){.file = &o.files->list[0], .offset = file_size - 50000, .size = 10000};
		o.api->submit(o.lanes[0], &read, o.arenas[0]);
		assert_int_equal(o.api->wait(o.lanes[0], &read, &fault), BETON_FILE_CHANGED);
		if (strstr(fault.message, "ends at byte"))
			fail_msg("%s", fault.message);
		close_engine(&o);
		beton_reader_close(&reader);
		reader = whole;
		close(fd);
		unlink(copy);
	}
}

static void *wait_for_one(void *argument)
{
	opened *o = argument;
	bt_read read = {.file = &o->files->list[0], .offset = 12345, .size = 100};
	o->api->submit(o->lanes[0], &read, o->arenas[0]);
	beton_error fault = {0};
	return (void *)(intptr_t)(o->api->wait(o->lanes[0], &read, &fault) != BETON_OK ||
				  memcmp(read.bytes, content + read.offset, 100) != 0);
}

static void case_25_stalled_read(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		if (v->which == BETON_ENGINE_MMAP)
			continue;
		no_faults();
		faults.cold = true;
		opened o;
		open_engine(&o, v, DEPTH);
		uint64_t since, offset;
		const bt_file *stalled;
		assert_false(bt_lane_stalled(o.lanes[0], &since, &stalled, &offset));
		/* A ring's read that is over at once is not a stall: the answer is taken for a passing one. */
		faults.block = true;
		faults.fault = v->which == BETON_ENGINE_URING ? EAGAIN : 0;
		faults.count = 1;
		assert_int_equal(sem_init(&gate, 0, 0), 0);
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, wait_for_one, &o), 0);
		bool may_finish_early = v->which == BETON_ENGINE_URING;
		for (int i = 0; i < 2000 && !bt_lane_stalled(o.lanes[0], &since, &stalled, &offset); i++)
			usleep(1000);
		if (bt_lane_stalled(o.lanes[0], &since, &stalled, &offset)) {
			assert_true(since <= bt_now_ns());
			assert_int_equal(offset, 12345);
			assert_ptr_equal(stalled, &o.files->list[0]);
		} else {
			assert_true(may_finish_early);
		}
		faults.block = false;
		for (int i = 0; i < 100; i++)
			sem_post(&gate);
		void *wrong;
		pthread_join(thread, &wrong);
		assert_null(wrong);
		assert_false(bt_lane_stalled(o.lanes[0], &since, &stalled, &offset));
		close_engine(&o);
		sem_destroy(&gate);
	}
}

static void case_35_close_with_reads_in_flight(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	for (int round = 0; round < 20; round++) {
		no_faults();
		faults.cold = true;
		opened o;
		open_engine(&o, v, DEPTH);
		bt_read reads[LANES][DEPTH];
		uint64_t seed = (uint64_t)round;
		for (uint32_t lane = 0; lane < LANES; lane++)
			for (uint32_t i = 0; i < DEPTH; i++) {
				choose(&o, &seed, &reads[lane][i], 100000);
				o.api->submit(o.lanes[lane], &reads[lane][i],
					      o.arenas[lane] + (size_t)i * (ARENA / DEPTH));
			}
		close_engine(&o);
	}
}

static void case_35_fork(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		no_faults();
		faults.cold = true;
		opened o;
		open_engine(&o, v, DEPTH);
		bt_read read = {.file = &o.files->list[0], .offset = 5000, .size = 70000};
		o.api->submit(o.lanes[0], &read, o.arenas[0]);
		pid_t child = fork();
		if (child == 0) {
			close_engine(&o);
			_exit(0);
		}
		int status;
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		assert_ok(o.api->wait(o.lanes[0], &read, err));
		assert_memory_equal(read.bytes, content + read.offset, read.size);
		outcome result = read_ahead(&o, 0, DEPTH, 50, 3);
		assert_int_equal(result.wrong + result.failed, 0);
		close_engine(&o);
	}
}

static void case_36_direct_refused(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		if (!v->direct)
			continue;
		no_faults();
		faults.open_fault = EINVAL;
		expect_right(v, "without direct reads");
		expect_lines(1);
		no_faults();
		faults.misaligned = true;
		expect_right(v, "with misaligned direct reads");
		expect_lines(1);
		assert_non_null(strstr(faults.line, path));
	}
}

static void poisoned_buffer(void **state)
{
	(void)state;
#ifdef __SANITIZE_ADDRESS__
	FOR_EACH_VARIANT(v)
	{
		if (v->which == BETON_ENGINE_MMAP)
			continue;
		no_faults();
		opened o;
		open_engine(&o, v, DEPTH);
		uint8_t *small = aligned_alloc(BT_ARENA_ALIGNMENT, BT_ARENA_ALIGNMENT);
		bt_read read = {.file = &o.files->list[0], .offset = 4096, .size = 5000};
		o.api->submit(o.lanes[0], &read, small);
		beton_error fault;
		assert_int_equal(o.api->wait(o.lanes[0], &read, &fault), BETON_IO);
		free(small);
		close_engine(&o);
	}
#endif
}

#ifdef BT_HAVE_URING
static void case_32_no_ring(void **state)
{
	(void)state;
	static const int numbers[] = {ENOSYS, EPERM, ENOMEM, EMFILE, EACCES};
	FOR_EACH_VARIANT(v)
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		no_faults();
		faults.setup_fault = numbers[i];
		opened o;
		open_engine(&o, v, DEPTH);
		assert_string_equal(o.api->name, "threads");
		expect_lines(1);
		assert_non_null(strstr(faults.line, strerror(numbers[i])));
		close_engine(&o);
		expect_right(v, "without a ring");

		no_faults();
		faults.setup_fault = numbers[i];
		faults.setup_entries = 8;
		open_engine(&o, v, 64);
		if (!short_of_memory)
			assert_string_equal(o.api->name, numbers[i] == ENOMEM ? "uring" : "threads");
		expect_lines(1);
		outcome result = read_ahead(&o, 0, 64, 200, 4);
		assert_int_equal(result.wrong + result.failed, 0);
		close_engine(&o);
	}
}

static void case_33_no_registration(void **state)
{
	(void)state;
	static const int numbers[] = {ENOMEM, EFAULT, EINVAL, EMFILE};
	FOR_EACH_VARIANT(v)
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		no_faults();
		faults.register_fault = numbers[i];
		expect_right(v, "unregistered");
		no_faults();
		faults.fault = numbers[i] == EMFILE ? EINVAL : numbers[i];
		faults.count = 1;
		faults.only_fixed = true;
		if (faults.fault == ENOMEM)
			continue;
		expect_right(v, "a registered buffer that is refused later");
	}
}

static void case_34_submission(void **state)
{
	(void)state;
	static const int numbers[] = {EINTR, EAGAIN, EBUSY};
	FOR_EACH_VARIANT(v)
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		no_faults();
		faults.fault = faults.submit_fault = numbers[i];
		faults.every = 2;
		faults.count = 1000000;
		expect_right(v, "submission refused every other time");
		expect_lines(0);
		/* For ever, from some call on: then without the ring. */
		for (int from = 0; from < 60; from += 30) {
			no_faults();
			faults.fault = faults.submit_fault = numbers[i];
			faults.from = from;
			faults.count = 1000000;
			expect_right(v, "submission refused for ever");
			expect_lines(faults.lines > 0);
		}
	}
	FOR_EACH_VARIANT(v)
	{
		no_faults();
		faults.fault = faults.submit_fault = EBADF;
		faults.from = 10;
		faults.count = 1;
		expect_right(v, "a broken ring");
		expect_lines(1);
	}
}

static void case_34_completions(void **state)
{
	(void)state;
	FOR_EACH_VARIANT(v)
	{
		no_faults();
		faults.swap = true;
		expect_right(v, "another order");
		faults.most = 4096;
		expect_right(v, "another order, and short");
		no_faults();
		faults.setup_entries = 4;
		opened o;
		open_engine(&o, v, 256);
		outcome result = read_ahead(&o, 0, 256, 2000, 5);
		assert_int_equal(result.wrong + result.failed, 0);
		close_engine(&o);
	}
}

static bool have_uring(void)
{
	struct io_uring ring;
	int result = io_uring_queue_init(4, &ring, 0);
	if (result == 0)
		io_uring_queue_exit(&ring);
	else
		fprintf(stderr, "skipped: io_uring is not available: %s\n", strerror(-result));
	return result == 0;
}
#endif

static void make_file(void)
{
	path = fixture_write(SAMPLES, -1);
	int fd = open(path, O_RDONLY);
	struct stat status;
	assert_true(fd >= 0 && fstat(fd, &status) == 0);
	file_size = (uint64_t)status.st_size;
	content = malloc((size_t)file_size);
	assert_non_null(content);
	assert_int_equal(bt_pread_full(fd, content, (size_t)file_size, 0), status.st_size);
	close(fd);
	assert_ok(beton_reader_open(&reader, path, err));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_bytes),
		cmocka_unit_test(lanes_in_threads),
		cmocka_unit_test(case_23_device_errors),
		cmocka_unit_test(case_24_short_reads),
		cmocka_unit_test(case_24_34_interruptions),
		cmocka_unit_test(case_25_stalled_read),
		cmocka_unit_test(case_35_close_with_reads_in_flight),
		cmocka_unit_test(case_35_fork),
		cmocka_unit_test(case_36_direct_refused),
		cmocka_unit_test(end_of_file),
		cmocka_unit_test(poisoned_buffer),
	};
	int failed;
	make_file();
	if (argc == 2 && !strcmp(argv[1], "uring")) {
#ifdef BT_HAVE_URING
		const struct CMUnitTest more[] = {
			cmocka_unit_test(case_32_no_ring),
			cmocka_unit_test(case_33_no_registration),
			cmocka_unit_test(case_34_submission),
			cmocka_unit_test(case_34_completions),
		};
		variants = variants_uring;
		num_variants = sizeof(variants_uring) / sizeof(*variants_uring);
		failed = have_uring() ? cmocka_run_group_tests_name("engines", tests, NULL, NULL) +
						cmocka_run_group_tests_name("rings", more, NULL, NULL)
				      : 77;
#else
		fprintf(stderr, "skipped: built without liburing\n");
		(void)variants_uring;
		failed = 77;
#endif
	} else {
		variants = variants_threads;
		num_variants = sizeof(variants_threads) / sizeof(*variants_threads);
		failed = cmocka_run_group_tests_name("engines", tests, NULL, NULL);
	}
	beton_reader_close(&reader);
	fixture_remove(path);
	free(content);
	return failed;
}
