/* SPDX-License-Identifier: Apache-2.0
 *
 * Inputs of the order of samples besides the data: --indices and --weights. */
#ifndef PROGRAMS_FFCV_ORDER_INPUT_H
#define PROGRAMS_FFCV_ORDER_INPUT_H

#include "options/options.h"

typedef struct run_order_input {
	uint64_t *indices; /* NULL: all samples */
	uint64_t num_indices;
	double *weights; /* of all samples, or of those in indices; NULL: none */
	uint64_t num_weights;
} run_order_input;

/* Free *out with run_order_input_free, also on failure. Errors name the option, the file and the line, or the field:
 * NOT_FOUND, IO, INVALID_ARGUMENT (not a number, or the wrong count), NO_MEMORY, and errors of a damaged data file. */
int run_order_input_read(const run_options *options, run_order_input *out, beton_error *err);
void run_order_input_free(run_order_input *input);

/* The fingerprint of the data and the order's input; it must be the same when a run is resumed. Equals data if there is
 * no input. */
uint64_t run_order_input_hash(const run_order_input *input, uint64_t data);

#endif
