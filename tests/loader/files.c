/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a data set's files: which are open, and who waits for what. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loader/io/files.h"
#include "loader/io/io.h"

enum { FILES = 12 };

static char folder[] = "/tmp/beton-files-XXXXXX";
static char paths[FILES][64];

/* ---- a process with few descriptors ---- */

static atomic_int now_open, most_open, openings;
static atomic_int descriptors = 1000; /* of files, that the process may have */

static int open_counted(int directory, const char *path, int flags)
{
	if (strstr(path, "file") == NULL)
		return openat(directory, path, flags);
	int count = atomic_fetch_add(&now_open, 1) + 1;
	if (count > atomic_load(&descriptors)) {
		atomic_fetch_sub(&now_open, 1);
		errno = EMFILE;
		return -1;
	}
	for (int most = atomic_load(&most_open); count > most;)
		if (atomic_compare_exchange_weak(&most_open, &most, count))
			break;
	atomic_fetch_add(&openings, 1);
	return openat(directory, path, flags);
}

/* Files are closed by close. */
int __real_close(int fd);
int __wrap_close(int fd);

static atomic_bool counts_closings;

int __wrap_close(int fd)
{
	char link[64], path[64] = "";
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (atomic_load(&counts_closings) && readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, folder))
		atomic_fetch_sub(&now_open, 1);
	return __real_close(fd);
}

static bt_io counted_io;

static bt_files *open_table(uint64_t open_max)
{
	bt_files *files = NULL;
	counted_io = bt_io_system;
	counted_io.openat = open_counted;
	const bt_files_config config = {.count = FILES, .open_max = open_max, .io = &counted_io};
	assert_ok(bt_files_open(&files, &config, err));
	for (uint32_t i = 0; i < FILES; i++)
		assert_ok(bt_files_name(files, i, paths[i], err));
	atomic_store(&counts_closings, true);
	atomic_store(&most_open, 0);
	atomic_store(&openings, 0);
	return files;
}

static void close_table(bt_files **files)
{
	bt_files_close(files);
	assert_int_equal(atomic_load(&now_open), 0);
	atomic_store(&counts_closings, false);
	atomic_store(&descriptors, 1000);
}

/* The file has its number in it. */
static void check(const bt_lease *lease, uint32_t number)
{
	uint32_t found = FILES;
	assert_int_equal(pread(lease->fd, &found, sizeof(found), 0), sizeof(found));
	assert_int_equal(found, number);
}

static void use(bt_files *files, uint32_t number)
{
	bt_lease lease;
	assert_ok(bt_files_borrow(&files->list[number], &lease, err));
	check(&lease, number);
	bt_files_give_back(&files->list[number]);
}

/* ---- tests ---- */

static void the_least_recently_used_is_closed(void **state)
{
	(void)state;
	bt_files *files = open_table(3);
	use(files, 0);
	use(files, 1);
	use(files, 2);
	assert_int_equal(openings, 3);
	use(files, 3); /* closes 0 */
	use(files, 1);
	use(files, 4); /* closes 2, since 1 was used after it */
	assert_int_equal(openings, 5);
	use(files, 1);
	use(files, 3);
	assert_int_equal(openings, 5);
	use(files, 0);
	use(files, 2);
	assert_int_equal(openings, 7);
	assert_int_equal(most_open, 3);
	close_table(&files);
}

static void borrowed_files_stay_open(void **state)
{
	(void)state;
	bt_files *files = open_table(3);
	bt_lease first, second;
	assert_ok(bt_files_hold(&files->list[0], &first, err));
	assert_ok(bt_files_hold(&files->list[1], &second, err));
	/* A place is left for short loans, not for a third such loan. */
	bt_lease third;
	assert_int_equal(bt_files_hold(&files->list[2], &third, NULL), BETON_TIMEOUT);
	for (uint32_t i = 2; i < FILES; i++)
		use(files, i);
	assert_int_equal(most_open, 3);
	check(&first, 0);
	check(&second, 1);
	bt_files_end_hold(&files->list[0]);
	assert_ok(bt_files_hold(&files->list[2], &third, err));
	check(&third, 2);
	check(&second, 1);
	bt_files_end_hold(&files->list[1]);
	bt_files_end_hold(&files->list[2]);
	close_table(&files);
	/* If all fit, so do all such loans. */
	files = open_table(FILES);
	for (uint32_t i = 0; i < FILES; i++)
		assert_ok(bt_files_hold(&files->list[i], &first, err));
	for (uint32_t i = 0; i < FILES; i++)
		bt_files_end_hold(&files->list[i]);
	close_table(&files);
}

/* When the process has no more descriptors, idle files make room; without any, that is the error. */
static void fewer_descriptors_than_expected(void **state)
{
	(void)state;
	bt_files *files = open_table(8);
	atomic_store(&descriptors, 2);
	for (uint32_t round = 0; round < 2; round++)
		for (uint32_t i = 0; i < FILES; i++)
			use(files, i);
	assert_int_equal(most_open, 2);
	bt_lease first, second;
	beton_error fault;
	/* None of the remaining loans ends soon. */
	atomic_store(&descriptors, 1);
	assert_ok(bt_files_hold(&files->list[FILES - 1], &first, err));
	assert_int_equal(bt_files_borrow(&files->list[0], &second, &fault), BETON_SYSTEM);
	assert_non_null(strstr(fault.message, paths[0]));
	assert_non_null(strstr(fault.message, strerror(EMFILE)));
	bt_files_end_hold(&files->list[FILES - 1]);
	use(files, 0);
	/* It recovers. */
	atomic_store(&descriptors, 1000);
	for (int round = 0; round < 200; round++)
		for (uint32_t i = 0; i < FILES; i++)
			use(files, i);
	assert_int_equal(most_open, 8);
	close_table(&files);
}

/* ---- threads ---- */

/* Gives back a file that somebody else holds, too, when another thread waits. */
static void *give_back_late(void *argument)
{
	bt_files *files = argument;
	while (atomic_load(&files->waiting) == 0)
		usleep(100);
	usleep(1000);
	bt_files_give_back(&files->list[0]);
	return NULL;
}

/* Who holds files and waits for room learns that all that is left are his own. */
static void no_room_is_left_but_ones_own(void **state)
{
	(void)state;
	bt_files *files = open_table(8);
	bt_lease lease;
	for (uint32_t i = 0; i < 3; i++)
		assert_ok(bt_files_hold(&files->list[i], &lease, err));
	assert_ok(bt_files_borrow(&files->list[0], &lease, err));
	atomic_store(&descriptors, 3);
	pthread_t other;
	assert_int_equal(pthread_create(&other, NULL, give_back_late, files), 0);
	assert_int_equal(bt_files_borrow(&files->list[3], &lease, NULL), BETON_SYSTEM);
	pthread_join(other, NULL);
	for (uint32_t i = 0; i < 3; i++)
		bt_files_end_hold(&files->list[i]);
	close_table(&files);
}

enum { WORKERS = 8, ROUNDS = 2000 };

typedef struct worker {
	bt_files *files;
	uint64_t random;
	bool holds; /* keeps some loans */
} worker;

static uint32_t next_random(worker *self)
{
	self->random = self->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(self->random >> 33);
}

/* Like a lane of a ring: keeps loans while it borrows others. */
static void *borrow_many(void *argument)
{
	enum { KEPT = 4 };
	worker *self = argument;
	bt_file *kept[KEPT] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		uint32_t number = next_random(self) % FILES;
		bt_file *file = &self->files->list[number];
		bt_lease lease;
		bt_file **place = &kept[i % KEPT];
		if (*place)
			bt_files_end_hold(*place);
		*place = NULL;
		if (self->holds && bt_files_hold(file, &lease, NULL) == BETON_OK) {
			*place = file;
			check(&lease, number);
			continue;
		}
		beton_error fault;
		int result = bt_files_borrow(file, &lease, &fault);
		if (result != BETON_OK)
			return strdup(fault.message);
		check(&lease, number);
		bt_files_give_back(file);
	}
	for (int i = 0; i < KEPT; i++)
		if (kept[i])
			bt_files_end_hold(kept[i]);
	return NULL;
}

static void threads_share_few(void **state)
{
	(void)state;
	for (int room = 1; room <= 6; room++) {
		bt_files *files = open_table((uint64_t)room);
		pthread_t threads[WORKERS];
		worker workers[WORKERS];
		for (int i = 0; i < WORKERS; i++) {
			workers[i] = (worker){.files = files, .random = (uint64_t)(room * WORKERS + i), .holds = i % 2};
			assert_int_equal(pthread_create(&threads[i], NULL, borrow_many, &workers[i]), 0);
		}
		for (int i = 0; i < WORKERS; i++) {
			void *fault;
			pthread_join(threads[i], &fault);
			if (fault)
				fail_msg("%s", (const char *)fault);
		}
		assert_in_range(most_open, 1, room);
		close_table(&files);
	}
}

static int set_up(void **state)
{
	(void)state;
	assert_non_null(mkdtemp(folder));
	for (uint32_t i = 0; i < FILES; i++) {
		snprintf(paths[i], sizeof(paths[i]), "%s/file-%u", folder, i);
		int fd = open(paths[i], O_WRONLY | O_CREAT, 0644);
		assert_int_equal(write(fd, &i, sizeof(i)), sizeof(i));
		close(fd);
	}
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < FILES; i++)
		unlink(paths[i]);
	return rmdir(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_least_recently_used_is_closed),
		cmocka_unit_test(borrowed_files_stay_open),
		cmocka_unit_test(fewer_descriptors_than_expected),
		cmocka_unit_test(no_room_is_left_but_ones_own),
		cmocka_unit_test(threads_share_few),
	};
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
