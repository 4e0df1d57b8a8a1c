/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides samples into parts by chance, class by class.
 */
#ifndef TOOLS_STRATIFY_H
#define TOOLS_STRATIFY_H

#include <stdbool.h>
#include <stdint.h>

#include <beton/error.h>

/* Divides `count` samples into `parts` parts: part[i] becomes that of sample i. totals[p]: how many samples part p
 * gets; their sum is count. labels: the class of each sample, or NULL: all are of one. Part 0 gets of each class its
 * proportional share, rounded by the method of the largest remainders, so that the sum is exactly totals[0]; part 1
 * likewise of what is left, and so on. Which samples of a class, and which of equal remainders, is drawn from seed; the
 * result depends on the arguments alone. keep_one: the last part gets at least one sample of each class; then other
 * parts may get less than their total. Memory: 24 bytes for each sample. Errors: NO_MEMORY. */
int stratify(uint32_t *part, const int64_t *labels, uint64_t count, const uint64_t *totals, uint32_t parts,
	     uint64_t seed, bool keep_one, beton_error *err);

/* totals[p]: shares[p] of count, rounded by the method of the largest remainders; the shares' sum is 1. */
void stratify_totals(uint64_t *totals, const double *shares, uint32_t parts, uint64_t count);

#endif
