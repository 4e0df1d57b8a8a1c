/* SPDX-License-Identifier: Apache-2.0 */
#include "wait_policy.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* The standard's variable, and those of gcc's and LLVM's libraries that say it more exactly. */
static const char *const variables[] = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"};

bool run_needs_passive_wait(int ranks, int64_t threads, int64_t workers, int cores)
{
	int64_t share = cores > ranks ? cores / ranks : 1;
	threads = threads ? threads : share;
	workers = workers ? workers : share;
	int64_t communication = ranks > 1;
	return threads > 1 && ranks * (threads + workers + communication) > cores;
}

void run_set_passive_wait(bool restart, char *const *argv)
{
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		if (getenv(variables[i]))
			return;
	/* Found set the second time, so that there is no third. Without /proc, training is slower and no more. */
	if (setenv(variables[0], "passive", 1) == 0 && restart)
		execv("/proc/self/exe", argv);
}
