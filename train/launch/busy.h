/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether other processes use the cores on which a team of compute threads works. Its threads wait for each other many
 * times in a step, so that one core that is taken away holds up all of them: on a machine that is loaded two threads
 * can be several times slower than one. */
#ifndef LAUNCH_BUSY_H
#define LAUNCH_BUSY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct run_busy {
	cpu_set_t cores;
	int threads; /* 0: no longer watching */
	uint64_t began_ns;
	uint64_t used_ns; /* CPU time of this process at the last look */
	uint64_t busy_ns; /* time that these cores were busy at the last look */
} run_busy;

/* Starts watching the calling thread's cores for a number of compute threads; a single thread never waits for others.
 * Does nothing if the system does not report how busy its cores are. */
void run_busy_start(run_busy *busy, int threads);

/* Call it now and then. True at most once: other processes used a quarter of the cores, or more, for seconds; text says
 * so and suggests a remedy. */
bool run_busy_tell(run_busy *busy, char *text, int size);

/* The time that the cores of the set were not idle, from the lines of /proc/stat; 0: the lines are missing. */
uint64_t run_busy_parse(const char *stat, const cpu_set_t *cores, uint64_t ticks_per_second);

#endif
