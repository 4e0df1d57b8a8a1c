/* SPDX-License-Identifier: Apache-2.0
 *
 * The store of cuDNN's plans: what was written is found again by any process, and what is damaged by none.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "common/system.h"
#include "devices/cuda/cache.h"
#include "devices/cuda/cudnn/dnn_store.h"

static char folder[] = "/tmp/dtrain-plans-XXXXXX";

/* A folder of its own for each test, which the store makes. */
static int set_up(void **state)
{
	static int count;
	*state = bt_format("%s/%d/plans", folder, count++);
	return !*state;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

static dnn_store *open_store(const char *own, const char *shipped)
{
	dnn_store *store = NULL;
	beton_error err;
	if (dnn_store_open(own, shipped, &store, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return store;
}

static void write_plan(dnn_store *store, const char *id, const char *text)
{
	beton_error err;
	if (dnn_store_write(store, id, text, strlen(text), &err) != BETON_OK)
		fail_msg("%s", err.message);
}

/* text NULL: it is not there. */
static void check(dnn_store *store, const char *id, const char *text)
{
	size_t length = 0;
	char *found = dnn_store_read(store, id, &length);
	if (text && (!found || strcmp(found, text) != 0 || length != strlen(text)))
		fail_msg("%s: '%s' instead of '%s'", id, found ? found : "nothing", text);
	if (!text && found)
		fail_msg("%s: '%s' is there", id, found);
	free(found);
}

/* The one file of a folder, to be freed. */
static char *file_of(const char *path)
{
	DIR *files = opendir(path);
	char *found = NULL;
	assert_non_null(files);
	for (struct dirent *entry; (entry = readdir(files));)
		if (entry->d_name[0] != '.') {
			assert_null(found);
			found = bt_format("%s/%s", path, entry->d_name);
		}
	closedir(files);
	assert_non_null(found);
	return found;
}

static void what_is_written_is_found_again(void **state)
{
	dnn_store *store = open_store(*state, NULL);
	check(store, "a", NULL);
	write_plan(store, "a", "{\"one\": 1}");
	write_plan(store, "b\n\"c\"", "two\nlines\n");
	write_plan(store, "a", "{\"one\": 2}");
	check(store, "a", "{\"one\": 2}");
	dnn_store_close(store);
	store = open_store(*state, NULL);
	check(store, "a", "{\"one\": 2}");
	check(store, "b\n\"c\"", "two\nlines\n");
	check(store, "b", NULL);
	dnn_store_close(store);
	dnn_store_close(NULL);
}

static void without_a_folder_the_process_keeps_them(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		dnn_store *store = open_store(i ? "/proc/nowhere" : NULL, NULL);
		write_plan(store, "a", "one");
		write_plan(store, "a", "two");
		check(store, "a", "two");
		check(store, "b", NULL);
		dnn_store_close(store);
	}
}

/* At first a file is where the folder's own folder has to be. */
static void what_could_not_be_written_is_replaced(void **state)
{
	dnn_store *store = open_store(*state, NULL);
	char *place = strdup(*state);
	assert_non_null(place);
	*strrchr(place, '/') = 0;
	FILE *file = fopen(place, "w");
	assert_non_null(file);
	assert_int_equal(fclose(file), 0);
	write_plan(store, "a", "one");
	write_plan(store, "b", "three");
	check(store, "a", "one");
	assert_int_equal(remove(place), 0);
	free(place);
	write_plan(store, "a", "two");
	check(store, "a", "two");
	check(store, "b", "three");
	dnn_store_close(store);
}

static void it_is_known_whether_all_were_written(void **state)
{
	dnn_store *stores[] = {open_store(NULL, NULL), open_store(*state, NULL), open_store("/proc/nowhere", NULL)};
	beton_error err = {0};
	for (int i = 0; i < 3; i++) {
		write_plan(stores[i], "a", "one");
		assert_int_equal(dnn_store_failure(stores[i], NULL) == BETON_OK, i < 2);
	}
	dnn_store_failure(stores[2], &err);
	assert_non_null(strstr(err.message, "/proc/nowhere"));
	for (int i = 0; i < 3; i++)
		dnn_store_close(stores[i]);
}

static void shipped_plans_are_found_and_left_alone(void **state)
{
	char *own = bt_format("%s-own", (const char *)*state);
	dnn_store *store = open_store(*state, NULL);
	write_plan(store, "a", "shipped");
	dnn_store_close(store);
	store = open_store(own, *state);
	check(store, "a", "shipped");
	write_plan(store, "a", "own");
	check(store, "a", "own");
	dnn_store_close(store);
	store = open_store(*state, NULL);
	check(store, "a", "shipped");
	dnn_store_close(store);
	free(own);
}

/* Whatever a byte is changed to, and wherever the file ends. */
static void a_damaged_file_is_none(void **state)
{
	dnn_store *store = open_store(*state, NULL);
	beton_error err;
	size_t length = 0;
	write_plan(store, "conv 1:9[256,64]", "{\"kernel\": \"f0VMRg\"}");
	char *path = file_of(*state), *bytes = cuda_cache_read(path, 4096, &length);
	assert_non_null(bytes);
	assert_in_range(length, 40, 4000);
	for (size_t i = 0; i < 2 * length; i++) {
		if (i >= length)
			bytes[i - length] ^= 0x11;
		assert_int_equal(cuda_cache_write(path, bytes, i < length ? i : length, &err), BETON_OK);
		check(store, "conv 1:9[256,64]", NULL);
		if (i >= length)
			bytes[i - length] ^= 0x11;
	}
	/* It is replaced like any other. */
	write_plan(store, "conv 1:9[256,64]", "new");
	check(store, "conv 1:9[256,64]", "new");
	dnn_store_close(store);
	free(bytes);
	free(path);
}

static void a_file_of_another_plan_is_not_taken(void **state)
{
	char *elsewhere = bt_format("%s-elsewhere", (const char *)*state);
	dnn_store *store = open_store(*state, NULL), *other = open_store(elsewhere, NULL);
	write_plan(store, "a", "one");
	write_plan(other, "b", "two");
	char *to = file_of(*state), *from = file_of(elsewhere);
	assert_int_equal(rename(from, to), 0);
	check(store, "a", NULL);
	dnn_store_close(store);
	dnn_store_close(other);
	free(elsewhere);
	free(from);
	free(to);
}

enum { WRITERS = 4, TIMES = 40, BYTES = 1 << 16 };

/* One file, which each process writes with letters of its own: no reader ever sees a mixture, or no file. */
static void processes_write_the_same_plan(void **state)
{
	pid_t children[WRITERS];
	static char text[BYTES];
	dnn_store *store = open_store(*state, NULL);
	memset(text, 'z', BYTES - 1);
	write_plan(store, "a", text);
	for (int i = 0; i < WRITERS; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] != 0)
			continue;
		memset(text, 'a' + i, BYTES - 1);
		bool sound = true;
		for (int k = 0; k < TIMES && sound; k++) {
			size_t length = 0;
			sound = dnn_store_write(store, "a", text, BYTES - 1, NULL) == BETON_OK;
			char *found = dnn_store_read(store, "a", &length);
			sound = sound && found && length == BYTES - 1 && strspn(found, (char[]){*found, 0}) == length;
			free(found);
		}
		_exit(sound ? 0 : 1);
	}
	for (int i = 0; i < WRITERS; i++) {
		int status = 0;
		assert_int_equal(waitpid(children[i], &status, 0), children[i]);
		assert_int_equal(status, 0);
	}
	free(file_of(*state));
	dnn_store_close(store);
}

int main(void)
{
	if (!mkdtemp(folder)) {
		perror(folder);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_is_written_is_found_again, set_up, tear_down),
		cmocka_unit_test_setup_teardown(without_a_folder_the_process_keeps_them, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_could_not_be_written_is_replaced, set_up, tear_down),
		cmocka_unit_test_setup_teardown(it_is_known_whether_all_were_written, set_up, tear_down),
		cmocka_unit_test_setup_teardown(shipped_plans_are_found_and_left_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_damaged_file_is_none, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_file_of_another_plan_is_not_taken, set_up, tear_down),
		cmocka_unit_test_setup_teardown(processes_write_the_same_plan, set_up, tear_down),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_remove(folder);
	return failed;
}
