/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PROGRAMS_PLAN_ANSWER_H
#define PROGRAMS_PLAN_ANSWER_H

#include "question.h"

/* Prints the table, and what fits. *fits: whether anything does, or no memory was given. */
int plan_answer(const plan_options *options, bool *fits, beton_error *err);

#endif
