/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares a stop request that only some ranks got: all ranks stop, in the same way.
 */
#ifndef LAUNCH_STOP_REQUEST_H
#define LAUNCH_STOP_REQUEST_H

#include <stdbool.h>
#include <sys/types.h>

#include <dtrain/comm.h>

/* Called by a rank that catches signals. The first signal that did not come from the launcher, which reports its own,
 * is printed, and recorded in the store for the launcher unless another rank has recorded one. An output that cannot be
 * written is recorded as well, and reported by its own error. store NULL: one rank alone. launcher: 0: not ours. */
void dtrain__stop_request_note(dtrain_store *store, int rank, pid_t launcher);

/* The signal that stops this rank: its own, or else the one recorded in the store, or else SIGTERM; 0: an output that
 * cannot be written, here or on another rank. store may be NULL. */
int dtrain__stop_request_signal(dtrain_store *store);

/* Whether the store has a record of a signal. */
bool dtrain__stop_request_any(dtrain_store *store);

/* Called by the launcher when ranks end as if told to stop: *text, freed by the caller, says which rank received a
 * signal, and *number is the signal. False: none is recorded, *text is NULL. */
bool dtrain__stop_request_look_up(uint16_t port, const char *token, char **text, int *number);

#endif
