/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of several sources mixed by weights. In each cycle every source comes as often as its share says, in a new
 * order. A source's samples come in passes, each a new permutation. O(sources) memory.
 */
#ifndef BT_LOADER_ORDER_MIXED_H
#define BT_LOADER_ORDER_MIXED_H

#include <stdbool.h>

#include <beton/error.h>

#include "permutation.h"

/* Positions of a cycle: shares are multiples of 1 / BT_MIXED_CYCLE. */
enum { BT_MIXED_CYCLE = 1 << 16 };

/* Immutable after make. */
typedef struct bt_mixed {
	uint32_t sources;
	uint64_t *first; /* [sources + 1]: the first sample of each; borrowed */
	uint32_t *share; /* [sources + 1]: where its part of a cycle begins */
} bt_mixed;

/* first: must outlive the mix. weights: finite, not negative, not all 0. A source with a weight above 0 must have
 * samples, and gets a share above 0. Errors: INVALID_ARGUMENT (naming the source), NO_MEMORY. */
int bt_mixed_make(bt_mixed *out, uint64_t *first, const double *weights, uint32_t sources, beton_error *err);
void bt_mixed_free(bt_mixed *mixed);

/* The sample at a position, which may be any number. key: the epoch's. */
uint64_t bt_mixed_at(const bt_mixed *mixed, uint64_t key, uint64_t position);

#endif
