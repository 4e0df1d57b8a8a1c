/* SPDX-License-Identifier: Apache-2.0
 *
 * Stopping at the next step when asked to. */
#ifndef RUN_SIGNALS_H
#define RUN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>

/* A signal that comes again so soon is the same one: timeout(1) sends it to a process and to its group. */
#define RUN_SIGNALS_REPEAT_MS 1000
/* earlier: of CLOCK_MONOTONIC. May be called by a signal handler. */
bool run_signals_is_repeat(const struct timespec *earlier);

/* The signals that ask a job to stop: SIGTERM, SIGINT, SIGHUP and SIGQUIT, without those that the caller of the program
 * has it ignore (nohup, a shell's background job). */
void run_signals_stopping(sigset_t *out);

/* From now on the first of those is noted; a second one of the same kind, which is no repeat, kills. */
void run_signals_catch(void);

/* As if that signal had come, if none has yet. */
void run_signals_stop(int number);

/* The number of the signal that came, or 0. */
int run_signals_caught(void);

/* The process that sent it; 0: the kernel, or one that is not seen from here. */
pid_t run_signals_sender(void);

#endif
