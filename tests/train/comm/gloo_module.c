/* SPDX-License-Identifier: Apache-2.0
 *
 * gloo_module OTHER_VERSION NO_ENTRY: the module of Gloo is refused when it does not fit, is loaded when one that fits
 * is there, by several threads at once, and then stays. The arguments are modules with a fault each.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/comm/gloo/gloo_module.h"

#define THREADS 8

static char **faulty;
static char folder[] = "/tmp/gloo-module-XXXXXX";
static char path[sizeof(folder) + sizeof("/dtrain-gloo.so")];
static pthread_barrier_t together;

/* target: may be relative to the current folder. */
static void link_module(const char *target)
{
	char *absolute = realpath(target, NULL);

	assert_non_null(absolute);
	assert_int_equal(symlink(absolute, path), 0);
	free(absolute);
}

static void expect_refusal(const char *target, int code, const char *text)
{
	const gloo_api *gloo = NULL;
	beton_error err = {0};
	int status;

	if (target)
		link_module(target);
	status = dtrain__gloo_load(&gloo, &err);
	if (status != code || !strstr(err.message, path) || !strstr(err.message, text))
		fail_msg("%s: status %d, not %d with '%s': %s", path, status, code, text, err.message);
	assert_null(gloo);
	assert_int_equal(unlink(path), 0);
}

static void faulty_modules_are_refused(void **state)
{
	FILE *file = fopen(path, "w");

	(void)state;
	assert_non_null(file);
	assert_true(fputs("no library", file) >= 0);
	assert_int_equal(fclose(file), 0);
	expect_refusal(NULL, BETON_NOT_FOUND, " cannot be loaded: ");
	expect_refusal(faulty[0], BETON_UNSUPPORTED, ": version 99, this library needs ");
	expect_refusal(faulty[1], BETON_UNSUPPORTED, ": no symbol dtrain_gloo_entry");
}

static struct sigaction action_of(int number)
{
	struct sigaction action;

	assert_int_equal(sigaction(number, NULL, &action), 0);
	return action;
}

/* Signal handlers that a module's library sets at loading are undone: nohup's SIGHUP, a program's own handlers. */
static void signals_stay_as_they_are(void **state)
{
	struct sigaction bus = action_of(SIGBUS);

	(void)state;
	assert_true(signal(SIGHUP, SIG_IGN) != SIG_ERR);
	expect_refusal(faulty[0], BETON_UNSUPPORTED, ": version 99, this library needs ");
	assert_ptr_equal(action_of(SIGHUP).sa_handler, SIG_IGN);
	assert_ptr_equal(action_of(SIGBUS).sa_handler, bus.sa_handler);
}

static void *load_main(void *out)
{
	const gloo_api *gloo;
	beton_error err;

	pthread_barrier_wait(&together);
	if (dtrain__gloo_load(&gloo, &err) == BETON_OK)
		*(const gloo_api **)out = gloo;
	return NULL;
}

static void threads_load_it_at_once(void **state)
{
	const gloo_api *got[THREADS] = {0};
	pthread_t threads[THREADS];

	(void)state;
	assert_int_equal(pthread_barrier_init(&together, NULL, THREADS), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, load_main, &got[i]), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	assert_non_null(got[0]);
	for (int i = 0; i < THREADS; i++)
		assert_ptr_equal(got[i], got[0]);
	pthread_barrier_destroy(&together);
}

/* The folders are not searched again. */
static void it_stays_loaded(void **state)
{
	const gloo_api *gloo = NULL;
	beton_error err;

	(void)state;
	link_module(faulty[0]);
	assert_int_equal(dtrain__gloo_load(&gloo, &err), BETON_OK);
	assert_int_equal(gloo->version, GLOO_API_VERSION);
	assert_ptr_equal(action_of(SIGHUP).sa_handler, SIG_IGN);
	assert_int_equal(unlink(path), 0);
}

static int make_folder(void **state)
{
	(void)state;
	if (!mkdtemp(folder))
		return -1;
	snprintf(path, sizeof(path), "%s/dtrain-gloo.so", folder);
	return setenv("DTRAIN_MODULE_PATH", folder, 1);
}

static int remove_folder(void **state)
{
	(void)state;
	return rmdir(folder);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(signals_stay_as_they_are),
		cmocka_unit_test(faulty_modules_are_refused),
		cmocka_unit_test(threads_load_it_at_once),
		cmocka_unit_test(it_stays_loaded),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: gloo_module OTHER_VERSION NO_ENTRY\n");
		return 2;
	}
	faulty = argv + 1;
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
