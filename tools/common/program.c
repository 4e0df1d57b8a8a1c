/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/arguments.h"
#include "common/error.h"

/* The signal that asked to stop, or 0: the one thing that a handler and the program share. */
static atomic_int stop_signal;

static void on_signal(int number)
{
	stop_signal = number;
}

/* Keeps the numbers of closed standard streams occupied, because otherwise output could go into a file that gets such a
 * number. A descriptor opened with O_PATH can be neither read nor written, as if it were closed. */
static void keep_standard_streams(void)
{
	int fd;
	do
		fd = open("/dev/null", O_PATH | O_CLOEXEC);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

void program_start(void)
{
	keep_standard_streams();
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
	/* A failure that ended the work may have been this one. */
	if ((fflush(stdout) != 0 || ferror(stdout)) && result == BETON_OK) {
		fprintf(stderr, "%s: standard output: %s\n", name, strerror(errno));
		return 1;
	}
	return result == BETON_OK ? 0 : 1;
}

/* More than any tool has. */
enum { OPTIONS_MAX = 64 };

bool program_options(const program_command *command, int argc, char **argv, void *context, int *status)
{
	beton_error err;
	char letters[2 * OPTIONS_MAX + 1];
	size_t used = 0;
	for (const struct option *row = command->options; row->name; row++) {
		letters[used++] = (char)row->val;
		if (row->has_arg == required_argument)
			letters[used++] = ':';
	}
	letters[used] = 0;
	int option;
	while ((option = bt_getopt(argc, argv, letters, command->options, NULL)) != -1) {
		if (option == 'h' || option == 'V') {
			if (option == 'h')
				fputs(command->usage, stdout);
			else
				printf("%s %s\n", command->name, command->version);
			*status = fflush(stdout) == 0 ? 0 : 1;
			return false;
		}
		if (option == '?' || command->take(context, option, optarg, &err) != BETON_OK) {
			*status = bt_usage_error(command->name, option == '?' ? NULL : err.message);
			return false;
		}
	}
	return true;
}
