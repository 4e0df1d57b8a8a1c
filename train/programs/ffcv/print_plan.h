/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_FFCV_PRINT_PLAN_H
#define PROGRAMS_FFCV_PRINT_PLAN_H

#include "session.h"

/* Prints what a rank has in its device's memory, and what of the activations is there in which step of the program, and
 * what --recompute changes of it. */
int run_plan_print(run_session *session, beton_error *err);

#endif
