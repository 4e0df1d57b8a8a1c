/* SPDX-License-Identifier: Apache-2.0 */
#ifndef DTRAIN_RUN_LAUNCHER_CORES_H
#define DTRAIN_RUN_LAUNCHER_CORES_H

#include <sched.h>
#include <stdbool.h>

/* Which of the cores in `all` belong to rank: a contiguous share of its own, or, with more ranks than cores, one core
 * in turn. False when there is nothing to hand out. */
bool dtrain__rank_cores(const cpu_set_t *all, int rank, int world_size, cpu_set_t *out);

#endif
