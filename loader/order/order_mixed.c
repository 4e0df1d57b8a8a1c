/* SPDX-License-Identifier: Apache-2.0 */
#include "order_mixed.h"

#include <math.h>
#include <stdlib.h>

#include "common/error.h"

static int check(const uint64_t *first, const double *weights, uint32_t sources, double *sum, beton_error *err)
{
	*sum = 0;
	for (uint32_t i = 0; i < sources; i++) {
		if (!isfinite(weights[i]) || weights[i] < 0)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "sources[%u]: weight is %g, not finite and at least 0", i, weights[i]);
		if (weights[i] > 0 && first[i] == first[i + 1])
			return bt_fail(err, BETON_INVALID_ARGUMENT, "sources[%u]: weight is %g, but it has no samples",
				       i, weights[i]);
		*sum += weights[i];
	}
	if (!isnormal(*sum))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "sources: the sum of the weights is %g", *sum);
	return BETON_OK;
}

/* Integers that add up to the cycle, at least 1 for a weight above 0: rounds down, then gives the remainder one by one
 * to the source that lacks most. */
static void share_out(uint32_t *counts, const double *weights, uint32_t sources, double sum)
{
	int64_t left = BT_MIXED_CYCLE;
	for (uint32_t i = 0; i < sources; i++) {
		double exact = weights[i] / sum * BT_MIXED_CYCLE;
		counts[i] = weights[i] > 0 && exact < 1 ? 1 : (uint32_t)exact;
		left -= counts[i];
	}
	for (; left != 0; left += left > 0 ? -1 : 1) {
		uint32_t chosen = UINT32_MAX;
		double most = 0;
		for (uint32_t i = 0; i < sources; i++) {
			double lack = weights[i] / sum * BT_MIXED_CYCLE - counts[i];
			bool may = left > 0 ? weights[i] > 0 : counts[i] > 1;
			lack = left > 0 ? lack : -lack;
			if (may && (chosen == UINT32_MAX || lack > most)) {
				chosen = i;
				most = lack;
			}
		}
		counts[chosen] = left > 0 ? counts[chosen] + 1 : counts[chosen] - 1;
	}
}

int bt_mixed_make(bt_mixed *out, uint64_t *first, const double *weights, uint32_t sources, beton_error *err)
{
	*out = (bt_mixed){.sources = sources, .first = first};
	double sum;
	int result = check(first, weights, sources, &sum, err);
	if (result)
		return result;
	if (sources > BT_MIXED_CYCLE)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%u sources: at most %d can be mixed by weights", sources,
			       BT_MIXED_CYCLE);
	out->share = malloc((sources + 1) * sizeof(*out->share));
	if (!out->share)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %u sources", sources);
	share_out(out->share, weights, sources, sum);
	uint32_t begin = 0;
	for (uint32_t i = 0; i <= sources; i++) {
		uint32_t count = i < sources ? out->share[i] : 0;
		out->share[i] = begin;
		begin += count;
	}
	return BETON_OK;
}

void bt_mixed_free(bt_mixed *mixed)
{
	free(mixed->share);
	*mixed = (bt_mixed){0};
}

/* The source that owns a place of the cycle. */
static uint32_t owner(const bt_mixed *mixed, uint64_t place)
{
	uint32_t low = 0, high = mixed->sources;
	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;
		if (mixed->share[middle] <= place)
			low = middle;
		else
			high = middle;
	}
	return low;
}

uint64_t bt_mixed_at(const bt_mixed *mixed, uint64_t key, uint64_t position)
{
	uint64_t cycle = position / BT_MIXED_CYCLE;
	bt_permutation places = bt_permutation_make(BT_MIXED_CYCLE, bt_draw(key, BT_PURPOSE_CYCLE, cycle, 0));
	uint64_t place = bt_permutation_at(&places, position % BT_MIXED_CYCLE);
	uint32_t source = owner(mixed, place);
	uint64_t begin = mixed->share[source];
	uint64_t number = cycle * (mixed->share[source + 1] - begin) + (place - begin);
	uint64_t n = mixed->first[source + 1] - mixed->first[source];
	bt_permutation samples = bt_permutation_make(n, bt_draw(key, BT_PURPOSE_SOURCE, source, number / n));
	return mixed->first[source] + bt_permutation_at(&samples, number % n);
}
