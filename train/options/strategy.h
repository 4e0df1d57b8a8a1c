/* SPDX-License-Identifier: Apache-2.0
 *
 * From the options to the ranks' mesh and the strategy that keeps their parameters the same. */
#ifndef OPTIONS_STRATEGY_H
#define OPTIONS_STRATEGY_H

#include <dtrain/sync.h>

#include "launch/rank_env.h"
#include "options.h"

/* Whether rank 0 is a parameter server, and the others its workers. An evaluation has neither. */
bool run_strategy_is_async(const run_options *options);
/* The number of ranks whose batches make a step. */
int64_t run_strategy_shares(const run_options *options);
/* Their name: "rank" or "worker". */
const char *run_strategy_sharer(const run_options *options);
/* INVALID_ARGUMENT: the ranks cannot be divided so. Call it when world_size is final. */
int run_strategy_check_world(const run_options *options, beton_error *err);

/* Collective: the mesh of the strategy over the world. INVALID_ARGUMENT: the ranks cannot be divided like that. */
int run_strategy_mesh(const run_options *options, const struct rank_env *env, dtrain_group *world, dtrain_mesh **out,
		      beton_error *err);

/* Prints what several ranks train with, as the rest of a line; for one rank, nothing. */
void run_strategy_print(const run_options *options, const dtrain_sync *sync);

/* Texts are borrowed from the options. */
dtrain_sync_options run_strategy_sync(const run_options *options);

#endif
