/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of parameters that the optimizer updates alike. */
#ifndef PROGRAMS_FFCV_PARAM_GROUPS_H
#define PROGRAMS_FFCV_PARAM_GROUPS_H

#include <dtrain/optimizer.h>

#include "options/options.h"

enum {
	RUN_GROUP_WEIGHTS = 0,
	RUN_GROUP_BIASES = 1, /* parameters of one dimension: biases, and batch norm's weights */
	RUN_GROUP_EARLY = 2,  /* engine_task.find_early: like weights, trained for a part of the run */
	RUN_GROUP_FROZEN = 3, /* parameters that are not trained */
	RUN_GROUPS = 4,       /* further groups come from patterns and layers */
};

typedef struct run_group {
	double lr_scale, weight_decay;
} run_group;

typedef struct run_groups {
	run_group groups[DTRAIN_PARAM_GROUPS];
	int32_t count;
	uint8_t *of; /* the group of each parameter, by index */
	bool *outer; /* whether it is before the first block or after the last, by index: for `muon` */
} run_groups;

/* Applies --weight-decay, --bias-lr-scale, --no-bias-decay, --no-decay, --param-groups, --layer-decay. params are
 * declared. model: the whole model, if params are a stage of it; otherwise params. INVALID_ARGUMENT: a pattern that
 * matches no parameter of the model, or too many different groups. */
int run_groups_make(const run_options *options, const dtrain_params *model, const dtrain_params *params,
		    run_groups *out, beton_error *err);
void run_groups_free(run_groups *groups);
/* Sets the numbers of an optimizer with groups->count groups. */
int run_groups_set(const run_groups *groups, dtrain_optimizer *optimizer, beton_error *err);

/* Call it before each step, numbered from 0 over the whole run: stops training the early group when its time is
 * over. */
int run_groups_step(const run_options *options, dtrain_optimizer *optimizer, int64_t steps_per_epoch, int64_t step,
		    beton_error *err);

#endif
