/* SPDX-License-Identifier: Apache-2.0
 *
 * What dtrain-generate draws from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "generate/sample.h"

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
	/* Of the three that top_k leaves, 0.5 and 0.25 of the probability. */
	expect(&(sample_options){.temperature = 1, .top_k = 3, .top_p = 0.7}, 0, 667, 333, 0, 0);
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
		cmocka_unit_test(what_is_not_finite_is_an_error),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
