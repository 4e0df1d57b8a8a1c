/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include "common/system.h"

void run_clock_begin(run_clock *clock)
{
	*clock = (run_clock){.since_ns = bt_now_ns()};
	clock->now = &clock->ns[RUN_PART_OTHER];
}

static void enter(run_clock *clock, uint64_t *next)
{
	uint64_t now = bt_now_ns();
	*clock->now += now - clock->since_ns;
	clock->since_ns = now;
	clock->now = next;
}

void run_clock_enter(run_clock *clock, run_part part)
{
	enter(clock, &clock->ns[part]);
}

void run_clock_enter_steps(run_clock *clock)
{
	enter(clock, &clock->steps_ns);
}

static uint64_t nanoseconds(double milliseconds)
{
	return milliseconds > 0 ? (uint64_t)(milliseconds * 1e6) : 0;
}

void run_clock_add_step(run_clock *clock, double data_ms, double compute_ms, double comm_ms)
{
	clock->ns[RUN_PART_DATA] += nanoseconds(data_ms);
	clock->ns[RUN_PART_COMPUTE] += nanoseconds(compute_ms);
	clock->ns[RUN_PART_COMM] += nanoseconds(comm_ms);
}

uint64_t run_clock_end(run_clock *clock)
{
	/* The parts may exceed the steps' time, because the device's clock runs at another speed. */
	static const run_part of_steps[] = {RUN_PART_COMPUTE, RUN_PART_COMM, RUN_PART_DATA};
	uint64_t total = 0;
	run_clock_enter(clock, RUN_PART_OTHER);
	for (int i = 0; i < 3; i++) {
		uint64_t *part = &clock->ns[of_steps[i]];
		*part = *part < clock->steps_ns ? *part : clock->steps_ns;
		clock->steps_ns -= *part;
	}
	clock->ns[RUN_PART_OTHER] += clock->steps_ns;
	clock->steps_ns = 0;
	for (int i = 0; i < RUN_PARTS; i++)
		total += clock->ns[i];
	return total;
}
