/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher_cores.h"

bool dtrain__rank_cores(const cpu_set_t *all, int rank, int world_size, cpu_set_t *out)
{
	int cores = CPU_COUNT(all), first, last;
	CPU_ZERO(out);
	if (cores == 0)
		return false;
	if (cores >= world_size) {
		first = (int)((long long)rank * cores / world_size);
		last = (int)((long long)(rank + 1) * cores / world_size) - 1;
	} else {
		first = last = rank % cores;
	}
	for (int cpu = 0, index = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, all))
			continue;
		if (index >= first && index <= last)
			CPU_SET(cpu, out);
		index++;
	}
	return true;
}
