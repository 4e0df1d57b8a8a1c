/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether other processes use the cores on which a team of compute threads works. Its threads wait for each other many
 * times in a step, so that one core that is taken away holds up all of them: on a machine that is loaded two threads
 * can be several times slower than one. */
#ifndef RUN_BUSY_H
#define RUN_BUSY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct run_busy {
	cpu_set_t cores;
	int threads; /* 0: nothing is watched any more */
	uint64_t began_ns;
	uint64_t used_ns; /* by this process, then */
	uint64_t busy_ns; /* of these cores, then */
} run_busy;

/* Watches the cores of the calling thread on behalf of that many compute threads; a single one waits for nobody. Does
 * nothing where the system does not tell how busy its cores are. */
void run_busy_start(run_busy *busy, int threads);

/* Call it now and then. True once at most: others used a quarter of the cores, or more, for seconds; text says so and
 * what may help. */
bool run_busy_tell(run_busy *busy, char *text, int size);

/* The time in which the cores of the set have not been idle, from the lines of /proc/stat; 0: they are not there. */
uint64_t run_busy_parse(const char *stat, const cpu_set_t *cores, uint64_t ticks_per_second);

#endif
