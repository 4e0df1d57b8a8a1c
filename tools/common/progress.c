/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "common/system.h"

#define DRAW_INTERVAL_NS UINT64_C(200000000)
#define BAR_WIDTH 30

void progress_start(progress *self, uint64_t total, bool quiet)
{
	*self = (progress){.draw = !quiet && isatty(STDERR_FILENO), .total = total, .started_ns = bt_now_ns()};
	self->drawn_ns = self->started_ns;
}

double progress_seconds(const progress *self)
{
	return (double)(bt_now_ns() - self->started_ns) / 1e9;
}

static void draw(const progress *self)
{
	double rate = (double)self->done / ((double)(self->drawn_ns - self->started_ns) / 1e9);
	if (self->total >= self->done) {
		int filled = (int)((double)self->done / (double)self->total * BAR_WIDTH);
		uint64_t left = (uint64_t)((double)(self->total - self->done) / rate);
		fprintf(stderr, "\r[%.*s%*s] %llu/%llu  %.0f samples/s  %.1f MB  %llu:%02llu left \033[K", filled,
			"##############################", BAR_WIDTH - filled, "", (unsigned long long)self->done,
			(unsigned long long)self->total, rate, (double)self->bytes / 1e6,
			(unsigned long long)(left / 60), (unsigned long long)(left % 60));
	} else {
		fprintf(stderr, "\r%llu  %.0f samples/s  %.1f MB \033[K", (unsigned long long)self->done, rate,
			(double)self->bytes / 1e6);
	}
}

void progress_sample(progress *self, uint64_t bytes)
{
	self->done++;
	self->bytes += bytes;
	if (!self->draw)
		return;
	uint64_t now = bt_now_ns();
	if (now - self->drawn_ns < DRAW_INTERVAL_NS)
		return;
	self->drawn_ns = now;
	draw(self);
}

void progress_clear(progress *self)
{
	if (self->draw)
		fputs("\r\033[K", stderr);
	self->draw = false;
}
