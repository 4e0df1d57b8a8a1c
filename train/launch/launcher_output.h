/* SPDX-License-Identifier: Apache-2.0
 *
 * One output stream of one rank, on its way through the launcher: whole lines, in bounded memory. Lines of standard
 * output are printed at once; lines of standard error go to dtrain__merge_add.
 */
#ifndef LAUNCH_LAUNCHER_OUTPUT_H
#define LAUNCH_LAUNCHER_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

#include "launcher_merge.h"

#define OUTPUT_PREFIX_SIZE 24
#define OUTPUT_LINE_BYTES 65536
#define OUTPUT_LAST_LINES 10
#define OUTPUT_LAST_BYTES 240

struct output {
	int from; /* the pipe, non-blocking; -1 when closed */
	int rank;
	char prefix[OUTPUT_PREFIX_SIZE];
	status_line *status; /* cleared before each line; NULL: none is shown */
	struct merge *merge; /* NULL: standard output */
	bool raw;            /* set by the caller: bytes are passed on as they come, with nothing added */
	size_t size;
	char *line; /* OUTPUT_PREFIX_SIZE + OUTPUT_LINE_BYTES + 1 bytes: prefix, then the line as far as received */
	char last[OUTPUT_LAST_LINES][OUTPUT_LAST_BYTES]; /* of standard error */
	unsigned last_count;                             /* of all lines so far */
	unsigned long last_place;                        /* of the last one among all that are printed */
};

/* Takes ownership of from. status NULL: lines that begin with STATUS_LINE_MARK are lines like others. merge: for
 * standard error; NULL: standard output. False: no memory, and the caller still owns from. */
bool dtrain__output_open(struct output *output, int from, int rank, status_line *status, struct merge *merge);

/* Passes on so many bytes of the pipe's content at most, and closes the pipe at its end. Returns 0, or errno if it
 * cannot be written. */
int dtrain__output_pump(struct output *output, size_t most);

/* Passes on the rest, completed with a newline, and closes the pipe. */
int dtrain__output_finish(struct output *output);
void dtrain__output_free(struct output *output);

#endif
