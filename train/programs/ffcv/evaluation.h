/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_FFCV_EVALUATION_H
#define PROGRAMS_FFCV_EVALUATION_H

#include "report/metrics.h"
#include "session.h"

/* Runs --evaluate: one evaluation of the weights that the session was opened with. *stopped: as in run_train. */
int run_evaluate(run_session *session, run_metrics *metrics, int *stopped, beton_error *err);

#endif
