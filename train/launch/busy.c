/* SPDX-License-Identifier: Apache-2.0 */
#include "busy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/system.h"

#define WINDOW_NS UINT64_C(5000000000)
#define SECOND_NS UINT64_C(1000000000)

uint64_t run_busy_parse(const char *stat, const cpu_set_t *cores, uint64_t ticks_per_second)
{
	uint64_t ticks = 0;
	for (const char *line = stat; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
		/* user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of the first two. */
		uint64_t used[8] = {0};
		int cpu = -1;
		if (sscanf(line,
			   "cpu%d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
			   " %" SCNu64,
			   &cpu, &used[0], &used[1], &used[2], &used[3], &used[4], &used[5], &used[6], &used[7]) < 5 ||
		    cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET((size_t)cpu, cores))
			continue;
		for (int i = 0; i < 8; i++)
			ticks += i == 3 || i == 4 ? 0 : used[i];
	}
	return ticks_per_second ? ticks * (SECOND_NS / ticks_per_second) : 0;
}

static uint64_t read_busy(const cpu_set_t *cores)
{
	long ticks = sysconf(_SC_CLK_TCK);
	FILE *file = fopen("/proc/stat", "re");
	char *text = NULL;
	size_t room = 0;
	uint64_t busy = 0;
	if (file && getdelim(&text, &room, '\0', file) > 0 && ticks > 0)
		busy = run_busy_parse(text, cores, (uint64_t)ticks);
	if (file)
		fclose(file);
	free(text);
	return busy;
}

static uint64_t read_used(void)
{
	struct rusage usage;
	if (getrusage(RUSAGE_SELF, &usage) != 0)
		return 0;
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * SECOND_NS +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1000;
}

void run_busy_start(run_busy *busy, int threads)
{
	*busy = (run_busy){.threads = threads, .began_ns = bt_now_ns(), .used_ns = read_used()};
	if (threads < 2 || sched_getaffinity(0, sizeof(busy->cores), &busy->cores) != 0 ||
	    (busy->busy_ns = read_busy(&busy->cores)) == 0)
		busy->threads = 0;
}

bool run_busy_tell(run_busy *busy, char *text, int size)
{
	uint64_t now = bt_now_ns();
	if (!busy->threads || now - busy->began_ns < WINDOW_NS)
		return false;
	int cores = CPU_COUNT(&busy->cores);
	double all = (double)(now - busy->began_ns) * cores;
	uint64_t used = read_used(), taken = read_busy(&busy->cores);
	double others = ((double)(taken - busy->busy_ns) - (double)(used - busy->used_ns)) / all;
	if (others < 0.25) {
		run_busy_start(busy, busy->threads);
		return false;
	}
	snprintf(text, (size_t)size,
		 "other processes use %.0f %% of the %d core%s on which %d compute threads wait for each other: "
		 "a smaller --threads may be several times faster",
		 100 * (others < 1 ? others : 1), cores, cores == 1 ? "" : "s", busy->threads);
	busy->threads = 0;
	return true;
}
