/* SPDX-License-Identifier: Apache-2.0
 *
 * How candidates are tried and timed, over the stand-in and with a clock of the test's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/half.h"
#include "devices/cuda/algorithms_bench.h"
#include "devices/cuda/cuda.h"
#include "tests/train/devices/cuda/standin/standin.h"

enum { FORBIDDEN = 1 }; /* a capture refuses it */

typedef struct candidate {
	int runs, captured;
	int flags;
	long long ns;
} candidate;

static int run_candidate(void *context, cudaStream_t stream, beton_error *err)
{
	(void)stream;
	candidate *c = context;
	void *memory;
	if (standin_is_capturing())
		c->captured++;
	else
		c->runs++;
	standin.clock_ns += c->ns;
	if (c->flags & FORBIDDEN && standin_is_capturing()) /* fails, and ends the capture */
		return cuda_check(cudaMalloc(&memory, 1), err, "an engine that allocates");
	return BETON_OK;
}

static cuda_bench open_bench(size_t bytes)
{
	cuda_bench bench = {.gate = NULL};
	beton_error err;
	assert_int_equal(cudaSetDevice(0), cudaSuccess);
	if (cuda_bench_open(&bench, bytes, &err) != BETON_OK)
		fail_msg("%s", err.message);
	return bench;
}

/* The launch of the first of five weighs a fifth. */
static void five_runs_share_a_pair_of_events(void **state)
{
	(void)state;
	cuda_bench bench = open_bench(256);
	candidate c = {.ns = 3000000};
	double ms = 0;
	assert_int_equal(cuda_bench_time(&bench, run_candidate, &c, &ms, NULL), BETON_OK);
	assert_int_equal(c.runs, 5);
	assert_true(fabs(ms - 3) < 1e-5);
	cuda_bench_close(&bench);
	assert_int_equal(standin.live, 0);
}

static void what_a_capture_refuses_is_no_candidate(void **state)
{
	(void)state;
	cuda_bench bench = open_bench(256);
	candidate good = {.ns = 1}, bad = {.ns = 1, .flags = FORBIDDEN};
	beton_error err;
	assert_int_equal(cuda_bench_try(&bench, run_candidate, &good, &err), BETON_OK);
	assert_int_equal(good.runs, 1);
	assert_int_equal(good.captured, 1);
	assert_int_not_equal(cuda_bench_try(&bench, run_candidate, &bad, &err), BETON_OK);
	assert_int_equal(bad.captured, 1);
	/* The stream and the thread are as before. */
	assert_int_equal(cudaGetLastError(), cudaSuccess);
	assert_int_equal(cuda_bench_try(&bench, run_candidate, &good, &err), BETON_OK);
	cuda_bench_close(&bench);
	assert_int_equal(standin.live, 0);
}

static double number(const void *memory, dtrain_dtype dtype, size_t index)
{
	uint16_t half;
	float single;
	memcpy(&half, (const char *)memory + 2 * index, sizeof(half));
	if (dtype == DTRAIN_F32)
		memcpy(&single, (const char *)memory + 4 * index, sizeof(single));
	else
		single = dtype == DTRAIN_F16 ? bt_widen_float16(half) : bt_widen_bfloat16(half);
	return (double)single;
}

static void operands_are_random(void **state)
{
	(void)state;
	static const dtrain_dtype types[] = {DTRAIN_F32, DTRAIN_F16, DTRAIN_BF16};
	const size_t bytes = (3 << 20) + 12, guard = 256; /* more than the host makes */
	for (int t = 0; t < 6; t++) {
		dtrain_dtype dtype = types[t / 2];
		bool positive = t % 2 == 1;
		cuda_bench bench = open_bench(bytes + 2 * guard);
		size_t count = bytes / dtrain_dtype_size(dtype);
		double sum = 0, squares = 0;
		assert_int_equal(cuda_bench_fill(&bench, guard, bytes, dtype, positive, NULL), BETON_OK);
		for (size_t i = 0; i < count; i++) {
			double x = number((char *)bench.memory + guard, dtype, i);
			if (!(x >= (positive ? 0 : -1) && x <= 1))
				fail_msg("type %d, element %zu: %g", (int)dtype, i, x);
			sum += x / (double)count;
			squares += x * x / (double)count;
		}
		assert_true(fabs(sum - (positive ? 0.5 : 0)) < 0.01);
		assert_true(fabs(squares - 1. / 3) < 0.01);
		for (size_t i = 0; i < guard; i++)
			assert_true(((char *)bench.memory)[i] == 0 && ((char *)bench.memory)[guard + bytes + i] == 0);
		cuda_bench_close(&bench);
	}
}

static int reset(void **state)
{
	(void)state;
	standin_reset();
	standin.has_clock = true;
	standin.clock_ns = 1; /* an event that never was has 0 */
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(five_runs_share_a_pair_of_events, reset),
		cmocka_unit_test_setup(what_a_capture_refuses_is_no_candidate, reset),
		cmocka_unit_test_setup(operands_are_random, reset),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
