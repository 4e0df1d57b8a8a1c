/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of a dataset side by side. */
#ifndef BETON_VIEW_VIEW_H
#define BETON_VIEW_VIEW_H

#include <stdio.h>

#include <jansson.h>

#include "tools/common/progress.h"
#include "tools/common/selection.h"

typedef struct view_job {
	dataset_input *in;
	const json_t *facts;
	const selection *chosen;
	uint64_t chosen_count; /* samples in the selection */
	uint64_t shown;        /* samples to show, evenly spread */
	uint32_t picture;      /* field */
	int label;             /* field, or -1 */
	bool sources;          /* captions tell where samples come from, not their classes */
	uint32_t columns;
	uint32_t side;       /* pixels of a tile */
	uint64_t max_pixels; /* of a JPEG */
	FILE *stream;
	progress *bar;
	uint64_t damaged; /* pictures, which are shown as such */
	beton_error first_damage;
} view_job;

/* One sample of a view. */
typedef struct view_sample {
	uint64_t sample;
	const beton_reader *reader; /* the file that has it, until the next one */
	beton_value value;          /* the picture */
	uint8_t *stored;            /* its bytes; grows from sample to sample, the caller frees it */
	uint64_t capacity;
	char *caption; /* "12 cat", one line of harmless UTF-8; the caller frees it */
	char *source;  /* likewise */
} view_sample;

typedef struct view_walk {
	selection_cursor cursor;
	uint64_t passed; /* samples of the selection */
	uint64_t shown;
} view_walk;

/* The next sample to be shown; *found false: there is none. A damaged one gives SAMPLE_CORRUPT, and the walk can go on.
 */
int view_next(const view_job *job, view_walk *walk, view_sample *sample, bool *found, beton_error *err);
void view_sample_free(view_sample *sample);

/* Counts a damaged picture. */
void view_note_damage(view_job *job, const beton_error *fault);

/* Write the view to job->stream. Errors: IO and the like, NO_MEMORY, CANCELLED. */
int view_write_png(view_job *job, beton_error *err);
int view_write_html(view_job *job, beton_error *err);

#endif
