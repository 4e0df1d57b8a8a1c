/* SPDX-License-Identifier: Apache-2.0
 *
 * The tasks that --task names, and which options are theirs. */
#ifndef OPTIONS_TASKS_H
#define OPTIONS_TASKS_H

#include "options_table.h"

/* NULL past the end. */
const engine_task *run_task_at(int index);

/* The index of a name; -1: none of that name. */
int run_task_find(const char *name);

/* The index of the only task that has a model of that name, or that description; -1: none, or several. */
int run_task_of_model(const char *name);

/* The only task with the row's option, if its value is part of a task's own options. -1: all have it. */
int run_task_of(const option_row *row);

/* The task's default for the row; NULL: as for all tasks. */
const char *run_task_default(const engine_task *task, const option_row *row);

/* INVALID_ARGUMENT: an option on the command line or in the recipe is another task's. */
int run_task_check(const run_options *options, beton_error *err);

#endif
