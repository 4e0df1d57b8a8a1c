/* SPDX-License-Identifier: Apache-2.0 */
#include "optimizer_options.h"

#include <stdlib.h>
#include <string.h>

#include "common/system.h"

/* The kind's number of that option; NULL: none. */
static const dtrain_hyper *find_hyper(const dtrain_optimizer_kind *kind, const char *option)
{
	char name[32];
	snprintf(name, sizeof(name), "%s", option);
	for (char *at = name; (at = strchr(at, '-'));)
		*at = '_';
	for (int32_t i = 0; i < kind->num_hypers; i++)
		if (strcmp(kind->hypers[i].name, name) == 0)
			return &kind->hypers[i];
	return NULL;
}

static const dtrain_optimizer_kind *find_kind(const char *name)
{
	const dtrain_optimizer_kind *kind;
	for (int i = 0; (kind = dtrain_optimizer_kind_at(i)); i++)
		if (name && strcmp(kind->name, name) == 0)
			return kind;
	return NULL;
}

bool run_optimizer_default(const dtrain_optimizer_kind *kind, const option_row *row, double *out)
{
	const dtrain_hyper *hyper = find_hyper(kind, row->name);
	bool rate = strcmp(row->name, "lr") == 0, clip = strcmp(row->name, "clip-norm") == 0;
	*out = rate ? kind->lr : clip ? kind->clip_norm : hyper ? hyper->standard : 0;
	/* A row's default is SGD's. */
	if (row->standard && strcmp(kind->name, "sgd") == 0)
		*out = strtod(row->standard, NULL);
	return rate || clip || hyper;
}

static int check_kind(const char *name, beton_error *err)
{
	char list[160] = "";
	for (int i = 0; dtrain_optimizer_kind_at(i); i++)
		bt_append(list, sizeof(list), "%s%s", i ? ", " : "", dtrain_optimizer_kind_at(i)->name);
	return find_kind(name) ? BETON_OK
			       : bt_fail(err, BETON_INVALID_ARGUMENT, "--optimizer: '%s' is not one of %s", name, list);
}

int run_optimizer_complete(run_options *options, beton_error *err)
{
	int status = check_kind(options->optimizer, err);
	const dtrain_optimizer_kind *kind = find_kind(options->optimizer);
	for (int i = 0; i < run_row_count && status == BETON_OK; i++) {
		const option_row *row = &run_rows[i];
		bool *flag = (bool *)((char *)options + row->offset);
		double *number = (double *)flag, standard;
		bool is_flag = row->kind == OPTION_FLAG;
		if (!row->of_kind)
			continue;
		bool has = run_optimizer_default(kind, row, &standard);
		if (!has && options->given[i] && (!is_flag || *flag))
			status = bt_fail(err, BETON_INVALID_ARGUMENT, "--%s has no effect with --optimizer %s",
					 row->name, kind->name);
		else if (is_flag)
			*flag = *flag && has;
		else if (!has)
			*number = RUN_NOT_SET;
		else if (*number < 0)
			*number = standard;
	}
	return status;
}

bool run_optimizer_needs_whole(const run_options *options)
{
	return find_kind(options->optimizer)->whole;
}

int32_t run_optimizer_hypers(const run_options *options, dtrain_hyper_value out[RUN_HYPERS_MAX])
{
	const dtrain_optimizer_kind *kind = find_kind(options->optimizer);
	int32_t count = 0;
	for (int i = 0; i < run_row_count && count < RUN_HYPERS_MAX; i++) {
		const option_row *row = &run_rows[i];
		const dtrain_hyper *hyper = row->of_kind ? find_hyper(kind, row->name) : NULL;
		const void *member = (const char *)options + row->offset;
		if (hyper && !hyper->by_group)
			out[count++] = (dtrain_hyper_value){hyper->name, hyper->flag ? *(const bool *)member
										     : *(const double *)member};
	}
	return count;
}

int run_options_states(const run_options *options)
{
	const dtrain_optimizer_kind *kind = find_kind(options->optimizer);
	if (options->evaluate || !kind)
		return 0;
	/* The outer optimizer has the shared parameters and its momentum. */
	int outer = options->strategy == RUN_STRATEGY_LOCAL ? 2 : 0;
	return kind->num_states + options->amsgrad + (options->lookahead > 0) + (options->ema > 0) + outer;
}
