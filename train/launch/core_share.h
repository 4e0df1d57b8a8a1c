/* SPDX-License-Identifier: Apache-2.0
 *
 * How many cores a rank computes on, where several share a machine. */
#ifndef LAUNCH_CORE_SHARE_H
#define LAUNCH_CORE_SHARE_H

#include "rank_env.h"

typedef struct run_cores {
	int rank;    /* number of this rank */
	int machine; /* number of the job's ranks on this machine */
} run_cores;

/* Binds this thread, and threads that it starts later, to the rank's share of the machine's cores, if the rank's
 * launcher left it on all cores, as torchrun does. A rank that is already bound, for example by srun or our launcher,
 * keeps its cores. CPU quotas of containers are respected. */
void run_cores_share(const struct rank_env *env, run_cores *out);

#endif
