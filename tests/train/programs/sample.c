/* SPDX-License-Identifier: Apache-2.0
 *
 * The distribution that dtrain-generate draws from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "programs/generate/sample.h"

enum { COUNT = 5, DRAWS = 1000 };

/* Probabilities 0.1, 0.4, 0.2, 0.2, 0.1. */
static void make_logits(float logits[COUNT])
{
	static const double shares[COUNT] = {0.1, 0.4, 0.2, 0.2, 0.1};
	for (int i = 0; i < COUNT; i++)
		logits[i] = (float)log(shares[i]) + 3;
}

/* How often each token is drawn with evenly spread random numbers. */
static void count_draws(const sample_options *options, int counts[COUNT])
{
	float logits[COUNT];
	beton_error err;
	make_logits(logits);
	for (int i = 0; i < COUNT; i++)
		counts[i] = 0;
	for (int i = 0; i < DRAWS; i++) {
		int64_t token = -1;
		assert_int_equal(sample_token(options, logits, COUNT, (i + 0.5) / DRAWS, &token, &err), BETON_OK);
		assert_in_range(token, 0, COUNT - 1);
		counts[token]++;
	}
}

static void expect(const sample_options *options, int a, int b, int c, int d, int e)
{
	const int wanted[COUNT] = {a, b, c, d, e};
	int counts[COUNT];
	count_draws(options, counts);
	for (int i = 0; i < COUNT; i++)
		if (counts[i] < wanted[i] - 1 || counts[i] > wanted[i] + 1)
			fail_msg("token %d: drawn %d times, not %d", i, counts[i], wanted[i]);
}

static void shares_are_probabilities(void **state)
{
	(void)state;
	expect(&(sample_options){.temperature = 1, .top_p = 1}, 100, 400, 200, 200, 100);
	/* Squares: 1, 16, 4, 4, 1 of 26. */
	expect(&(sample_options){.temperature = 0.5, .top_p = 1}, 38, 615, 154, 154, 38);
	expect(&(sample_options){.temperature = 0, .top_p = 1}, 0, 1000, 0, 0, 0);
}

static void only_the_most_likely_are_drawn(void **state)
{
	(void)state;
	expect(&(sample_options){.temperature = 1, .top_k = 1, .top_p = 1}, 0, 1000, 0, 0, 0);
	/* The third is as likely as the second. */
	expect(&(sample_options){.temperature = 1, .top_k = 2, .top_p = 1}, 0, 500, 250, 250, 0);
	expect(&(sample_options){.temperature = 1, .top_k = 9, .top_p = 1}, 100, 400, 200, 200, 100);
	expect(&(sample_options){.temperature = 1, .top_p = 0.3}, 0, 1000, 0, 0, 0);
	expect(&(sample_options){.temperature = 1, .top_p = 0.55}, 0, 667, 333, 0, 0);
	/* The first two of the three that top_k leaves, 0.5 and 0.25 of the probability. */
	expect(&(sample_options){.temperature = 1, .top_k = 3, .top_p = 0.7}, 0, 667, 333, 0, 0);
}

enum { MANY = 700 };

static int compare_logits(const void *left, const void *right)
{
	const float *a = *(const float *const *)left, *b = *(const float *const *)right;
	return *a != *b ? *a < *b ? 1 : -1 : a < b ? -1 : a > b;
}

/* By a sort of all tokens. */
static int64_t draw_slowly(const sample_options *options, const float logits[MANY], double random)
{
	const float *sorted[MANY];
	double weights[MANY], all = 0, sum = 0, part = 0;
	int64_t kept = 0, limit = options->top_k ? options->top_k : MANY;
	for (int i = 0; i < MANY; i++)
		sorted[i] = logits + i;
	qsort(sorted, MANY, sizeof(*sorted), compare_logits);
	while (limit < MANY && *sorted[limit] == *sorted[limit - 1])
		limit++;
	for (int64_t i = 0; i < limit; i++)
		all += weights[i] = exp((double)(*sorted[i] - *sorted[0]) / options->temperature);
	while (kept < limit && (options->top_p >= 1 || sum < options->top_p * all))
		sum += weights[kept++];
	for (int64_t i = 0; i < kept - 1; i++) {
		part += weights[i];
		if (part > random * sum)
			return sorted[i] - logits;
	}
	return sorted[kept - 1] - logits;
}

/* Some logits are equal. */
static void draws_are_those_of_a_sort(void **state)
{
	(void)state;
	static const sample_options options[] = {{.temperature = 1, .top_p = 1},
						 {.temperature = 0.7, .top_p = 0.9},
						 {.temperature = 1.5, .top_k = 40, .top_p = 1},
						 {.temperature = 1, .top_k = 699, .top_p = 0.5},
						 {.temperature = 20, .top_k = 1, .top_p = 1}};
	float logits[MANY];
	for (unsigned round = 0; round < 200; round++) {
		for (unsigned i = 0; i < MANY; i++)
			logits[i] = (float)((i * 2654435761u + round * 40503u) >> 8 & 0x1ff) / 64;
		for (int k = 0; k < 5; k++) {
			double random = (round + 0.5) / 200;
			int64_t token = -1;
			beton_error err;
			assert_int_equal(sample_token(&options[k], logits, MANY, random, &token, &err), BETON_OK);
			assert_int_equal(token, draw_slowly(&options[k], logits, random));
		}
	}
}

static void what_is_not_finite_is_an_error(void **state)
{
	(void)state;
	const sample_options options = {.temperature = 1, .top_p = 1};
	float logits[COUNT];
	int64_t token;
	beton_error err;
	make_logits(logits);
	logits[3] = NAN;
	assert_int_equal(sample_token(&options, logits, COUNT, 0, &token, &err), BETON_DIVERGED);
	assert_string_equal(err.message, "the logit of token 3 is not finite");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shares_are_probabilities),
		cmocka_unit_test(only_the_most_likely_are_drawn),
		cmocka_unit_test(draws_are_those_of_a_sort),
		cmocka_unit_test(what_is_not_finite_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
