/* SPDX-License-Identifier: Apache-2.0
 *
 * Some samples of a dataset: by number, by class, by condition. */
#ifndef TOOLS_SELECTION_H
#define TOOLS_SELECTION_H

#include "condition.h"

typedef struct index_range {
	uint64_t first;
	uint64_t last; /* inclusive; UINT64_MAX: the last sample */
} index_range;

/* Zero-initialise: every sample. A sample is taken if its number is in a range (when there are any), its class is one
 * of the classes (when there are any), and the conditions hold. Samples come in the order of the ranges, as often as
 * ranges name them. */
typedef struct selection {
	index_range *ranges;
	size_t num_ranges;
	size_t ranges_capacity;
	bool listed;          /* ranges were given, if only empty ones */
	const char **classes; /* names or numbers, the texts borrowed */
	int64_t *labels;      /* the same as sorted numbers, from selection_bind on */
	size_t num_classes;
	condition *where;
	uint32_t label_field; /* that holds the class */
} selection;

/* Adds numbers and ranges: "3,10-19,100-", or "@FILE" with such text, separated by commas, blanks or new lines ("@-":
 * standard input). Errors: INVALID_ARGUMENT naming the text, NOT_FOUND, ACCESS, IO, NO_MEMORY. */
int selection_add_ranges(selection *self, const char *text, beton_error *err);

/* Adds a class: a number, or a name, for which the dataset must have one. text is borrowed until selection_free. */
int selection_add_class(selection *self, const char *text, beton_error *err);

void selection_free(selection *self);

/* Checks the selection against a dataset. Errors: INVALID_ARGUMENT (a number beyond the last sample, no such field or
 * class), and facts_load's. */
int selection_bind(selection *self, const dataset_input *in, beton_error *err);

/* Position in a bound selection. Zero-initialise. */
typedef struct selection_cursor {
	size_t range;
	uint64_t step; /* samples of that range that are done */
} selection_cursor;

/* The next sample; *found false: none. Errors: CANCELLED, and condition_test's. */
int selection_next(const selection *self, dataset_input *in, selection_cursor *cursor, uint64_t *sample, bool *found,
		   beton_error *err);

/* How many there are. */
int selection_count(const selection *self, dataset_input *in, uint64_t *count, beton_error *err);

#endif
