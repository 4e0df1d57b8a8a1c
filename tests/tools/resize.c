/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of resizing: each instruction set beside plain sums, to the bit, in memory of exactly the size that they
 * may use. */
#include "tests/support/beton_files.h"

#include <stdlib.h>
#include <string.h>

#include "tools/beton-write/images/resize_kernels.h"

enum { COUNT_MAX = 40, TAPS_MAX = 9, IN_MAX = 60, VALUES_MAX = 150 };

static uint32_t seed = 1;

static uint32_t draw(void)
{
	seed = seed * 1664525 + 1013904223;
	return seed >> 16;
}

/* Sums leave 0 .. 255 on both sides, and often are halves. */
static float draw_weight(void)
{
	return draw() % 2 ? (float)draw() / 65536 * 1.5F - 0.4F : (float)(draw() % 5) / 4;
}

static uint8_t rounded(float value)
{
	return value <= 0 ? 0 : value >= 255 ? 255 : (uint8_t)(value + 0.5F);
}

static void check_add_rows(const resize_kernels *kernels)
{
	for (size_t count = 0; count < VALUES_MAX; count++) {
		uint8_t *a = malloc(count + 1), *b = malloc(count + 1);
		float *got = malloc(count * sizeof(*got) + 1), expected[VALUES_MAX];
		const float weights[2] = {draw_weight(), draw_weight()};
		for (size_t i = 0; i < count; i++) {
			a[i] = (uint8_t)draw();
			b[i] = (uint8_t)draw();
			expected[i] = weights[0] * (float)a[i] + weights[1] * (float)b[i];
		}
		kernels->add_rows(got, a, b, weights, count, true);
		assert_memory_equal(got, expected, count * sizeof(*got));
		for (size_t i = 0; i < count; i++)
			expected[i] += weights[1] * (float)a[i] + weights[0] * (float)b[i];
		kernels->add_rows(got, b, a, weights, count, false);
		assert_memory_equal(got, expected, count * sizeof(*got));
		free(a);
		free(b);
		free(got);
	}
}

/* Each output pixel's own number of weights; further weights are 0. */
static uint32_t draw_plan(resize_axis *plan, uint32_t counts[COUNT_MAX])
{
	uint32_t in = 1 + draw() % IN_MAX;
	for (uint32_t x = 0; x < plan->count; x++) {
		uint32_t most = in < plan->taps ? in : plan->taps;
		counts[x] = 1 + draw() % most;
		plan->first[x] = draw() % (in - counts[x] + 1);
		for (uint32_t k = 0; k < plan->taps; k++)
			plan->weights[k * plan->count + x] = k < counts[x] ? draw_weight() : 0;
	}
	return in;
}

static void check_sums(const resize_kernels *kernels, const resize_axis *plan, uint32_t in, const uint32_t *counts,
		       uint32_t channels)
{
	size_t size = (size_t)plan->count * channels;
	float *row = calloc((in + plan->taps) * channels + 1, sizeof(*row));
	uint8_t *got = malloc(size), *expected = malloc(size);
	for (uint32_t i = 0; i < in * channels; i++)
		row[i] = (float)(draw() % 300);
	for (uint32_t i = 0; i < size; i++) {
		uint32_t x = i / channels;
		float sum = 0;
		for (uint32_t k = 0; k < counts[x]; k++)
			sum += row[(plan->first[x] + k) * channels + i % channels] * plan->weights[k * plan->count + x];
		expected[i] = rounded(sum);
	}
	(channels == 3 ? kernels->sum_pixels : kernels->sum_values)(row, plan, got);
	assert_memory_equal(got, expected, size);
	free(row);
	free(got);
	free(expected);
}

static void test_instruction_sets(void **state)
{
	(void)state;
	const resize_kernels *kernels;
	for (unsigned int i = 0; (kernels = resize_kernels_get(i)); i++) {
		check_add_rows(kernels);
		for (uint32_t place = 0; place < COUNT_MAX * TAPS_MAX; place++) {
			uint32_t counts[COUNT_MAX];
			resize_axis plan = {.count = 1 + place % COUNT_MAX, .taps = 1 + place / COUNT_MAX};
			plan.first = malloc(plan.count * sizeof(*plan.first));
			plan.weights = malloc((size_t)plan.count * plan.taps * sizeof(*plan.weights));
			uint32_t in = draw_plan(&plan, counts);
			check_sums(kernels, &plan, in, counts, 1);
			check_sums(kernels, &plan, in, counts, 3);
			free(plan.first);
			free(plan.weights);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_instruction_sets),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
