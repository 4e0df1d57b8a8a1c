/* SPDX-License-Identifier: Apache-2.0 */
#include "order_weighted.h"

#include <math.h>
#include <stdlib.h>

#include "common/elementary.h"
#include "common/error.h"

int bt_weights_check(const double *weights, uint64_t n, uint64_t *positive, double *sum, beton_error *err)
{
	*positive = 0;
	*sum = 0;
	for (uint64_t i = 0; i < n; i++) {
		if (!isfinite(weights[i]) || weights[i] < 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "loader options: weights[%llu] is %g, not finite and at least 0",
				       (unsigned long long)i, weights[i]);
		*positive += weights[i] > 0;
		*sum += weights[i];
	}
	/* With a sum that is not normal, shares have no meaning. */
	if (!isnormal(*sum))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "loader options: the sum of %llu weights is %g",
			       (unsigned long long)n, *sum);
	return BETON_OK;
}

/* Vose's method: fills cells that have too little from cells that have too much. `work` holds two stacks that grow
 * towards each other. */
static void fill_table(bt_alias *alias, const double *weights, double sum, uint64_t *work)
{
	uint64_t n = alias->n, few = 0, many = n;
	uint64_t heaviest = 0;
	for (uint64_t i = 0; i < n; i++) {
		alias->keep[i] = weights[i] / sum * (double)n;
		alias->other[i] = i;
		heaviest = weights[i] > weights[heaviest] ? i : heaviest;
		if (alias->keep[i] < 1)
			work[few++] = i;
		else
			work[--many] = i;
	}
	while (few > 0 && many < n) {
		uint64_t low = work[--few], high = work[many];
		alias->other[low] = high;
		alias->keep[high] -= 1 - alias->keep[low];
		if (alias->keep[high] < 1) {
			many++;
			work[few++] = high;
		}
	}
	/* Cells that rounding left over count as full, unless their weight is 0. */
	while (few > 0) {
		uint64_t i = work[--few];
		if (weights[i] > 0)
			alias->keep[i] = 1;
		else
			alias->other[i] = heaviest;
	}
}

int bt_alias_make(bt_alias *out, const double *weights, uint64_t n, beton_error *err)
{
	*out = (bt_alias){.n = n};
	uint64_t positive;
	double sum;
	int result = bt_weights_check(weights, n, &positive, &sum, err);
	if (result)
		return result;
	uint64_t *work = malloc(n * sizeof(*work));
	out->keep = malloc(n * sizeof(*out->keep));
	out->other = malloc(n * sizeof(*out->other));
	if (work && out->keep && out->other)
		fill_table(out, weights, sum, work);
	else
		result = bt_fail(err, BETON_NO_MEMORY, "out of memory for a table of %llu weights",
				 (unsigned long long)n);
	free(work);
	if (result)
		bt_alias_free(out);
	return result;
}

void bt_alias_free(bt_alias *alias)
{
	free(alias->keep);
	free(alias->other);
	*alias = (bt_alias){0};
}

uint64_t bt_alias_at(const bt_alias *alias, uint64_t key, uint64_t position)
{
	unsigned __int128 draw = (unsigned __int128)bt_draw(key, BT_PURPOSE_WEIGHTED, 0, position) * alias->n;
	uint64_t cell = (uint64_t)(draw >> 64);
	/* The bits of the draw that did not choose the cell are uniform too. */
	double fraction = (double)((uint64_t)draw >> 11) * 0x1p-53;
	return fraction < alias->keep[cell] ? cell : alias->other[cell];
}

/* -log(bits / 2^64), from the highest 53 bits that are not leading zeros: a double holds no more. */
static double exponential(uint64_t bits)
{
	bits += bits == 0;
	int zeros = __builtin_clzll(bits);
	return -bt_log((double)(bits << zeros >> 11) * 0x1p-53 * ldexp(1, -zeros));
}

typedef struct ticket {
	double time;
	uint32_t entry;
} ticket;

static int earlier(const void *a, const void *b)
{
	const ticket *left = a, *right = b;
	if (left->time != right->time)
		return left->time < right->time ? -1 : 1;
	return left->entry < right->entry ? -1 : left->entry > right->entry;
}

int bt_draw_unique(uint32_t *out, uint64_t draws, const double *weights, uint64_t n, uint64_t key, beton_error *err)
{
	ticket *tickets = malloc((n ? n : 1) * sizeof(*tickets));
	if (!tickets)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory to draw from %llu samples", (unsigned long long)n);
	uint64_t count = 0;
	for (uint64_t i = 0; i < n; i++)
		if (weights[i] > 0)
			tickets[count++] =
				(ticket){exponential(bt_draw(key, BT_PURPOSE_UNIQUE, 0, i)) / weights[i], (uint32_t)i};
	qsort(tickets, count, sizeof(*tickets), earlier);
	for (uint64_t i = 0; i < draws; i++)
		out[i] = tickets[i].entry;
	free(tickets);
	return BETON_OK;
}
