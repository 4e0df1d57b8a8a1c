/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rates of a run. */
#ifndef PROGRAMS_FFCV_LEARNING_RATE_H
#define PROGRAMS_FFCV_LEARNING_RATE_H

#include "preflight.h"

/* The schedule points into the facts. */
static inline dtrain_schedule run_schedule_of(const run_options *options, const run_info *info)
{
	return (dtrain_schedule){.kind = (dtrain_schedule_kind)options->schedule,
				 .lr = options->lr * info->lr_factor,
				 .initial_lr = options->initial_lr * info->lr_factor,
				 .final_lr = options->final_lr * info->lr_factor,
				 .warmup_steps = info->warmup_steps,
				 .total_steps = info->total_steps,
				 .decay_steps = info->decay_steps,
				 .power = options->schedule_power,
				 .milestones = info->milestones,
				 .num_milestones = info->num_milestones,
				 .factor = options->milestone_factor};
}

#endif
