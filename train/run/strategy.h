/* SPDX-License-Identifier: Apache-2.0
 *
 * From the options to the ranks' mesh and the strategy that keeps their parameters the same. */
#ifndef RUN_STRATEGY_H
#define RUN_STRATEGY_H

#include <dtrain/sync.h>

#include "options.h"
#include "rank_env.h"

/* Checks the options of --strategy against each other. Errors: INVALID_ARGUMENT. */
int run_strategy_check(const run_options *options, beton_error *err);

/* Collective: the mesh of the strategy over the world. INVALID_ARGUMENT: the ranks cannot be divided like that. */
int run_strategy_mesh(const run_options *options, const struct rank_env *env, dtrain_group *world, dtrain_mesh **out,
		      beton_error *err);

/* Texts are borrowed from the options. */
dtrain_sync_options run_strategy_sync(const run_options *options);

#endif
