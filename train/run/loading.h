/* SPDX-License-Identifier: Apache-2.0
 *
 * The run's loaders: what its options mean to <beton/loader.h>. */
#ifndef RUN_LOADING_H
#define RUN_LOADING_H

#include <beton/loader.h>

#include "order_input.h"
#include "preflight.h"

/* Who loads, and in which form. */
typedef struct run_loading {
	const run_options *options;
	const run_facts *facts;
	int rank;
	int world_size;
	bool bytes;                /* pixels as they are, for a device that normalizes them */
	beton_dtype dtype;         /* of pixels that the loader normalizes */
	beton_allocator allocator; /* functions NULL: the C library's memory */
} run_loading;

/* Opens --data (training) or --val. Errors: those of beton_loader_open_many, and of run_order_input_read. */
int run_loading_open(const run_loading *loading, bool training, beton_loader **out, beton_error *err);

/* The positions that an epoch of training has: as many as samples, or what the order says. Checks the options of the
 * order on the way. facts: what is known of --data. Errors: those of beton_loader_open_many. */
int run_loading_epoch_length(const run_options *options, const run_facts *facts, const run_order_input *input,
			     int world_size, uint64_t *out, beton_error *err);

/* How files are read and decoded, which is the same for all loaders of the run: threads, engine, limits. */
void run_loading_set_reading(const run_options *options, beton_loader_options *loader);

/* All files of --data as one data set. weighted: as --data-weights says, else one behind the other. */
int run_loading_open_data(const run_options *options, bool weighted, const beton_loader_options *loader,
			  beton_loader **out, beton_error *err);

/* Views of a validation picture: with --tta the picture and its mirror image, then those of the picture moved. */
enum { RUN_VIEWS_MAX = 6 };
int run_loading_views(const run_options *options);

#endif
