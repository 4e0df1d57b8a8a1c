/* SPDX-License-Identifier: Apache-2.0
 *
 * A line at the bottom of a terminal that is rewritten in place. Ranks of this program's own launcher send it their
 * lines: such a line begins with STATUS_LINE_MARK. */
#ifndef LAUNCH_STATUS_LINE_H
#define LAUNCH_STATUS_LINE_H

#include <stdbool.h>
#include <stddef.h>

#include <beton/beton.h>

#define STATUS_LINE_MARK '\r'
/* Set to 1 for ranks whose launcher shows status lines. */
#define STATUS_LINE_VARIABLE "DTRAIN_TERMINAL"

typedef struct status_line {
	int fd;     /* of the terminal */
	bool shown; /* the cursor is after the line */
} status_line;

/* Whether a line can be rewritten there. */
bool status_line_is_possible(int fd);

/* Shows the text in place of the line before, without control characters. If the text is wider than the terminal, the
 * last of its items, which commas separate, are left out. Returns 0, or errno. */
int status_line_show(status_line *self, const char *text, size_t size);

/* Prints a line to standard error, after the status line that this process may show is removed. Main thread. */
BETON_PRINTF(1, 2) void status_line_warn(const char *format, ...);

/* Removes the line, so that other output can follow. Returns 0, or errno. */
int status_line_clear(status_line *self);

#endif
