/* SPDX-License-Identifier: Apache-2.0
 *
 * The run's loaders: what its options mean to <beton/loader.h>. */
#ifndef PROGRAMS_FFCV_LOADERS_H
#define PROGRAMS_FFCV_LOADERS_H

#include "order_input.h"
#include "run_info.h"

/* Shared by the loaders of a run. */
typedef struct run_loading {
	const run_options *options;
	const run_info *info;
	const engine_rank *engine;
	int rank;
	int world_size;
} run_loading;

/* Opens --data (training) or --val. Errors: beton_loader_open_many's and run_order_input_read's. */
int run_loading_open(const run_loading *loading, bool training, beton_loader **out, beton_error *err);

/* Opens all files of --data as one data set, concatenated. options must outlive the result. */
engine_files run_loading_files(const run_options *options);

/* The number of positions in a training epoch: the number of samples, unless the order's options say otherwise. Also
 * checks these options. facts: about --data. Errors: beton_loader_open_many's. */
int run_loading_epoch_length(const run_options *options, const run_info *info, const run_order_input *input,
			     int world_size, uint64_t *out, beton_error *err);

#endif
