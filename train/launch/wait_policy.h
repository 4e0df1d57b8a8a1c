/* SPDX-License-Identifier: Apache-2.0
 *
 * How OpenMP's idle threads wait. Below the cpu device they spin for milliseconds by default, which is fast on cores of
 * their own and ruinous where a loader's worker or another rank needs the core: steps take up to a hundred times as
 * long. The library reads its setting from the environment before main, and has no call for it. */
#ifndef LAUNCH_WAIT_POLICY_H
#define LAUNCH_WAIT_POLICY_H

#include <stdbool.h>
#include <stdint.h>

/* True if the threads of all ranks exceed the cores and ranks have several compute threads. threads and workers: of one
 * rank; 0: its share of the cores. */
bool run_needs_passive_wait(int ranks, int64_t threads, int64_t workers, int cores);

/* Makes waiting compute threads sleep, unless the environment sets a policy: in processes started later and, with
 * restart, in this one, which therefore executes itself again (with argv) and returns only if that fails. */
void run_set_passive_wait(bool restart, char *const *argv);

#endif
