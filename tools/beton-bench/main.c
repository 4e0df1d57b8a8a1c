/* SPDX-License-Identifier: Apache-2.0
 *
 * beton-bench: how fast a dataset is read. */
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "common/arguments.h"

static const char *const usage_text = "Usage: beton-bench COMMAND [OPTION]... [FILE]\n"
				      "\n"
				      "  load   measure how fast the loader delivers batches\n"
				      "  order  measure how long each order takes to find a sample\n"
				      "\n"
				      "  -h, --help     show this text; after a command, show its options\n"
				      "  -V, --version  show the version\n"
				      "\n"
				      "Exit status: 0 success, 1 failure, 2 wrong usage.\n";

int main(int argc, char **argv)
{
	const char *command = argc > 1 ? argv[1] : "";
	if (strcmp(command, "load") == 0)
		return bench_load(argc - 1, argv + 1);
	if (strcmp(command, "order") == 0)
		return bench_order(argc - 1, argv + 1);
	if (strcmp(command, "-h") == 0 || strcmp(command, "--help") == 0) {
		fputs(usage_text, stdout);
		return fflush(stdout) == 0 ? 0 : 1;
	}
	if (strcmp(command, "-V") == 0 || strcmp(command, "--version") == 0) {
		puts("beton-bench " PROJECT_VERSION);
		return fflush(stdout) == 0 ? 0 : 1;
	}
	fprintf(stderr, argc > 1 ? "beton-bench: no command '%s'\n" : "beton-bench: expected a command\n", command);
	return bt_usage_error("beton-bench", NULL);
}
