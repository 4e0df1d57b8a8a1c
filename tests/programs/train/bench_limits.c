/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits that dtrain-bench measures agree with the time that measuring took.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/system.h"
#include "programs/bench/bench_step_limits.h"

static bench_job job;

static void products_take_their_time(void **state)
{
	(void)state;
	enum { SIDE = 48, MS = 30 };
	double rate = 0;
	beton_error err = {0};
	uint64_t start = bt_now_ns();
	if (bench_measure_products(&job, SIDE, MS, &rate, &err) != BETON_OK)
		fail_msg("%s", err.message);
	double seconds = (double)(bt_now_ns() - start) * 1e-9;
	assert_true(seconds >= MS * 1e-3);
	/* One product is far shorter than all, and far longer than a clock of the processor. */
	double product = 2.0 * SIDE * SIDE * SIDE / rate;
	assert_true(product < seconds / 32 && product > 1e-9);
}

static void additions_are_timed(void **state)
{
	(void)state;
	double rate = 0;
	beton_error err = {0};
	uint64_t start = bt_now_ns();
	if (bench_measure_bandwidth(&job, &rate, &err) != BETON_OK)
		fail_msg("%s", err.message);
	double seconds = (double)(bt_now_ns() - start) * 1e-9;
	assert_true(rate > 5 * 12.0 * (16 << 20) / seconds);
}

int main(void)
{
	/* ThreadSanitizer does not see how OpenMP's threads wait for each other. */
	const dtrain_device_options options = {.struct_size = sizeof(options), .threads = 1};
	beton_error err = {0};
	job.engine.api = dtrain_device_find("cpu");
	if (!job.engine.api || dtrain_device_open("cpu", &options, &job.engine.device, &err) != BETON_OK ||
	    job.engine.api->stream_create(job.engine.device, &job.engine.stream, &err) != BETON_OK) {
		print_error("%s\n", err.message);
		return 1;
	}
	job.engine.dtype = DTRAIN_F32;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_take_their_time),
		cmocka_unit_test(additions_are_timed),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	job.engine.api->stream_destroy(job.engine.stream);
	dtrain_device_close(&job.engine.device);
	return failed;
}
