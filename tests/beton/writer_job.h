/* SPDX-License-Identifier: Apache-2.0
 *
 * A file whose writing takes every path of the writer, small enough to be written a thousand times: a few pages, and
 * metadata that outgrows its room, so that finish moves pages. Contents follow from the sample's number. */
#ifndef TESTS_BETON_WRITER_JOB_H
#define TESTS_BETON_WRITER_JOB_H

#include <stdbool.h>

#include <beton/beton.h>

enum { JOB_SAMPLES = 900 };

typedef struct job_settings {
	const char *path;
	bool resumable;     /* has a job's name, and leaves what it does not finish */
	bool resume;        /* continues */
	uint64_t stop;      /* puts samples up to this one, then closes; 0: all, and finishes */
	uint64_t *position; /* NULL, or gets the position after open */
} job_settings;

/* Opens, puts, finishes, closes; the first failing code. */
int job_write(const job_settings *settings, beton_error *err);

#endif
