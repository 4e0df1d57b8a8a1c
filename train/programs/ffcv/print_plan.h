/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_FFCV_PRINT_PLAN_H
#define PROGRAMS_FFCV_PRINT_PLAN_H

#include "session.h"

/* Collective. Rank 0 prints its device memory, with a pipeline the memory of each stage's rank, the activations that
 * are in memory at each step of the program, and the effect of --recompute on it. */
int run_plan_print(run_session *session, beton_error *err);

#endif
