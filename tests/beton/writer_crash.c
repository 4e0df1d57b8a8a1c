/* SPDX-License-Identifier: Apache-2.0
 *
 * A writer that is killed after every one of its system calls: the final name then has its old content, or the whole
 * new file; a later writer continues to the same bytes, or starts again. */
#include "tests/support/beton_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "killed.h"
#include "writer_job.h"

static file_content whole; /* what an undisturbed writer writes */
static char path[512];

static bool is_whole(void)
{
	file_content file = read_file(path);
	bool equal = file.size == whole.size && memcmp(file.data, whole.data, file.size) == 0;
	free(file.data);
	return equal;
}

static bool exists(const char *name)
{
	return access(name, F_OK) == 0;
}

static bool anything_temporary(void)
{
	return exists(in_folder(".new.beton.partial")) || exists(in_folder(".new.beton.partial.journal"));
}

static int write_job(const void *settings)
{
	return job_write(settings, NULL);
}

static void check_final_name(bool had_old)
{
	if (!exists(path)) {
		assert_false(had_old);
		return;
	}
	file_content file = read_file(path);
	bool old = file.size == 3 && memcmp(file.data, "old", 3) == 0;
	free(file.data);
	if (!(old && had_old))
		assert_true(is_whole());
}

static void kill_everywhere(bool resume, bool had_old, long step)
{
	uint64_t furthest = 0;
	long k = 0;
	for (;; k += step) {
		remove(path);
		if (had_old)
			write_file(path, "old", 3);
		/* A writer that is killed unexpectedly also leaves a resumable file. */
		const job_settings first = {.path = path, .resumable = resume};
		bool killed = killed_at(write_job, &first, k);
		check_final_name(had_old);
		uint64_t position = 0;
		const job_settings second = {
			.path = path, .resumable = resume, .resume = resume, .position = &position};
		beton_error err;
		if (job_write(&second, &err) != BETON_OK)
			fail_msg("after a kill at stop %ld: %s", k, err.message);
		if (!is_whole())
			fail_msg("after a kill at stop %ld, continued at %llu: other bytes", k,
				 (unsigned long long)position);
		assert_false(anything_temporary());
		if (position > furthest)
			furthest = position;
		if (!killed)
			break;
	}
	assert_true(k > 60);
	/* Killed at the very end, nothing is left to do: not even in the middle of finish, when pages move. */
	assert_int_equal(furthest, resume ? JOB_SAMPLES : 0);
}

static void test_start_again(void **state)
{
	(void)state;
	kill_everywhere(false, true, 3);
}

static void test_continue(void **state)
{
	(void)state;
	kill_everywhere(true, false, 2);
}

/* Killed, continued and killed, again and again: each time it gets further. */
static void test_killed_repeatedly(void **state)
{
	(void)state;
	remove(path);
	for (long k = 10;; k += 7) {
		const job_settings settings = {.path = path, .resumable = true, .resume = true};
		if (!killed_at(write_job, &settings, k))
			break;
		check_final_name(false);
	}
	assert_true(is_whole());
	assert_false(anything_temporary());
}

int main(void)
{
	if (!killed_may_trace()) {
		fprintf(stderr, "skipped: a process may not trace its child here\n");
		return 77;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start_again),
		cmocka_unit_test(test_continue),
		cmocka_unit_test(test_killed_repeatedly),
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
