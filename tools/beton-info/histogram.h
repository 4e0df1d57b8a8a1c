/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributions of a dataset: sizes of stored values, and classes.
 */
#ifndef BETON_INFO_HISTOGRAM_H
#define BETON_INFO_HISTOGRAM_H

#include <jansson.h>

#include <beton/beton.h>

enum {
	HISTOGRAM_SIZES = 34,            /* 0, 1, 2-3, 4-7 ... up to the 4 GiB that a page may hold */
	HISTOGRAM_CLASSES_MAX = 1 << 20, /* limit of memory: a dataset with more different labels has no classes */
};

typedef struct histogram {
	const beton_reader *reader;
	json_t *facts;                      /* for the names of classes */
	uint64_t (*sizes)[HISTOGRAM_SIZES]; /* for each field: values of each size */
	int label_field;                    /* -1: no classes */
	void *classes;                      /* a tree of counts by label */
	uint64_t num_classes;
	bool too_many;     /* different labels; then there are none */
	uint64_t damaged;  /* values, which are not counted */
	beton_error fault; /* the first of them */
} histogram;

/* Goes through all samples. The caller frees self, on failure too. Errors: IO, FILE_CHANGED, NO_MEMORY, and
 * facts_load's. */
int histogram_make(histogram *self, const beton_reader *reader, beton_error *err);
void histogram_free(histogram *self);

/* {"sizes": {FIELD: [{"from", "to", "count"}...]}, "classes": [{"label", "name", "count"}...] or null}; the caller's.
 * NULL: no memory. */
json_t *histogram_json(const histogram *self);

/* Bars for people, on standard output. */
void histogram_print(const histogram *self);

#endif
