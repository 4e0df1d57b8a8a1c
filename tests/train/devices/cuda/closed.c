/* SPDX-License-Identifier: Apache-2.0
 *
 * The device "cuda" where it cannot open: no driver, no GPU, none of that number. With a GPU here, it is hidden.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/device.h>

static void it_says_why(void **state)
{
	(void)state;
	dtrain_device *device = NULL;
	beton_error err = {0};
	assert_int_equal(dtrain_device_open("cuda", NULL, &device, &err), BETON_DEVICE);
	assert_null(device);
	bool no_driver = strstr(err.message, "no NVIDIA driver: libcuda.so.1 is not found; install the driver");
	bool no_gpu = strstr(err.message, "no GPU: see nvidia-smi -L; CUDA_VISIBLE_DEVICES is none");
	if (no_driver == no_gpu)
		fail_msg("%s", err.message);
	/* Again, and without asking why. */
	assert_int_equal(dtrain_device_open("cuda", NULL, &device, NULL), BETON_DEVICE);
}

static void the_module_is_there_all_the_same(void **state)
{
	(void)state;
	const dtrain_device_api *api = dtrain_device_find("cuda");
	assert_non_null(api);
	assert_string_equal(api->name, "cuda");
	assert_non_null(api->capture_begin);
}

static void auto_takes_the_next(void **state)
{
	(void)state;
	dtrain_device *device = NULL;
	beton_error err = {0};
	const dtrain_device_options options = {.struct_size = sizeof(options), .index = 3};
	if (dtrain_device_open("auto", &options, &device, &err) != BETON_OK)
		fail_msg("%s", err.message);
	const char *name = dtrain_device_get_api(device)->name;
	assert_string_not_equal(name, "cuda");
	assert_string_equal(name, dtrain_device_at(0)->name);
	dtrain_device_close(&device);
}

int main(void)
{
	setenv("CUDA_VISIBLE_DEVICES", "none", 1);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_says_why),
		cmocka_unit_test(the_module_is_there_all_the_same),
		cmocka_unit_test(auto_takes_the_next),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
