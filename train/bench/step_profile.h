/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a step goes: each of its ops between two events.
 */
#ifndef BENCH_STEP_PROFILE_H
#define BENCH_STEP_PROFILE_H

#include <jansson.h>

#include "core/op.h"
#include "step_job.h"

typedef struct bench_profile_op {
	dtrain_op_kind kind;
	char name[64];  /* of the first parameter that it reads or whose gradient it writes, without the last part */
	char shape[96]; /* of its first two inputs > its first output */
	dtrain__op_cost cost;
	double ms;       /* median of the steps */
	double limit_ms; /* what its bytes, or its products, take at the limits */
} bench_profile_op;

typedef struct bench_profile {
	bench_profile_op *ops; /* in the order of the program, the optimizer's behind it */
	int count;
	double bandwidth; /* limits: bytes a second, */
	double flops;     /* and products of the step's type a second; 0: not known */
	double launch_ms; /* of the host, to put a step on an asynchronous device; median of the steps */
} bench_profile;

/* Runs the job's steps op by op. bandwidth and flops: limits; 0: the device's own, or of memory what its ADD moves. The
 * caller frees. */
int bench_profile_steps(bench_job *job, double bandwidth, double flops, bench_profile *out, beton_error *err);
void bench_profile_free(bench_profile *profile);

/* A table, the slowest op first, which is then the order of the profile, and sums for each kind. */
void bench_profile_print(bench_profile *profile);
/* The same for one key of an object; NULL: no memory. */
json_t *bench_profile_json(const bench_profile *profile);

#endif
