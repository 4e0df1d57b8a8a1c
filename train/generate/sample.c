/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/error.h"

struct candidate {
	float logit;
	int64_t token;
};

/* A heap of those that are not sorted yet, behind which the sorted ones are, the last one first: few are drawn, so that
 * most need no place. */
struct candidates {
	struct candidate *items;
	int64_t count, sorted;
	double most, temperature;
};

/* Highest logits first, equal ones in the order of their tokens. */
static bool is_before(const struct candidate *a, const struct candidate *b)
{
	return a->logit != b->logit ? a->logit > b->logit : a->token < b->token;
}

/* Moves an item of the heap down to its place. */
static void sift(struct candidate *items, int64_t count, int64_t at)
{
	struct candidate moved = items[at];
	for (int64_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
		if (child + 1 < count && is_before(&items[child + 1], &items[child]))
			child++;
		if (!is_before(&items[child], &moved))
			break;
		items[at] = items[child];
		at = child;
	}
	items[at] = moved;
}

static const struct candidate *candidate_at(struct candidates *c, int64_t index)
{
	for (; c->sorted <= index; c->sorted++) {
		int64_t last = c->count - 1 - c->sorted;
		struct candidate first = c->items[0];
		c->items[0] = c->items[last];
		sift(c->items, last, 0);
		c->items[last] = first;
	}
	return &c->items[c->count - 1 - index];
}

static double weight_of(const struct candidates *c, const struct candidate *candidate)
{
	return exp(((double)candidate->logit - c->most) / c->temperature);
}

static int64_t find_largest(const float *logits, int64_t count)
{
	int64_t largest = 0;
	for (int64_t i = 1; i < count; i++)
		largest = logits[i] > logits[largest] ? i : largest;
	return largest;
}

/* The number of the first candidates to draw from, and the sum of their weights. */
static int64_t keep(const sample_options *options, struct candidates *c, double *sum)
{
	bool some = options->top_k && options->top_k < c->count;
	int64_t kept = some ? options->top_k : c->count;
	while (kept < c->count && candidate_at(c, kept)->logit == candidate_at(c, kept - 1)->logit)
		kept++;
	double all = 0, part = 0;
	for (int64_t i = 0; i < kept; i++)
		all += weight_of(c, some ? candidate_at(c, i) : &c->items[i]);
	*sum = all;
	if (options->top_p >= 1)
		return kept;
	for (int64_t i = 0; i < kept; i++) {
		part += weight_of(c, candidate_at(c, i));
		if (part >= options->top_p * all) {
			*sum = part;
			return i + 1;
		}
	}
	return kept;
}

static int64_t choose(const sample_options *options, struct candidates *c, double random)
{
	double sum, part = 0;
	int64_t kept = keep(options, c, &sum);
	for (int64_t i = 0; i < kept - 1; i++) {
		part += weight_of(c, candidate_at(c, i));
		if (part > random * sum)
			return candidate_at(c, i)->token;
	}
	return candidate_at(c, kept - 1)->token;
}

int sample_token(const sample_options *options, const float *logits, int64_t count, double random, int64_t *out,
		 beton_error *err)
{
	for (int64_t i = 0; i < count; i++)
		if (!isfinite(logits[i]))
			return bt_fail(err, BETON_DIVERGED, "the logit of token %lld is not finite", (long long)i);
	*out = find_largest(logits, count);
	if (options->temperature == 0)
		return BETON_OK;
	struct candidates c = {.count = count, .most = (double)logits[*out], .temperature = options->temperature};
	c.items = malloc((size_t)count * sizeof(*c.items));
	if (!c.items)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %lld tokens", (long long)count);
	for (int64_t i = 0; i < count; i++)
		c.items[i] = (struct candidate){logits[i], i};
	for (int64_t i = count / 2 - 1; i >= 0; i--)
		sift(c.items, count, i);
	*out = choose(options, &c, random);
	free(c.items);
	return BETON_OK;
}
