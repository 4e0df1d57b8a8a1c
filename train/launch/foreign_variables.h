/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables by which people steer other trainers, and which do nothing here: each is answered, once. */
#ifndef LAUNCH_FOREIGN_VARIABLES_H
#define LAUNCH_FOREIGN_VARIABLES_H

#include <stdbool.h>

/* Calls say for each answer, with the names of the variables that are set. several: the job has more than one rank. */
void run_foreign_tell(bool several, void (*say)(const char *line));

#endif
