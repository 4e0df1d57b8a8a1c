/* SPDX-License-Identifier: Apache-2.0
 *
 * The class-balanced order. In each round every class comes once, in a new order. A class's samples come in passes,
 * each a new permutation. So at any position of an epoch the counts of two classes differ by at most one, and so do the
 * counts of two samples of a class.
 */
#ifndef BT_LOADER_ORDER_BALANCED_H
#define BT_LOADER_ORDER_BALANCED_H

#include <stdbool.h>

#include <beton/error.h>

#include "permutation.h"

/* Immutable after make. 8 bytes for each entry and each class. */
typedef struct bt_balanced {
	uint64_t classes;
	uint64_t *first;   /* [classes + 1]: where the class's entries begin in members */
	uint64_t *members; /* [n], sorted by class, then number */
} bt_balanced;

/* values: the class of each entry. Needs 16 more bytes for each entry while it runs. Errors: NO_MEMORY. */
int bt_balanced_make(bt_balanced *out, const int64_t *values, uint64_t n, beton_error *err);
void bt_balanced_free(bt_balanced *balanced);

/* The entry at a position, which may be any number; n > 0. key: the epoch's. */
uint64_t bt_balanced_at(const bt_balanced *balanced, uint64_t key, uint64_t position);

#endif
