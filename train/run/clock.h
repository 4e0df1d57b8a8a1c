/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of an epoch goes. Each nanosecond is of one part, so that the parts sum up to the whole. While steps
 * are made, what is measured of each step says how their time is divided: a device may compute while this process waits
 * for data, and then nobody has waited. */
#ifndef RUN_CLOCK_H
#define RUN_CLOCK_H

#include <stdint.h>

typedef enum run_part {
	RUN_PART_DATA,       /* nothing was computed, for want of data */
	RUN_PART_COMPUTE,    /* forward, backward, optimizer */
	RUN_PART_COMM,       /* nothing was computed, since gradients were on their way */
	RUN_PART_EVALUATION, /* waiting for its data with it */
	RUN_PART_CHECKPOINT,
	RUN_PART_OTHER, /* opening an epoch, the log, putting steps on a device that has nothing to do meanwhile */
	RUN_PARTS,
} run_part;

typedef struct run_clock {
	uint64_t ns[RUN_PARTS];
	uint64_t steps_ns; /* while steps were made */
	uint64_t since_ns; /* of what goes on now, which is: */
	uint64_t *now;
} run_clock;

/* Begins an epoch, or what is left of one; in OTHER. */
void run_clock_begin(run_clock *clock);

/* What goes on from now on: RUN_PART_EVALUATION, CHECKPOINT or OTHER; or steps. */
void run_clock_enter(run_clock *clock, run_part part);
void run_clock_enter_steps(run_clock *clock);

/* What is known of one step. Milliseconds. */
void run_clock_add_step(run_clock *clock, double data_ms, double compute_ms, double comm_ms);

/* Ends the epoch: divides the time of its steps, as far as there is time, what is left being OTHER. Returns the sum of
 * all parts, which is all the time since run_clock_begin. */
uint64_t run_clock_end(run_clock *clock);

#endif
