/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench pipeline: one measurement.
 */
#ifndef PROGRAMS_BENCH_BENCH_PIPELINE_H
#define PROGRAMS_BENCH_BENCH_PIPELINE_H

#include <dtrain/comm.h>
#include <dtrain/pipeline.h>

typedef struct pipeline_figure {
	double makespan;        /* in units of F, the median of the steps */
	double idle;            /* the ranks' share of it, 0 to 1 */
	int32_t live, expected; /* the first rank whose live micro-batches are not the formula's; else rank 0's */
	int32_t kept;           /* rank 0 has memory for so many, of all of its stages */
} pipeline_figure;

/* Collective over the ranks of the pipeline. A step of a schedule whose F, I and W take each rank `ms` for a
 * micro-batch; one untimed step comes first. */
int pipeline_measure(dtrain_group *ranks, const dtrain_pipeline_options *schedule, double ms, int steps,
		     pipeline_figure *out, beton_error *err);

#endif
