/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time of a step goes: each of its ops between two events.
 */
#ifndef PROGRAMS_BENCH_BENCH_STEP_PROFILE_H
#define PROGRAMS_BENCH_BENCH_STEP_PROFILE_H

#include <jansson.h>

#include "bench_step_job.h"
#include "core/op.h"

typedef struct bench_profile_op {
	dtrain_op_kind kind;
	char name[64];  /* of the first parameter that it reads or whose gradient it writes, without the last component
			 */
	char shape[96]; /* first two inputs > first output */
	dtrain__op_cost cost;
	double ms;       /* median over the steps */
	double limit_ms; /* time for its bytes, or its products, at the limits */
} bench_profile_op;

typedef struct bench_profile {
	bench_profile_op *ops; /* in program order, then the optimizer's */
	int count;
	double bandwidth; /* limit, bytes per second */
	double flops;     /* limit, products of the step's type per second; 0: not known */
	double sustained; /* what a GPU keeps of it, the limit of the ops; 0: not measured */
	double launch_ms; /* host time to put a step on an asynchronous device; median over the steps */
} bench_profile;

/* Runs the job's steps op by op. bandwidth and flops: limits; 0: the device's own, or measured. The caller frees out.
 */
int bench_profile_steps(bench_job *job, double bandwidth, double flops, bench_profile *out, beton_error *err);
void bench_profile_free(bench_profile *profile);

/* Prints a table and sums for each kind. Sorts the profile, slowest op first. */
void bench_profile_print(bench_profile *profile);
/* The profile as a JSON object; NULL: no memory. */
json_t *bench_profile_json(const bench_profile *profile);

#endif
