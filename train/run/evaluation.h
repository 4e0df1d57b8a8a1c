/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RUN_EVALUATION_H
#define RUN_EVALUATION_H

#include "metrics.h"
#include "session.h"

/* Runs --evaluate: one evaluation of the weights that the session was opened with. *stopped: as in run_train. */
int run_evaluate(run_session *session, run_metrics *metrics, int *stopped, beton_error *err);

#endif
