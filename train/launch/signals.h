/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping at the next step when asked to. */
#ifndef LAUNCH_SIGNALS_H
#define LAUNCH_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* A second signal within this time is a copy: timeout(1) signals both a process and its group. */
#define RUN_SIGNALS_REPEAT_MS 1000
/* earlier: CLOCK_MONOTONIC. Async-signal-safe. */
bool run_signals_is_repeat(const struct timespec *earlier);

/* The signals that ask a job to stop: SIGTERM, SIGINT, SIGHUP and SIGQUIT, without signals that the program inherited
 * as ignored (nohup, a shell's background job). */
void run_signals_stopping(sigset_t *out);

/* Catches these signals: the first is recorded; a second one of the same kind kills, unless it is a copy. The
 * handler has a stack of its own. Main thread only. */
void run_signals_catch(void);

/* With a limited address space (ulimit -v), a fault of memory is explained on standard error before it ends the
 * process: libraries use memory that the system did not give. program: its name, for the message. */
void run_signals_explain_faults(const char *program);

/* Asks to stop as a signal does. The caller reports the reason. */
void run_signals_ask(void);

/* Whether a signal came, or run_signals_ask was called. */
bool run_signals_asked(void);

/* The number of the recorded signal, or 0. */
int run_signals_caught(void);

/* The process that sent it; 0: the kernel, or a process that is not visible here. */
pid_t run_signals_sender(void);

#endif
