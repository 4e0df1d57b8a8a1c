/* SPDX-License-Identifier: Apache-2.0
 *
 * The items of a source to write, and their order: --subset's items, permuted by --shuffle, cut by --limit.
 */
#ifndef BETON_WRITE_SELECTION_H
#define BETON_WRITE_SELECTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

typedef struct index_range {
	uint64_t first;
	uint64_t last;   /* UINT64_MAX: to the end of a source whose end is not known */
	uint64_t before; /* number of indices in the ranges before this one */
} index_range;

typedef struct selection {
	index_range *ranges;
	size_t num_ranges;
	size_t capacity;
	uint64_t *listed; /* the indices in their order, or NULL: the ranges' */
	uint64_t count;   /* how many are selected; UINT64_MAX: not known */
} selection;

typedef struct selection_options {
	const char *subset; /* NULL: everything; "0-99,150,200-", or "@FILE" with such a list */
	bool shuffle;
	uint64_t seed;
	uint64_t limit; /* UINT64_MAX: no limit */
} selection_options;

/* items: the source's number of items; UINT64_MAX: unknown. Then items come one after the other, so ranges must ascend,
 * and shuffling is impossible. name: of the source. Memory: 24 bytes for each range, and 8 for each selected item when
 * they are shuffled. Errors: INVALID_ARGUMENT, NO_MEMORY, and errors of reading FILE. The caller frees the selection,
 * on failure too. */
int selection_make(selection *self, const selection_options *options, uint64_t items, const char *name,
		   beton_error *err);
void selection_free(selection *self);

/* The index of the item at position (below count). Any thread. */
uint64_t selection_at(const selection *self, uint64_t position);

/* Whether it ends where the source ends. */
bool selection_is_open(const selection *self);

#endif
