/* SPDX-License-Identifier: Apache-2.0
 *
 * Case 29, loss of power: the writer's changes to the disk are recorded, and every prefix of them replayed with
 * un-synced changes kept, lost, or some of each. The final name then is absent or has the whole file, and a writer that
 * continues makes the same bytes from the rest. The linker puts the functions below before the C library's (--wrap). */
#include "tests/support/beton_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "writer_job.h"

#define NAME "new.beton"
#define DATA ".new.beton.partial"
#define JOURNAL ".new.beton.partial.journal"

/* A change to the disk. Files have numbers: names may change. */
typedef struct change {
	enum { WRITE, TRUNCATE, SYNC, CREATE, RENAME, REMOVE, SYNC_FOLDER } kind;
	int file; /* of the first four; and which name RENAME and REMOVE concern, as its file */
	off_t offset;
	size_t size;
	void *data;
} change;

enum { FILES = 2, FILE_DATA = 0, FILE_JOURNAL = 1, CHANGES_MAX = 1000 };

static change changes[CHANGES_MAX];
static int change_count;
static bool recording;
static int file_of_fd[1024];

static void record(change one, const void *data)
{
	if (!recording)
		return;
	assert_true(change_count < CHANGES_MAX);
	if (one.kind == WRITE && data) {
		one.data = malloc(one.size);
		memcpy(one.data, data, one.size);
	}
	changes[change_count++] = one;
}

static bool ends_with(const char *text, const char *end)
{
	size_t length = strlen(text);
	return length >= strlen(end) && strcmp(text + length - strlen(end), end) == 0;
}

/* glibc has a second name for each call with an offset; the compiler chooses the name. */
#define PASTE(name, suffix) name##suffix
#define WITH(name, suffix) PASTE(name, suffix)

#define WRAP_OFFSETS(suffix)                                                                                   \
	ssize_t WITH(__real_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset);              \
	ssize_t WITH(__wrap_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset);              \
	ssize_t WITH(__wrap_pwrite, suffix)(int fd, const void *data, size_t size, off_t offset)               \
	{                                                                                                      \
		record((change){.kind = WRITE, .file = file_of_fd[fd], .offset = offset, .size = size}, data); \
		return WITH(__real_pwrite, suffix)(fd, data, size, offset);                                    \
	}                                                                                                      \
	int WITH(__real_open, suffix)(const char *path, int flags, ...);                                       \
	int WITH(__wrap_open, suffix)(const char *path, int flags, mode_t mode);                               \
	int WITH(__wrap_open, suffix)(const char *path, int flags, mode_t mode)                                \
	{                                                                                                      \
		int fd = WITH(__real_open, suffix)(path, flags, mode);                                         \
		if (fd >= 0) {                                                                                 \
			assert_true(fd < 1024);                                                                \
			file_of_fd[fd] = ends_with(path, DATA)      ? FILE_DATA                                \
					 : ends_with(path, JOURNAL) ? FILE_JOURNAL                             \
								    : -1;                                      \
			if (file_of_fd[fd] >= 0)                                                               \
				record((change){.kind = CREATE, .file = file_of_fd[fd]}, NULL);                \
		}                                                                                              \
		return fd;                                                                                     \
	}                                                                                                      \
	int WITH(__real_ftruncate, suffix)(int fd, off_t size);                                                \
	int WITH(__wrap_ftruncate, suffix)(int fd, off_t size);                                                \
	int WITH(__wrap_ftruncate, suffix)(int fd, off_t size)                                                 \
	{                                                                                                      \
		record((change){.kind = TRUNCATE, .file = file_of_fd[fd], .offset = size}, NULL);              \
		return WITH(__real_ftruncate, suffix)(fd, size);                                               \
	}
WRAP_OFFSETS()
WRAP_OFFSETS(64)

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_unlink(const char *path);
int __wrap_unlink(const char *path);

int __wrap_fsync(int fd)
{
	record((change){.kind = file_of_fd[fd] < 0 ? SYNC_FOLDER : SYNC, .file = file_of_fd[fd]}, NULL);
	return __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
	record((change){.kind = RENAME, .file = FILE_DATA}, NULL);
	return __real_rename(from, to);
}

int __wrap_unlink(const char *path)
{
	int result = __real_unlink(path);
	if (result == 0)
		record((change){.kind = REMOVE, .file = ends_with(path, JOURNAL) ? FILE_JOURNAL : FILE_DATA}, NULL);
	return result;
}

static file_content whole;

/* Whether change i, before `end`, is on the disk for certain. */
static bool is_synced(int i, int end)
{
	const change *one = &changes[i];
	bool of_folder = one->kind == CREATE || one->kind == RENAME || one->kind == REMOVE;
	for (int later = i + 1; later < end; later++) {
		const change *sync = &changes[later];
		if (of_folder ? sync->kind == SYNC_FOLDER : sync->kind == SYNC && sync->file == one->file)
			return true;
	}
	return false;
}

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 16;
}

typedef enum fate { KEPT, LOST, SOME } fate;

/* The folder as it may be found after the first `end` changes. Contents first, into files of their own; then names, of
 * which each change that was not synced may have happened or not, but not out of order. */
static void replay(int end, fate unsynced, uint32_t seed)
{
	static const char *const names[FILES] = {DATA, JOURNAL};
	static const char *const places[FILES] = {"content.0", "content.1"};
	uint32_t state = seed * 2654435761u + (uint32_t)end;
	bool named[FILES] = {false};
	bool renamed = false;
	bool folder_ended = false;
	remove(in_folder(NAME));
	remove(in_folder(DATA));
	remove(in_folder(JOURNAL));
	for (int f = 0; f < FILES; f++)
		write_file(in_folder(places[f]), "", 0);
	for (int i = 0; i < end; i++) {
		const change *one = &changes[i];
		bool happens = is_synced(i, end) || unsynced == KEPT || (unsynced == SOME && next_random(&state) % 2);
		if (one->kind == WRITE && happens)
			patch_file(in_folder(places[one->file]), (uint64_t)one->offset, one->data, one->size);
		else if (one->kind == TRUNCATE && happens)
			assert_int_equal(truncate(in_folder(places[one->file]), one->offset), 0);
		else if (one->kind == CREATE || one->kind == RENAME || one->kind == REMOVE) {
			folder_ended = folder_ended || !happens;
			if (folder_ended)
				continue;
			if (one->kind == RENAME)
				renamed = true;
			named[one->file] = one->kind == CREATE;
		}
	}
	if (renamed)
		assert_int_equal(rename(in_folder(places[FILE_DATA]), in_folder(NAME)), 0);
	for (int f = 0; f < FILES; f++)
		if (named[f])
			assert_int_equal(rename(in_folder(places[f]), in_folder(names[f])), 0);
}

static void expect_whole(const char *when, int end)
{
	file_content file = read_file(in_folder(NAME));
	if (file.size != whole.size || memcmp(file.data, whole.data, file.size) != 0)
		fail_msg("power lost after change %d of %d: %s", end, change_count, when);
	free(file.data);
}

static void test_29_power_loss(void **state)
{
	(void)state;
	char path[512];
	snprintf(path, sizeof(path), "%s", in_folder(NAME));
	const job_settings job = {.path = path, .resumable = true, .resume = true};
	recording = true;
	assert_int_equal(job_write(&job, NULL), BETON_OK);
	recording = false;
	whole = read_file(path);
	assert_true(change_count > 20);
	for (int end = 0; end <= change_count; end++)
		for (int way = 0; way < 4; way++) {
			replay(end, way < 2 ? (fate)way : SOME, (uint32_t)way);
			if (access(path, F_OK) == 0)
				expect_whole("the final name has something else", end);
			if (way != LOST && end % 3 != way % 3)
				continue;
			beton_error err;
			if (job_write(&job, &err) != BETON_OK)
				fail_msg("power lost after change %d: %s", end, err.message);
			expect_whole("another file when it was continued", end);
		}
	for (int i = 0; i < change_count; i++)
		free(changes[i].data);
	free(whole.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_29_power_loss)};
	/* Hundreds of files are synced; whether a disk really does so is not what is tested. */
	if (access("/dev/shm", W_OK) == 0)
		setenv("TMPDIR", "/dev/shm", 0);
	make_folder();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	remove_folder();
	return failed;
}
