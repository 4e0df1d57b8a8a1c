/* SPDX-License-Identifier: Apache-2.0 */
#include "param_groups.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/list.h"
#include "common/system.h"
#include "engine/memory/update_memory.h"

static uint8_t group_of(const run_options *options, const dtrain_param *param)
{
	const engine_job job = run_options_job(options);
	double epochs;
	const char *early = job.task->find_early ? job.task->find_early(&job, &epochs) : NULL;
	if (param->frozen)
		return RUN_GROUP_FROZEN;
	if (early && strcmp(param->name, early) == 0)
		return RUN_GROUP_EARLY;
	return param->shape.ndim < 2 ? RUN_GROUP_BIASES : RUN_GROUP_WEIGHTS;
}

/* An entry of a list of patterns: "PATTERN", "PATTERN=X" or "PATTERN=X:DECAY". */
typedef struct entry {
	char pattern[128];
	double lr_scale, weight_decay; /* decay < 0: not given */
} entry;

/* Reads the entry at *at as bt_list_next does. has_numbers: "=X" must follow the pattern. */
static int read_entry(const char *option, const char **at, bool has_numbers, entry *out, beton_error *err)
{
	char text[sizeof(out->pattern)], *number, *decay;
	*out = (entry){.lr_scale = 1, .weight_decay = -1};
	int status = bt_list_next(option, at, text, sizeof(text), err);
	if (status != BETON_OK)
		return status;
	number = has_numbers ? strrchr(text, '=') : NULL;
	if (number == text || (has_numbers && !number))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' is not PATTERN=X[:DECAY]", option, text);
	if (number)
		*number++ = 0;
	snprintf(out->pattern, sizeof(out->pattern), "%s", text);
	decay = number ? strchr(number, ':') : NULL;
	if (decay)
		*decay++ = 0;
	if (number)
		status = bt_parse_double(option, number, 0, 1e6, &out->lr_scale, err);
	return status == BETON_OK && decay ? bt_parse_double(option, decay, 0, FLT_MAX, &out->weight_decay, err)
					   : status;
}

/* The first entry of the list that matches the name. */
static int find_entry(const char *option, const char *list, bool has_numbers, const char *name, bool *found, entry *out,
		      beton_error *err)
{
	int status = BETON_OK;
	*found = false;
	for (const char *at = list; at && !*found && status == BETON_OK;) {
		status = read_entry(option, &at, has_numbers, out, err);
		*found = status == BETON_OK && dtrain_pattern_matches(out->pattern, name);
	}
	return status;
}

static int check_used(const char *option, const char *list, bool has_numbers, const dtrain_params *params,
		      beton_error *err)
{
	for (const char *at = list; at;) {
		entry one;
		bool matches = false, used = false;
		int status = read_entry(option, &at, has_numbers, &one, err);
		if (status != BETON_OK)
			return status;
		for (int i = 0; i < dtrain_params_count(params) && !used; i++) {
			const dtrain_param *param = dtrain_params_at(params, i);
			bool found = dtrain_pattern_matches(one.pattern, param->name);
			matches = matches || found;
			used = found && !param->frozen;
		}
		if (!used)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: '%s' matches %s", option, one.pattern,
				       matches ? "only frozen parameters (--freeze)" : "no parameter");
	}
	return BETON_OK;
}

/* Changes a parameter's numbers as the task, patterns and layers say. last: the last block. */
static int refine(const run_options *options, int32_t last, const dtrain_param *param, run_group *group,
		  beton_error *err)
{
	entry one;
	bool found;
	for (const char *const *name = run_options_job(options).task->no_decay; name && *name; name++)
		if (strcmp(*name, param->name) == 0)
			group->weight_decay = 0;
	group->lr_scale *= pow(options->layer_decay, last - param->block);
	int status = find_entry("--no-decay", options->no_decay, false, param->name, &found, &one, err);
	if (found)
		group->weight_decay = 0;
	if (status == BETON_OK)
		status = find_entry("--param-groups", options->param_groups, true, param->name, &found, &one, err);
	if (status != BETON_OK || !found)
		return status;
	group->lr_scale *= one.lr_scale;
	if (one.weight_decay >= 0)
		group->weight_decay = one.weight_decay;
	return BETON_OK;
}

static bool is_same(run_group a, run_group b)
{
	return a.lr_scale == b.lr_scale && a.weight_decay == b.weight_decay;
}

/* Finds or adds the group with these numbers: the parameter's usual group, or one from patterns and layers. */
static int place(run_groups *groups, int usual, run_group group, uint8_t *out, beton_error *err)
{
	int32_t i = usual;
	if (usual == RUN_GROUP_EARLY)
		groups->groups[usual] = group;
	if (!is_same(groups->groups[usual], group))
		for (i = RUN_GROUPS; i < groups->count && !is_same(groups->groups[i], group);)
			i++;
	if (i == DTRAIN_PARAM_GROUPS)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--param-groups and --layer-decay make more than %d different groups",
			       DTRAIN_PARAM_GROUPS);
	if (i == groups->count)
		groups->groups[groups->count++] = group;
	*out = (uint8_t)i;
	return BETON_OK;
}

int run_groups_make(const run_options *options, const dtrain_params *model, const dtrain_params *params,
		    run_groups *out, beton_error *err)
{
	int count = dtrain_params_count(params);
	int32_t last = dtrain_params_last_block(params);
	/* A step's decay is weight decay times rate: the division cancels the biases' larger rate. */
	double decay = options->no_bias_decay ? 0 : options->weight_decay / options->bias_lr_scale;
	*out = (run_groups){.groups = {[RUN_GROUP_WEIGHTS] = {1, options->weight_decay},
				       [RUN_GROUP_BIASES] = {options->bias_lr_scale, decay},
				       [RUN_GROUP_EARLY] = {1, options->weight_decay},
				       [RUN_GROUP_FROZEN] = {0, 0}},
			    .count = RUN_GROUPS,
			    .of = calloc((size_t)count + 1, sizeof(*out->of)),
			    .outer = calloc((size_t)count + 1, sizeof(*out->outer))};
	if (!out->of || !out->outer) {
		run_groups_free(out);
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the groups of %d parameters", count);
	}
	int status = check_used("--no-decay", options->no_decay, false, model, err);
	if (status == BETON_OK)
		status = check_used("--param-groups", options->param_groups, true, model, err);
	for (int i = 0; i < count && status == BETON_OK; i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		uint8_t usual = group_of(options, param);
		out->outer[i] = engine_is_outer(param, last);
		run_group group = out->groups[usual];
		if (usual != RUN_GROUP_FROZEN)
			status = refine(options, last, param, &group, err);
		if (status == BETON_OK)
			status = place(out, usual, group, &out->of[i], err);
	}
	if (status != BETON_OK)
		run_groups_free(out);
	return status;
}

void run_groups_free(run_groups *groups)
{
	free(groups->of);
	free(groups->outer);
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
	for (int32_t i = 0; i < groups->count && status == BETON_OK; i++)
		status = set_group(optimizer, i, groups->groups[i], err);
	return status;
}

int run_groups_step(const run_options *options, dtrain_optimizer *optimizer, int64_t steps_per_epoch, int64_t step,
		    beton_error *err)
{
	const engine_job job = run_options_job(options);
	double epochs;
	if (!job.task->find_early || !job.task->find_early(&job, &epochs) ||
	    (double)step < epochs * (double)steps_per_epoch)
		return BETON_OK;
	return set_group(optimizer, RUN_GROUP_EARLY, (run_group){0, 0}, err);
}
