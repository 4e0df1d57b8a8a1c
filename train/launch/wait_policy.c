/* SPDX-License-Identifier: Apache-2.0 */
#include "wait_policy.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

/* OpenMP's variable, and the more specific ones of gcc's and LLVM's libraries. */
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
	/* The restarted program finds the variable set, and does not restart again. Without /proc, training is only
	 * slower. */
	if (setenv(variables[0], "passive", 1) == 0 && restart)
		execv("/proc/self/exe", argv);
}
