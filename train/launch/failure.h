/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank failed first, and why: the others only see that it is gone.
 */
#ifndef LAUNCH_FAILURE_H
#define LAUNCH_FAILURE_H

#include <stdbool.h>

#include <dtrain/comm.h>

/* Called by a rank that failed, before it leaves its groups. If the failure is its own, the store keeps it for the
 * others, unless another rank's came first. If it is the loss of another rank, and the store has that rank's failure,
 * err becomes that. store NULL: one rank alone. True: the store has a failure, for which the others may ask. */
bool run_failure_share(dtrain_store *store, int rank, beton_error *err);

/* Called by the rank that hosts the store after the store got a failure and the rank left its groups: returns when the
 * others have asked why, or after some seconds. */
void run_failure_wait(dtrain_store *store, int world_size);

#endif
