/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts about a run, known before any rank starts. */
#ifndef PROGRAMS_FFCV_RUN_INFO_H
#define PROGRAMS_FFCV_RUN_INFO_H

#include "options/options.h"

typedef struct run_info {
	engine_data data;      /* the fingerprint includes the input of the samples' order */
	uint64_t epoch_length; /* positions; by default the number of samples */
	int64_t global_batch;
	double lr_factor; /* by --lr-scale: of every learning rate */
	int64_t steps_per_epoch;
	int64_t total_steps;
	int64_t warmup_steps;
	int64_t decay_steps; /* of the schedule wsd */
	int64_t milestones[RUN_MILESTONES_MAX];
	int32_t num_milestones;
} run_info;

#endif
