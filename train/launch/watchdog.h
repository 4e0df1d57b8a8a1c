/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends a rank that does not come back from its device. Where the group has failed and what was aborted does not end, or
 * a driver's call does not return, the main thread cannot leave by itself: this thread touches neither the device nor
 * any lock that it would have to wait for, says why, and ends the process. For jobs of more than one rank; NULL is a
 * watchdog that does nothing.
 */
#ifndef LAUNCH_WATCHDOG_H
#define LAUNCH_WATCHDOG_H

#include "rank_env.h"

typedef struct run_watchdog run_watchdog;

/* Watches the group. After it has failed for good, the main thread must call run_watchdog_leave within seconds, or the
 * process ends. env must outlive the watchdog. Errors: SYSTEM, NO_MEMORY. */
int run_watchdog_start(run_watchdog **out, dtrain_group *group, const struct rank_env *env, beton_error *err);

/* Call it before the main thread waits for the device; the group would report a failure to it after wait_ms. The limit
 * adds the time to settle a failure, and does not count time while the process is stopped. what: prefix of a message;
 * copied. */
void run_watchdog_arm(run_watchdog *watchdog, const char *what, int wait_ms);
void run_watchdog_disarm(run_watchdog *watchdog);

/* Call it before the main thread closes everything, including the group. failure: the cause; if closing takes longer
 * than seconds, the watchdog reports it and ends the process. NULL: no time limit. Only the first call counts. */
void run_watchdog_leave(run_watchdog *watchdog, const beton_error *failure);

/* Gives the main thread that much more time to close everything: it waits for something else than the device. */
void run_watchdog_extend(run_watchdog *watchdog, int wait_ms);

/* From here on only the caller prints or exits. */
void run_watchdog_stop(run_watchdog **watchdog);

#endif
