/* SPDX-License-Identifier: Apache-2.0
 *
 * When OpenMP's idle threads must not spin. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launch/wait_policy.h"

static void threads_that_have_their_cores(void **state)
{
	(void)state;
	assert_false(run_needs_passive_wait(1, 6, 2, 8));
	assert_false(run_needs_passive_wait(2, 2, 1, 8));
	/* In a team of one no thread waits. */
	assert_false(run_needs_passive_wait(8, 1, 4, 2));
	assert_false(run_needs_passive_wait(1, 0, 4, 1));
}

static void more_threads_than_cores(void **state)
{
	(void)state;
	assert_true(run_needs_passive_wait(1, 7, 2, 8));
	assert_true(run_needs_passive_wait(2, 3, 1, 8)); /* each has a communication thread, too */
	assert_true(run_needs_passive_wait(4, 2, 1, 2));
	/* By default both kinds take all cores of the rank. */
	assert_true(run_needs_passive_wait(1, 0, 0, 2));
	assert_true(run_needs_passive_wait(2, 0, 1, 8));
	assert_true(run_needs_passive_wait(4096, 4096, 4096, 1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_that_have_their_cores),
		cmocka_unit_test(more_threads_than_cores),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
