/* SPDX-License-Identifier: Apache-2.0
 *
 * Every system call and allocation of the writer fails in turn, once or from then on: the writer says so, the final
 * name has its old content or the whole new file, no temporary file stays, and an unfinished file can be continued. */
#include "tests/support/beton_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failing_calls.h"
#include "writer_job.h"

static file_content whole;
static char path[512];

static bool is_whole(void)
{
	file_content file = read_file(path);
	bool equal = file.size == whole.size && memcmp(file.data, whole.data, file.size) == 0;
	free(file.data);
	return equal;
}

static bool is_old(void)
{
	file_content file = read_file(path);
	bool old = file.size == 3 && memcmp(file.data, "old", 3) == 0;
	free(file.data);
	return old;
}

static bool anything_temporary(void)
{
	return access(in_folder(".new.beton.partial"), F_OK) == 0 ||
	       access(in_folder(".new.beton.partial.journal"), F_OK) == 0;
}

typedef struct expectation {
	failing_call kind;
	int error_number;
	int code;         /* what the writer says, where it must fail */
	bool may_succeed; /* not every call of the kind matters */
} expectation;

/* One run with the k-th call failing; whether there was one. */
static bool run(const expectation *expected, bool resumable, bool for_ever, long k)
{
	write_file(path, "old", 3);
	beton_error err = {0};
	const job_settings settings = {.path = path, .resumable = resumable, .resume = resumable};
	fault.for_ever = for_ever;
	fail_call(expected->kind, expected->error_number, k);
	int code = job_write(&settings, &err);
	fault.first = -1;
	bool failing = fault.hits > 0 && !expected->may_succeed;
	if (code == BETON_OK ? failing || !is_whole() : fault.hits == 0 || !err.message[0] || !(is_old() || is_whole()))
		fail_msg("call %d, number %ld: %s: %s", (int)expected->kind, k, beton_status_name(code), err.message);
	if (anything_temporary() && (code == BETON_OK || !resumable))
		fail_msg("call %d, number %ld: %s: temporary files are left", (int)expected->kind, k, err.message);
	if (code != BETON_OK)
		assert_int_equal(code, expected->code);
	if (code != BETON_OK) {
		assert_int_equal(job_write(&settings, &err), BETON_OK);
		assert_true(is_whole());
		assert_false(anything_temporary());
	}
	return fault.hits > 0;
}

static long run_all(const expectation *expected, bool resumable, bool for_ever, long step)
{
	long k = 0;
	while (run(expected, resumable, for_ever, k))
		k += step;
	return k;
}

static void test_26_27_30_system_calls(void **state)
{
	(void)state;
	static const expectation cases[] = {
		{CALL_WRITE, ENOSPC, BETON_NO_SPACE, false},   {CALL_WRITE, EIO, BETON_IO, false},
		{CALL_WRITE, EFBIG, BETON_NO_SPACE, false},    {CALL_WRITE, EDQUOT, BETON_NO_SPACE, false},
		{CALL_OPEN, EMFILE, BETON_SYSTEM, false},      {CALL_OPEN, EACCES, BETON_ACCESS, false},
		{CALL_TRUNCATE, EIO, BETON_IO, false},         {CALL_SYNC, EIO, BETON_IO, false},
		{CALL_SYNC, ENOSPC, BETON_NO_SPACE, false},    {CALL_CLOSE, EIO, BETON_IO, true},
		{CALL_RENAME, EXDEV, BETON_IO, false},         {CALL_RENAME, EACCES, BETON_ACCESS, false},
		{CALL_LOCK, EWOULDBLOCK, BETON_EXISTS, false}, {CALL_LOCK, ENOLCK, BETON_IO, false},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int resumable = 0; resumable < 2; resumable++) {
			/* A lock that another holds stays where it is: its files are not ours to remove. */
			if (cases[i].kind == CALL_LOCK && cases[i].error_number == EWOULDBLOCK && !resumable)
				continue;
			assert_true(run_all(&cases[i], resumable, i % 2, cases[i].kind == CALL_WRITE ? 5 : 1) > 0);
		}
}

/* Where a writer that was asked to continue would do so; it leaves all as it is. */
static uint64_t position_left(void)
{
	uint64_t position = 0;
	const job_settings settings = {
		.path = path, .resumable = true, .resume = true, .stop = 1, .position = &position};
	assert_int_equal(job_write(&settings, NULL), BETON_OK);
	return position;
}

/* A writer that cannot even open what an earlier one left has not made it worthless. */
static void test_30_failed_resume_keeps_what_is_left(void **state)
{
	(void)state;
	static const expectation cases[] = {
		{CALL_OPEN, EMFILE, BETON_SYSTEM, false},        {CALL_OPEN, EACCES, BETON_ACCESS, false},
		{CALL_TRUNCATE, EIO, BETON_IO, false},           {CALL_LOCK, ENOLCK, BETON_IO, false},
		{CALL_ALLOCATE, ENOMEM, BETON_NO_MEMORY, false},
	};
	const job_settings first = {.path = path, .resumable = true, .resume = true, .stop = JOB_SAMPLES};
	const job_settings again = {.path = path, .resumable = true, .resume = true, .stop = 1};
	assert_int_equal(job_write(&first, NULL), BETON_OK);
	uint64_t left = position_left();
	assert_true(left > JOB_SAMPLES / 2);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		fault.for_ever = false;
		fault.hits = 1;
		for (long k = 0; fault.hits > 0; k++) {
			fail_call(cases[i].kind, cases[i].error_number, k);
			int code = job_write(&again, NULL);
			fault.first = -1;
			assert_int_equal(code, fault.hits ? cases[i].code : BETON_OK);
			assert_int_equal(position_left(), left);
		}
	}
	assert_int_equal(job_write(&(job_settings){.path = path, .resumable = true, .resume = true}, NULL), BETON_OK);
	assert_true(is_whole());
}

/* After a sync that failed, what is read back may stand in memory alone, and the next sync succeed. */
static void test_27_failed_sync_is_not_continued(void **state)
{
	(void)state;
	const job_settings settings = {.path = path, .resumable = true, .resume = true};
	for (long k = 0; k < 2; k++) {
		fault.for_ever = false;
		fail_call(CALL_SYNC, EIO, k);
		assert_int_equal(job_write(&settings, NULL), BETON_IO);
		fault.first = -1;
		assert_false(anything_temporary());
	}
}

/* Half a write, or an interrupted write, is not a fault. */
static void test_24_short_writes(void **state)
{
	(void)state;
	const job_settings settings = {.path = path};
	for (int interrupted = 0; interrupted < 2; interrupted++)
		for (long k = 0; k < 30; k += 4) {
			fault.cut = !interrupted;
			fault.for_ever = !interrupted;
			fail_call(CALL_WRITE, EINTR, k);
			int code = job_write(&settings, NULL);
			fault.first = -1;
			assert_int_equal(code, BETON_OK);
			assert_true(fault.hits > 0);
			assert_true(is_whole());
		}
	fault.cut = false;
}

static void test_37_allocations(void **state)
{
	(void)state;
	static const expectation expected = {CALL_ALLOCATE, ENOMEM, BETON_NO_MEMORY, false};
	for (long k = 0; k < 40; k++)
		assert_true(run(&expected, k % 2, false, k));
	assert_true(run_all(&expected, false, false, 97) > 900);
}

/* The window's copies and chains, and what compression needs. */
static void test_37_allocations_of_the_window(void **state)
{
	(void)state;
	const beton_field fields[] = {{.name = "b", .type = BETON_FIELD_BYTES},
				      {.name = "z", .type = BETON_FIELD_BYTES, .compression = BETON_COMPRESSION_ZSTD}};
	const beton_input values[] = {{.data = "0123", .size = 4}, {.data = "0123", .size = 4}};
	bool failed = true;
	for (long k = 0; failed; k++) {
		beton_writer *writer = NULL;
		beton_error err;
		fault.for_ever = false;
		fail_call(CALL_ALLOCATE, ENOMEM, k);
		int code = beton_writer_open(&writer, path, fields, 2, NULL, &err);
		for (uint64_t i = 150; i-- > 0 && code == BETON_OK;)
			code = beton_writer_put(writer, i, values, &err);
		if (code == BETON_OK)
			code = beton_writer_finish(writer, &err);
		fault.first = -1;
		failed = fault.hits > 0;
		assert_int_equal(code, failed ? BETON_NO_MEMORY : BETON_OK);
		if (failed && writer)
			assert_int_equal(beton_writer_finish(writer, &err), BETON_STATE);
		beton_writer_close(&writer);
		assert_false(anything_temporary());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_26_27_30_system_calls),
		cmocka_unit_test(test_30_failed_resume_keeps_what_is_left),
		cmocka_unit_test(test_27_failed_sync_is_not_continued),
		cmocka_unit_test(test_24_short_writes),
		cmocka_unit_test(test_37_allocations),
		cmocka_unit_test(test_37_allocations_of_the_window),
	};
	/* Hundreds of files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	make_folder();
	snprintf(path, sizeof(path), "%s", in_folder("new.beton"));
	beton_error err;
	if (job_write(&(job_settings){.path = in_folder("whole.beton")}, &err) != BETON_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	whole = read_file(in_folder("whole.beton"));
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	free(whole.data);
	remove_folder();
	return failed;
}
