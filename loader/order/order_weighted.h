/* SPDX-License-Identifier: Apache-2.0
 *
 * Weighted draws. */
#ifndef BT_LOADER_ORDER_WEIGHTED_H
#define BT_LOADER_ORDER_WEIGHTED_H

#include <beton/error.h>

#include "permutation.h"

/* Walker's alias table: a draw is one hash and one look-up. 16 bytes for each entry. Immutable after make. */
typedef struct bt_alias {
	uint64_t n;
	double *keep; /* share of cell i that belongs to i; the rest belongs to other[i] */
	uint64_t *other;
} bt_alias;

/* Weights must be finite and not negative, with a finite sum above 0; n < 2^32. Needs 8 more bytes for each entry while
 * it runs. Errors: INVALID_ARGUMENT (naming the weight), NO_MEMORY. */
int bt_alias_make(bt_alias *out, const double *weights, uint64_t n, beton_error *err);
void bt_alias_free(bt_alias *alias);

/* The entry of a draw with replacement; entries of weight 0 are never drawn. key: the epoch's. */
uint64_t bt_alias_at(const bt_alias *alias, uint64_t key, uint64_t position);

/* Draws `draws` different entries one after the other, each by the weights of the entries left (Efraimidis and Spirakis
 * 2006: the order of exponential variates with the weights as rates). draws: at most the number of weights above 0.
 * Needs 16 bytes for each entry while it runs, and O(n log n) time. Errors: NO_MEMORY. */
int bt_draw_unique(uint32_t *out, uint64_t draws, const double *weights, uint64_t n, uint64_t key, beton_error *err);

/* Checks weights; *positive becomes the number of weights above 0. */
int bt_weights_check(const double *weights, uint64_t n, uint64_t *positive, double *sum, beton_error *err);

#endif
