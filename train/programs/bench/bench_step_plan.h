/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_BENCH_BENCH_STEP_PLAN_H
#define PROGRAMS_BENCH_BENCH_STEP_PLAN_H

#include "bench_step_job.h"

/* Prints the memory plan of a step, and the memory that each --recompute needs, as text or as one JSON object. */
int bench_step_plan(const bench_step_options *options, beton_error *err);

#endif
