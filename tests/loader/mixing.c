/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on whole batches: mixup and cutmix against what they are defined as, for every type and layout of
 * pictures, and the user's own. */
#include "fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/half.h"
#include "loader/operations/batch_operations_check.h"
#include "loader/operations/mix.h"

enum { SAMPLES = 23, BATCH = 8, WIDTH = 16, HEIGHT = 12, IMAGE = WIDTH * HEIGHT * 3 };

/* Everything that an epoch delivers, by place in it. */
typedef struct epoch {
	uint64_t ids[SAMPLES];
	int64_t label[SAMPLES];
	int64_t mixed[SAMPLES];
	double weight_mixed[SAMPLES];
	float lambda[SAMPLES];
	int64_t partner[SAMPLES]; /* place in the epoch */
	int32_t box[SAMPLES][4];
	uint8_t pixels[SAMPLES][IMAGE * 4];
	size_t image_bytes;
} epoch;

static void keep(epoch *out, const beton_batch *batch, uint32_t at)
{
	const beton_tensor *image = fixture_look(batch, "image");
	uint32_t n = batch->count;
	size_t bytes = out->image_bytes;
	memcpy(out->ids + at, batch->sample_ids, n * sizeof(out->ids[0]));
	memcpy(out->label + at, fixture_look(batch, "label")->data, n * sizeof(out->label[0]));
	for (uint32_t i = 0; i < n; i++)
		memcpy(out->pixels[at + i], (const char *)image->data + i * bytes, bytes);
	if (!fixture_look(batch, "image.lambda"))
		return;
	memcpy(out->mixed + at, fixture_look(batch, "label.mixed")->data, n * sizeof(out->mixed[0]));
	memcpy(out->weight_mixed + at, fixture_look(batch, "weight.mixed")->data, n * sizeof(out->weight_mixed[0]));
	memcpy(out->lambda + at, fixture_look(batch, "image.lambda")->data, n * sizeof(out->lambda[0]));
	for (uint32_t i = 0; i < n; i++)
		out->partner[at + i] = at + ((const int64_t *)fixture_look(batch, "image.partner")->data)[i];
	if (fixture_look(batch, "image.box"))
		memcpy(out->box + at, fixture_look(batch, "image.box")->data, n * sizeof(out->box[0]));
}

/* Epoch 3 from batch `first` on; on the heap. */
static epoch *load_from(const char *path, const beton_loader_options *options, uint32_t first)
{
	epoch *out = calloc(1, sizeof(*out));
	assert_non_null(out);
	out->image_bytes = IMAGE * fixture_element_bytes(options->image.dtype);
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	assert_ok(beton_loader_open(&loader, path, options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 3, first * BATCH, err));
	uint32_t at = first * BATCH;
	for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;) {
		keep(out, batch, at);
		at += batch->count;
		beton_batch_release(&batch);
	}
	assert_int_equal(at, SAMPLES);
	fixture_close(&loader, &iterator);
	return out;
}

static epoch *load(const char *path, const beton_loader_options *options)
{
	return load_from(path, options, 0);
}

static beton_loader_options make_options(const beton_batch_operation *operations, uint32_t count)
{
	beton_loader_options options = fixture_options(BATCH, 2);
	options.order = BETON_ORDER_RANDOM;
	options.batch_operations = operations;
	options.num_batch_operations = count;
	return options;
}

static uint16_t element16(const uint8_t *image, uint32_t i)
{
	uint16_t value;
	memcpy(&value, image + 2 * (size_t)i, 2);
	return value;
}

static float element32(const uint8_t *image, uint32_t i)
{
	float value;
	memcpy(&value, image + 4 * (size_t)i, 4);
	return value;
}

/* Element i as it must be, out of two that are not mixed. */
static void check_mixed(beton_dtype dtype, const uint8_t *got, const uint8_t *own, const uint8_t *other, double lambda,
			uint32_t i)
{
	float l = (float)lambda;
	if (dtype == BETON_UINT8)
		assert_int_equal(got[i], (int)floor(own[i] * lambda + other[i] * (1 - lambda) + 0.5));
	else if (dtype == BETON_FLOAT32)
		assert_true(element32(got, i) == element32(own, i) * l + element32(other, i) * (1 - l));
	else if (dtype == BETON_FLOAT16)
		assert_int_equal(element16(got, i), bt_float16(bt_widen_float16(element16(own, i)) * l +
							       bt_widen_float16(element16(other, i)) * (1 - l)));
	else
		assert_int_equal(element16(got, i), bt_bfloat16(bt_widen_bfloat16(element16(own, i)) * l +
								bt_widen_bfloat16(element16(other, i)) * (1 - l)));
}

/* Whether element i lies in the box. */
static bool inside(const beton_image_options *image, const int32_t box[4], int i)
{
	int x = image->layout == BETON_NCHW ? i % WIDTH : i / 3 % WIDTH;
	int y = image->layout == BETON_NCHW ? i / WIDTH % HEIGHT : i / 3 / WIDTH;
	return x >= box[0] && x < box[0] + box[2] && y >= box[1] && y < box[1] + box[3];
}

static void check_row(const beton_loader_options *options, const epoch *plain, const epoch *mixed, int row)
{
	beton_dtype dtype = options->image.dtype;
	size_t size = fixture_element_bytes(dtype);
	bool cut = options->batch_operations[0].kind == BETON_BATCH_CUTMIX;
	int64_t partner = mixed->partner[row];
	const uint8_t *got = mixed->pixels[row], *own = plain->pixels[row], *other = plain->pixels[partner];
	assert_true(partner / BATCH == row / BATCH && partner >= 0 && partner < SAMPLES);
	assert_int_equal(mixed->label[row], plain->label[row]);
	assert_int_equal(mixed->mixed[row], plain->label[partner]);
	assert_true(mixed->weight_mixed[row] == (double)plain->ids[partner] / 2);
	const int32_t *box = mixed->box[row];
	for (int i = 0; i < IMAGE; i++) {
		if (!cut)
			check_mixed(dtype, got, own, other, (double)mixed->lambda[row], (uint32_t)i);
		else
			assert_memory_equal(got + (size_t)i * size,
					    (inside(&options->image, box, i) ? other : own) + (size_t)i * size, size);
	}
	if (cut)
		assert_true(mixed->lambda[row] == (float)(1 - box[2] * box[3] / (double)(WIDTH * HEIGHT)));
}

/* Partners of each batch are one ring, so that no sample is its own partner. */
static void check_ring(const epoch *e)
{
	for (uint32_t begin = 0; begin < SAMPLES; begin += BATCH) {
		uint32_t count = SAMPLES - begin < BATCH ? SAMPLES - begin : BATCH, steps = 0;
		int64_t row = begin;
		do {
			row = e->partner[row];
			steps++;
		} while (row != begin && steps <= BATCH);
		assert_int_equal(steps, count);
	}
}

static void check_format(const char *path, beton_batch_operation_kind kind, bool per_sample, beton_dtype dtype,
			 beton_layout layout)
{
	beton_batch_operation operation;
	beton_loader_batch_operation_init(&operation, kind);
	operation.per_sample = per_sample;
	beton_loader_options options = make_options(&operation, 1);
	options.image.dtype = dtype;
	options.image.layout = layout;
	options.image.normalize = dtype != BETON_UINT8;
	epoch *mixed = load(path, &options);
	options.num_batch_operations = 0;
	epoch *plain = load(path, &options);
	options.num_batch_operations = 1;
	check_ring(mixed);
	int lambdas = 0;
	for (int row = 0; row < SAMPLES; row++) {
		check_row(&options, plain, mixed, row);
		lambdas += row % BATCH && mixed->lambda[row] != mixed->lambda[row - 1];
	}
	assert_true(per_sample ? lambdas > 10 : lambdas == 0);
	assert_memory_not_equal(mixed->pixels, plain->pixels, sizeof(mixed->pixels));
	free(mixed);
	free(plain);
}

static void every_format_is_mixed_as_defined(void **state)
{
	(void)state;
	static const beton_dtype dtypes[] = {BETON_UINT8, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	char *path = fixture_write(SAMPLES, -1);
	for (int i = 0; i < 4; i++)
		for (int bits = 0; bits < 8; bits++)
			check_format(path, bits & 1 ? BETON_BATCH_CUTMIX : BETON_BATCH_MIXUP, bits & 2, dtypes[i],
				     bits & 4 ? BETON_NCHW : BETON_NHWC);
	fixture_remove(path);
}

/* Parts of pictures, and sizes that vectors do not divide: as without vector units, and as mixed in one piece. */
static void large_pictures_are_mixed_in_parts(void **state)
{
	(void)state;
	enum { COUNT = 3, BYTES = 7 * 1201 * 3 * 4 };
	static const beton_dtype dtypes[] = {BETON_UINT8, BETON_FLOAT32, BETON_FLOAT16, BETON_BFLOAT16};
	static uint8_t original[COUNT][BYTES], wide[COUNT][BYTES], plain[COUNT][BYTES];
	static const int64_t partner[COUNT] = {2, 0, 1};
	static const float lambda[COUNT] = {0.25f, 1, (float)77 / BT_MIX_ONE};
	for (size_t i = 0; i < 4; i++) {
		size_t size = fixture_element_bytes(dtypes[i]);
		/* Every byte is a part of finite numbers alone. */
		for (int k = 0; k < COUNT * BYTES; k++)
			original[k / BYTES][k % BYTES] =
				(uint8_t)((uint32_t)k * 2654435761u >> 24 & (k % 2 ? 0x3b : 0xff));
		memcpy(wide, original, sizeof(wide));
		memcpy(plain, original, sizeof(plain));
		bt_mix_images images = {.data = wide,
					.dtype = dtypes[i],
					.stride = BYTES,
					.rows = 7,
					.height = 7,
					.width = 1201,
					.pixel_bytes = 3 * size,
					.count = COUNT,
					.partner = partner};
		bt_mix_up(&images, lambda, false);
		images.data = plain;
		bt_mix_up(&images, lambda, true);
		assert_memory_equal(wide, plain, sizeof(wide));
		assert_memory_equal(wide[1], original[1], BYTES);
		for (uint32_t k = 0; k < 7 * 1201 * 3; k++)
			check_mixed(dtypes[i], wide[0], original[0], original[2], 0.25, k);

		static const bt_mix_box boxes[COUNT] = {{1, 2, 1200, 3}, {0, 0, 0, 0}, {5, 0, 90, 7}};
		memcpy(wide, original, sizeof(wide));
		images.data = wide;
		bt_mix_cut(&images, boxes);
		for (size_t row = 0; row < COUNT; row++)
			for (size_t k = 0; k < 7 * 1201 * 3 * size; k++) {
				int x = (int)(k / size / 3 % 1201), y = (int)(k / size / 3 / 1201);
				const bt_mix_box *b = &boxes[row];
				bool in = x >= b->x && x < b->x + b->width && y >= b->y && y < b->y + b->height;
				assert_int_equal(wide[row][k], original[in ? (size_t)partner[row] : row][k]);
			}
	}
}

/* The first two moments of Beta(alpha, alpha), and of the share that a box covers. */
static void lambda_is_distributed_as_it_should(void **state)
{
	(void)state;
	static const double alphas[] = {0.1, 0.4, 1, 3, 200};
	enum { DRAWS = 20000 };
	for (size_t i = 0; i < sizeof(alphas) / sizeof(alphas[0]); i++) {
		bt_random random = {.seed = 5, .operation = BT_OPERATION_BATCH};
		double sum = 0, squares = 0;
		for (int k = 0; k < DRAWS; k++) {
			double value = bt_mix_lambda(alphas[i], &random) / (double)BT_MIX_ONE;
			assert_true(value >= 0 && value <= 1);
			sum += value;
			squares += (value - 0.5) * (value - 0.5);
		}
		double variance = 1 / (4 * (2 * alphas[i] + 1));
		assert_true(fabs(sum / DRAWS - 0.5) < 4 * sqrt(variance / DRAWS));
		assert_true(fabs(squares / DRAWS / variance - 1) < 0.04);
	}
	bt_random random = {.seed = 5};
	for (int k = 0; k < 1000; k++) {
		bt_mix_box box = bt_mix_draw_box(31, 57, (uint32_t)(BT_MIX_ONE * 3 / 4), &random);
		/* Half of each side, without what lies outside. */
		assert_true(box.x >= 0 && box.y >= 0 && box.width >= 7 && box.width <= 14 && box.height >= 14 &&
			    box.height <= 28 && box.x + box.width <= 31 && box.y + box.height <= 57);
	}
}

static void results_do_not_depend_on_threads(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_batch_operation operations[2];
	beton_loader_batch_operation_init(&operations[0], BETON_BATCH_MIXUP);
	beton_loader_batch_operation_init(&operations[1], BETON_BATCH_CUTMIX);
	operations[0].probability = operations[1].probability = 0.5;
	beton_loader_options options = make_options(operations, 2);
	epoch *expected = load(path, &options);
	static const uint32_t threads[] = {1, 5};
	for (int i = 0; i < 2; i++) {
		options.num_threads = threads[i];
		options.engine = i ? BETON_ENGINE_MMAP : BETON_ENGINE_THREADS;
		epoch *again = load(path, &options);
		assert_memory_equal(again, expected, sizeof(*again));
		free(again);
	}
	/* Resumed after the first batch. */
	epoch *rest = load_from(path, &options, 1);
	assert_memory_equal(rest->pixels + BATCH, expected->pixels + BATCH, sizeof(rest->pixels) - BATCH * IMAGE * 4);
	assert_memory_equal(rest->partner + BATCH, expected->partner + BATCH, (SAMPLES - BATCH) * sizeof(int64_t));
	free(rest);
	options.seed++;
	epoch *other = load(path, &options);
	assert_memory_not_equal(other->lambda, expected->lambda, sizeof(other->lambda));
	free(other);
	free(expected);
	fixture_remove(path);
}

/* About a third of many batches is mixed, a third is cut, and the rest is left alone and says so. */
static void one_operation_at_most_mixes_a_batch(void **state)
{
	(void)state;
	enum { EPOCHS = 40 };
	char *path = fixture_write(SAMPLES, -1);
	beton_batch_operation operations[2];
	beton_loader_batch_operation_init(&operations[0], BETON_BATCH_MIXUP);
	beton_loader_batch_operation_init(&operations[1], BETON_BATCH_CUTMIX);
	operations[0].probability = operations[1].probability = 1.0 / 3;
	/* Lambda is close to a half, so that a box has an area. */
	operations[0].alpha = operations[1].alpha = 1000;
	beton_loader_options options = make_options(operations, 2);
	beton_loader *loader;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	int batches = 0, left = 0, cut = 0;
	for (uint64_t e = 0; e < EPOCHS; e++) {
		beton_iterator *iterator = NULL;
		assert_ok(beton_iterator_open(&iterator, loader, e, 0, err));
		for (beton_batch *batch; beton_iterator_next(iterator, &batch, -1, NULL) == BETON_OK;) {
			float lambda = *(const float *)fixture_look(batch, "image.lambda")->data;
			const int32_t *box = fixture_look(batch, "image.box")->data;
			const int64_t *partner = fixture_look(batch, "image.partner")->data;
			batches++;
			left += lambda == 1;
			cut += box[2] > 0;
			for (uint32_t i = 0; lambda == 1 && i < batch->count; i++)
				assert_int_equal(partner[i], i);
			if (lambda == 1)
				assert_memory_equal(fixture_look(batch, "label")->data,
						    fixture_look(batch, "label.mixed")->data,
						    batch->count * sizeof(int64_t));
			beton_batch_release(&batch);
		}
		beton_iterator_close(&iterator);
	}
	assert_int_equal(batches, EPOCHS * 3);
	assert_in_range(left, batches / 5, batches / 2);
	assert_in_range(cut, batches / 5, batches / 2);
	beton_loader_close(&loader);
	fixture_remove(path);
}

static void batches_of_one_keep_their_picture(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	beton_batch_operation operation;
	beton_loader_batch_operation_init(&operation, BETON_BATCH_MIXUP);
	beton_loader_options options = make_options(&operation, 1);
	options.batch_size = 1;
	epoch *mixed = load(path, &options);
	options.num_batch_operations = 0;
	epoch *plain = load(path, &options);
	assert_memory_equal(mixed->pixels, plain->pixels, sizeof(plain->pixels));
	assert_memory_equal(mixed->mixed, plain->label, sizeof(plain->label));
	free(mixed);
	free(plain);
	fixture_remove(path);
}

/* Rows of samples that were left out do not take part. */
static void samples_left_out_are_no_partners(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, 9);
	beton_batch_operation operation;
	beton_loader_batch_operation_init(&operation, BETON_BATCH_MIXUP);
	beton_loader_options options = make_options(&operation, 1);
	options.batch_size = SAMPLES;
	options.on_error = BETON_ON_ERROR_SKIP;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 0, 0, err));
	assert_ok(beton_iterator_next(iterator, &batch, -1, err));
	assert_int_equal(batch->count, SAMPLES - 1);
	const int64_t *partner = fixture_look(batch, "image.partner")->data;
	const int64_t *mixed = fixture_look(batch, "label.mixed")->data;
	int64_t row = 0;
	for (uint32_t i = 0; i < batch->count; i++) {
		assert_int_equal(mixed[row], batch->sample_ids[partner[row]] * 3);
		assert_int_not_equal(mixed[row], 27);
		row = partner[row];
		assert_true((row == 0) == (i == batch->count - 1));
	}
	beton_batch_release(&batch);
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

/* Writes a number into the labels; fails for the batch at the position that context points to. */
static int stamp(const beton_batch_call *call)
{
	if (call->batch->position == *(const uint64_t *)call->context)
		return 42;
	int64_t *label = fixture_look(call->batch, "label")->data;
	for (uint32_t i = 0; i < call->batch->count; i++)
		label[i] = (int64_t)(call->random[0] ^ call->random[1]);
	return 0;
}

static void custom_operations_are_called(void **state)
{
	(void)state;
	char *path = fixture_write(SAMPLES, -1);
	uint64_t refused = UINT64_MAX;
	beton_batch_operation operations[2];
	beton_loader_batch_operation_init(&operations[0], BETON_BATCH_CUSTOM);
	operations[0].apply = stamp;
	operations[0].context = &refused;
	beton_loader_batch_operation_init(&operations[1], BETON_BATCH_MIXUP);
	beton_loader_options options = make_options(operations, 2);
	epoch *one = load(path, &options);
	options.num_threads = 1;
	epoch *two = load(path, &options);
	assert_memory_equal(one, two, sizeof(*one));
	assert_int_equal(one->label[0], one->label[BATCH - 1]);
	assert_int_not_equal(one->label[0], one->label[BATCH]);
	/* A later operation of the list sees the results of earlier ones. */
	assert_memory_equal(one->label, one->mixed, sizeof(one->label));
	free(one);
	free(two);

	refused = BATCH;
	beton_loader *loader;
	beton_iterator *iterator = NULL;
	beton_batch *batch;
	assert_ok(beton_loader_open(&loader, path, &options, err));
	assert_ok(beton_iterator_open(&iterator, loader, 3, 0, err));
	beton_error err;
	int result, failures = 0, good = 0;
	while ((result = beton_iterator_next(iterator, &batch, -1, &err)) != BETON_END) {
		if (result == BETON_OK) {
			good++;
			beton_batch_release(&batch);
			continue;
		}
		failures++;
		assert_int_equal(result, BETON_USER_ERROR);
		assert_int_equal(err.sample, -1);
		assert_non_null(strstr(err.message, "42"));
		assert_non_null(strstr(err.message, "batch_operations[0]"));
	}
	assert_int_equal(failures, 1);
	assert_int_equal(good, 2);
	fixture_close(&loader, &iterator);
	fixture_remove(path);
}

/* An option that must be refused with a message that names it and its value. */
static void refuse(const char *expected, beton_batch_operation first, beton_batch_operation second)
{
	beton_batch_operation operations[2] = {first, second};
	beton_loader_options options = make_options(operations, 2);
	beton_error err = {0};
	assert_int_equal(bt_batch_operations_check(&options, &err), BETON_INVALID_ARGUMENT);
	if (!strstr(err.message, expected))
		fail_msg("'%s' does not say '%s'", err.message, expected);
}

static void bad_operations_are_refused(void **state)
{
	(void)state;
	beton_batch_operation good, bad;
	beton_loader_batch_operation_init(&good, BETON_BATCH_CUTMIX);
	good.probability = 0.5;
	bad = good;
	bad.kind = (beton_batch_operation_kind)3;
	refuse("batch_operations[1].kind is 3", good, bad);
	bad = good;
	bad.alpha = 0;
	refuse("batch_operations[0].alpha is 0", bad, good);
	bad.alpha = NAN;
	refuse("batch_operations[0].alpha is", bad, good);
	bad = good;
	bad.probability = -0.25;
	refuse("batch_operations[0].probability is -0.25", bad, good);
	bad.probability = 0.75;
	refuse("probabilities of MIXUP and CUTMIX are 1.25", bad, good);
	bad = good;
	bad.reserved[3] = 7;
	refuse("batch_operations[1].reserved is not 0", good, bad);
	beton_loader_batch_operation_init(&bad, BETON_BATCH_CUSTOM);
	refuse("batch_operations[1].apply is NULL", good, bad);

	char *path = fixture_write(3, -1);
	static const char *const fields[] = {"label"};
	beton_loader_options options = make_options(&good, 1);
	options.fields = fields;
	options.num_fields = 1;
	beton_loader *loader;
	beton_error err;
	assert_int_equal(beton_loader_open(&loader, path, &options, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "batch_operations"));
	options.batch_operations = NULL;
	assert_int_equal(beton_loader_open(&loader, path, &options, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "batch_operations is NULL"));
	options.num_batch_operations = BETON_BATCH_OPERATIONS_MAX + 1;
	assert_int_equal(beton_loader_open(&loader, path, &options, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "num_batch_operations is 17"));
	fixture_remove(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_format_is_mixed_as_defined),
		cmocka_unit_test(large_pictures_are_mixed_in_parts),
		cmocka_unit_test(lambda_is_distributed_as_it_should),
		cmocka_unit_test(results_do_not_depend_on_threads),
		cmocka_unit_test(one_operation_at_most_mixes_a_batch),
		cmocka_unit_test(batches_of_one_keep_their_picture),
		cmocka_unit_test(samples_left_out_are_no_partners),
		cmocka_unit_test(custom_operations_are_called),
		cmocka_unit_test(bad_operations_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
