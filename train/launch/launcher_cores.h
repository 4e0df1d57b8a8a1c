/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LAUNCH_LAUNCHER_CORES_H
#define LAUNCH_LAUNCHER_CORES_H

#include <sched.h>
#include <stdbool.h>

/* The cores of `all` that belong to rank: its own contiguous share or, if there are more ranks than cores, one core in
 * turn. False if `all` is empty. */
bool dtrain__rank_cores(const cpu_set_t *all, int rank, int world_size, cpu_set_t *out);

#endif
