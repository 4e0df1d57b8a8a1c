/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends a rank that does not come back from its device. Where the group has failed and what was aborted does not end, or
 * a driver's call does not return, the main thread cannot leave by itself: this thread touches neither the device nor
 * any lock that it would have to wait for, says why, and ends the process. For jobs of more than one rank; NULL is a
 * watchdog that does nothing.
 */
#ifndef RUN_WATCHDOG_H
#define RUN_WATCHDOG_H

#include "rank_env.h"

typedef struct run_watchdog run_watchdog;

/* Watches the group until run_watchdog_leave: seconds after it has failed for good the main thread has to have called
 * that, wherever it is. env must outlive the watchdog. SYSTEM, NO_MEMORY. */
int run_watchdog_start(run_watchdog **out, dtrain_group *group, const struct rank_env *env, beton_error *err);

/* The main thread waits for the device from here to there, and would be told of a failure of the group after wait_ms.
 * Time that a failure takes to settle comes on top. what: the prefix of a message; copied. Time in which the process is
 * stopped does not count. */
void run_watchdog_arm(run_watchdog *watchdog, const char *what, int wait_ms);
void run_watchdog_disarm(run_watchdog *watchdog);

/* The main thread closes everything, the group too. failure: why; it gets seconds for that, and then the watchdog says
 * so in its place. NULL: it may take its time. Only the first call counts. */
void run_watchdog_leave(run_watchdog *watchdog, const beton_error *failure);

/* From here on nobody but the caller prints or exits. */
void run_watchdog_stop(run_watchdog **watchdog);

#endif
