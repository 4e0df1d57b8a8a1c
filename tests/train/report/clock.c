/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of an epoch's time are all of it, whatever is said of its steps. */
#include "train/report/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/system.h"

#define MS UINT64_C(1000000)

/* Lets that much time pass, at least. */
static void pass(uint64_t ns)
{
	for (uint64_t began = bt_now_ns(); bt_now_ns() - began < ns;)
		;
}

static uint64_t sum(const run_clock *clock)
{
	uint64_t total = 0;
	for (int i = 0; i < RUN_PARTS; i++)
		total += clock->ns[i];
	return total;
}

static void parts_are_the_whole(void **state)
{
	(void)state;
	run_clock clock;
	uint64_t before = bt_now_ns();
	run_clock_begin(&clock);
	uint64_t after = bt_now_ns();
	run_clock_enter_steps(&clock);
	pass(3 * MS);
	run_clock_add_step(&clock, 0.5, 1, 0.25);
	run_clock_enter(&clock, RUN_PART_CHECKPOINT);
	pass(MS);
	run_clock_enter_steps(&clock);
	pass(MS);
	run_clock_add_step(&clock, -1, 1, -0.0);
	run_clock_enter(&clock, RUN_PART_EVALUATION);
	pass(MS);
	uint64_t total = run_clock_end(&clock), ended = bt_now_ns();
	assert_int_equal(total, sum(&clock));
	assert_true(total <= ended - before && total >= 6 * MS && ended - after >= 6 * MS);
	assert_int_equal(clock.ns[RUN_PART_DATA], MS / 2);
	assert_int_equal(clock.ns[RUN_PART_COMPUTE], 2 * MS);
	assert_int_equal(clock.ns[RUN_PART_COMM], MS / 4);
	assert_true(clock.ns[RUN_PART_CHECKPOINT] >= MS && clock.ns[RUN_PART_EVALUATION] >= MS);
	/* Time that the steps do not account for. */
	assert_true(clock.ns[RUN_PART_OTHER] >= 4 * MS - 2 * MS - 3 * MS / 4);
}

/* A device's clock may say a little more than there was: computing comes first. */
static void no_part_is_beyond_it(void **state)
{
	(void)state;
	run_clock clock;
	run_clock_begin(&clock);
	run_clock_enter_steps(&clock);
	pass(MS);
	run_clock_add_step(&clock, 1e9, 0.5, 1e9);
	uint64_t total = run_clock_end(&clock);
	assert_int_equal(total, sum(&clock));
	assert_int_equal(clock.ns[RUN_PART_COMPUTE], MS / 2);
	assert_true(clock.ns[RUN_PART_COMM] >= MS / 2 && clock.ns[RUN_PART_DATA] == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(parts_are_the_whole),
					   cmocka_unit_test(no_part_is_beyond_it)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
