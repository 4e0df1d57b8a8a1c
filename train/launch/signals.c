/* SPDX-License-Identifier: Apache-2.0 */
#include "signals.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t caught;
static volatile sig_atomic_t asked;
static volatile sig_atomic_t sender;
static volatile sig_atomic_t seen[NSIG];
static struct timespec first[NSIG]; /* time of the first of each kind */

bool run_signals_is_repeat(const struct timespec *earlier)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (now.tv_sec - earlier->tv_sec) * 1000 + (now.tv_nsec - earlier->tv_nsec) / 1000000 <
	       RUN_SIGNALS_REPEAT_MS;
}

/* A second signal of a kind gets its default action, unless it is a copy of the first. */
static void note(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (!seen[number]) {
		clock_gettime(CLOCK_MONOTONIC, &first[number]);
		seen[number] = 1;
		if (!caught)
			sender = info->si_code <= 0 ? info->si_pid : 0;
		caught = number;
	} else if (!run_signals_is_repeat(&first[number])) {
		signal(number, SIG_DFL);
		raise(number);
	}
}

static const int stoppers[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

void run_signals_stopping(sigset_t *out)
{
	struct sigaction action;
	sigemptyset(out);
	for (size_t i = 0; i < sizeof(stoppers) / sizeof(stoppers[0]); i++) {
		if (sigaction(stoppers[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(out, stoppers[i]);
	}
}

/* oneDNN 2.6's products (sgemm with AVX-512) point the stack's register to memory of the heap for a while. A signal
 * that came then would be saved there, over the memory before it. The kernel gives these signals to the main thread,
 * which calls this. */
static void use_own_stack(void)
{
	static char stack[64 << 10]; /* with AMX the kernel saves 11 KiB */
	const stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
	sigaltstack(&own, NULL);
}

void run_signals_catch(void)
{
	struct sigaction action = {.sa_sigaction = note, .sa_flags = SA_RESTART | SA_SIGINFO | SA_ONSTACK};
	sigset_t stopping;
	use_own_stack();
	sigemptyset(&action.sa_mask);
	run_signals_stopping(&stopping);
	for (size_t i = 0; i < sizeof(stoppers) / sizeof(stoppers[0]); i++) {
		if (sigismember(&stopping, stoppers[i]))
			sigaction(stoppers[i], &action, NULL);
	}
}

static char explanation[256];

/* The fault happens again when this returns, with its default action. */
static void explain(int number)
{
	(void)number;
	if (write(STDERR_FILENO, explanation, strlen(explanation)) < 0)
		return;
}

void run_signals_explain_faults(const char *program)
{
	static const int faults[] = {SIGSEGV, SIGBUS};
	struct sigaction action = {.sa_handler = explain, .sa_flags = SA_RESETHAND | SA_ONSTACK};
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return;
	snprintf(explanation, sizeof(explanation),
		 "%s: a fault of memory; probably a library did not get the memory that it needs: the address space of "
		 "this process is limited to %llu bytes (ulimit -v)\n",
		 program, (unsigned long long)limit.rlim_cur);
	use_own_stack();
	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigaction(faults[i], &action, NULL);
}

void run_signals_ask(void)
{
	asked = 1;
}

bool run_signals_asked(void)
{
	return asked || caught;
}

int run_signals_caught(void)
{
	return caught;
}

pid_t run_signals_sender(void)
{
	return sender;
}
