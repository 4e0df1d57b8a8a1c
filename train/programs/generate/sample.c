/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "common/error.h"

/* The first pivot is the best of so many candidates, so that about one in so many is better. */
enum { SAMPLES = 16 };

struct candidate {
	float logit;
	int32_t token;
	double weight; /* in proportion to the probability */
};

struct candidates {
	struct candidate *items;
	int64_t count;
	double most, temperature;
};

/* Highest logits first, equal ones in the order of their tokens. */
static bool is_before(const struct candidate *a, const struct candidate *b)
{
	return a->logit != b->logit ? a->logit > b->logit : a->token < b->token;
}

static void swap(struct candidate *a, struct candidate *b)
{
	struct candidate moved = *a;
	*a = *b;
	*b = moved;
}

/* Puts the first in the order of some candidates to the end. */
static void find_high(struct candidate *items, int64_t count)
{
	int64_t step = count / SAMPLES + 1, first = 0;
	for (int64_t i = step; i < count; i += step)
		first = is_before(&items[i], &items[first]) ? i : first;
	swap(&items[first], &items[count - 1]);
}

/* Puts the middle one of the first, the last and the one between them to the end. */
static void find_middle(struct candidate *items, int64_t count)
{
	struct candidate *middle = &items[count / 2], *last = &items[count - 1];
	if (is_before(middle, items))
		swap(middle, items);
	if (is_before(last, items))
		swap(last, items);
	if (is_before(middle, last))
		swap(middle, last);
}

/* Makes the last candidate the pivot: better candidates come first, then the pivot, then the others. Returns the
 * pivot's place. */
static int64_t split(struct candidate *items, int64_t count)
{
	int64_t place = 0;
	for (int64_t i = 0; i < count - 1; i++)
		if (is_before(&items[i], &items[count - 1]))
			swap(&items[place++], &items[i]);
	swap(&items[place], &items[count - 1]);
	return place;
}

static double measure(const struct candidate *items, int64_t count, bool by_weight)
{
	double sum = by_weight ? 0 : (double)count;
	for (int64_t i = 0; i < count && by_weight; i++)
		sum += items[i].weight;
	return sum;
}

/* Adds up the candidates in their order, each as 1 or by its weight. Returns the place of the first candidate with
 * which the sum exceeds the target, or of the last one. All better candidates come first; nothing else is sorted. *sum:
 * with the candidate. */
static int64_t find_exceeding(struct candidate *items, int64_t count, double target, bool by_weight, double *sum)
{
	int64_t first = 0, end = count;
	double before = 0;
	/* Few tokens have most of the probability, mostly. */
	find_high(items, count);
	while (end - first > 1) {
		int64_t place = first + split(items + first, end - first);
		double in_front = before + measure(items + first, place - first, by_weight);
		*sum = in_front + measure(items + place, 1, by_weight);
		if (place > first && in_front > target) {
			end = place;
		} else if (*sum > target || place == count - 1) {
			return place;
		} else {
			first = place + 1;
			before = *sum;
		}
		if (end > first)
			find_middle(items + first, end - first);
	}
	*sum = before + measure(items + first, 1, by_weight);
	return first;
}

static int64_t find_largest(const float *logits, int64_t count)
{
	int64_t largest = 0;
	for (int64_t i = 1; i < count; i++)
		largest = logits[i] > logits[largest] ? i : largest;
	return largest;
}

/* The number of candidates that top_k leaves, which come first: with the last of them, all that are as likely. */
static int64_t keep_some(const sample_options *options, struct candidates *c)
{
	double sum;
	if (!options->top_k || options->top_k >= c->count)
		return c->count;
	int64_t last = find_exceeding(c->items, c->count, (double)options->top_k - 0.5, false, &sum), kept = last + 1;
	for (int64_t i = kept; i < c->count; i++)
		if (c->items[i].logit == c->items[last].logit)
			swap(&c->items[i], &c->items[kept++]);
	return kept;
}

static int64_t choose(const sample_options *options, struct candidates *c, double random)
{
	int64_t kept = keep_some(options, c);
	double sum = 0, part;
	for (int64_t i = 0; i < kept; i++) {
		c->items[i].weight = exp(((double)c->items[i].logit - c->most) / c->temperature);
		sum += c->items[i].weight;
	}
	/* The sum reaches the share; it need not exceed it. */
	if (options->top_p < 1)
		kept = 1 + find_exceeding(c->items, kept, nextafter(options->top_p * sum, 0), true, &sum);
	return c->items[find_exceeding(c->items, kept, random * sum, true, &part)].token;
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
		c.items[i] = (struct candidate){.logit = logits[i], .token = (int32_t)i};
	*out = choose(options, &c, random);
	free(c.items);
	return BETON_OK;
}
