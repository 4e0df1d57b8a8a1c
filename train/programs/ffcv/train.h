/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_FFCV_TRAIN_H
#define PROGRAMS_FFCV_TRAIN_H

#include "report/metrics.h"
#include "session.h"

/* Trains from the session's position to the end: steps, evaluations, checkpoints. *stopped: 0, or the signal that ended
 * training early (all ranks at the same step, with a checkpoint if --checkpoint is given). Errors: the parts'; DIVERGED
 * names the step. */
int run_train(run_session *session, run_metrics *metrics, int *stopped, beton_error *err);

/* Runs --evaluate: one evaluation of the weights that the session was opened with. *stopped: as in run_train. */
int run_evaluate(run_session *session, run_metrics *metrics, int *stopped, beton_error *err);

#endif
