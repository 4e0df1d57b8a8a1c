/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of everything that the command line names, made before any rank starts, and the facts found on the way. */
#ifndef PROGRAMS_FFCV_PREFLIGHT_H
#define PROGRAMS_FFCV_PREFLIGHT_H

#include <beton/beton.h>
#include <dtrain/checkpoint.h>

#include "run_info.h"

/* Reads the task's facts about the data files, and checks model and lengths. The same on every rank. Errors name the
 * file or the option. */
int run_preflight(const run_options *options, int world_size, run_info *out, beton_error *err);

/* Checks that --log and --tensorboard can be written. Called by the launcher or rank 0 only. */
int run_preflight_logs(const run_options *options, beton_error *err);

/* The same for --checkpoint. If missing, the folder is made: with its parents, unless --resume=auto says that it may
 * exist; never with --resume. A checkpoint's own folder is refused (EXISTS). *lock keeps other jobs out until it is
 * released; NULL: the place has no locks, or the program only tells something: then nothing is made or locked. */
int run_preflight_checkpoints(const run_options *options, dtrain_checkpoint_lock **lock, beton_error *err);

#endif
