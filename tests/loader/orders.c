/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions that orders are made of. orders ORDERS: the file with other programs' orders (tests/golden/orders.txt).
 */
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "loader/order/order_balanced.h"
#include "loader/order/order_exact.h"
#include "loader/order/order_mixed.h"
#include "loader/order/order_quasi.h"
#include "loader/order/order_weighted.h"
#include "loader/order/permutation.h"
#include "tests/support/numbers.h"

static const char *orders_path;

static uint64_t fold(uint64_t total, uint64_t value)
{
	return total * UINT64_C(6364136223846793005) + value + 1;
}

static uint32_t *reserve(uint64_t n)
{
	uint32_t *out = calloc(n + 1, sizeof(*out));
	assert_non_null(out);
	return out;
}

/* The rows of that name: n, seed, epoch, the fold of the whole permutation, and its first four entries. */
static void check_exact(const char *name, void (*permute)(uint32_t *, uint64_t, uint64_t, uint64_t))
{
	numbers_table table = numbers_open(orders_path);
	while (numbers_next(&table, name)) {
		uint64_t n = numbers_u64(&table), seed = numbers_u64(&table), epoch = numbers_u64(&table);
		uint64_t expected = numbers_u64(&table), total = 0;
		uint32_t *out = reserve(n);
		permute(out, n, seed, epoch);
		for (uint64_t i = 0; i < n; i++)
			total = fold(total, out[i]);
		for (uint64_t i = 0; i < 4; i++)
			assert_int_equal(i < n ? out[i] : 0, numbers_u32(&table));
		assert_true(total == expected);
		free(out);
	}
	numbers_close(&table);
}

static void numpy_permutations_are_numpys(void **state)
{
	(void)state;
	check_exact("numpy", bt_numpy_permutation);
}

static void torch_permutations_are_pytorchs(void **state)
{
	(void)state;
	check_exact("torch", bt_torch_permutation);
}

/* Position p of an epoch is entry p % n, up to a multiple of the world size; rank r has the positions p % W == r. A
 * row: n, seed, epoch, world size, rank, how many samples the rank gets, and their fold. */
static void torch_shards_are_pytorchs(void **state)
{
	(void)state;
	numbers_table table = numbers_open(orders_path);
	while (numbers_next(&table, "shard")) {
		uint64_t n = numbers_u64(&table), seed = numbers_u64(&table), epoch = numbers_u64(&table);
		uint64_t world_size = numbers_u64(&table), rank = numbers_u64(&table), count = numbers_u64(&table);
		uint32_t *out = reserve(n);
		bt_torch_permutation(out, n, seed, epoch);
		uint64_t total = 0;
		for (uint64_t k = 0; k < count; k++)
			total = fold(total, out[(k * world_size + rank) % n]);
		assert_true(total == numbers_u64(&table));
		free(out);
	}
	numbers_close(&table);
}

static void an_exact_order_of_nothing_is_empty(void **state)
{
	(void)state;
	uint32_t guard[1] = {77};
	bt_numpy_permutation(guard, 0, 1, 1);
	bt_torch_permutation(guard, 0, 1, 1);
	assert_int_equal(guard[0], 77);
}

static void a_permutation_is_found_backwards(void **state)
{
	(void)state;
	const uint64_t sizes[] = {1, 2, 3, 10, 1000, 4097, UINT64_C(10000000019), UINT64_MAX / 2};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		bt_permutation p = bt_permutation_make(sizes[i], i);
		for (uint64_t k = 0; k < 1000 && k < sizes[i]; k++) {
			uint64_t position = sizes[i] / 1000 * k + k % sizes[i] % 3;
			position %= sizes[i];
			assert_true(bt_permutation_find(&p, bt_permutation_at(&p, position)) == position);
		}
	}
}

/* ---- quasi-random ---- */

/* Every entry once, and never more than a window's runs between the first and the last sample of a window. */
static void check_quasi(uint64_t n, uint64_t run, uint64_t window)
{
	bt_quasi quasi = bt_quasi_make(n, run, window, n * 31 + window);
	uint8_t *seen = calloc(n + 1, 1);
	uint32_t *last_window = reserve(n / run + 2);
	assert_non_null(seen);
	uint64_t begin = 0, number = 0;
	while (begin < n) {
		uint64_t size;
		assert_true(bt_quasi_window(&quasi, begin, &size) == begin);
		assert_true(size > 0);
		number++;
		uint64_t runs = 0;
		for (uint64_t p = begin; p < begin + size; p++) {
			uint64_t same_size;
			assert_true(bt_quasi_window(&quasi, p, &same_size) == begin);
			assert_true(size == same_size);
			uint64_t entry = bt_quasi_at(&quasi, p);
			assert_true(entry < n);
			assert_int_equal(seen[entry], 0);
			seen[entry] = 1;
			/* A run belongs to one window. */
			uint32_t *owner = &last_window[entry / quasi.run];
			runs += *owner == 0;
			assert_true(*owner == 0 || *owner == number);
			*owner = (uint32_t)number;
		}
		assert_true(runs < 2 * quasi.window);
		assert_true(runs >= quasi.window);
		begin += size;
	}
	assert_true(begin == n);
	free(seen);
	free(last_window);
}

static void quasi_random_is_a_permutation_by_windows(void **state)
{
	(void)state;
	for (uint64_t n = 1; n <= 60; n++)
		for (uint64_t run = 1; run <= n + 2; run += 1 + run / 5)
			for (uint64_t window = 1; window <= n / run + 2; window += 1 + window / 4)
				check_quasi(n, run, window);
	check_quasi(100003, 37, 16);
	check_quasi(99937, 1000, 64);
	check_quasi(4096, 64, 4);
}

/* A sorted file: class of an entry = entry * classes / n. The variance of each class's count in a batch stays below
 * the documented bound, and above that of a random order of the whole, which no window can beat by much. */
static void quasi_random_mixes_as_documented(void **state)
{
	(void)state;
	enum { N = 60000, CLASSES = 30, RUN = 100, BATCH = 64 };
	const uint64_t windows[] = {4, 16, 64};
	for (size_t w = 0; w < 3; w++) {
		double squares = 0, batches = 0;
		for (uint64_t epoch = 0; epoch < 4; epoch++) {
			bt_quasi quasi = bt_quasi_make(N, RUN, windows[w], bt_epoch_key(1, epoch));
			for (uint64_t first = 0; first + BATCH <= N;) {
				uint64_t size;
				uint64_t begin = bt_quasi_window(&quasi, first, &size);
				if (first + BATCH > begin + size) {
					first = begin + size;
					continue;
				}
				uint32_t counts[CLASSES] = {0};
				for (uint64_t i = 0; i < BATCH; i++)
					counts[bt_quasi_at(&quasi, first + i) * CLASSES / N]++;
				for (int c = 0; c < CLASSES; c++)
					squares += pow(counts[c] - (double)BATCH / CLASSES, 2);
				batches++;
				first += BATCH;
			}
		}
		const double p = 1.0 / CLASSES;
		double relative = squares / batches / CLASSES / (BATCH * p * (1 - p));
		assert_true(relative < 1 + (double)BATCH / (double)windows[w]);
		assert_true(relative > 0.9);
		/* The bound is not far from the truth: a window of few runs is seen to be one. */
		assert_true(relative > 0.6 * (1 + (double)BATCH / (double)windows[w]));
	}
}

static void quasi_random_reaches_far(void **state)
{
	(void)state;
	const uint64_t n = UINT64_C(10000000019);
	bt_quasi quasi = bt_quasi_make(n, 83, 64, 5);
	double sum = 0;
	for (uint64_t i = 0; i < 10000; i++) {
		uint64_t entry = bt_quasi_at(&quasi, i * 1000001);
		assert_true(entry < n);
		sum += (double)entry / (double)n;
	}
	assert_true(fabs(sum / 10000 - 0.5) < 0.015);
	assert_true(bt_quasi_at(&quasi, n - 1) < n);
}

/* The short run of the file, too, comes to every part of an epoch. */
static void the_last_run_has_no_fixed_place(void **state)
{
	(void)state;
	enum { N = 10 * 10 + 3, EPOCHS = 4000 };
	uint32_t counts[4] = {0};
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
		bt_quasi quasi = bt_quasi_make(N, 10, 2, bt_epoch_key(9, epoch));
		for (uint64_t p = 0; p < N; p++)
			if (bt_quasi_at(&quasi, p) == N - 1)
				counts[p * 4 / N]++;
	}
	for (int i = 0; i < 4; i++)
		assert_true(counts[i] > EPOCHS / 4 - 300 && counts[i] < EPOCHS / 4 + 300);
}

/* ---- weighted ---- */

static void weighted_draws_follow_the_weights(void **state)
{
	(void)state;
	enum { N = 8, DRAWS = 400000 };
	const double weights[N] = {1, 0, 2.5, 0.01, 7, 0, 3, 1e-300};
	bt_alias alias;
	assert_ok(bt_alias_make(&alias, weights, N, err));
	uint32_t counts[N] = {0};
	for (uint64_t p = 0; p < DRAWS; p++)
		counts[bt_alias_at(&alias, 77, p)]++;
	double sum = 1 + 2.5 + 0.01 + 7 + 3, chi = 0;
	for (int i = 0; i < N; i++) {
		double expected = weights[i] / sum * DRAWS;
		if (expected > 1)
			chi += pow(counts[i] - expected, 2) / expected;
		else
			assert_int_equal(counts[i], 0);
	}
	assert_true(chi < 23.5); /* 4 degrees of freedom, 99.99% */
	bt_alias_free(&alias);
}

static void a_sample_without_weight_never_comes(void **state)
{
	(void)state;
	/* Shares that no binary fraction holds, so that rounding leaves cells over. */
	enum { N = 1000 };
	double weights[N];
	for (int i = 0; i < N; i++)
		weights[i] = i % 3 == 1 ? 0 : 0.1 * (i % 7 + 1) / 3;
	bt_alias alias;
	assert_ok(bt_alias_make(&alias, weights, N, err));
	for (uint64_t i = 0; i < N; i++) {
		assert_true(alias.keep[i] >= 0);
		assert_true(weights[i] > 0 || alias.keep[i] == 0);
		assert_true(alias.keep[i] >= 1 || weights[alias.other[i]] > 0);
	}
	bt_alias_free(&alias);
}

static void bad_weights_are_named(void **state)
{
	(void)state;
	const double bad[][3] = {{1, -1, 1}, {1, NAN, 1}, {1, INFINITY, 1}};
	beton_error err;
	bt_alias alias;
	for (size_t i = 0; i < 3; i++) {
		assert_int_equal(bt_alias_make(&alias, bad[i], 3, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "weights[1]"));
	}
	const double none[2] = {0, 0}, huge[2] = {1e308, 1e308};
	assert_int_equal(bt_alias_make(&alias, none, 2, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(bt_alias_make(&alias, huge, 2, &err), BETON_INVALID_ARGUMENT);
}

/* Without replacement: the first draw by the weights, and every later draw by the remaining weights. */
static void unique_draws_follow_the_weights(void **state)
{
	(void)state;
	enum { N = 5, EPOCHS = 60000 };
	const double weights[N] = {1, 2, 0, 3, 4};
	uint32_t pairs[N][N] = {{0}};
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
		uint32_t out[4];
		assert_ok(bt_draw_unique(out, 4, weights, N, bt_epoch_key(3, epoch), err));
		uint32_t seen = 0;
		for (int i = 0; i < 4; i++)
			seen |= 1u << out[i];
		assert_int_equal(seen, 27);
		pairs[out[0]][out[1]]++;
	}
	double chi = 0;
	for (int a = 0; a < N; a++)
		for (int b = 0; b < N; b++) {
			double expected = a == b ? 0 : EPOCHS * weights[a] / 10 * weights[b] / (10 - weights[a]);
			if (expected > 0)
				chi += pow(pairs[a][b] - expected, 2) / expected;
			else
				assert_int_equal(pairs[a][b], 0);
		}
	assert_true(chi < 35.6); /* 11 degrees of freedom, 99.98% */
}

/* ---- balanced ---- */

static void classes_come_equally_often(void **state)
{
	(void)state;
	/* Class -5: 3 samples, 7: 50, INT64_MAX: 1. */
	enum { N = 54 };
	int64_t values[N];
	for (int i = 0; i < N; i++)
		values[i] = i == 20 ? INT64_MAX : i % 18 == 0 ? -5 : 7;
	bt_balanced balanced;
	assert_ok(bt_balanced_make(&balanced, values, N, err));
	assert_int_equal(balanced.classes, 3);
	uint32_t of_class[3] = {0}, of_sample[N] = {0};
	for (uint64_t p = 0; p < 600; p++) {
		uint64_t entry = bt_balanced_at(&balanced, 11, p);
		assert_true(entry < N);
		of_sample[entry]++;
		of_class[values[entry] == -5 ? 0 : values[entry] == 7 ? 1 : 2]++;
		uint64_t rounds = p / 3;
		for (int c = 0; c < 3; c++)
			assert_true(of_class[c] >= rounds && of_class[c] <= rounds + 1);
	}
	for (int i = 0; i < N; i++) {
		uint32_t expected = values[i] == 7 ? 4 : values[i] == -5 ? 200 / 3 : 200;
		assert_true(of_sample[i] >= expected && of_sample[i] <= expected + 1);
	}
	assert_true(bt_balanced_at(&balanced, 11, UINT64_C(10000000000)) < N);
	bt_balanced_free(&balanced);
}

/* ---- mixed ---- */

static void sources_come_by_their_shares(void **state)
{
	(void)state;
	uint64_t first[] = {0, 100, 100, 1000, 1000 + UINT64_C(10000000000)};
	const double weights[] = {1, 0, 2, 5};
	bt_mixed mixed;
	assert_ok(bt_mixed_make(&mixed, first, weights, 4, err));
	uint32_t counts[4] = {0}, of_sample[100] = {0};
	const uint64_t begin = UINT64_C(160000) * BT_MIXED_CYCLE; /* position 10^10 and more */
	for (uint64_t p = begin; p < begin + BT_MIXED_CYCLE; p++) {
		uint64_t sample = bt_mixed_at(&mixed, 3, p);
		assert_true(sample < first[4]);
		uint32_t source = sample < 100 ? 0 : sample < 1000 ? 2 : 3;
		counts[source]++;
		if (source == 0)
			of_sample[sample]++;
	}
	assert_int_equal(counts[0], BT_MIXED_CYCLE / 8);
	assert_int_equal(counts[2], BT_MIXED_CYCLE / 4);
	assert_int_equal(counts[3], BT_MIXED_CYCLE / 8 * 5);
	/* 8192 draws of 100: 81.92 each, and passes are whole but for the first and the last. */
	for (int i = 0; i < 100; i++)
		assert_true(of_sample[i] >= 81 && of_sample[i] <= 83);
	bt_mixed_free(&mixed);
}

static void every_weight_gets_a_share(void **state)
{
	(void)state;
	uint64_t first[] = {0, 1, 2, 3};
	const double weights[] = {1, 1e-9, 1};
	bt_mixed mixed;
	assert_ok(bt_mixed_make(&mixed, first, weights, 3, err));
	assert_int_equal(mixed.share[3], BT_MIXED_CYCLE);
	assert_int_equal(mixed.share[2] - mixed.share[1], 1);
	bt_mixed_free(&mixed);
	const double bad[] = {1, -2, 1};
	beton_error fault;
	assert_int_equal(bt_mixed_make(&mixed, first, bad, 3, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "sources[1]"));
	uint64_t empty[] = {0, 1, 1, 3};
	assert_int_equal(bt_mixed_make(&mixed, empty, weights, 3, &fault), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(fault.message, "sources[1]"));
}

int main(int argc, char **argv)
{
	orders_path = argc > 1 ? argv[1] : NULL;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numpy_permutations_are_numpys),
		cmocka_unit_test(torch_permutations_are_pytorchs),
		cmocka_unit_test(torch_shards_are_pytorchs),
		cmocka_unit_test(an_exact_order_of_nothing_is_empty),
		cmocka_unit_test(a_permutation_is_found_backwards),
		cmocka_unit_test(quasi_random_is_a_permutation_by_windows),
		cmocka_unit_test(quasi_random_mixes_as_documented),
		cmocka_unit_test(quasi_random_reaches_far),
		cmocka_unit_test(the_last_run_has_no_fixed_place),
		cmocka_unit_test(weighted_draws_follow_the_weights),
		cmocka_unit_test(a_sample_without_weight_never_comes),
		cmocka_unit_test(bad_weights_are_named),
		cmocka_unit_test(unique_draws_follow_the_weights),
		cmocka_unit_test(classes_come_equally_often),
		cmocka_unit_test(sources_come_by_their_shares),
		cmocka_unit_test(every_weight_gets_a_share),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
