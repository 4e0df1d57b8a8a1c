/* SPDX-License-Identifier: Apache-2.0
 *
 * The quasi-random order: windows of runs.
 *
 * The entries, as they lie in the file, are cut into runs of equal length, each about a page. The runs are permuted,
 * `window` of them at a time are put together, and the samples of such a window are permuted. So whoever follows the
 * order touches `window` pages at a time, and each run once in an epoch.
 *
 * How well it mixes: let a share p of n entries have some property, and X be how many of a batch of B inside one window
 * have it. Runs reach a window, and entries a batch, by drawing without replacement, so that for any file, sorted ones
 * too, Var(X) <= B p (1-p) (1 + B / window), where a random order has B p (1-p) (n-B)/(n-1). */
#ifndef BT_LOADER_ORDER_QUASI_H
#define BT_LOADER_ORDER_QUASI_H

#include "permutation.h"

/* Immutable. */
typedef struct bt_quasi {
	uint64_t n;
	uint64_t run;     /* entries of a run, >= 1 */
	uint64_t window;  /* runs of a window; the last window has what is left too, up to twice as many */
	uint64_t windows; /* of an epoch */
	uint64_t missing; /* entries by which the last run of the file is shorter than the others */
	uint64_t place;   /* that run's place among the permuted ones; only if missing > 0 */
	bt_permutation runs;
	uint64_t key;
} bt_quasi;

/* run and window >= 1; key: of the epoch. */
bt_quasi bt_quasi_make(uint64_t n, uint64_t run, uint64_t window, uint64_t key);

/* The entry at a position < n: a permutation. */
uint64_t bt_quasi_at(const bt_quasi *quasi, uint64_t position);

/* The first position of the window that holds a position, and how many positions it has. */
uint64_t bt_quasi_window(const bt_quasi *quasi, uint64_t position, uint64_t *size);

/* The runs that one at a position < n needs, by their place among the permuted ones: those of its window, and of the
 * next one as great a part as this one is through. */
void bt_quasi_due(const bt_quasi *quasi, uint64_t position, uint64_t *begin, uint64_t *end);

/* The first and the last entry of a run. */
void bt_quasi_run(const bt_quasi *quasi, uint64_t place, uint64_t *first, uint64_t *last);

#endif
