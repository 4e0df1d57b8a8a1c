/* SPDX-License-Identifier: Apache-2.0
 *
 * The best checkpoint of a run, by the first metric of its evaluations. */
#ifndef PROGRAMS_FFCV_BEST_H
#define PROGRAMS_FFCV_BEST_H

#include <stdbool.h>

#include <beton/error.h>

#include "engine/task.h"
#include "position.h"

/* Notes the evaluation after the position's step if it is better than all before; of equals the first is the best. */
void run_best_note(run_position *position, const engine_metric *metric, double value);

/* Makes the link of a run that goes on from the position: a killed run may have saved its best checkpoint without it.
 * If the best checkpoint is no longer there, the position has none: it was removed for a better one that is damaged
 * now. Errors: dtrain_checkpoint_link's. */
int run_best_resume(const char *dir, run_position *position, beton_error *err);

#endif
