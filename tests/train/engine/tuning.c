/* SPDX-License-Identifier: Apache-2.0
 *
 * When ops are exchanged after a search for algorithms beside training: on a device that only searches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "engine/tuning.h"

static struct {
	int32_t ops, left, found;
	int32_t each, times; /* each search finds so many algorithms; ops that are created then need further searches */
	int synchronized, calls;
} device;

static void tune(dtrain_device *of, double milliseconds, dtrain_tuning *out)
{
	(void)of;
	assert_true(milliseconds >= 0);
	device.calls++;
	if (device.left > 0 && --device.left == 0)
		device.found += device.each;
	*out = (dtrain_tuning){.ops = device.ops, .left = device.left, .found = device.found};
}

static int synchronize(dtrain_stream *stream, beton_error *err)
{
	(void)stream;
	(void)err;
	device.synchronized++;
	return BETON_OK;
}

static const dtrain_device_api api = {.tune = tune, .stream_synchronize = synchronize};

/* Steps until the search has ended. Returns how often the programs were compiled again. */
static int train(engine_rank *engine, engine_tuning *tuning)
{
	beton_error err = {0};
	int exchanges = 0;
	for (int step = 0; step < 100; step++) {
		bool exchanged;
		assert_int_equal(engine_tuning_step(tuning, engine, &exchanged, &err), BETON_OK);
		exchanges += exchanged;
		if (exchanged && --device.times > 0)
			device.left = 3;
	}
	return exchanges;
}

static void ops_are_exchanged_for_what_was_found(void **state)
{
	(void)state;
	/* Searches, algorithms that each finds, and exchanges. */
	static const int cases[][3] = {{1, 4, 1}, {1, 0, 0}, {2, 4, 2}, {3, 1, 3}, {9, 1, 3}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		engine_rank engine = {.api = &api};
		engine_tuning tuning = {.known = 0};
		memset(&device, 0, sizeof(device));
		device.ops = 7;
		device.left = 5;
		device.times = cases[i][0];
		device.each = cases[i][1];
		assert_int_equal(train(&engine, &tuning), cases[i][2]);
		assert_int_equal(tuning.state, ENGINE_TUNING_SETTLED);
		assert_int_equal(tuning.ops, 7);
		assert_int_equal(device.synchronized, cases[i][2]);
		assert_in_range(device.calls, 5, 30);
	}
}

static void stages_keep_their_ops(void **state)
{
	(void)state;
	char pipeline;
	engine_rank engine = {.api = &api, .train.pipeline = (void *)&pipeline};
	engine_tuning tuning = {.known = 0};
	memset(&device, 0, sizeof(device));
	device.ops = device.left = device.each = 2;
	assert_int_equal(train(&engine, &tuning), 0);
	assert_int_equal(tuning.state, ENGINE_TUNING_KEPT);
	assert_string_equal(tuning.reason, "stages of a pipeline exchange memory");
	/* Without better algorithms the reason does not matter. */
	memset(&tuning, 0, sizeof(tuning));
	device.left = 2;
	device.each = device.found = 0;
	assert_int_equal(train(&engine, &tuning), 0);
	assert_int_equal(tuning.state, ENGINE_TUNING_SETTLED);
}

static void known_algorithms_need_no_search(void **state)
{
	(void)state;
	engine_rank engine = {.api = &api};
	engine_tuning tuning = {.known = 0};
	memset(&device, 0, sizeof(device));
	assert_int_equal(train(&engine, &tuning), 0);
	assert_int_equal(tuning.state, ENGINE_TUNING_OFF);
	assert_int_equal(device.calls, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ops_are_exchanged_for_what_was_found),
		cmocka_unit_test(stages_keep_their_ops),
		cmocka_unit_test(known_algorithms_need_no_search),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
