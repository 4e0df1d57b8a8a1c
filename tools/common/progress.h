/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Shows progress as one line on standard error, redrawn a few times a second if that is a terminal. */
typedef struct progress {
	bool draw;
	uint64_t total; /* samples; 0: not known */
	uint64_t done;
	uint64_t bytes; /* of the samples' blobs */
	uint64_t started_ns;
	uint64_t drawn_ns;
} progress;

void progress_start(progress *self, uint64_t total, bool quiet);
void progress_sample(progress *self, uint64_t bytes);

/* Shows the progress that a library function reports: samples of total, and their bytes. */
void progress_show(progress *self, uint64_t samples, uint64_t total, uint64_t bytes);

/* Removes the line until it is drawn again, so that a message can be printed. */
void progress_pause(const progress *self);

/* Removes the line. */
void progress_clear(progress *self);

/* Since the start. */
double progress_seconds(const progress *self);

#endif
