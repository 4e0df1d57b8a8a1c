/* SPDX-License-Identifier: Apache-2.0
 *
 * Every system call and allocation of the writer fails in turn, once or from then on: the writer says so, the final
 * name has what it had before or the whole new file, nothing temporary is left behind, and what is to be continued can
 * be. The linker puts the functions below in front of the C library's (--wrap) for the library's objects. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "writer_job.h"

typedef enum call {
	CALL_WRITE,
	CALL_OPEN,
	CALL_TRUNCATE,
	CALL_SYNC,
	CALL_CLOSE,
	CALL_RENAME,
	CALL_LOCK,
	CALL_ALLOCATE,
} call;

/* The fault that is injected: into calls of one kind, from number `first` on (from 0), once or for ever. */
static struct {
	call kind;
	long first; /* below 0: none */
	bool for_ever;
	int error_number;
	bool cut; /* writes half of what it should, without an error */
	long seen;
	long hits;
} fault = {.first = -1};

static bool hit(call kind)
{
	if (fault.first < 0 || kind != fault.kind)
		return false;
	long number = fault.seen++;
	bool fails = number == fault.first || (fault.for_ever && number > fault.first);
	fault.hits += fails;
	if (fails)
		errno = fault.error_number;
	return fails;
}

/* glibc has a second name for each of those that know offsets; which one is called is the compiler's choice. */
#define FOR_BOTH_NAMES(X) X() X(64)
#define PASTE(name, suffix) name##suffix
#define NAME(name, suffix) PASTE(name, suffix)

#define WRAP_OFFSETS(suffix)                                                                      \
	ssize_t NAME(__real_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset); \
	ssize_t NAME(__wrap_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset); \
	ssize_t NAME(__wrap_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset)  \
	{                                                                                         \
		if (hit(CALL_WRITE)) {                                                            \
			if (!fault.cut)                                                           \
				return -1;                                                        \
			size -= size / 2;                                                         \
		}                                                                                 \
		return NAME(__real_pwrite, suffix)(fd, data, size, offset);                       \
	}                                                                                         \
	int NAME(__real_open, suffix)(const char *path, int flags, ...);                          \
	int NAME(__wrap_open, suffix)(const char *path, int flags, mode_t mode);                  \
	int NAME(__wrap_open, suffix)(const char *path, int flags, mode_t mode)                   \
	{                                                                                         \
		return hit(CALL_OPEN) ? -1 : NAME(__real_open, suffix)(path, flags, mode);        \
	}                                                                                         \
	int NAME(__real_ftruncate, suffix)(int fd, off_t size);                                   \
	int NAME(__wrap_ftruncate, suffix)(int fd, off_t size);                                   \
	int NAME(__wrap_ftruncate, suffix)(int fd, off_t size)                                    \
	{                                                                                         \
		return hit(CALL_TRUNCATE) ? -1 : NAME(__real_ftruncate, suffix)(fd, size);        \
	}
FOR_BOTH_NAMES(WRAP_OFFSETS)

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

int __wrap_fsync(int fd)
{
	return hit(CALL_SYNC) ? -1 : __real_fsync(fd);
}

/* The descriptor is gone all the same, as with a real EIO. */
int __wrap_close(int fd)
{
	int result = __real_close(fd);
	return hit(CALL_CLOSE) ? -1 : result;
}

int __wrap_rename(const char *from, const char *to)
{
	return hit(CALL_RENAME) ? -1 : __real_rename(from, to);
}

int __wrap_flock(int fd, int operation)
{
	return operation != LOCK_UN && hit(CALL_LOCK) ? -1 : __real_flock(fd, operation);
}

void *__wrap_malloc(size_t size)
{
	return hit(CALL_ALLOCATE) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return hit(CALL_ALLOCATE) ? NULL : __real_calloc(count, size);
}

char *__wrap_strdup(const char *text)
{
	return hit(CALL_ALLOCATE) ? NULL : __real_strdup(text);
}

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
	call kind;
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
	fault.kind = expected->kind;
	fault.error_number = expected->error_number;
	fault.for_ever = for_ever;
	fault.seen = fault.hits = 0;
	fault.first = k;
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
		fault.kind = cases[i].kind;
		fault.error_number = cases[i].error_number;
		fault.for_ever = false;
		fault.hits = 1;
		for (long k = 0; fault.hits > 0; k++) {
			fault.seen = fault.hits = 0;
			fault.first = k;
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
		fault.kind = CALL_SYNC;
		fault.error_number = EIO;
		fault.for_ever = false;
		fault.seen = fault.hits = 0;
		fault.first = k;
		assert_int_equal(job_write(&settings, NULL), BETON_IO);
		fault.first = -1;
		assert_false(anything_temporary());
	}
}

/* Half a write, or one that a signal interrupts, is no fault. */
static void test_24_short_writes(void **state)
{
	(void)state;
	const job_settings settings = {.path = path};
	for (int interrupted = 0; interrupted < 2; interrupted++)
		for (long k = 0; k < 30; k += 4) {
			fault.kind = CALL_WRITE;
			fault.cut = !interrupted;
			fault.error_number = EINTR;
			fault.for_ever = !interrupted;
			fault.seen = fault.hits = 0;
			fault.first = k;
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
		fault.kind = CALL_ALLOCATE;
		fault.error_number = ENOMEM;
		fault.for_ever = false;
		fault.seen = fault.hits = 0;
		fault.first = k;
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
