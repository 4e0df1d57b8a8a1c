/* SPDX-License-Identifier: Apache-2.0
 *
 * Adding to a set of shards, killed at each system call, and with each call and allocation failing: readers find the
 * old index or the new one, nothing is lost, and the next process can add. */
#include "tests/support/beton_files.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "failing_calls.h"
#include "tests/support/set_files.h"

#define INDEX "x.betonset"
#define PARTIAL ".x.betonset.partial"

/* ---- the set ---- */

static int setup(void **state)
{
	(void)state;
	static const char facts[] = "{\"classes\": [\"cat\", \"dog\"]}";
	return chdir(make_folder()) || make_shard("a.beton", (shard_kind){.samples = 3, .facts = facts}) ||
	       make_shard("b.beton", (shard_kind){.samples = 2, .first = 3}) ||
	       make_shard("c.beton", (shard_kind){.samples = 4, .first = 5, .facts = facts});
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return chdir("/");
}

static int write_one(const char *shard, beton_set_mode mode, beton_error *err)
{
	return beton_set_write(INDEX, mode, &shard, 1, NULL, err);
}

/* How many shards the set has; 0: there is none. */
static uint32_t count_shards(void)
{
	beton_set *set;
	beton_error err;
	int result = beton_set_open(&set, INDEX, &err);
	if (result == BETON_NOT_FOUND)
		return 0;
	if (result != BETON_OK)
		fail_msg("%s", err.message);
	uint32_t count = beton_set_get_info(set)->num_shards;
	beton_set_close(&set);
	return count;
}

static bool is_there(const char *name)
{
	return access(name, F_OK) == 0;
}

/* As it was before: nothing, or the set of a. */
static void begin(beton_set_mode mode)
{
	unlink(INDEX);
	unlink(PARTIAL);
	if (mode == BETON_SET_APPEND)
		assert_int_equal(write_one("a.beton", BETON_SET_CREATE, NULL), BETON_OK);
}

/* ---- killed ---- */

/* Goes on to the child's k-th stop: 0 is before all calls, odd stops are before a call, even stops after it. False when
 * it ended before that. */
static bool run_to(pid_t child, long k)
{
	int status;
	for (long stop = 0;; stop++) {
		assert_int_equal(waitpid(child, &status, 0), child);
		if (WIFEXITED(status))
			break;
		assert_true(WIFSTOPPED(status));
		if (stop == 0)
			ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL);
		if (stop == k)
			return true;
		assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
	}
	assert_int_equal(WEXITSTATUS(status), 0);
	return false;
}

static pid_t begin_traced(beton_set_mode mode)
{
	pid_t child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(77);
		raise(SIGSTOP);
		_exit(write_one("b.beton", mode, NULL) == BETON_OK ? 0 : 1);
	}
	assert_true(child > 0);
	return child;
}

static void end_by_kill(pid_t child)
{
	int status;
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
}

static void kill_everywhere(beton_set_mode mode)
{
	bool old = false, new = false;
	uint32_t before = mode == BETON_SET_APPEND;
	long k = 0;
	for (bool killed = true; killed; k++) {
		begin(mode);
		pid_t child = begin_traced(mode);
		killed = run_to(child, k);
		if (killed)
			end_by_kill(child);
		uint32_t now = count_shards();
		if (now != before && now != before + 1)
			fail_msg("killed at stop %ld: %u shards", k, now);
		old |= now == before;
		new |= killed &&now == before + 1;
		beton_error err;
		int result = write_one("b.beton", mode, &err);
		if (result != (now == before ? BETON_OK : BETON_EXISTS))
			fail_msg("after a kill at stop %ld: %s", k, err.message);
		assert_int_equal(write_one("c.beton", BETON_SET_APPEND, &err), BETON_OK);
		assert_int_equal(count_shards(), before + 2);
		assert_false(is_there(PARTIAL));
	}
	assert_true(old && new &&k > 30);
}

static void test_killed_append(void **state)
{
	(void)state;
	kill_everywhere(BETON_SET_APPEND);
}

static void test_killed_create(void **state)
{
	(void)state;
	kill_everywhere(BETON_SET_CREATE);
}

/* Another process adds while one stands still at a call, until that one is killed. */
static void test_killed_while_others_wait(void **state)
{
	(void)state;
	long k = 1, waited = 0;
	for (bool killed = true; killed; k += 2) {
		begin(BETON_SET_APPEND);
		pid_t child = begin_traced(BETON_SET_APPEND);
		killed = run_to(child, k);
		pid_t other = fork();
		if (other == 0)
			_exit(write_one("c.beton", BETON_SET_APPEND, NULL) == BETON_OK ? 0 : 1);
		assert_true(other > 0);
		/* The stopped process holds the lock, or the other process is free to go on. */
		int status, fd = open(PARTIAL, O_RDWR | O_CLOEXEC);
		waited += killed && fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
		if (fd >= 0)
			close(fd);
		if (killed)
			end_by_kill(child);
		assert_int_equal(waitpid(other, &status, 0), other);
		assert_int_equal(status, 0);
		uint32_t now = count_shards();
		assert_true(now == 2 || now == 3);
		assert_int_equal(write_one("b.beton", BETON_SET_APPEND, NULL), now == 2 ? BETON_OK : BETON_EXISTS);
		assert_int_equal(count_shards(), 3);
		assert_false(is_there(PARTIAL));
	}
	assert_true(waited > 0);
}

/* ---- waiting ---- */

/* Whether the kernel says that the process waits for a lock of the file. */
static bool is_waiting(pid_t pid, ino_t inode)
{
	char line[256];
	int owner;
	unsigned long long number;
	bool found = false;
	FILE *file = fopen("/proc/locks", "r");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		found |= sscanf(line, "%*d: -> %*s %*s %*s %d %*[^:]:%*[^:]:%llu", &owner, &number) == 2 &&
			 owner == pid && number == inode;
	fclose(file);
	return found;
}

/* Until the process waits for the lock of the open file, which it must do before it ends. */
static void expect_waiting(pid_t pid, int fd)
{
	struct stat facts;
	int status;
	assert_int_equal(fstat(fd, &facts), 0);
	while (!is_waiting(pid, facts.st_ino)) {
		assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
		usleep(1000);
	}
}

static int lock_partial(void)
{
	int fd = open(PARTIAL, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
	return fd;
}

/* A child has the same descriptor, so that closing it is not enough. */
static void unlock(int fd)
{
	assert_int_equal(flock(fd, LOCK_UN), 0);
	close(fd);
}

/* Writes c in a child, whose exit status is minus the code. */
static pid_t begin_waiting(beton_set_mode mode, int fd)
{
	pid_t child = fork();
	if (child == 0)
		_exit(-write_one("c.beton", mode, NULL));
	assert_true(child > 0);
	expect_waiting(child, fd);
	return child;
}

static int end_of(pid_t child)
{
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return -WEXITSTATUS(status);
}

/* The partial file of the wait's beginning is an index at its end, and another file is the partial file. */
static void test_file_that_became_the_index(void **state)
{
	(void)state;
	if (access("/proc/locks", R_OK) != 0)
		skip();
	begin(BETON_SET_APPEND);
	int first = lock_partial();
	pid_t child = begin_waiting(BETON_SET_APPEND, first);
	assert_int_equal(rename(PARTIAL, "aside"), 0);
	int second = lock_partial();
	unlock(first);
	expect_waiting(child, second);
	struct stat facts;
	assert_true(stat("aside", &facts) == 0 && facts.st_size == 0);
	assert_int_equal(unlink(PARTIAL), 0);
	unlock(second);
	assert_int_equal(end_of(child), BETON_OK);
	assert_int_equal(count_shards(), 2);
	assert_false(is_there(PARTIAL));
}

/* While a process waits, another one makes the index, or removes it. */
static void test_index_that_came_and_went(void **state)
{
	(void)state;
	if (access("/proc/locks", R_OK) != 0)
		skip();
	begin(BETON_SET_APPEND);
	assert_int_equal(rename(INDEX, "made"), 0);
	int fd = lock_partial();
	pid_t child = begin_waiting(BETON_SET_CREATE, fd);
	assert_int_equal(rename("made", INDEX), 0);
	unlock(fd);
	assert_int_equal(end_of(child), BETON_EXISTS);
	assert_int_equal(count_shards(), 1);
	fd = lock_partial();
	child = begin_waiting(BETON_SET_APPEND, fd);
	assert_int_equal(unlink(INDEX), 0);
	unlock(fd);
	assert_int_equal(end_of(child), BETON_NOT_FOUND);
	assert_int_equal(count_shards(), 0);
	assert_false(is_there(PARTIAL));
}

/* ---- failing ---- */

/* The shard, its folder, the new index, its folder. */
enum { SYNCS = 4 };

static void test_failing_calls(void **state)
{
	(void)state;
	static const struct {
		failing_call kind;
		int code;
	} kinds[] = {
		{CALL_ALLOCATE, BETON_NO_MEMORY},
		{CALL_WRITE, BETON_NO_SPACE},
		{CALL_OPEN, BETON_IO},
		{CALL_TRUNCATE, BETON_IO},
		{CALL_SYNC, BETON_IO},
		{CALL_RENAME, BETON_IO},
		{CALL_LOCK, BETON_IO},
		{CALL_MODE, BETON_IO},
	};
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		long number = 0;
		for (fault.hits = 1; fault.hits; number++) {
			begin(BETON_SET_APPEND);
			beton_error err = {0};
			fail_call(kinds[i].kind, kinds[i].kind == CALL_WRITE ? ENOSPC : EIO, number);
			int result = write_one("b.beton", BETON_SET_APPEND, &err);
			fault.first = -1;
			if (fault.hits && (result != kinds[i].code || err.code != result || !*err.message))
				fail_msg("kind %zu, number %ld: %s: %s", i, number, beton_status_name(result),
					 err.message);
			/* Only the sync of the folder, the last of the four, comes after the rename. */
			bool synced = kinds[i].kind == CALL_SYNC
					      ? number == SYNCS - 1
					      : kinds[i].kind == CALL_OPEN || kinds[i].kind == CALL_ALLOCATE;
			uint32_t now = count_shards();
			assert_true(now == (fault.hits ? 1 : 2) || (synced && now == 2));
			/* Without the lock it may be another process's. */
			assert_true(!is_there(PARTIAL) || kinds[i].kind == CALL_LOCK);
			assert_int_equal(write_one("b.beton", BETON_SET_APPEND, &err),
					 now == 1 ? BETON_OK : BETON_EXISTS);
		}
		/* Each kind was met at least once. */
		assert_true(kinds[i].kind == CALL_SYNC ? number == SYNCS + 1 : number > 1);
	}
}

static void test_failing_open(void **state)
{
	(void)state;
	begin(BETON_SET_APPEND);
	long number = 0;
	for (fault.hits = 1; fault.hits; number++) {
		beton_error err = {0};
		beton_set *set;
		fail_call(CALL_ALLOCATE, ENOMEM, number);
		int result = beton_set_open(&set, INDEX, &err);
		fault.first = -1;
		if (result != (fault.hits ? BETON_NO_MEMORY : BETON_OK))
			fail_msg("allocation %ld: %s: %s", number, beton_status_name(result), err.message);
		assert_true((set != NULL) == (result == BETON_OK));
		beton_set_close(&set);
	}
	assert_true(number > 8);
}

static bool may_trace(void)
{
	pid_t child = fork();
	if (child == 0)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0);
	int status;
	return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(void)
{
	if (!may_trace()) {
		fprintf(stderr, "skipped: a process may not trace its child here\n");
		return 77;
	}
	/* Hundreds of files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed_append),
		cmocka_unit_test(test_killed_create),
		cmocka_unit_test(test_killed_while_others_wait),
		cmocka_unit_test(test_file_that_became_the_index),
		cmocka_unit_test(test_index_that_came_and_went),
		cmocka_unit_test(test_failing_calls),
		cmocka_unit_test(test_failing_open),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
