/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading how busy the cores are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "launch/busy.h"

#define SECOND UINT64_C(1000000000)

static const char stat[] = "cpu  1000 0 0 90000 0 0 0 0 0 0\n"
			   "cpu0 100 20 3 4000 500 6 7 64 900 0\n"
			   "cpu1 200 0 0 9000 9000 0 0 0 0 0\n"
			   "cpu12 300 0 0 1\n"
			   "intr 12345 1 2 3\n"
			   "ctxt 17\n";

static void busy_is_what_is_not_idle(void **state)
{
	cpu_set_t cores;
	(void)state;
	CPU_ZERO(&cores);
	assert_true(run_busy_parse(stat, &cores, 100) == 0);
	CPU_SET(0, &cores);
	assert_true(run_busy_parse(stat, &cores, 100) == 2 * SECOND);
	CPU_SET(1, &cores);
	assert_true(run_busy_parse(stat, &cores, 100) == 4 * SECOND);
	CPU_SET(12, &cores);
	assert_true(run_busy_parse(stat, &cores, 100) == 7 * SECOND);
	CPU_SET(13, &cores);
	assert_true(run_busy_parse(stat, &cores, 100) == 7 * SECOND);
}

static void no_figures(void **state)
{
	cpu_set_t cores;
	(void)state;
	CPU_ZERO(&cores);
	CPU_SET(0, &cores);
	assert_true(run_busy_parse("", &cores, 100) == 0);
	assert_true(run_busy_parse("cpu0", &cores, 100) == 0);
	assert_true(run_busy_parse("cpu0 1 2\nnothing", &cores, 100) == 0);
	assert_true(run_busy_parse(stat, &cores, 0) == 0);
}

static void one_thread_waits_for_nobody(void **state)
{
	run_busy busy;
	char text[256];
	(void)state;
	run_busy_start(&busy, 1);
	assert_int_equal(busy.threads, 0);
	assert_false(run_busy_tell(&busy, text, sizeof(text)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(busy_is_what_is_not_idle),
		cmocka_unit_test(no_figures),
		cmocka_unit_test(one_thread_waits_for_nobody),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
