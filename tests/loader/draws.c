/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws, number for number: the same with any libm, compiler and machine. If these numbers change, every user's
 * augmentation does. */
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "common/elementary.h"
#include "loader/operations/mix.h"
#include "loader/operations/operations.h"
#include "loader/order/order_weighted.h"

enum { DRAWS = 20000, SIDE = 24 };

/* Numbers that are to be hashed, in their order. */
typedef struct numbers {
	XXH3_state_t *state;
} numbers;

static numbers begin(void)
{
	numbers self = {XXH3_createState()};
	assert_non_null(self.state);
	XXH3_64bits_reset(self.state);
	return self;
}

static void add(numbers *self, const void *data, size_t bytes)
{
	XXH3_64bits_update(self->state, data, bytes);
}

static void check(numbers *self, const char *name, uint64_t expected)
{
	uint64_t hash = XXH3_64bits_digest(self->state);
	XXH3_freeState(self->state);
	if (hash != expected)
		fail_msg("%s: the hash is 0x%016llx, not 0x%016llx", name, (unsigned long long)hash,
			 (unsigned long long)expected);
}

static bt_random stream(uint64_t sample, uint32_t operation)
{
	return (bt_random){.seed = 7, .epoch = 3, .sample = sample, .operation = operation};
}

/* Distance in units of the last place of a number that is right to more digits than a double has. */
static double distance(double x, long double right)
{
	double near = (double)right;
	return (double)fabsl((long double)x - right) / (nextafter(fabs(near), INFINITY) - fabs(near));
}

static void functions_are_exact_to_two_units(void **state)
{
	(void)state;
	numbers all = begin();
	double worst[4] = {0};
	for (uint64_t i = 0; i < DRAWS; i++) {
		bt_random random = stream(i, 1);
		double wide = bt_random_uniform(&random, -740, 709), narrow = bt_random_uniform(&random, -1, 1);
		double above = bt_exp(wide), near = 1 + narrow / 1024, turns = bt_random_uniform(&random, -2, 2);
		double results[] = {above, bt_exp(narrow), bt_log(near), bt_log(2 + narrow), 0, 0};
		bt_sin_cos(turns, &results[4], &results[5]);
		add(&all, results, sizeof(results));
		if (wide > -700) /* below, a double has fewer digits */
			worst[0] = fmax(worst[0], distance(above, expl(wide)));
		worst[0] = fmax(worst[0], distance(results[1], expl(narrow)));
		worst[1] = fmax(worst[1], distance(results[2], logl(near)));
		worst[1] = fmax(worst[1], distance(results[3], logl(2 + narrow)));
		worst[2] = fmax(worst[2], fabs(results[4] - (double)sinl(turns * 2 * acosl(-1))));
		worst[3] = fmax(worst[3], fabs(results[5] - (double)cosl(turns * 2 * acosl(-1))));
	}
	/* For sine and cosine the absolute error counts. */
	if (worst[0] > 2 || worst[1] > 2 || worst[2] > 0x1p-52 || worst[3] > 0x1p-52)
		fail_msg("exp is off by %g units, log by %g, sin by %g, cos by %g", worst[0], worst[1], worst[2],
			 worst[3]);
	check(&all, "functions", UINT64_C(0x36f1fa81ba718148));
}

static void functions_have_their_limits(void **state)
{
	(void)state;
	double sine, cosine;
	assert_true(bt_log(1) == 0);
	assert_true(bt_exp(0) == 1);
	assert_true(bt_exp(1000) == INFINITY && bt_exp(INFINITY) == INFINITY);
	assert_true(bt_exp(-1000) == 0 && bt_exp(-INFINITY) == 0);
	assert_true(bt_log(0x1p-1074) < -744.4 && bt_log(0x1.fffffffffffffp1023) > 709.7);
	static const double exact[8][2] = {{0, 1}, {1, 0}, {0, -1}, {-1, 0}};
	for (int quarter = -8; quarter <= 8; quarter++) {
		bt_sin_cos(quarter / 4.0, &sine, &cosine);
		assert_true(sine == exact[quarter & 3][0] && cosine == exact[quarter & 3][1]);
	}
}

static void crops(void **state)
{
	(void)state;
	static const double scales[][2] = {{0.08, 1}, {0.35, 1}, {1e-6, 0.01}},
			    ratios[][2] = {{3. / 4, 4. / 3}, {0.1, 9}};
	static const bt_rect first[] = {{2, 2, 18, 17}, {3, 4, 16, 12}, {0, 4, 20, 18}, {0, 0, 23, 23}};
	numbers all = begin();
	for (uint32_t i = 0; i < DRAWS; i++) {
		bt_random random = stream(i, BT_OPERATION_CROP);
		bt_rect crop = bt_crop_random(20 + i % 997, 20 + i % 1009, scales[i / 2 % 3], ratios[i % 2], &random);
		add(&all, &crop, sizeof(crop));
		if (i < sizeof(first) / sizeof(*first) && memcmp(&crop, &first[i], sizeof(crop)) != 0)
			fail_msg("crop %u is {%u, %u, %u, %u}", i, crop.x, crop.y, crop.width, crop.height);
	}
	check(&all, "crops", UINT64_C(0xa2cb6fdd95fcfde6));
}

static void mixes(void **state)
{
	(void)state;
	static const double alphas[] = {1e-3, 0.1, 0.2, 0.4, 1, 1.5, 8, 1000};
	static const uint32_t first[] = {16384, 0, 689, 14094, 9512, 8967, 10040, 8101};
	numbers all = begin();
	for (uint32_t i = 0; i < DRAWS; i++) {
		bt_random random = stream(i, BT_OPERATION_BATCH);
		uint32_t lambda = bt_mix_lambda(alphas[i % 8], &random);
		bt_mix_box box = bt_mix_draw_box(224, 160 + i % 99, lambda, &random);
		add(&all, &lambda, sizeof(lambda));
		add(&all, &box, sizeof(box));
		if (i < 8 && lambda != first[i])
			fail_msg("lambda of alpha %g is %u / %d, not %u", alphas[i], lambda, BT_MIX_ONE, first[i]);
	}
	check(&all, "mixes", UINT64_C(0x0f4448763d87d336));
}

/* From the least alpha on: one picture or the other, each in half of the draws. */
static void mixes_of_the_least_alpha(void **state)
{
	(void)state;
	uint32_t ones = 0;
	for (uint32_t i = 0; i < 1000; i++) {
		bt_random random = stream(i, BT_OPERATION_BATCH);
		uint32_t lambda = bt_mix_lambda(0x1p-1074, &random);
		assert_true(lambda == 0 || lambda == BT_MIX_ONE);
		ones += lambda > 0;
	}
	assert_in_range(ones, 400, 600);
}

/* One operation on pictures of noise: the numbers drawn, and the pixels. */
static void add_operation(numbers *all, const beton_operation *operation)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.image.operations = operation;
	options.image.num_operations = 1;
	bt_canvas canvas = {0};
	for (uint64_t i = 0; i < 200; i++) {
		double drawn[BT_DRAWN];
		const bt_random random = stream(i, 0);
		assert_ok(bt_canvas_begin(&canvas, SIDE, SIDE, 3, 1, err));
		for (uint32_t y = 0; y < SIDE; y++)
			for (uint32_t x = 0; x < SIDE; x++)
				for (uint32_t c = 0; c < 3; c++)
					canvas.image.data[(y * SIDE + x) * 3 + c] = fixture_pixel(i, x, y, c);
		assert_ok(bt_canvas_apply(&canvas, &options.image, &random, drawn, err));
		add(all, drawn, sizeof(drawn));
		add(all, canvas.image.data, bt_image_bytes(&canvas.image));
	}
	bt_canvas_free(&canvas);
}

static void operations(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		beton_operation_kind kind;
		double range[2];
		uint32_t size;
		uint64_t hash;
	} cases[] = {
		{"TRANSLATE", BETON_TRANSLATE, {0}, 4, UINT64_C(0xd128da4033a99f9a)},
		{"ROTATE", BETON_ROTATE, {-180, 180}, 0, UINT64_C(0x2bdb1e87d9aa3b0f)},
		{"CUTOUT", BETON_CUTOUT, {0}, 6, UINT64_C(0xf958baaa32f4f3af)},
		{"ERASE", BETON_ERASE, {0.02, 0.33}, 0, UINT64_C(0xcaa7e1de311709f8)},
		{"BRIGHTNESS", BETON_BRIGHTNESS, {0.5, 1.5}, 0, UINT64_C(0x105e3232c4bc17a1)},
		{"CONTRAST", BETON_CONTRAST, {0.5, 1.5}, 0, UINT64_C(0x5d2aed5c42065977)},
		{"SATURATION", BETON_SATURATION, {0.5, 1.5}, 0, UINT64_C(0xc9b3a63732449ccf)},
		{"HUE", BETON_HUE, {-0.5, 0.5}, 0, UINT64_C(0x84682b478c3fa53e)},
		{"COLOR_JITTER", BETON_COLOR_JITTER, {0}, 0, UINT64_C(0x9b8bf0f3e7279427)},
		{"SHARPNESS", BETON_SHARPNESS, {0, 2}, 0, UINT64_C(0x48962253b8647b55)},
		{"BLUR", BETON_BLUR, {0.1, 4}, 9, UINT64_C(0xd018fb49c16bba5c)},
		{"RAND_AUGMENT", BETON_RAND_AUGMENT, {0}, 9, UINT64_C(0xdecf63593d7f2146)},
		{"TRIVIAL_AUGMENT", BETON_TRIVIAL_AUGMENT, {0}, 0, UINT64_C(0x0af093b832d28327)},
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		beton_operation operation;
		numbers all = begin();
		beton_loader_operation_init(&operation, cases[i].kind);
		memcpy(operation.range, cases[i].range, sizeof(operation.range));
		operation.size = cases[i].size;
		operation.noise = cases[i].kind == BETON_ERASE;
		operation.bilinear = cases[i].kind == BETON_ROTATE;
		for (int j = 0; j < 4; j++)
			operation.jitter[j] = 0.4;
		add_operation(&all, &operation);
		check(&all, cases[i].name, cases[i].hash);
	}
}

static void rotations(void **state)
{
	(void)state;
	numbers all = begin();
	for (uint32_t i = 0; i < DRAWS; i++) {
		bt_random random = stream(i, BT_OPERATION_USER);
		double matrix[6];
		bt_op_rotation(matrix, 1 + i % 300, 1 + i % 200, bt_random_uniform(&random, -360, 360));
		add(&all, matrix, sizeof(matrix));
	}
	check(&all, "rotations", UINT64_C(0x17f2978b9c452d90));
}

static void draws_without_replacement(void **state)
{
	(void)state;
	double weights[DRAWS];
	static uint32_t drawn[DRAWS];
	for (uint32_t i = 0; i < DRAWS; i++)
		weights[i] = 1 + i % 7;
	assert_ok(bt_draw_unique(drawn, DRAWS, weights, DRAWS, 5, err));
	numbers all = begin();
	add(&all, drawn, sizeof(drawn));
	check(&all, "draws without replacement", UINT64_C(0x932946df767c1b18));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(functions_are_exact_to_two_units),
		cmocka_unit_test(functions_have_their_limits),
		cmocka_unit_test(crops),
		cmocka_unit_test(mixes),
		cmocka_unit_test(mixes_of_the_least_alpha),
		cmocka_unit_test(operations),
		cmocka_unit_test(rotations),
		cmocka_unit_test(draws_without_replacement),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
