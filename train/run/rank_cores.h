/* SPDX-License-Identifier: Apache-2.0
 *
 * How many cores a rank computes on, where several share a machine. */
#ifndef RUN_RANK_CORES_H
#define RUN_RANK_CORES_H

#include "options.h"
#include "rank_env.h"

typedef struct run_cores {
	int rank;    /* of this rank */
	int machine; /* of all the job's ranks on this machine */
} run_cores;

/* The cores of a rank that somebody else started and left on all of the machine's, as torchrun does, become its share
 * of them: this thread is bound to it, and so are those that it starts from here on. A rank that was bound by itself,
 * as by srun or by our launcher, keeps what it has. Shares of a container's processor time are counted in. */
void run_cores_share(const struct rank_env *env, run_cores *out);

/* Compute and loader threads of this process: what --threads and --workers say, else OMP_NUM_THREADS for the first,
 * else one for each core. INVALID_ARGUMENT: OMP_NUM_THREADS is no number. */
int run_cores_count_threads(run_options *options, const run_cores *cores, beton_error *err);

#endif
