/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench: what the trainer does beside what the libraries below it can do, in one run.
 */
#include <stdio.h>
#include <string.h>

#include "bench.h"

static const struct {
	const char *name;
	const char *purpose;
	int (*run)(int argc, char **argv);
} commands[] = {
	{"comm", "operations of a group of ranks over a range of sizes", bench_comm},
	{"link", "links between host and devices, and what is set up badly for groups", bench_link},
	{"pipeline", "the idle time of pipeline schedules, beside the formulas", bench_pipeline},
	{"step", "a training step beside oneDNN's own convolutions", bench_step},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void usage(FILE *out)
{
	fputs("Usage: dtrain-bench COMMAND [OPTION]...\n\n", out);
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].purpose);
	fputs("\n  --help     this text; after a command, its options\n  --version  the version\n", out);
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		usage(stderr);
		return BENCH_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0) {
		usage(stdout);
		return BENCH_DONE;
	}
	if (strcmp(argv[1], "--version") == 0) {
		puts("dtrain-bench " DTRAIN_VERSION);
		return BENCH_DONE;
	}
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(argv[1], commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	fprintf(stderr, "dtrain-bench: no command '%s'; try --help\n", argv[1]);
	return BENCH_USAGE;
}
