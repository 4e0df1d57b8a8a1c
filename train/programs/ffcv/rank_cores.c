/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_cores.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cgroup.h"
#include "common/system.h"
#include "launch/launcher_cores.h"

#define THREADS_MAX 4096

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

/* The variable is a list for nested teams; the first number counts. */
static int read_omp_threads(int64_t *out, beton_error *err)
{
	const char *text = getenv("OMP_NUM_THREADS");
	uint64_t threads = 0;
	char first[16] = "";
	if (!text || !text[strspn(text, " \t")])
		return BETON_OK;
	text += strspn(text, " \t");
	size_t length = strcspn(text, ", \t");
	if (length < sizeof(first))
		memcpy(first, text, length);
	int status = bt_parse_u64("OMP_NUM_THREADS", first, 1, THREADS_MAX, &threads, err);
	if (status != BETON_OK)
		return bt_fail(err, status, "environment: OMP_NUM_THREADS: '%s' is not a number of threads", text);
	*out = (int64_t)threads;
	return BETON_OK;
}

int run_cores_count_threads(run_options *options, const run_cores *cores, beton_error *err)
{
	options->compute_threads = options->threads;
	options->loader_threads = options->workers ? options->workers : cores->rank;
	if (options->threads)
		return BETON_OK;
	int status = read_omp_threads(&options->compute_threads, err);
	options->threads_from_environment = options->compute_threads > 0;
	/* Products add up in an order that depends on the threads, so these do not depend on the number of ranks. */
	int64_t parts = options->reproducible;
	if (!options->compute_threads)
		options->compute_threads = !parts ? cores->rank : cores->machine > parts ? cores->machine / parts : 1;
	return status;
}
