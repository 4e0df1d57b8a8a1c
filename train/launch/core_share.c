/* SPDX-License-Identifier: Apache-2.0 */
#include "core_share.h"

#include <limits.h>
#include <sched.h>
#include <unistd.h>

#include "common/cgroup.h"
#include "common/system.h"
#include "launcher_cores.h"

/* Launchers bind ranks one by one, so that a bound rank has other cores than its parent process. */
static bool is_unbound(cpu_set_t *all)
{
	cpu_set_t parents;
	return sched_getaffinity(0, sizeof(*all), all) == 0 &&
	       sched_getaffinity(getppid(), sizeof(parents), &parents) == 0 && CPU_EQUAL(all, &parents);
}

void run_cores_share(const struct rank_env *env, run_cores *out)
{
	cpu_set_t all, mine;
	int ranks = env->started ? env->local_world_size : 1, before = bt_available_cores();
	bool shares = ranks > 1 && env->local_known && !env->store_hosted && is_unbound(&all) &&
		      dtrain__rank_cores(&all, env->local_rank, ranks, &mine) &&
		      sched_setaffinity(0, sizeof(mine), &mine) == 0;
	int granted = bt_cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup");
	out->rank = bt_available_cores();
	if (granted < INT_MAX && out->rank > granted / ranks)
		out->rank = granted / ranks > 1 ? granted / ranks : 1;
	out->machine = shares ? before : out->rank * ranks;
}
