/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast a device is at best, measured with ops of its own.
 */
#ifndef PROGRAMS_BENCH_BENCH_STEP_LIMITS_H
#define PROGRAMS_BENCH_BENCH_STEP_LIMITS_H

#include "bench_step_job.h"

/* Bytes per second that the fastest addition of arrays moves, which are larger than any cache. */
int bench_measure_bandwidth(bench_job *job, double *out, beton_error *err);
/* Operations per second, 2 for each multiply-add, of products of two matrices [side, side] of random numbers in the
 * job's type, that run for `ms` milliseconds without a pause; the first third is not counted. A GPU lowers its clock
 * when it reaches the limit of its power. */
int bench_measure_products(bench_job *job, int64_t side, double ms, double *out, beton_error *err);

#endif
