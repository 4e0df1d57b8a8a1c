/* SPDX-License-Identifier: Apache-2.0
 *
 * The time of an epoch by activity. Each nanosecond belongs to one part, so that the parts sum up to the whole. The
 * measurements of each step divide the time of steps: if the device computes while this process waits for data, that
 * time is not waiting. */
#ifndef REPORT_CLOCK_H
#define REPORT_CLOCK_H

#include <stdint.h>

typedef enum run_part {
	RUN_PART_DATA,       /* no computation, waiting for data */
	RUN_PART_COMPUTE,    /* forward, backward, optimizer */
	RUN_PART_COMM,       /* no computation, waiting for gradients to be reduced */
	RUN_PART_EVALUATION, /* including waiting for its data */
	RUN_PART_CHECKPOINT,
	RUN_PART_OTHER, /* opening an epoch, the log, putting steps on an idle device */
	RUN_PARTS,
} run_part;

typedef struct run_clock {
	uint64_t ns[RUN_PARTS];
	uint64_t steps_ns; /* time spent in steps */
	uint64_t since_ns; /* start of the current part: */
	uint64_t *now;
} run_clock;

/* Begins an epoch, or the rest of one, in part OTHER. */
void run_clock_begin(run_clock *clock);

/* Enters RUN_PART_EVALUATION, RUN_PART_CHECKPOINT or RUN_PART_OTHER; enter_steps: the steps of training. */
void run_clock_enter(run_clock *clock, run_part part);
void run_clock_enter_steps(run_clock *clock);

/* Adds the measured times of one step, in milliseconds. */
void run_clock_add_step(run_clock *clock, double data_ms, double compute_ms, double comm_ms);

/* Ends the epoch. The time of its steps is divided into parts by the measured times, limited to the time that passed;
 * the rest is OTHER. Returns the sum of all parts, which is the time since run_clock_begin. */
uint64_t run_clock_end(run_clock *clock);

#endif
