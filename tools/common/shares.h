/* SPDX-License-Identifier: Apache-2.0
 *
 * Random parts of a dataset, class by class.
 */
#ifndef TOOLS_SHARES_H
#define TOOLS_SHARES_H

#include "selection.h"

/* Divides the `count` samples of a bound selection into parts by chance, class by class (stratify.h). A sample's class
 * is the value of dataset_label_field; without such a field all are of one class. part[i]: the part of the i-th sample
 * of the selection. shares: of the parts; their sum is 1. totals[p]: how many samples part p has. Errors: NO_MEMORY,
 * and errors of selection_next, input_at and beton_reader_value. */
int shares_divide(dataset_input *in, const selection *chosen, uint64_t count, const double *shares, uint32_t parts,
		  uint64_t seed, uint32_t *part, uint64_t *totals, beton_error *err);

#endif
