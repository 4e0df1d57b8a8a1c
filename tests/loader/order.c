/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <math.h>
#include <stdlib.h>

#include "loader/operations/random.h"
#include "loader/order/epochs.h"
#include "loader/order/permutation.h"
#include "loader/order/shard.h"
#include "loader/pixels/crop.h"

static void check_bijection(uint64_t n, uint64_t seed, uint64_t epoch)
{
	bt_permutation order = bt_permutation_make(n, bt_epoch_key(seed, epoch));
	uint8_t *seen = calloc(n + 1, 1);
	assert_non_null(seen);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t sample = bt_permutation_at(&order, i);
		assert_true(sample < n);
		assert_int_equal(seen[sample], 0);
		seen[sample] = 1;
	}
	free(seen);
}

static void random_order_is_a_permutation(void **state)
{
	(void)state;
	for (uint64_t n = 0; n <= 300; n++)
		check_bijection(n, n * 7, n % 5);
	const uint64_t sizes[] = {1023, 1024, 1025, 4095, 65536, 65537, 1000003};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		check_bijection(sizes[i], 1, i);
}

static void random_order_reaches_far(void **state)
{
	(void)state;
	const uint64_t n = UINT64_C(10000000019);
	bt_permutation order = bt_permutation_make(n, bt_epoch_key(3, 4));
	uint64_t last = bt_permutation_at(&order, n - 1);
	assert_true(last < n);
	double sum = 0;
	for (uint64_t i = 0; i < 10000; i++) {
		uint64_t sample = bt_permutation_at(&order, i * 1000000);
		assert_true(sample < n);
		sum += (double)sample / (double)n;
	}
	/* The mean of 10000 uniform numbers: 0.5 with a deviation of 0.0029. */
	assert_true(fabs(sum / 10000 - 0.5) < 0.015);
	order = bt_permutation_make(UINT64_MAX, bt_epoch_key(3, 4));
	assert_true(bt_permutation_at(&order, UINT64_MAX - 1) < UINT64_MAX);
}

/* Over many epochs each sample must come to each place equally often: chi-square over places, 99.99% bound. */
static void small_orders_are_uniform(void **state)
{
	(void)state;
	enum { N = 10, EPOCHS = 20000 };
	static uint32_t counts[N][N];
	for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
		bt_permutation order = bt_permutation_make(N, bt_epoch_key(42, epoch));
		for (uint64_t i = 0; i < N; i++)
			counts[i][bt_permutation_at(&order, i)]++;
	}
	for (int i = 0; i < N; i++) {
		double chi = 0;
		for (int j = 0; j < N; j++)
			chi += pow(counts[i][j] - (double)EPOCHS / N, 2) / ((double)EPOCHS / N);
		assert_true(chi < 33.7); /* 9 degrees of freedom */
	}
}

static void epochs_and_seeds_differ(void **state)
{
	(void)state;
	bt_permutation a, b, c;
	a = bt_permutation_make(100000, bt_epoch_key(1, 0));
	b = bt_permutation_make(100000, bt_epoch_key(1, 1));
	c = bt_permutation_make(100000, bt_epoch_key(2, 0));
	int same = 0, fixed = 0;
	for (uint64_t i = 0; i < 1000; i++) {
		same += bt_permutation_at(&a, i) == bt_permutation_at(&b, i);
		same += bt_permutation_at(&a, i) == bt_permutation_at(&c, i);
		fixed += bt_permutation_at(&a, i) == i;
	}
	assert_true(same < 5);
	assert_true(fixed < 5);
}

static void check_shards(uint64_t n, uint64_t start, uint32_t batch_size, uint32_t world_size, beton_last last)
{
	uint64_t window = (uint64_t)batch_size * world_size;
	uint64_t full = (n - start) / window * window;
	uint64_t end = last == BETON_LAST_DROP ? start + full : n;
	if (last == BETON_LAST_PAD && n - start > full)
		end = start + full + window;
	uint8_t *seen = calloc(end + 1, 1);
	uint64_t total = 0;
	for (uint32_t rank = 0; rank < world_size; rank++) {
		bt_shard shard = {.n = n,
				  .start = start,
				  .batch_size = batch_size,
				  .rank = rank,
				  .world_size = world_size,
				  .last = last};
		uint64_t batches = bt_shard_batches(&shard);
		if (last != BETON_LAST_SHORT)
			assert_int_equal(batches, (end - start) / window);
		for (uint64_t b = 0; b < batches; b++) {
			uint32_t count = bt_shard_count(&shard, b);
			assert_in_range(count, 1, batch_size);
			if (b + 1 < batches || last != BETON_LAST_SHORT)
				assert_int_equal(count, batch_size);
			for (uint32_t i = 0; i < count; i++) {
				uint64_t position = bt_shard_position(&shard, b, i);
				assert_in_range(position, start, end - 1);
				assert_int_equal(position % world_size, rank);
				assert_int_equal((position - start) / window, b);
				assert_int_equal(seen[position]++, 0);
				total++;
			}
		}
	}
	assert_int_equal(total, end - start);
	free(seen);
}

static void epochs_are_counted(void **state)
{
	(void)state;
	bt_shard rest = {.n = 100, .start = 70, .batch_size = 8, .world_size = 1, .last = BETON_LAST_SHORT};
	bt_epochs epochs = bt_epochs_make(&rest, 5, 3);
	const uint64_t begins[] = {0, 4, 17, 30};
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(bt_epochs_begin(&epochs, i), begins[i]);
		assert_int_equal(bt_epochs_end(&epochs, i), begins[i + 1]);
		assert_int_equal(bt_epochs_shard(&epochs, i)->start, i == 0 ? 70 : 0);
	}
	assert_int_equal(bt_epochs_batches(&epochs), 30);
	/* Without end: up to the last number that an epoch can have. */
	epochs = bt_epochs_make(&rest, 0, 0);
	assert_true(epochs.count == UINT64_MAX && bt_epochs_batches(&epochs) == UINT64_MAX);
	epochs = bt_epochs_make(&rest, UINT64_MAX - 1, 0);
	assert_true(epochs.count == 2 && bt_epochs_batches(&epochs) == 17);
	rest.n = (uint64_t)1 << 62;
	rest.batch_size = 1;
	epochs = bt_epochs_make(&rest, 0, 5);
	assert_true(bt_epochs_end(&epochs, 2) == 3 * rest.n - 70 && bt_epochs_batches(&epochs) == UINT64_MAX);
	/* Epochs without batches. */
	rest = (bt_shard){.n = 7, .start = 7, .batch_size = 8, .world_size = 1, .last = BETON_LAST_DROP};
	epochs = bt_epochs_make(&rest, 0, 0);
	assert_true(bt_epochs_batches(&epochs) == 0 && bt_epochs_end(&epochs, UINT64_MAX - 1) == 0);
}

/* Any number of ranks, and either order of a rank's parts: part p of window w has the same positions. */
static void parts_are_the_same_for_any_number_of_ranks(void **state)
{
	(void)state;
	enum { PARTS = 12, BATCH = 3, START = 5, WINDOWS = 4 };
	const uint32_t worlds[] = {1, 2, 3, 4, 6, 12};
	for (size_t w = 0; w < sizeof(worlds) / sizeof(worlds[0]); w++) {
		uint32_t world = worlds[w], own = PARTS / world;
		for (uint32_t rank = 0; rank < 2 * world; rank++) {
			bool in_turn = rank >= world;
			bt_shard shard = {.n = START + WINDOWS * PARTS * BATCH + 7,
					  .start = START,
					  .batch_size = BATCH,
					  .rank = rank % world,
					  .world_size = world,
					  .parts = PARTS,
					  .first_part = in_turn ? rank % world : rank * own,
					  .part_stride = in_turn ? world : 1,
					  .last = BETON_LAST_DROP};
			assert_int_equal(bt_shard_batches(&shard), WINDOWS * own);
			for (uint64_t b = 0; b < (uint64_t)WINDOWS * own; b++) {
				uint64_t window = b / own, i = b % own;
				uint64_t part = in_turn ? i * world + rank % world : rank * own + i;
				uint64_t first = START + (window * PARTS + part) * BATCH;
				assert_int_equal(bt_shard_window(&shard, b), START + window * PARTS * BATCH);
				assert_int_equal(bt_shard_count(&shard, b), BATCH);
				for (uint32_t k = 0; k < BATCH; k++)
					assert_int_equal(bt_shard_position(&shard, b, k), first + k);
			}
		}
	}
}

static void shards_partition_the_positions(void **state)
{
	(void)state;
	const uint32_t worlds[] = {1, 2, 3, 7, 8};
	const uint64_t sizes[] = {0, 1, 5, 63, 64, 65, 500, 1009};
	for (size_t w = 0; w < 5; w++)
		for (size_t s = 0; s < 8; s++)
			for (uint32_t batch = 1; batch <= 33; batch += 8)
				for (uint64_t start = 0; start <= sizes[s]; start += 1 + sizes[s] / 5) {
					for (int last = 0; last <= BETON_LAST_PAD; last++)
						check_shards(sizes[s], start, batch, worlds[w], (beton_last)last);
				}
}

static void draws_are_uniform_and_independent_of_order(void **state)
{
	(void)state;
	double sum = 0, square = 0;
	enum { N = 20000 };
	for (uint64_t sample = 0; sample < N; sample++) {
		bt_random random = {.seed = 1, .sample = sample, .operation = BT_OPERATION_FLIP};
		double value = bt_random_uniform(&random, -1, 1);
		assert_true(value >= -1 && value < 1);
		sum += value;
		square += value * value;
	}
	assert_true(fabs(sum / N) < 0.02);
	assert_true(fabs(square / N - 1.0 / 3) < 0.02);
	/* Each part of the key counts. */
	bt_random keys[] = {{.seed = 1},      {.seed = 2}, {.epoch = 1}, {.sample = 1},
			    {.operation = 1}, {.view = 1}, {.draw = 1}};
	double seen[7];
	for (int i = 0; i < 7; i++) {
		seen[i] = bt_random_uniform(&keys[i], 0, 1);
		for (int j = 0; j < i; j++)
			assert_true(seen[i] != seen[j]);
	}
}

static void random_crops_are_inside_and_fair(void **state)
{
	(void)state;
	const double scale[2] = {0.08, 1}, ratio[2] = {3.0 / 4, 4.0 / 3};
	double area = 0, x = 0;
	enum { N = 20000 };
	for (uint64_t sample = 0; sample < N; sample++) {
		bt_random random = {.sample = sample};
		bt_rect crop = bt_crop_random(500, 375, scale, ratio, &random);
		assert_true(crop.width >= 1 && crop.height >= 1);
		assert_true(crop.x + crop.width <= 500 && crop.y + crop.height <= 375);
		area += crop.width * (double)crop.height / (500 * 375);
		x += crop.width < 500 ? crop.x / (500.0 - crop.width) : 0.5;
		double shape = (double)crop.width / crop.height;
		assert_true(shape > 0.74 && shape < 1.35);
	}
	/* An independent simulation of torchvision's loop gives 0.433: large areas of extreme ratio do not fit. */
	assert_true(fabs(area / N - 0.433) < 0.01);
	assert_true(fabs(x / N - 0.5) < 0.01);
}

static void odd_pictures_get_a_crop(void **state)
{
	(void)state;
	const double scale[2] = {0.9, 1}, ratio[2] = {3.0 / 4, 4.0 / 3}, extreme[2] = {1e-3, 1e3};
	const uint32_t sizes[][2] = {{1, 1}, {1, 500}, {500, 1}, {2, 65535}, {65535, 65535}, {1000, 10}};
	for (size_t i = 0; i < 6; i++)
		for (uint64_t sample = 0; sample < 200; sample++) {
			bt_random random = {.sample = sample};
			uint32_t width = sizes[i][0], height = sizes[i][1];
			bt_rect crop = bt_crop_random(width, height, scale, sample % 2 ? ratio : extreme, &random);
			assert_true(crop.width >= 1 && crop.width <= width && crop.x <= width - crop.width);
			assert_true(crop.height >= 1 && crop.height <= height && crop.y <= height - crop.height);
		}
	/* torchvision's fallback: too wide a picture gives its centre at the largest ratio. */
	bt_random random = {0};
	bt_rect crop = bt_crop_random(1000, 10, scale, ratio, &random);
	assert_int_equal(crop.width, 13);
	assert_int_equal(crop.height, 10);
	assert_int_equal(crop.x, 493);
	crop = bt_crop_random(10, 1000, scale, ratio, &random);
	assert_int_equal(crop.height, 13);
	assert_int_equal(crop.y, 493);
}

static void centre_crop_is_ffcvs(void **state)
{
	(void)state;
	bt_rect crop = bt_crop_center(500, 375, 224.0 / 256);
	assert_int_equal(crop.width, 328);
	assert_int_equal(crop.height, 328);
	assert_int_equal(crop.x, 86);
	assert_int_equal(crop.y, 23);
	crop = bt_crop_center(1, 9, 0.1);
	assert_int_equal(crop.width, 1);
	assert_int_equal(crop.y, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_order_is_a_permutation),
		cmocka_unit_test(random_order_reaches_far),
		cmocka_unit_test(small_orders_are_uniform),
		cmocka_unit_test(epochs_and_seeds_differ),
		cmocka_unit_test(shards_partition_the_positions),
		cmocka_unit_test(parts_are_the_same_for_any_number_of_ranks),
		cmocka_unit_test(epochs_are_counted),
		cmocka_unit_test(draws_are_uniform_and_independent_of_order),
		cmocka_unit_test(random_crops_are_inside_and_fair),
		cmocka_unit_test(odd_pictures_get_a_crop),
		cmocka_unit_test(centre_crop_is_ffcvs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
