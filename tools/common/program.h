/* SPDX-License-Identifier: Apache-2.0
 *
 * How each tool starts and ends: signals, messages and exit status. */
#ifndef TOOLS_PROGRAM_H
#define TOOLS_PROGRAM_H

#include <stdatomic.h>
#include <stdbool.h>

#include <beton/error.h>

struct option;

/* To be called before a file is opened that stays open: the number of a standard stream that the caller closed goes to
 * no file, and reading or writing it fails as before.
 * From now on SIGINT, SIGTERM and SIGHUP only set the number that program_stop_signal points to (0 until then): who
 * works looks at it between two samples and stops with CANCELLED, so that temporary files go. What the caller ignores,
 * as nohup does, stays ignored. A file size limit becomes an error of write. */
void program_start(void);
const atomic_int *program_stop_signal(void);

/* CANCELLED if such a signal came. */
int program_check_signals(beton_error *err);

/* The exit status for result, to be returned from main: prints err's message after the program's name, ends by the
 * signal that asked to stop, if that is why, and finds out whether the standard output took everything. */
int program_end(const char *name, int result, const beton_error *err);

/* The options of a tool. */
typedef struct program_command {
	const char *name;
	const char *version;          /* of the tool; printed for -V after its name */
	const char *usage;            /* printed for -h */
	const struct option *options; /* each has a letter, and no flag */
	/* Takes an option other than -h and -V; text: its value. The message of an error is one about wrong usage. */
	int (*take)(void *context, int option, const char *text, beton_error *err);
} program_command;

/* Takes all options. True: the tool continues, and its operands begin at optind. False: it ends with *status, because
 * help or version was printed, or because of wrong usage. */
bool program_options(const program_command *command, int argc, char **argv, void *context, int *status);

#endif
