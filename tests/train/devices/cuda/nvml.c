/* SPDX-License-Identifier: Apache-2.0
 *
 * The activity of a GPU, from a stand-in for NVML. A failure of the start is tested in another process, because the
 * library is loaded once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cuda/nvml.h"

static const char gpu[] = "0000:1b:00.0";

static dtrain_device_activity read_all(void)
{
	dtrain_device_activity a;
	beton_error err = {0};
	if (cuda_nvml_read(gpu, &a, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return a;
}

static void values_have_our_units(void **state)
{
	(void)state;
	dtrain_device_activity a = read_all();
	assert_true(a.busy == -1); /* it has no such function */
	assert_int_equal(a.memory_used, 1500000000);
	assert_int_equal(a.memory_total, 80000000000);
	assert_true(a.power == 651.25 && a.power_limit == 700);
	assert_true(a.clock == 1755 && a.highest_clock == 1980 && a.memory_clock == 2619);
	assert_true(a.temperature == 64);
	assert_int_equal(a.throttled, 0);
}

static void reasons_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *reasons;
		int bits;
	} cases[] = {
		{"0", 0},
		{"1", 0}, /* idle */
		{"2", DTRAIN_THROTTLE_CLOCK_LIMIT},
		{"4", DTRAIN_THROTTLE_POWER_CAP},
		{"8", DTRAIN_THROTTLE_HARDWARE},
		{"10", DTRAIN_THROTTLE_SYNC_BOOST},
		{"20", DTRAIN_THROTTLE_HEAT},
		{"48", DTRAIN_THROTTLE_HEAT},
		{"88", DTRAIN_THROTTLE_POWER_BRAKE},
		{"64", DTRAIN_THROTTLE_HEAT | DTRAIN_THROTTLE_POWER_CAP},
		{"100", 0}, /* clocks of a display */
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("STANDIN_NVML_REASONS", cases[i].reasons, 1);
		assert_int_equal(read_all().throttled, cases[i].bits);
	}
	unsetenv("STANDIN_NVML_REASONS");
}

static void a_refused_value_is_unknown(void **state)
{
	(void)state;
	static const char *const names[] = {"memory",        "power",       "power_limit", "clock",
					    "highest_clock", "temperature", "reasons"};
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		setenv("STANDIN_NVML_FAIL", names[i], 1);
		dtrain_device_activity a = read_all();
		const bool unknown[] = {a.memory_used < 0 && a.memory_total < 0,
					a.power < 0,
					a.power_limit < 0,
					a.clock < 0 && a.memory_clock < 0,
					a.highest_clock < 0,
					a.temperature < 0,
					a.throttled < 0};
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			assert_int_equal(unknown[k], k == i);
	}
	unsetenv("STANDIN_NVML_FAIL");
}

static void another_gpu_is_not_taken(void **state)
{
	(void)state;
	dtrain_device_activity a;
	beton_error err = {0};
	assert_int_equal(cuda_nvml_read("0000:1c:00.0", &a, &err), BETON_UNSUPPORTED);
	assert_string_equal(err.message, "NVML: no GPU 0000:1c:00.0: error 6");
	assert_true(a.clock < 0 && a.throttled < 0);
}

static void expect_unsupported(const char *text)
{
	dtrain_device_activity a;
	for (int i = 0; i < 2; i++) {
		beton_error err = {0};
		assert_int_equal(cuda_nvml_read(gpu, &a, &err), BETON_UNSUPPORTED);
		assert_non_null(strstr(err.message, text));
		assert_true(a.power < 0);
	}
	assert_int_equal(cuda_nvml_read(gpu, &a, NULL), BETON_UNSUPPORTED);
}

static void a_library_that_does_not_start_is_told(void **state)
{
	(void)state;
	expect_unsupported("NVML: nvmlInit_v2 fails with error 3");
}

int main(int argc, char **argv)
{
	const struct CMUnitTest all[] = {
		cmocka_unit_test(values_have_our_units),
		cmocka_unit_test(reasons_are_named),
		cmocka_unit_test(a_refused_value_is_unknown),
		cmocka_unit_test(another_gpu_is_not_taken),
	};
	const struct CMUnitTest failing[] = {cmocka_unit_test(a_library_that_does_not_start_is_told)};
	if (argc < 2 || strcmp(argv[1], "failing") != 0)
		return cmocka_run_group_tests_name("nvml", all, NULL, NULL);
	setenv("STANDIN_NVML_FAIL", "init", 1);
	return cmocka_run_group_tests_name("nvml, failing", failing, NULL, NULL);
}
