/* SPDX-License-Identifier: Apache-2.0
 *
 * Speeds of a machine, from the JSON that dtrain-bench prints. */
#ifndef PROGRAMS_PLAN_MEASURED_H
#define PROGRAMS_PLAN_MEASURED_H

#include <beton/error.h>

#include "machine.h"

/* dtrain-bench step --profile --json: a step of one rank. */
typedef struct plan_measured_step {
	double flops, bandwidth; /* peaks: operations of products, and bytes of memory, a second */
	double seconds;          /* of a step */
	int64_t batch, context_length;
} plan_measured_step;

/* Errors name the file: NOT_FOUND, IO, FORMAT. */
int plan_read_step(const char *path, plan_measured_step *out, beton_error *err);
/* dtrain-bench comm --op allreduce --json: the latency and the rate of the smallest and the largest all-reduce. */
int plan_read_link(const char *path, plan_link *out, beton_error *err);

#endif
