/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rates of a run. */
#ifndef PROGRAMS_FFCV_LEARNING_RATE_H
#define PROGRAMS_FFCV_LEARNING_RATE_H

#include "preflight.h"

/* The schedule points into the facts. */
static inline dtrain_schedule run_schedule_of(const run_options *options, const run_facts *facts)
{
	return (dtrain_schedule){.kind = (dtrain_schedule_kind)options->schedule,
				 .lr = options->lr * facts->lr_factor,
				 .initial_lr = options->initial_lr * facts->lr_factor,
				 .final_lr = options->final_lr * facts->lr_factor,
				 .warmup_steps = facts->warmup_steps,
				 .total_steps = facts->total_steps,
				 .decay_steps = facts->decay_steps,
				 .power = options->schedule_power,
				 .milestones = facts->milestones,
				 .num_milestones = facts->num_milestones,
				 .factor = options->milestone_factor};
}

#endif
