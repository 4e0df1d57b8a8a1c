/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks' lines on standard error. A line waits a moment, because other ranks may be about to write the same: then
 * it is printed once, with the numbers of all these ranks.
 */
#ifndef LAUNCH_LAUNCHER_MERGE_H
#define LAUNCH_LAUNCHER_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "status_line.h"

enum { MERGE_LINES = 64 };

struct merge_line {
	char *text; /* with a newline */
	size_t size;
	uint64_t since_ns;
	unsigned char *ranks; /* [world size]: 1 for a rank that wrote it */
};

struct merge {
	int to; /* file descriptor */
	int world_size;
	status_line *status;                  /* cleared before each line; NULL: none */
	struct merge_line lines[MERGE_LINES]; /* in order of arrival */
	int count;
	unsigned long printed; /* lines so far */
};

/* Takes a line without its newline. Returns 0, or errno if `to` cannot be written. */
int dtrain__merge_add(struct merge *merge, int rank, const char *line, size_t size);

/* Prints lines that have waited long enough, and all lines before number `until`. Returns 0, or errno. */
int dtrain__merge_flush(struct merge *merge, unsigned long until);

/* Time until a line is due, in milliseconds; -1: there is none. */
int dtrain__merge_timeout_ms(const struct merge *merge);

#endif
