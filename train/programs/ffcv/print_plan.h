/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_FFCV_PRINT_PLAN_H
#define PROGRAMS_FFCV_PRINT_PLAN_H

#include "session.h"

/* Prints a rank's device memory, the activations that are in memory at each step of the program, and the effect of
 * --recompute on it. */
int run_plan_print(run_session *session, beton_error *err);

#endif
