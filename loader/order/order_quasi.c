/* SPDX-License-Identifier: Apache-2.0 */
#include "order_quasi.h"

bt_quasi bt_quasi_make(uint64_t n, uint64_t run, uint64_t window, uint64_t key)
{
	/* Runs or windows longer than the entries are cut to their number, which also prevents overflow below. */
	run = run < n ? run : n ? n : 1;
	uint64_t runs = n / run + (n % run > 0);
	window = window < runs ? window : runs ? runs : 1;
	bt_quasi quasi = {.n = n,
			  .run = run,
			  .window = window,
			  .windows = runs / window,
			  .missing = n % run ? run - n % run : 0,
			  .runs = bt_permutation_make(runs, bt_draw(key, BT_PURPOSE_RUNS, 0, 0)),
			  .key = key};
	if (quasi.missing)
		quasi.place = bt_permutation_find(&quasi.runs, runs - 1);
	return quasi;
}

/* Windows without the short run, except the last one, have window * run positions. */
typedef struct span {
	uint64_t number;
	uint64_t begin;
	uint64_t size;
	uint64_t first_run; /* its place among the permuted runs */
} span;

static span find_window(const bt_quasi *quasi, uint64_t position)
{
	uint64_t full = quasi->window * quasi->run;
	uint64_t last = quasi->windows - 1;
	uint64_t home = quasi->place / quasi->window; /* the window of the short run */
	home = home < last ? home : last;
	/* Computes as if all runs had equal length: positions after the short run's window move by its missing length.
	 */
	uint64_t behind = home < last ? (home + 1) * full - quasi->missing : quasi->n;
	uint64_t number = (position < behind ? position : position + quasi->missing) / full;
	number = number < last ? number : last;
	span found = {.number = number, .begin = number * full, .size = full, .first_run = number * quasi->window};
	if (quasi->missing && number > home)
		found.begin -= quasi->missing;
	if (quasi->missing && number == home)
		found.size -= quasi->missing;
	if (number == last)
		found.size = quasi->n - found.begin;
	return found;
}

uint64_t bt_quasi_window(const bt_quasi *quasi, uint64_t position, uint64_t *size)
{
	span window = find_window(quasi, position);
	*size = window.size;
	return window.begin;
}

uint64_t bt_quasi_at(const bt_quasi *quasi, uint64_t position)
{
	span window = find_window(quasi, position);
	bt_permutation inside =
		bt_permutation_make(window.size, bt_draw(quasi->key, BT_PURPOSE_WINDOW, window.number, 0));
	uint64_t chosen = bt_permutation_at(&inside, position - window.begin);
	if (quasi->missing && quasi->place >= window.first_run) {
		uint64_t end_of_short = (quasi->place - window.first_run + 1) * quasi->run - quasi->missing;
		chosen += chosen >= end_of_short ? quasi->missing : 0;
	}
	uint64_t run = bt_permutation_at(&quasi->runs, window.first_run + chosen / quasi->run);
	return run * quasi->run + chosen % quasi->run;
}

void bt_quasi_due(const bt_quasi *quasi, uint64_t position, uint64_t *begin, uint64_t *end)
{
	uint64_t runs = quasi->n / quasi->run + (quasi->n % quasi->run > 0);
	span window = find_window(quasi, position);
	*begin = window.first_run;
	*end = runs;
	if (window.number + 1 == quasi->windows)
		return;
	uint64_t next = window.first_run + quasi->window;
	/* The last window also has the remainder. */
	uint64_t size = window.number + 2 == quasi->windows ? runs - next : quasi->window;
	double through = (double)(position - window.begin + 1) / (double)window.size;
	uint64_t part = (uint64_t)(through * (double)size) + 1;
	*end = next + (part < size ? part : size);
}

void bt_quasi_run(const bt_quasi *quasi, uint64_t place, uint64_t *first, uint64_t *last)
{
	*first = bt_permutation_at(&quasi->runs, place) * quasi->run;
	*last = quasi->n - *first < quasi->run ? quasi->n - 1 : *first + quasi->run - 1;
}
