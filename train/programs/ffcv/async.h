/* SPDX-License-Identifier: Apache-2.0
 *
 * Training with a parameter server: rank 0 serves, the others work for it. */
#ifndef PROGRAMS_FFCV_ASYNC_H
#define PROGRAMS_FFCV_ASYNC_H

#include "report/metrics.h"
#include "session.h"

/* As run_train. metrics: of rank 0. */
int run_async(run_session *session, run_metrics *metrics, int *stopped, beton_error *err);

/* The two parts of it: rank 0 and the others. The set-up's group is closed as soon as all are connected. */
int run_serve(run_session *session, run_metrics *metrics, int *stopped, beton_error *err);
/* *stopped: the signal, if the server did not answer after it. */
int run_work(run_session *session, int *stopped, beton_error *err);

#endif
