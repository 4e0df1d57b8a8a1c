/* SPDX-License-Identifier: Apache-2.0
 *
 * An index is added and taken out while another process does the same, while calls and allocations fail, and where
 * another file has the side file's name: the samples stay as they are, and nothing of somebody else is lost. */
#include "tests/support/beton_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <beton/index.h>

#include "failing_calls.h"
#include "index_file.h"

static bool exists(const char *path)
{
	return access(path, F_OK) == 0;
}

static const char *side_of(const char *path)
{
	static char side[600];
	snprintf(side, sizeof(side), "%s.index", path);
	return side;
}

typedef struct job {
	const char *path;
	bool remove;
	bool side;
	uint32_t threads; /* 0: one */
} job;

static int run(const job *wanted, beton_index_report *report, beton_error *err)
{
	beton_index_options options;
	beton_index_options_init(&options);
	options.side = wanted->side;
	options.num_threads = wanted->threads ? wanted->threads : 1;
	return wanted->remove ? beton_index_remove(wanted->path, report, err)
			      : beton_index_add(wanted->path, &options, report, err);
}

static beton_index_report run_good(const job *wanted)
{
	beton_index_report report;
	beton_error err;
	if (run(wanted, &report, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return report;
}

static bool has_index(const char *path)
{
	beton_reader *reader = open_good(path);
	bool found = beton_reader_info(reader)->has_jpeg_indexes;
	beton_reader_close(&reader);
	return found;
}

/* ---- another process ---- */

/* Another process's action before the first call of a kind, and its result. */
static struct {
	failing_call at;
	void (*act)(void);
	int ended; /* its exit status; -1: it has not been started */
} other;

/* In a process of its own: an open file, and so a lock, is shared with none. */
static bool let_other_act(failing_call kind, size_t size)
{
	(void)size;
	if (kind != other.at || other.ended >= 0)
		return false;
	other.ended = 255;
	pid_t child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		fault.before = NULL;
		other.act();
		_exit(0);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	other.ended = WEXITSTATUS(status);
	return false;
}

static beton_index_report run_beside(const job *wanted, failing_call at, void (*act)(void), int status)
{
	other.at = at;
	other.act = act;
	other.ended = -1;
	fault.before = let_other_act;
	beton_index_report report = run_good(wanted);
	fault.before = NULL;
	assert_int_equal(other.ended, status);
	return report;
}

static char path[512], link_path[512];

static void add_in_file(void)
{
	run_good(&(job){.path = path});
}

static void add_beside(void)
{
	run_good(&(job){.path = path, .side = true});
}

static void take_out(void)
{
	run_good(&(job){.path = path, .remove = true});
}

/* A JPEG with a fault gets no index: that of the file is smaller, and stands elsewhere. */
static void make_another_index(void)
{
	beton_value value;
	take_out();
	beton_reader *reader = open_good(path);
	assert_int_equal(beton_reader_value(reader, 3, 0, &value, NULL), BETON_OK);
	beton_reader_close(&reader);
	patch_file(path, value.blob.offset + value.blob.size / 2, "\xff\xd9", 2);
	add_in_file();
}

/* Between its first look at the file and the lock another process has done something. */
static void test_another_process_was_faster(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "%s", index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL}));
	const char *before = index_file_copy(path, "before.beton");
	beton_index_report report = run_beside(&(job){.path = path}, CALL_LOCK, add_in_file, 0);
	assert_int_equal(report.place, BETON_INDEX_IN_FILE);
	assert_false(report.changed);
	assert_true(has_index(path));
	take_out();
	report = run_beside(&(job){.path = path, .side = true}, CALL_LOCK, add_in_file, 0);
	assert_int_equal(report.place, BETON_INDEX_IN_FILE);
	assert_false(exists(side_of(path)));
	report = run_beside(&(job){.path = path, .remove = true}, CALL_LOCK, take_out, 0);
	assert_false(report.changed);
	assert_true(index_file_same(path, before));
	report = run_beside(&(job){.path = path}, CALL_LOCK, add_beside, 0);
	assert_int_equal(report.place, BETON_INDEX_BESIDE);
	take_out();
	assert_true(index_file_same(path, before));
	/* The present index is taken out. */
	add_in_file();
	report = run_beside(&(job){.path = path, .remove = true}, CALL_LOCK, make_another_index, 0);
	assert_true(report.changed);
	assert_false(has_index(path));
	file_content now = read_file(path), then = read_file(before);
	size_t differences = 0;
	for (size_t i = 0; i < now.size; i++)
		differences += now.data[i] != then.data[i];
	assert_in_range(differences, 1, 2);
	free(now.data);
	free(then.data);
}

static void expect_refused(bool remove)
{
	beton_index_report report;
	beton_error err;
	int result = run(&(job){.path = link_path, .remove = remove}, &report, &err);
	if (result != BETON_EXISTS)
		_exit(1);
}

static void add_by_link(void)
{
	expect_refused(false);
}

static void take_out_by_link(void)
{
	expect_refused(true);
}

/* A file with two names is changed by one process at a time. */
static void test_two_names(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "%s", index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL}));
	snprintf(link_path, sizeof(link_path), "%s", in_folder("b.beton"));
	const char *before = index_file_copy(path, "before.beton");
	for (int symbolic = 0; symbolic < 2; symbolic++) {
		assert_int_equal(symbolic ? symlink("a.beton", link_path) : link(path, link_path), 0);
		run_beside(&(job){.path = path}, CALL_SYNC, take_out_by_link, 0);
		assert_true(has_index(link_path));
		/* The footer is as before now, and what it pointed to is still to be cleared. */
		run_beside(&(job){.path = path, .remove = true}, CALL_SYNC, add_by_link, 0);
		assert_true(index_file_same(path, before));
		assert_int_equal(unlink(link_path), 0);
	}
}

/* ---- a file that is not an index ---- */

static void test_a_file_of_somebody_else(void **state)
{
	(void)state;
	beton_index_report report;
	beton_error err;
	snprintf(path, sizeof(path), "%s", index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL}));
	write_file(side_of(path), "notes of somebody", 17);
	assert_int_equal(run(&(job){.path = path, .side = true}, &report, &err), BETON_EXISTS);
	assert_non_null(strstr(err.message, "a.beton.index: is in the way: it is not an index of JPEGs"));
	file_content notes = read_file(side_of(path));
	assert_int_equal(notes.size, 17);
	assert_memory_equal(notes.data, "notes of somebody", 17);
	free(notes.data);
	/* An index in the file does not need the name. */
	assert_int_equal(run_good(&(job){.path = path}).place, BETON_INDEX_IN_FILE);
	take_out();
	assert_true(exists(side_of(path)));
	/* Without room in the file the name is needed. */
	snprintf(path, sizeof(path), "%s",
		 index_file_make("b.beton", &(index_file){.plain = true, .tight = true, .tail = 200}));
	write_file(side_of(path), "", 0);
	assert_int_equal(run(&(job){.path = path}, &report, &err), BETON_EXISTS);
	assert_true(exists(side_of(path)));
	unlink(side_of(path));
	unlink(in_folder("a.beton.index"));
}

/* A side file of an earlier dataset goes, though none of this one's JPEGs gets an index. */
static void test_nothing_to_index(void **state)
{
	(void)state;
	snprintf(path, sizeof(path), "%s", index_file_make("a.beton", &(index_file){.plain = true, .tail = INDEX_ALL}));
	add_beside();
	file_content side = read_file(side_of(path));
	snprintf(path, sizeof(path), "%s", unpack_golden("scalars-only"));
	write_file(side_of(path), side.data, side.size);
	free(side.data);
	beton_index_report report = run_good(&(job){.path = path});
	assert_int_equal(report.place, BETON_INDEX_NOWHERE);
	assert_false(report.changed);
	assert_false(exists(side_of(path)));
	unlink(in_folder("a.beton.index"));
}

/* A new file of the name takes the place of the old one and of its side file. */
static void test_written_anew(void **state)
{
	(void)state;
	const index_file wanted = {.plain = true, .tail = INDEX_ALL};
	snprintf(path, sizeof(path), "%s", index_file_make("a.beton", &wanted));
	add_beside();
	beton_writer *writer;
	const beton_field field = {.name = "label", .type = BETON_FIELD_INT};
	const beton_input value = {.integer = 7};
	/* Not before it has taken the name. */
	assert_int_equal(beton_writer_open(&writer, path, &field, 1, NULL, NULL), BETON_OK);
	assert_int_equal(beton_writer_append(writer, &value, NULL), BETON_OK);
	assert_int_equal(beton_writer_prepare(writer, NULL), BETON_OK);
	fail_call(CALL_RENAME, EIO, 0);
	assert_int_equal(beton_writer_finish(writer, NULL), BETON_IO);
	fault.first = -1;
	beton_writer_close(&writer);
	assert_true(exists(side_of(path)));
	assert_true(has_index(path));
	index_file_make("a.beton", &wanted);
	assert_false(exists(side_of(path)));
	write_file(side_of(path), "notes of somebody", 17);
	index_file_make("a.beton", &wanted);
	assert_true(exists(side_of(path)));
	unlink(side_of(path));
}

/* ---- failures ---- */

static uint64_t content;

/* In every case the samples are as before, and the next call completes the work. */
static void check_after(const job *wanted, const char *begin, const char *done)
{
	fault.first = -1;
	if (index_file_content(path) != content)
		fail_msg("call %d, number %ld: other samples", (int)fault.kind, fault.seen);
	/* A file that cannot be opened to write gets a side file. */
	if (!wanted->remove && !wanted->side && exists(side_of(path)))
		take_out();
	/* Adding completes the rest of a failed removal, which is then removed. */
	if (wanted->remove)
		run_good(&(job){.path = path, .side = wanted->side});
	run_good(wanted);
	if (!index_file_same(path, wanted->remove || wanted->side ? begin : done))
		fail_msg("call %d, number %ld, remove %d, side %d: other bytes", (int)fault.kind, fault.seen,
			 wanted->remove, wanted->side);
	assert_int_equal(exists(side_of(path)), wanted->side && !wanted->remove);
	assert_false(exists(in_folder(".a.beton.index.partial")));
	assert_false(exists(in_folder(".a.beton.index.partial.journal")));
}

/* Fails each call of a kind in turn. Returns how many there are. */
static long fail_each(const job *wanted, failing_call kind, int error_number, const char *begin, const char *done)
{
	long k = 0;
	for (fault.hits = 1; fault.hits > 0; k++) {
		index_file_copy(begin, "a.beton");
		unlink(side_of(path));
		if (wanted->remove)
			run_good(&(job){.path = path, .side = wanted->side});
		beton_index_report report;
		beton_error err = {0};
		fail_call(kind, error_number, k);
		int result = run(wanted, &report, &err);
		fault.first = -1;
		if (result != BETON_OK && (fault.hits == 0 || !*err.message || err.code != result))
			fail_msg("call %d, number %ld: %s: %s", (int)kind, k, beton_status_name(result), err.message);
		long hits = fault.hits;
		check_after(wanted, begin, done);
		fault.hits = hits;
	}
	return k - 1;
}

static void test_failing_calls(void **state)
{
	(void)state;
	static const struct {
		failing_call kind;
		int error_number;
		bool always; /* whatever is done */
	} calls[] = {{CALL_ALLOCATE, ENOMEM, true}, {CALL_WRITE, ENOSPC, false}, {CALL_WRITE, EIO, false},
		     {CALL_OPEN, EMFILE, true},     {CALL_OPEN, EACCES, true},   {CALL_TRUNCATE, EIO, false},
		     {CALL_SYNC, EIO, true},        {CALL_RENAME, EIO, false},   {CALL_LOCK, ENOLCK, true}};
	char begin[512], done[512];
	snprintf(begin, sizeof(begin), "%s",
		 index_file_make("begin.beton", &(index_file){.plain = true, .tail = INDEX_ALL}));
	snprintf(done, sizeof(done), "%s", index_file_copy(begin, "done.beton"));
	run_good(&(job){.path = done});
	content = index_file_content(begin);
	snprintf(path, sizeof(path), "%s", in_folder("a.beton"));
	for (int way = 0; way < 4; way++) {
		const job wanted = {.path = path, .side = way % 2, .remove = way / 2};
		for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
			long count = fail_each(&wanted, calls[i].kind, calls[i].error_number, begin, done);
			assert_true(count > 0 || !calls[i].always);
		}
	}
}

/* ---- threads ---- */

/* One thread has the first piece in hand, a second one waits for it, and a third one has no memory to begin with: it
 * must wake the second one, which alone lets the first one go on. */
enum { LARGE = 8192, GIVE_UP_S = 120 };

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	pthread_t main;
	bool begun, waits, woken, gave_up;
} turns = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* With the lock held. */
static void wait_until(const bool *condition)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += GIVE_UP_S;
	while (!*condition && !turns.gave_up)
		turns.gave_up = pthread_cond_timedwait(&turns.changed, &turns.lock, &end) == ETIMEDOUT;
	pthread_cond_broadcast(&turns.changed);
}

static bool take_turns(failing_call kind, size_t size)
{
	bool fails = false;
	pthread_mutex_lock(&turns.lock);
	bool main = pthread_equal(pthread_self(), turns.main);
	if (kind == CALL_WAIT)
		turns.waits = true;
	if (kind == CALL_WOKEN)
		turns.woken = true;
	pthread_cond_broadcast(&turns.changed);
	if (kind == CALL_ALLOCATE && !main && !turns.begun) {
		turns.begun = fails = true;
		wait_until(&turns.waits);
	} else if (kind == CALL_ALLOCATE && turns.begun && size >= LARGE) {
		wait_until(&turns.woken);
	}
	pthread_mutex_unlock(&turns.lock);
	return fails;
}

static void test_a_thread_without_memory(void **state)
{
	(void)state;
	beton_index_report report;
	beton_error err;
	snprintf(path, sizeof(path), "%s",
		 index_file_make("a.beton", &(index_file){.plain = true, .tight = true, .tail = INDEX_ALL}));
	turns.main = pthread_self();
	fault.before = take_turns;
	int result = run(&(job){.path = path, .threads = 3}, &report, &err);
	fault.before = NULL;
	assert_false(turns.gave_up);
	assert_true(turns.begun);
	assert_int_equal(result, BETON_NO_MEMORY);
	assert_false(has_index(path));
	add_in_file();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_another_process_was_faster),
		cmocka_unit_test(test_two_names),
		cmocka_unit_test(test_a_file_of_somebody_else),
		cmocka_unit_test(test_nothing_to_index),
		cmocka_unit_test(test_written_anew),
		cmocka_unit_test(test_failing_calls),
		cmocka_unit_test(test_a_thread_without_memory),
	};
	/* Hundreds of files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
