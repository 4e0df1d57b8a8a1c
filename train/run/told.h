/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank was told to stop, when only one was: all of them stop with it, in the same way.
 */
#ifndef DTRAIN_RUN_TOLD_H
#define DTRAIN_RUN_TOLD_H

#include <stdbool.h>
#include <sys/types.h>

#include <dtrain/comm.h>

/* In a rank whose signals are caught, when it looks for one: the first time that there is one from somebody else than
 * the launcher, which says so itself, it is printed, and kept in the store for the launcher, unless another rank was
 * first. store NULL: the rank is alone. launcher: 0 where it is another program's. */
void dtrain__told_note(dtrain_store *store, int rank, pid_t launcher);

/* In a rank that stops: the signal that it got, or else the one that told the rank which all stop with; SIGTERM if
 * nobody knows. store may be NULL. */
int dtrain__told_number(dtrain_store *store);

/* In the launcher, when ranks end as if they had been told to stop: *text, which the caller frees, says which one was,
 * and *number by which signal. False: none has said so. */
bool dtrain__told_look_up(uint16_t port, const char *token, char **text, int *number);

#endif
