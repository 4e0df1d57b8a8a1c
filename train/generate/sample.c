/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>
#include <stdlib.h>

#include "common/error.h"

struct candidate {
	float logit;
	int64_t token;
};

/* Highest logits first, equal ones in the order of their tokens. */
static int compare(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	if (a->logit != b->logit)
		return a->logit > b->logit ? -1 : 1;
	return a->token < b->token ? -1 : a->token > b->token;
}

static int64_t find_largest(const float *logits, int64_t count)
{
	int64_t largest = 0;
	for (int64_t i = 1; i < count; i++)
		largest = logits[i] > logits[largest] ? i : largest;
	return largest;
}

static double weight_of(const struct candidate *sorted, int64_t index, double temperature)
{
	return exp(((double)sorted[index].logit - (double)sorted[0].logit) / temperature);
}

/* The number of the first candidates to draw from, and the sum of their weights. */
static int64_t keep(const sample_options *options, const struct candidate *sorted, int64_t count, double *sum)
{
	int64_t kept = options->top_k && options->top_k < count ? options->top_k : count;
	while (kept < count && sorted[kept].logit == sorted[kept - 1].logit)
		kept++;
	double all = 0, part = 0;
	for (int64_t i = 0; i < kept; i++)
		all += weight_of(sorted, i, options->temperature);
	*sum = all;
	if (options->top_p >= 1)
		return kept;
	for (int64_t i = 0; i < kept; i++) {
		part += weight_of(sorted, i, options->temperature);
		if (part >= options->top_p * all) {
			*sum = part;
			return i + 1;
		}
	}
	return kept;
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
	struct candidate *sorted = malloc((size_t)count * sizeof(*sorted));
	if (!sorted)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %lld tokens", (long long)count);
	for (int64_t i = 0; i < count; i++)
		sorted[i] = (struct candidate){logits[i], i};
	qsort(sorted, (size_t)count, sizeof(*sorted), compare);
	double sum, part = 0;
	int64_t kept = keep(options, sorted, count, &sum);
	*out = sorted[kept - 1].token;
	for (int64_t i = 0; i < kept; i++) {
		part += weight_of(sorted, i, options->temperature);
		if (part > random * sum) {
			*out = sorted[i].token;
			break;
		}
	}
	free(sorted);
	return BETON_OK;
}
