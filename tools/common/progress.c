/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/system.h"
#include "text.h"

#define DRAW_INTERVAL_NS UINT64_C(200000000)
#define BAR_WIDTH 30
#define BAR_LEAST 5
#define BAR_FRAME 3 /* brackets and a blank */
#define WIDTH_DEFAULT 80

void progress_start(progress *self, uint64_t total, bool quiet)
{
	*self = (progress){.draw = !quiet && isatty(STDERR_FILENO), .total = total, .started_ns = bt_now_ns()};
	self->drawn_ns = self->started_ns;
}

double progress_seconds(const progress *self)
{
	return (double)(bt_now_ns() - self->started_ns) / 1e9;
}

/* Columns of the terminal, which the user may change at any time. */
static size_t terminal_width(void)
{
	struct winsize size;
	return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : WIDTH_DEFAULT;
}

/* A line as long as the terminal is wide would wrap, and each redraw would leave a copy. First the bar gets shorter,
 * then it goes, then the end of the text. */
static void print_line(double share, const char *text)
{
	size_t room = terminal_width() - 1;
	size_t length = strlen(text);
	size_t bar = room > length + BAR_FRAME ? room - length - BAR_FRAME : 0;
	bar = bar > BAR_WIDTH ? BAR_WIDTH : bar;
	int filled = (int)(share * (double)bar);
	if (share >= 0 && bar >= BAR_LEAST)
		fprintf(stderr, "\r[%.*s%*s] %s\033[K", filled, "##############################", (int)bar - filled, "",
			text);
	else
		fprintf(stderr, "\r%.*s\033[K", room < INT_MAX ? (int)room : INT_MAX, text);
}

static void draw(const progress *self)
{
	char text[160];
	text_buffer size;
	double rate = (double)self->done / ((double)(self->drawn_ns - self->started_ns) / 1e9);
	text_size(size, self->bytes);
	if (self->total < self->done) {
		snprintf(text, sizeof(text), "%" PRIu64 "  %.0f samples/s  %s", self->done, rate, size);
		print_line(-1, text);
		return;
	}
	uint64_t left = (uint64_t)((double)(self->total - self->done) / rate);
	snprintf(text, sizeof(text), "%" PRIu64 "/%" PRIu64 "  %.0f samples/s  %s  %" PRIu64 ":%02" PRIu64 " left",
		 self->done, self->total, rate, size, left / 60, left % 60);
	print_line((double)self->done / (double)self->total, text);
}

/* Draws, but not too often. */
static void draw_now_and_then(progress *self)
{
	if (!self->draw)
		return;
	uint64_t now = bt_now_ns();
	if (now - self->drawn_ns < DRAW_INTERVAL_NS)
		return;
	self->drawn_ns = now;
	draw(self);
}

void progress_sample(progress *self, uint64_t bytes)
{
	self->done++;
	self->bytes += bytes;
	draw_now_and_then(self);
}

void progress_show(progress *self, uint64_t samples, uint64_t total, uint64_t bytes)
{
	self->total = total;
	self->done = samples;
	self->bytes = bytes;
	/* Without a sample the rate is unknown. */
	if (samples > 0)
		draw_now_and_then(self);
}

void progress_pause(const progress *self)
{
	if (self->draw)
		fputs("\r\033[K", stderr);
}

void progress_clear(progress *self)
{
	progress_pause(self);
	self->draw = false;
}
