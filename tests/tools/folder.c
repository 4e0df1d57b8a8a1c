/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking through a folder of class folders: a signal ends it. */
#include "tests/support/beton_files.h"

#include <string.h>
#include <sys/stat.h>

#include "tools/beton-write/sources/folder.h"

static void test_interrupted(void **state)
{
	(void)state;
	atomic_int signal_number = 0;
	beton_error err;
	folder_plan plan;
	const folder_request request = {.root = in_folder("root"), .interrupt = &signal_number};
	assert_int_equal(mkdir(in_folder("root"), 0755), 0);
	assert_int_equal(mkdir(in_folder("root/class"), 0755), 0);
	write_file(in_folder("root/class/one.jpg"), "x", 1);
	assert_int_equal(folder_plan_make(&plan, &request, &err), BETON_OK);
	assert_int_equal(plan.sets[SET_TRAIN].count, 1);
	folder_plan_free(&plan);
	signal_number = 15;
	assert_int_equal(folder_plan_make(&plan, &request, &err), BETON_CANCELLED);
	assert_non_null(strstr(err.message, "interrupted"));
	folder_plan_free(&plan);
}

static int setup(void **state)
{
	(void)state;
	make_folder();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	remove_folder();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_interrupted)};
	return cmocka_run_group_tests(tests, setup, teardown);
}
