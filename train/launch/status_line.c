/* SPDX-License-Identifier: Apache-2.0 */
#include "status_line.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/system.h"

#define CLEAR "\r\033[K"
#define COLUMNS_DEFAULT 80
#define COLUMNS_MOST 400

/* The line that is at the bottom of the terminal; NULL: none. */
static status_line *bottom;

bool status_line_is_possible(int fd)
{
	const char *terminal = getenv("TERM");
	return isatty(fd) && terminal && strcmp(terminal, "dumb") != 0;
}

/* The last column stays empty: some terminals begin a new line after it. */
static size_t columns_of(int fd)
{
	struct winsize size;
	size_t columns = COLUMNS_DEFAULT;
	if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1)
		columns = size.ws_col;
	return (columns < COLUMNS_MOST ? columns : COLUMNS_MOST) - 1;
}

/* The size of the text's items that fit, which commas separate; of one item, as much as fits. */
static size_t size_that_fits(const char *text, size_t size, size_t columns)
{
	if (size <= columns)
		return size;
	for (size_t i = columns; i > 0; i--)
		if (text[i] == ',')
			return i;
	return columns;
}

int status_line_show(status_line *self, const char *text, size_t size)
{
	char line[sizeof(CLEAR) + COLUMNS_MOST] = CLEAR;
	size_t columns = columns_of(self->fd), used = strlen(CLEAR);
	size = size_that_fits(text, size, columns);
	for (size_t i = 0; i < size; i++)
		line[used++] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
	self->shown = true;
	bottom = self;
	return bt_write_full(self->fd, line, used) ? errno : 0;
}

int status_line_clear(status_line *self)
{
	if (!self->shown)
		return 0;
	self->shown = false;
	bottom = NULL;
	return bt_write_full(self->fd, CLEAR, strlen(CLEAR)) ? errno : 0;
}

void status_line_warn(const char *format, ...)
{
	va_list arguments;
	/* A terminal that is gone is met again by the next line. */
	if (bottom)
		status_line_clear(bottom);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}
