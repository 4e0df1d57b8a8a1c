/* SPDX-License-Identifier: Apache-2.0
 *
 * --optimizer, and the options that are its numbers: which kinds have them, and their defaults. */
#ifndef OPTIONS_OPTIMIZER_OPTIONS_H
#define OPTIONS_OPTIMIZER_OPTIONS_H

#include <dtrain/optimizer.h>

#include "options_table.h"

enum { RUN_HYPERS_MAX = 16 };

/* The kind's default of a row with of_kind. False: the kind has no such number. */
bool run_optimizer_default(const dtrain_optimizer_kind *kind, const option_row *row, double *out);

/* Gives each option of the optimizer that is not set its kind's default, and drops other kinds' options.
 * INVALID_ARGUMENT: an unknown kind, or an option of another kind on the command line. */
int run_optimizer_complete(run_options *options, beton_error *err);

/* Whether the optimizer needs whole parameters. The options must be complete. */
bool run_optimizer_needs_whole(const run_options *options);

/* Numbers for dtrain_optimizer_create that are for all groups; returns how many. */
int32_t run_optimizer_hypers(const run_options *options, dtrain_hyper_value out[RUN_HYPERS_MAX]);

#endif
