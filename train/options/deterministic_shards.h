/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps whose batch is divided into a fixed number of shards, so that their results do not depend on the ranks. */
#ifndef OPTIONS_DETERMINISTIC_SHARDS_H
#define OPTIONS_DETERMINISTIC_SHARDS_H

#include <dtrain/params.h>

#include "options.h"

/* With --reproducible, sets accumulate to the parts of a rank. Call it when world_size is final. INVALID_ARGUMENT: the
 * ranks cannot share the parts. */
int run_deterministic_shards_divide(run_options *options, beton_error *err);

/* How many batches a rank evaluates, 0 for all: with --reproducible, --eval-batches for each of its parts, so that all
 * ranks together have the same samples whatever their number. */
int64_t run_deterministic_shards_eval_batches(const run_options *options);

/* UNSUPPORTED: averages of buffers that steps change are not the same for any number of ranks. */
int run_deterministic_shards_check_buffers(const run_options *options, const dtrain_params *params, beton_error *err);

#endif
