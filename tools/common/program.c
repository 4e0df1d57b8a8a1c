/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/error.h"

/* The signal that asked to stop, or 0: the one thing that a handler and the program share. */
static atomic_int stop_signal;

static void on_signal(int number)
{
	stop_signal = number;
}

void program_watch_signals(void)
{
	const struct sigaction stop = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	const int stoppers[] = {SIGINT, SIGTERM, SIGHUP};
	for (size_t i = 0; i < sizeof(stoppers) / sizeof(*stoppers); i++) {
		struct sigaction old;
		if (sigaction(stoppers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
			sigaction(stoppers[i], &stop, NULL);
	}
	signal(SIGXFSZ, SIG_IGN);
}

const atomic_int *program_stop_signal(void)
{
	return &stop_signal;
}

int program_check_signals(beton_error *err)
{
	return stop_signal ? bt_fail(err, BETON_CANCELLED, "interrupted") : BETON_OK;
}

int program_end(const char *name, int result, const beton_error *err)
{
	if (result != BETON_OK)
		fprintf(stderr, "%s: %s\n", name, err->message);
	if (stop_signal && result == BETON_CANCELLED) {
		signal(stop_signal, SIG_DFL);
		raise(stop_signal);
	}
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "%s: standard output: %s\n", name, strerror(errno));
		return 1;
	}
	return result == BETON_OK ? 0 : 1;
}
