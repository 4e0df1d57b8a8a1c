/* SPDX-License-Identifier: Apache-2.0
 *
 * The peak of the cpu device is the processor's, whatever else runs on it: here each look at the clock on the wall
 * finds it a minute later, as on a machine whose cores are busy with other things.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <dtrain/device.h>

#include "tests/train/support/threads.h"

enum { A_MINUTE = 60 };

static time_t away;

/* In place of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *out)
{
	int status = (int)syscall(SYS_clock_gettime, clock, out);
	if (clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC_RAW)
		out->tv_sec += __atomic_add_fetch(&away, A_MINUTE, __ATOMIC_RELAXED);
	return status;
}

/* A product takes 1.07e9 operations for each thread: a minute of them would be 1.8e7 a second. */
static void other_processes_do_not_count(void **state)
{
	(void)state;
	for (int32_t threads = 1; threads <= TEST_THREADS; threads++) {
		const dtrain_device_options options = {.struct_size = sizeof(options), .threads = threads};
		dtrain_device *device;
		double flops = 0;
		assert_int_equal(dtrain_device_open("cpu", &options, &device, NULL), BETON_OK);
		const dtrain_device_api *api = dtrain_device_get_api(device);
		assert_int_equal(api->measure_flops(device, DTRAIN_F32, &flops, NULL), BETON_OK);
		assert_true(flops > 1e8);
		dtrain_device_close(&device);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(other_processes_do_not_count)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
