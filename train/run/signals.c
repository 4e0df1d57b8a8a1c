/* SPDX-License-Identifier: Apache-2.0 */
#include "signals.h"

#include <stddef.h>

static volatile sig_atomic_t caught;

static void note(int number)
{
	caught = number;
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

void run_signals_catch(void)
{
	struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART | (int)SA_RESETHAND};
	sigset_t stopping;

	sigemptyset(&action.sa_mask);
	run_signals_stopping(&stopping);
	for (size_t i = 0; i < sizeof(stoppers) / sizeof(stoppers[0]); i++) {
		if (sigismember(&stopping, stoppers[i]))
			sigaction(stoppers[i], &action, NULL);
	}
}

void run_signals_stop(int number)
{
	if (!caught)
		caught = number;
}

int run_signals_caught(void)
{
	return caught;
}
