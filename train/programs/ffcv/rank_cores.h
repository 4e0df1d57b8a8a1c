/* SPDX-License-Identifier: Apache-2.0
 *
 * How many cores a rank computes on, where several share a machine. */
#ifndef PROGRAMS_FFCV_RANK_CORES_H
#define PROGRAMS_FFCV_RANK_CORES_H

#include "launch/rank_env.h"
#include "options/options.h"

typedef struct run_cores {
	int rank;    /* number of this rank */
	int machine; /* number of the job's ranks on this machine */
} run_cores;

/* Binds this thread, and threads that it starts later, to the rank's share of the machine's cores, if the rank's
 * launcher left it on all cores, as torchrun does. A rank that is already bound, for example by srun or our launcher,
 * keeps its cores. CPU quotas of containers are respected. */
void run_cores_share(const struct rank_env *env, run_cores *out);

/* The number of compute and loader threads of this process: --threads and --workers; else OMP_NUM_THREADS for compute
 * threads; else one for each core. INVALID_ARGUMENT: OMP_NUM_THREADS is not a number. */
int run_cores_count_threads(run_options *options, const run_cores *cores, beton_error *err);

#endif
