/* SPDX-License-Identifier: Apache-2.0
 *
 * The whitening filters: what they make of the patches that they are computed from. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/tasks/vision/whiten_filters.h"

enum { N = VISION_WHITEN_PATCH, COUNT = 500 };

#define EPSILON 5e-4

static double noise(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return (*state >> 8) * 0x1p-23 - 1;
}

/* Correlated patches; `missing` coordinates are the sum of the others. */
static void make_sums(int missing, double sums[N * N])
{
	uint32_t state = 5;
	memset(sums, 0, N * N * sizeof(*sums));
	for (int k = 0; k < COUNT; k++) {
		double patch[N], sum = 0;
		for (int i = 0; i < N; i++) {
			patch[i] = (i + 1) * noise(&state) + (i > 0 ? 0.7 * patch[i - 1] : 0.3);
			sum += patch[i];
		}
		for (int i = 0; i < missing; i++)
			patch[i] = sum;
		for (int i = 0; i < N * N; i++)
			sums[i] += patch[i / N] * patch[i % N];
	}
}

/* The mean of (filter a of a patch) times (filter b of it). */
static double product(const double *sums, const float *a, const float *b)
{
	double out = 0;
	for (int i = 0; i < N * N; i++)
		out += (double)a[i / N] * sums[i] / COUNT * (double)b[i % N];
	return out;
}

static double squared_length(const float *filter)
{
	double out = 0;
	for (int i = 0; i < N; i++)
		out += (double)filter[i] * (double)filter[i];
	return out;
}

/* Uncorrelated, with variance value / (value + epsilon); the eigenvalues fall, so the lengths rise. */
static void patches_become_uncorrelated(void **state)
{
	(void)state;
	double sums[N * N];
	float filters[2 * N * N];
	beton_error err = {0};
	make_sums(0, sums);
	if (vision_whiten_filters(sums, COUNT, filters, &err) != BETON_OK)
		fail_msg("%s", err.message);
	for (int a = 0; a < N; a++) {
		double value = 1 / squared_length(filters + a * N) - EPSILON;
		for (int b = 0; b < N; b++) {
			double expected = a == b ? value / (value + EPSILON) : 0;
			double got = product(sums, filters + a * N, filters + b * N);
			if (!(fabs(got - expected) < 1e-4))
				fail_msg("filters %d and %d: %g, not %g", a, b, got, expected);
		}
		if (a > 0)
			assert_true(squared_length(filters + a * N) >= squared_length(filters + (a - 1) * N));
		for (int i = 0; i < N; i++)
			assert_true(filters[(N + a) * N + i] == -filters[a * N + i]);
	}
}

/* Missing directions are amplified by no more than the epsilon allows. */
static void what_is_missing_is_bounded(void **state)
{
	(void)state;
	double sums[N * N];
	float filters[2 * N * N];
	beton_error err = {0};
	make_sums(3, sums);
	assert_int_equal(vision_whiten_filters(sums, COUNT, filters, &err), BETON_OK);
	for (int a = N - 2; a < N; a++) {
		double length = squared_length(filters + a * N);
		assert_true(fabs(length * EPSILON - 1) < 1e-3);
	}
	memset(sums, 0, sizeof(sums));
	assert_int_equal(vision_whiten_filters(sums, COUNT, filters, &err), BETON_OK);
	for (int i = 0; i < 2 * N * N; i++)
		assert_true(isfinite(filters[i]));
}

static void what_is_no_number_is_refused(void **state)
{
	(void)state;
	double sums[N * N];
	float filters[2 * N * N];
	beton_error err = {0};
	make_sums(0, sums);
	sums[17] = NAN;
	assert_int_equal(vision_whiten_filters(sums, COUNT, filters, &err), BETON_DIVERGED);
	assert_non_null(strstr(err.message, "not finite"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(patches_become_uncorrelated),
		cmocka_unit_test(what_is_missing_is_bounded),
		cmocka_unit_test(what_is_no_number_is_refused),
	};
	beton_error err = {0};
	if (vision_whiten_check(&err) != BETON_OK) {
		fprintf(stderr, "whiten: %s\n", err.message);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
