/* SPDX-License-Identifier: Apache-2.0
 *
 * The quasi-random order: windows of runs.
 *
 * The entries, in the order of the file, are cut into runs of equal length, each about a page. The runs are permuted
 * and grouped into windows of `window` runs, and the samples of each window are permuted. So a reader touches `window`
 * pages at a time, and each run once in an epoch.
 *
 * How well the order mixes: let a share p of n entries have some property, and X be the number of those in a batch of B
 * inside one window. Runs are drawn into windows, and entries into batches, without replacement. So for any file, even
 * a sorted one, Var(X) <= B p (1-p) (1 + B / window); in a random order it is B p (1-p) (n-B)/(n-1).
 */
#ifndef BT_LOADER_ORDER_QUASI_H
#define BT_LOADER_ORDER_QUASI_H

#include "permutation.h"

/* Immutable. */
typedef struct bt_quasi {
	uint64_t n;
	uint64_t run;     /* entries in a run, >= 1 */
	uint64_t window;  /* runs in a window; the last window also has the remainder, so up to twice as many */
	uint64_t windows; /* in an epoch */
	uint64_t missing; /* entries by which the last run of the file is shorter than the others */
	uint64_t place;   /* that run's place among the permuted ones; only if missing > 0 */
	bt_permutation runs;
	uint64_t key;
} bt_quasi;

/* run and window >= 1; key: the epoch's. */
bt_quasi bt_quasi_make(uint64_t n, uint64_t run, uint64_t window, uint64_t key);

/* The entry at a position < n: a permutation. */
uint64_t bt_quasi_at(const bt_quasi *quasi, uint64_t position);

/* The window that holds a position: its first position, and its number of positions. */
uint64_t bt_quasi_window(const bt_quasi *quasi, uint64_t position, uint64_t *size);

/* The runs that a reader at a position < n needs, by their places among the permuted runs: its window's, and the same
 * share of the next window's as it has read of this one. */
void bt_quasi_due(const bt_quasi *quasi, uint64_t position, uint64_t *begin, uint64_t *end);

/* The first and the last entry of a run. */
void bt_quasi_run(const bt_quasi *quasi, uint64_t place, uint64_t *first, uint64_t *last);

#endif
