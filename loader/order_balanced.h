/* SPDX-License-Identifier: Apache-2.0
 *
 * The class-balanced order: rounds in which each class comes once, in a new order each; a class's samples come in
 * passes, each of which permutes them anew. So at any place of an epoch two classes have come equally often, but for
 * one, and so have two samples of a class. */
#ifndef BT_LOADER_ORDER_BALANCED_H
#define BT_LOADER_ORDER_BALANCED_H

#include <stdbool.h>

#include <beton/error.h>

#include "permutation.h"

/* Immutable after make. 8 bytes for each entry and each class. */
typedef struct bt_balanced {
	uint64_t classes;
	uint64_t *first;   /* [classes + 1]: where the class's entries begin in members */
	uint64_t *members; /* [n], by class, then number */
} bt_balanced;

/* values: the class of each entry. Takes 16 more bytes for each entry meanwhile. Errors: NO_MEMORY. */
int bt_balanced_make(bt_balanced *out, const int64_t *values, uint64_t n, beton_error *err);
void bt_balanced_free(bt_balanced *balanced);

/* The entry at a position, any number; n > 0. key: of the epoch. */
uint64_t bt_balanced_at(const bt_balanced *balanced, uint64_t key, uint64_t position);

#endif
