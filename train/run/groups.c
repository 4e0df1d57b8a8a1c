/* SPDX-License-Identifier: Apache-2.0 */
#include "groups.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"

static uint8_t group_of(const run_options *options, const dtrain_param *param)
{
	const engine_job job = run_options_job(options);
	double epochs;
	const char *early = job.task->find_early(&job, &epochs);
	if (param->frozen)
		return RUN_GROUP_FROZEN;
	if (early && strcmp(param->name, early) == 0)
		return RUN_GROUP_EARLY;
	return param->shape.ndim < 2 ? RUN_GROUP_BIASES : RUN_GROUP_WEIGHTS;
}

int run_groups_make(const run_options *options, const dtrain_params *params, run_groups *out, beton_error *err)
{
	int count = dtrain_params_count(params);
	/* A step's decay is weight decay times rate: the division cancels the biases' larger rate. */
	double decay = options->no_bias_decay ? 0 : options->weight_decay / options->bias_lr_scale;
	*out = (run_groups){.groups = {[RUN_GROUP_WEIGHTS] = {1, options->weight_decay},
				       [RUN_GROUP_BIASES] = {options->bias_lr_scale, decay},
				       [RUN_GROUP_EARLY] = {1, options->weight_decay},
				       [RUN_GROUP_FROZEN] = {0, 0}},
			    .of = calloc((size_t)count + 1, sizeof(*out->of))};
	if (!out->of)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the groups of %d parameters", count);
	for (int i = 0; i < count; i++)
		out->of[i] = group_of(options, dtrain_params_at(params, i));
	return BETON_OK;
}

void run_groups_free(run_groups *groups)
{
	free(groups->of);
	*groups = (run_groups){0};
}

static int set_group(dtrain_optimizer *optimizer, int32_t index, run_group group, beton_error *err)
{
	int status = dtrain_optimizer_set(optimizer, index, "lr_scale", group.lr_scale, err);
	return status == BETON_OK ? dtrain_optimizer_set(optimizer, index, "weight_decay", group.weight_decay, err)
				  : status;
}

int run_groups_set(const run_groups *groups, dtrain_optimizer *optimizer, beton_error *err)
{
	int status = BETON_OK;
	for (int32_t i = 0; i < RUN_GROUPS && status == BETON_OK; i++)
		status = set_group(optimizer, i, groups->groups[i], err);
	return status;
}

int run_groups_step(const run_options *options, dtrain_optimizer *optimizer, int64_t steps_per_epoch, int64_t step,
		    beton_error *err)
{
	const engine_job job = run_options_job(options);
	double epochs;
	if (!job.task->find_early(&job, &epochs) || (double)step < epochs * (double)steps_per_epoch)
		return BETON_OK;
	return set_group(optimizer, RUN_GROUP_EARLY, (run_group){0, 0}, err);
}
