/* SPDX-License-Identifier: Apache-2.0
 *
 * Kills a process at each of its system calls. The parent traces the child with ptrace and kills it at its k-th stop:
 * stop 0 is before all calls, odd stops are before a call, even stops after it, which leaves the same files as just
 * before the next call. */
#ifndef TESTS_BETON_KILLED_H
#define TESTS_BETON_KILLED_H

#include <stdbool.h>

/* Whether a process may trace its child here. */
bool killed_may_trace(void);

/* Runs the function, which returns BETON_OK, in a child that is killed at its k-th stop; false when it ended before. */
bool killed_at(int (*function)(const void *context), const void *context, long k);

#endif
