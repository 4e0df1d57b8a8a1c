/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RUN_EVALUATE_H
#define RUN_EVALUATE_H

#include "metrics.h"
#include "session.h"

/* Passes every validation sample through the model exactly once over all ranks; the result is the same on each.
 * epoch is left alone. *interrupted: some rank was told to stop, and there is no result. Errors: those of loader,
 * device and group; DIVERGED (the loss is not finite). */
int run_evaluate(run_session *session, run_evaluation *out, bool *interrupted, beton_error *err);

#endif
