/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of kinds of optimizers, and the checks of what they are given.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"
#include "core/params.h"
#include "optimizer.h"

static const dtrain__optimizer_kind *const kinds[] = {&dtrain__sgd,  &dtrain__adam, &dtrain__adamw, &dtrain__lion,
						      &dtrain__lars, &dtrain__lamb, &dtrain__muon};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

const dtrain_optimizer_kind *dtrain_optimizer_kind_at(int index)
{
	return index >= 0 && index < KINDS ? &kinds[index]->info : NULL;
}

const dtrain__optimizer_kind *dtrain__optimizer_kind_find(const char *name)
{
	for (int i = 0; i < KINDS; i++)
		if (strcmp(kinds[i]->info.name, name) == 0)
			return kinds[i];
	return NULL;
}

static int hyper_find(const dtrain_optimizer_kind *kind, const char *name, beton_error *err)
{
	for (int32_t i = 0; i < kind->num_hypers && name; i++)
		if (strcmp(kind->hypers[i].name, name) == 0)
			return i;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: has no number named '%s'", kind->name, name ? name : "");
}

/* group < 0: the value is for all groups. */
static int check_value(const dtrain_optimizer_kind *kind, const dtrain_hyper *hyper, int32_t group, double value,
		       beton_error *err)
{
	char of[32] = "";
	if (group >= 0)
		snprintf(of, sizeof(of), "group %d: ", group);
	if (hyper->flag)
		return value == 0 || value == 1 ? BETON_OK
						: bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %s%s %g is neither 0 nor 1",
							  kind->name, of, hyper->name, value);
	return value >= hyper->least && value < hyper->below
		       ? BETON_OK
		       : bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %s%s %g is not in [%g, %g)", kind->name, of,
				 hyper->name, value, hyper->least, hyper->below);
}

int dtrain__optimizer_set_hypers(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options, beton_error *err)
{
	const dtrain_optimizer_kind *kind = &optimizer->kind->info;
	double *first = optimizer->hypers;
	for (int32_t i = 0; i < kind->num_hypers; i++)
		first[i] = kind->hypers[i].standard;
	for (int32_t i = 0; i < options->num_hypers; i++) {
		const dtrain_hyper_value *given = &options->hypers[i];
		int index = hyper_find(kind, given->name, err);
		int status = index < 0 ? index : check_value(kind, &kind->hypers[index], -1, given->value, err);
		if (status != BETON_OK)
			return status;
		first[index] = given->value;
	}
	for (int32_t i = 1; i < optimizer->num_groups; i++)
		memcpy(first + (size_t)i * (size_t)kind->num_hypers, first, (size_t)kind->num_hypers * sizeof(*first));
	return optimizer->kind->check ? optimizer->kind->check(first, err) : BETON_OK;
}

int dtrain_optimizer_set(dtrain_optimizer *optimizer, int32_t group, const char *name, double value, beton_error *err)
{
	if (BT_MISSING(err, optimizer, name))
		return BETON_INVALID_ARGUMENT;
	const dtrain_optimizer_kind *kind = &optimizer->kind->info;
	int index = hyper_find(kind, name, err);
	if (index < 0)
		return index;
	if (group < 0 || group >= optimizer->num_groups)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: no group %d of %d", kind->name, group,
			       optimizer->num_groups);
	if (!kind->hypers[index].by_group)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %s is one for all groups and steps", kind->name, name);
	int status = check_value(kind, &kind->hypers[index], group, value, err);
	if (status == BETON_OK)
		optimizer->hypers[group * kind->num_hypers + index] = value;
	return status;
}

static int check_groups(const dtrain_params *params, const dtrain_optimizer_options *options, beton_error *err)
{
	const char *name = options->kind;
	if (options->num_groups < 1 || options->num_groups > DTRAIN_PARAM_GROUPS)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %d groups, not 1 to %d", name, options->num_groups,
			       DTRAIN_PARAM_GROUPS);
	for (int i = 0; options->group_of && i < dtrain_params_count(params); i++)
		if (options->group_of[i] >= options->num_groups)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: parameter '%s' is in group %d of %d", name,
				       dtrain_params_at(params, i)->name, options->group_of[i], options->num_groups);
	return BETON_OK;
}

static int check_range(const dtrain_params *params, const dtrain_optimizer_options *options, beton_error *err)
{
	int64_t begin = options->begin, end = options->end, count = dtrain_params_flat_count(params);
	if (dtrain_params_unit_count(params) == 0 && dtrain_params_count(params) > 0)
		return bt_fail(err, BETON_STATE, "%s: the parameters are not allocated yet", options->kind);
	if (count < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: the model has no parameters", options->kind);
	bool all = begin == 0 && end == 0;
	bool aligned = begin % DTRAIN_PARAM_ALIGN == 0 && (end % DTRAIN_PARAM_ALIGN == 0 || end == count);
	if (!all && !(begin >= 0 && begin < end && end <= count && aligned))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "%s: elements %lld to %lld are not a range of runs of %d in a flat space of %lld",
			       options->kind, (long long)begin, (long long)end, DTRAIN_PARAM_ALIGN, (long long)count);
	return BETON_OK;
}

static int check_clip_norm(const dtrain_params *params, const dtrain_optimizer_options *options, beton_error *err)
{
	if (!(options->clip_norm >= 0))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: gradients clipped to a norm of %g, not one >= 0",
			       options->kind, options->clip_norm);
	for (int i = 0; options->clip_norm > 0 && !options->add_model && i < dtrain_params_count(params); i++)
		if (dtrain_params_at(params, i)->placement.axis)
			return bt_fail(
				err, BETON_UNSUPPORTED,
				"%s: gradients are clipped to a norm without add_model, and ranks have parts of '%s'",
				options->kind, dtrain_params_at(params, i)->name);
	if (params->lines.model.size > 1 && !options->add_model && (options->clip_norm > 0 || options->scaler))
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"%s: the norm of the gradients, or a scaler, needs add_model: %d ranks compute one model",
			options->kind, params->lines.model.size);
	return BETON_OK;
}

/* Refuses options that work on whole arrays, or with buffers, which are on the device. */
static int check_offloaded(const dtrain_params *params, const dtrain_optimizer_options *options, beton_error *err)
{
	const char *what = options->lookahead                  ? "lookahead"
			   : options->average                  ? "a moving average"
			   : options->values || options->grads ? "memory of the caller's"
			   : options->begin || options->end    ? "a range of the caller's choice"
			   /* Gradients are read when each unit is complete, and the table begins with all. */
			   : options->norm_parts && params->offload.units ? "norms by parts"
									  : NULL;
	return what ? bt_fail(err, BETON_UNSUPPORTED, "%s: %s of offloaded parameters", options->kind, what) : BETON_OK;
}

int dtrain__optimizer_check(const dtrain_params *params, const dtrain_optimizer_options *options, beton_error *err)
{
	if (!options->kind || !dtrain__optimizer_kind_find(options->kind))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "optimizer: unknown kind '%s'",
			       options->kind ? options->kind : "");
	if (!(options->grad_divisor > 0 && isfinite(options->grad_divisor)))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: gradients divided by %g, not by a number > 0",
			       options->kind, options->grad_divisor);
	if (options->num_hypers < 0 || (options->num_hypers && !options->hypers))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %d numbers without what they are", options->kind,
			       options->num_hypers);
	int status = check_clip_norm(params, options, err);
	if (status == BETON_OK && dtrain_params_host(params))
		status = check_offloaded(params, options, err);
	if (status == BETON_OK)
		status = check_groups(params, options, err);
	return status == BETON_OK ? check_range(params, options, err) : status;
}
