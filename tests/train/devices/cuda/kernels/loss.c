/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss, the optimizer and the scaler: run on the CPU and compared with ref.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support.h"
#include "train/devices/cuda/kernels/kernels.h"

static void free_all(array **arrays)
{
	for (; *arrays; arrays++)
		array_free(*arrays);
}

static array scaler_of(double scale, double good, double infinite)
{
	array scaler = array_make("scaler", DTRAIN_F32, DTRAIN_SCALERS, 0);
	array_set(&scaler, DTRAIN_SCALER_SCALE, scale);
	array_set(&scaler, DTRAIN_SCALER_GOOD_STEPS, good);
	array_set(&scaler, DTRAIN_SCALER_INFINITE, infinite);
	array_set(&scaler, 3, 0);
	return scaler;
}

static array labels_of(int64_t rows, int64_t classes)
{
	array label = array_make("label", DTRAIN_I64, rows, 0);
	for (int64_t i = 0; i < rows; i++)
		array_set(&label, i, (double)((i * 7 + 3) % classes));
	return label;
}

/* A share of the first label from 0 to 1. */
static array lambda_of(dtrain_dtype type, int64_t rows)
{
	array lambda = array_make("lambda", type, rows, 0);
	for (int64_t i = 0; i < rows; i++)
		array_set(&lambda, i, rows > 1 ? (double)((float)i / (float)(rows - 1)) : 0.375);
	return lambda;
}

/* Some rows have a label twice. */
static array mixed_of(int64_t rows, int64_t classes)
{
	array mixed = array_make("mixed", DTRAIN_I64, rows, 0);
	for (int64_t i = 0; i < rows; i++)
		array_set(&mixed, i, (double)((i * 5 + 3) % classes));
	return mixed;
}

static void run_loss_on_ref(const cuda_loss *loss, double smoothing, array *inputs[5], array *loss64, array *d_logits64,
			    array *hits64)
{
	dtrain_shape square = dtrain_shape_of(2, (int64_t[]){loss->rows, loss->classes});
	dtrain_shape row = dtrain_shape_of(1, &loss->rows), four = dtrain_shape_of(1, (int64_t[]){DTRAIN_SCALERS});
	dtrain_shape of_inputs[] = {square, row, row, row, four}, shapes[8];
	dtrain_op_attrs attrs = {.loss.label_smoothing = smoothing};
	array *operands[8];
	int count = 0;
	for (int i = 0; i < 5; i++) {
		if (((i == 2 || i == 3) && !loss->mixed) || (i == 4 && !loss->scaler))
			continue;
		shapes[count] = of_inputs[i];
		operands[count++] = inputs[i];
	}
	shapes[count] = row;
	operands[count] = loss64;
	shapes[count + 1] = square;
	operands[count + 1] = d_logits64;
	shapes[count + 2] = row;
	operands[count + 2] = hits64;
	ref_run(loss->mixed ? DTRAIN_OP_SOFTMAX_XENT_MIXED : DTRAIN_OP_SOFTMAX_XENT, &attrs, count, 3, shapes,
		operands);
}

static void check_loss(dtrain_dtype type, int64_t rows, int64_t classes, double smoothing, double most, bool scaled,
		       bool mix, bool biased)
{
	array logits = array_random("logits", type, rows * classes, 0, -most, most), label = labels_of(rows, classes);
	array mixed = mixed_of(rows, classes), lambda = lambda_of(DTRAIN_F32, rows);
	array scaler = scaler_of(1024, 0, 0), losses = array_make("loss", DTRAIN_F32, rows, 0);
	array d_logits = array_make("d_logits", type, logits.count, 0), fault = array_make("fault", DTRAIN_I64, 1, 0);
	array bias = array_random("bias", DTRAIN_F32, classes, 0, -3, 3);
	array hits = array_make("hits", DTRAIN_F32, rows, 0), hits64 = array_make("hits", DTRAIN_F64, rows, 0);
	*(int64_t *)fault.memory = 0;
	/* Two classes have the highest logit. */
	if (classes > 2 && !mix) {
		array_set(&logits, 0, most);
		array_set(&logits, 1, most);
		array_set(&bias, 1, array_get(&bias, 0));
	}
	/* The label of the second row and the class after it have the highest logit. */
	if (classes > 12 && rows > 1 && !mix) {
		array_set(&logits, classes + 10, most);
		array_set(&logits, classes + 11, most);
		array_set(&bias, 11, array_get(&bias, 10));
	}
	const cuda_loss loss = {.label = label.memory,
				.mixed = mix ? mixed.memory : NULL,
				.lambda = mix ? lambda.memory : NULL,
				.scaler = scaled ? scaler.memory : NULL,
				.bias = biased ? bias.memory : NULL,
				.loss = losses.memory,
				.hits = hits.memory,
				.fault = fault.memory,
				.rows = rows,
				.classes = classes};
	array in_place = array_copy(&logits);
	CHECK_CUDA(cuda_kernel_softmax_xent(NULL, &loss, logits.memory, type, d_logits.memory, type, smoothing));
	CHECK_CUDA(cuda_kernel_softmax_xent(NULL, &loss, in_place.memory, type, in_place.memory, type, smoothing));
	assert_true(*(int64_t *)fault.memory == 0);
	array_compare_exact(&in_place, &d_logits);

	array logits64 = array_as(&logits, DTRAIN_F64), loss64 = array_make("loss", DTRAIN_F64, rows, 0);
	array lambda64 = lambda_of(DTRAIN_F64, rows), d_logits64 = array_make("d_logits", DTRAIN_F64, logits.count, 0);
	for (int64_t i = 0; biased && i < logits.count; i++)
		array_set(&logits64, i, array_get(&logits64, i) + array_get(&bias, i % classes));
	run_loss_on_ref(&loss, smoothing, (array *[]){&logits64, &label, &mixed, &lambda64, &scaler}, &loss64,
			&d_logits64, &hits64);
	array_compare(&hits, &hits64, 0);
	array_compare(&losses, &loss64, 2e-6 * (1 + most));
	/* F16 has no finer step than 2^-24 near 0. */
	array_compare(&d_logits, &d_logits64, (scaled ? 1024 : 1) * 1e-6 * (1 + most / 20) / (double)rows + 0x1p-25);
	free_all((array *[]){&logits, &label, &mixed, &lambda, &scaler, &losses, &d_logits, &fault, &logits64, &loss64,
			     &lambda64, &d_logits64, &hits, &hits64, &bias, &in_place, NULL});
}

static void loss_equals_ref(void **state)
{
	(void)state;
	/* From 2056 on rows are read 16 bytes at a time, if 8 divides the classes; of the last two sizes, one does not
	 * fit into shared memory in F32, and one in no type. */
	static const int64_t sizes[][2] = {{4, 10},    {3, 7},   {1, 1},    {2, 1000}, {33, 128},  {5, 129},
					   {1, 10007}, {300, 2}, {2, 2056}, {3, 9016}, {2, 16400}, {2, 23008}};
	for (int i = 0; i < 12; i++)
		for (int k = 0; k < 48; k++)
			check_loss(test_types[k % 3], sizes[i][0], sizes[i][1], (double[]){0, 0.1, 1, 0}[k / 3 % 4],
				   k / 3 % 4 == 3 ? 200 : 5, k % 2, k / 12 % 2, k / 24);
}

/* The same numbers as with adjacent rows, which may be read in another way, and zeros between the gradient's rows. */
static void check_rows_apart(dtrain_dtype type, int64_t rows, int64_t classes, int64_t pitch)
{
	const double allowed = classes > 2048 ? 2e-5 : 0;
	array logits = array_random("logits", type, rows * classes, 0, -5, 5), label = labels_of(rows, classes);
	*(int64_t *)label.memory = -100;
	array wide = array_random("wide", type, rows * pitch, 0, 50, 60);
	array losses[2], gradients[2] = {array_make("d_logits", type, logits.count, 0), array_copy(&wide)};
	int64_t fault = 0;
	for (int64_t i = 0; i < logits.count; i++)
		array_set(&wide, i / classes * pitch + i % classes, array_get(&logits, i));
	for (int i = 0; i < 2; i++) {
		losses[i] = array_make("loss", DTRAIN_F32, rows, 0);
		const cuda_loss loss = {.label = label.memory,
					.loss = losses[i].memory,
					.fault = &fault,
					.rows = rows,
					.classes = classes,
					.pitch = i ? pitch : 0,
					.ignored = -100};
		CHECK_CUDA(cuda_kernel_softmax_xent(NULL, &loss, i ? wide.memory : logits.memory, type,
						    gradients[i].memory, type, 0.1));
	}
	array right = array_make("right", type, wide.count, 0);
	for (int64_t i = 0; i < wide.count; i++)
		array_set(&right, i,
			  i % pitch < classes ? array_get(&gradients[0], i / pitch * classes + i % pitch) : 0);
	array_compare(&losses[1], &losses[0], allowed);
	for (int64_t i = 0; i < wide.count; i++) {
		double x = array_get(&gradients[1], i), y = array_get(&right, i);
		assert_true(x == y || (allowed && fabs(x - y) <= 2 * type_rounding(type) * fabs(y) + 1e-7));
	}
	free_all((array *[]){&logits, &label, &wide, &losses[0], &losses[1], &gradients[0], &gradients[1], &right,
			     NULL});
}

static void rows_may_be_apart(void **state)
{
	(void)state;
	for (int i = 0; i < 6; i++)
		check_rows_apart(test_types[i % 3], 5, i < 3 ? 10 : 9001, i < 3 ? 16 : 9024);
}

/* The second row's label, or what is mixed into it. */
static void check_bad_label(dtrain_dtype type, double bad, bool in_mixed)
{
	array logits = array_random("logits", type, 3 * 5, 0, -1, 1), label = labels_of(3, 5), mixed = mixed_of(3, 5);
	array losses = array_make("loss", DTRAIN_F32, 3, 0), d_logits = array_make("d_logits", type, 15, 0);
	array lambda = lambda_of(DTRAIN_F32, 3);
	int64_t fault = 0;
	array_set(in_mixed ? &mixed : &label, 1, bad);
	const cuda_loss loss = {.label = label.memory,
				.mixed = in_mixed ? mixed.memory : NULL,
				.lambda = in_mixed ? lambda.memory : NULL,
				.loss = losses.memory,
				.fault = &fault,
				.rows = 3,
				.classes = 5};
	CHECK_CUDA(cuda_kernel_softmax_xent(NULL, &loss, logits.memory, type, d_logits.memory, type, 0));
	assert_int_equal((int32_t)fault, 2);
	assert_true((double)(fault >> 32) == fmin(fmax(bad, INT32_MIN), INT32_MAX));
	assert_true(array_get(&losses, 1) == 0 && array_get(&losses, 0) > 0 && array_get(&losses, 2) > 0);
	for (int k = 0; k < 15; k++)
		assert_true((array_get(&d_logits, k) == 0) == (k / 5 == 1));
	free_all((array *[]){&logits, &label, &mixed, &lambda, &losses, &d_logits, NULL});
}

static void labels_out_of_range_are_reported(void **state)
{
	(void)state;
	static const double bad[] = {-1, 5, 1e15, -1e15};
	for (int i = 0; i < 24; i++)
		check_bad_label(test_types[i % 3], bad[i / 3 % 4], i / 12);
}

static const int64_t counts[] = {1, 3, 4, 5, 1000, 2047, 2049, 24576, 24577, 100003};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* infinite: the scaler says that this step is to be left out. */
static void check_sgd(int64_t count, bool nesterov, bool scaled, bool infinite, int shift, int groups)
{
	array w = array_random("w", DTRAIN_F32, count, shift, -1, 1),
	      m = array_random("m", DTRAIN_F32, count, shift, -1, 1);
	array g = array_random("g", DTRAIN_F32, count, 0, -1, 1),
	      scalars = array_make("scalars", DTRAIN_F32, 2 * groups, 0);
	int64_t runs = (count + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	array group = array_make("group", DTRAIN_U8, runs, 0);
	array w64 = array_as(&w, DTRAIN_F64), m64 = array_as(&m, DTRAIN_F64), g64 = array_as(&g, DTRAIN_F64);
	array scaler = scaler_of(4096, 5, infinite);
	for (int i = 0; i < groups; i++) {
		array_set(&scalars, 2 * i, 0.1 * (i + 1) / groups);
		array_set(&scalars, 2 * i + 1, 5e-4 * (groups - i));
	}
	for (int64_t i = 0; i < runs; i++)
		array_set(&group, i, (double)(i * 5 % groups));
	CHECK_CUDA(cuda_kernel_sgd(NULL, w.memory, g.memory, m.memory, scalars.memory, group.memory,
				   scaled ? scaler.memory : NULL, count, 3, 0.9, nesterov));
	dtrain_shape flat = dtrain_shape_of(1, &count), two = dtrain_shape_of(2, (int64_t[]){groups, 2});
	dtrain_shape each = dtrain_shape_of(1, &runs), four = dtrain_shape_of(1, (int64_t[]){4});
	dtrain_op_attrs attrs = {.sgd = {.grad_divisor = 3, .momentum = 0.9, .nesterov = nesterov}};
	if (scaled)
		ref_run(DTRAIN_OP_SGD, &attrs, 6, 2, (dtrain_shape[]){flat, flat, flat, two, each, four, flat, flat},
			(array *[]){&w64, &g64, &m64, &scalars, &group, &scaler, &w64, &m64});
	else
		ref_run(DTRAIN_OP_SGD, &attrs, 5, 2, (dtrain_shape[]){flat, flat, flat, two, each, flat, flat},
			(array *[]){&w64, &g64, &m64, &scalars, &group, &w64, &m64});
	array_compare(&w, &w64, 3e-7);
	array_compare(&m, &m64, 3e-7);
	free_all((array *[]){&w, &m, &g, &scalars, &group, &w64, &m64, &g64, &scaler, NULL});
}

static void sgd_equals_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNTS; i++)
		for (int k = 0; k < 12; k++)
			check_sgd(counts[i], k & 1, k / 2 % 3 > 0, k / 2 % 3 > 1, k / 6,
				  (int[]){1, 3, DTRAIN_PARAM_GROUPS}[(i + (size_t)k) % 3]);
}

static void check_lookahead(int64_t count, double weight, int shift, bool back)
{
	array slow = array_random("slow", DTRAIN_F32, count, shift, -1, 1),
	      w = array_random("w", DTRAIN_F32, count, 0, -1, 1);
	array share = array_make("weight", DTRAIN_F32, 1, 0), before = array_copy(weight == 1 ? &w : &slow);
	array slow64 = array_as(&slow, DTRAIN_F64), w64 = array_as(&w, DTRAIN_F64);
	dtrain_shape flat = dtrain_shape_of(1, &count), one = dtrain_shape_of(1, (int64_t[]){1});
	array_set(&share, 0, weight);
	CHECK_CUDA(cuda_kernel_lookahead(NULL, slow.memory, w.memory, share.memory, count, back));
	ref_run(DTRAIN_OP_LOOKAHEAD, &(dtrain_op_attrs){0}, 3, back ? 2 : 1,
		(dtrain_shape[]){flat, flat, one, flat, flat}, (array *[]){&slow64, &w64, &share, &slow64, &w64});
	array_compare(&slow, &slow64, 2e-7);
	array_compare(&w, &w64, 2e-7);
	for (int64_t i = 0; i < count; i++)
		assert_true(!back || array_get(&w, i) == array_get(&slow, i));
	for (int64_t i = 0; i < count && (weight == 0 || weight == 1); i++)
		assert_true(array_get(&slow, i) == array_get(&before, i));
	free_all((array *[]){&slow, &w, &share, &before, &slow64, &w64, NULL});
}

static void lookahead_equals_ref(void **state)
{
	(void)state;
	static const double weights[] = {0, 0.3, 0.8, 1};
	for (size_t i = 0; i < COUNTS; i++)
		for (int k = 0; k < 8; k++)
			check_lookahead(counts[i], weights[k / 2], k % 2, k / 4 != (int)i % 2);
}

static void check_norm(dtrain_norm norm, int64_t count, int shift, bool scaled)
{
	array g = array_random("g", DTRAIN_F32, count, shift, -1, 1), g64 = array_as(&g, DTRAIN_F64);
	array scaler = scaler_of(4, 5, 1), clip = scaler_of(1, 2, 0), right = array_copy(&clip);
	array_set(&clip, DTRAIN_CLIP_TOTAL, 0.5);
	array_set(&right, DTRAIN_CLIP_TOTAL, 0.5);
	array sums =
		array_make("sums", DTRAIN_F64, (int64_t)(cuda_kernel_grad_norm_workspace(count) / sizeof(double)), 0);
	const dtrain_op_attrs attrs = {.clip = {.norm = norm, .grad_divisor = 3, .max_norm = 0.25}};
	dtrain_shape flat = dtrain_shape_of(1, &count), four = dtrain_shape_of(1, (int64_t[]){DTRAIN_CLIPS});
	void *state = scaled ? scaler.memory : NULL;
	CHECK_CUDA(cuda_kernel_grad_norm(NULL, norm, g.memory, clip.memory, state, clip.memory, count, 3, sums.memory));
	ref_run(DTRAIN_OP_GRAD_NORM, &attrs, scaled ? 3 : 2, 1, (dtrain_shape[]){flat, four, four, four},
		(array *[]){&g64, &right, scaled ? &scaler : &right, &right});
	array_compare(&clip, &right, 2e-6 * array_get(&right, DTRAIN_CLIP_TOTAL));
	CHECK_CUDA(cuda_kernel_clip(NULL, norm, right.memory, state, clip.memory, 0.25));
	ref_run(DTRAIN_OP_CLIP, &attrs, scaled ? 2 : 1, 1, (dtrain_shape[]){four, four, four},
		(array *[]){&right, scaled ? &scaler : &right, &right});
	array_compare_exact(&clip, &right);
	free_all((array *[]){&g, &g64, &scaler, &clip, &right, &sums, NULL});
}

static void norms_equal_ref(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNTS; i++)
		for (int k = 0; k < 12; k++)
			check_norm((dtrain_norm)(k / 4), counts[i], k % 2, k / 2 % 2);
}

static void the_largest_of_what_is_no_number_is_none(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNTS; i++)
		for (int64_t at = counts[i] - 1; at >= 0; at -= counts[i] / 7 + 1) {
			array g = array_random("g", DTRAIN_F32, counts[i], 0, -1, 1), clip = scaler_of(1, 2, 0);
			array sums =
				array_make("sums", DTRAIN_F64,
					   (int64_t)(cuda_kernel_grad_norm_workspace(counts[i]) / sizeof(double)), 0);
			array_set(&g, at, NAN);
			CHECK_CUDA(cuda_kernel_grad_norm(NULL, DTRAIN_NORM_MAX, g.memory, clip.memory, NULL,
							 clip.memory, counts[i], 1, sums.memory));
			assert_true(isnan(array_get(&clip, DTRAIN_CLIP_TOTAL)));
			array_set(&g, at, 1);
			CHECK_CUDA(cuda_kernel_grad_norm(NULL, DTRAIN_NORM_MAX, g.memory, clip.memory, NULL,
							 clip.memory, counts[i], 1, sums.memory));
			assert_true(isnan(array_get(&clip, DTRAIN_CLIP_TOTAL)));
			free_all((array *[]){&g, &clip, &sums, NULL});
		}
}

static void inspect_finds_one_bad_number_anywhere(void **state)
{
	(void)state;
	static const double bad[] = {NAN, INFINITY, -INFINITY};
	for (size_t i = 0; i < COUNTS; i++)
		for (int shift = 0; shift < 2; shift++) {
			int64_t count = counts[i], step = count / 40 + 1;
			array g = array_random("g", DTRAIN_F32, count, shift, -1, 1), scaler = scaler_of(2, 0, 1);
			array_set(&g, 0, FLT_MAX);
			CHECK_CUDA(cuda_kernel_scaler_inspect(NULL, g.memory, scaler.memory, count, false));
			assert_true(array_get(&scaler, DTRAIN_SCALER_INFINITE) == 0);
			array_set(&scaler, DTRAIN_SCALER_INFINITE, 1);
			CHECK_CUDA(cuda_kernel_scaler_inspect(NULL, g.memory, scaler.memory, count, true));
			assert_true(array_get(&scaler, DTRAIN_SCALER_INFINITE) == 1);
			for (int64_t at = count - 1; at >= 0; at -= step) {
				double keep = array_get(&g, at);
				array_set(&g, at, bad[at % 3]);
				CHECK_CUDA(cuda_kernel_scaler_inspect(NULL, g.memory, scaler.memory, count, false));
				assert_true(array_get(&scaler, DTRAIN_SCALER_INFINITE) == 1);
				array_set(&g, at, keep);
			}
			assert_true(array_get(&scaler, DTRAIN_SCALER_SCALE) == 2);
			free_all((array *[]){&g, &scaler, NULL});
		}
}

static void scaler_changes_as_ref(void **state)
{
	(void)state;
	static const double states[][3] = {{65536, 0, 0}, {65536, 1998, 0}, {65536, 1999, 0},
					   {65536, 7, 1}, {0.5, 1999, 1},   {0x1p127, 1999, 0}};
	dtrain_shape four = dtrain_shape_of(1, (int64_t[]){4});
	for (int i = 0; i < 6; i++) {
		array got = scaler_of(states[i][0], states[i][1], states[i][2]), right = array_copy(&got);
		CHECK_CUDA(cuda_kernel_scaler_update(NULL, got.memory));
		ref_run(DTRAIN_OP_SCALER_UPDATE, &(dtrain_op_attrs){0}, 1, 1, (dtrain_shape[]){four, four},
			(array *[]){&right, &right});
		array_compare_exact(&got, &right);
		free_all((array *[]){&got, &right, NULL});
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loss_equals_ref),
		cmocka_unit_test(rows_may_be_apart),
		cmocka_unit_test(labels_out_of_range_are_reported),
		cmocka_unit_test(sgd_equals_ref),
		cmocka_unit_test(lookahead_equals_ref),
		cmocka_unit_test(norms_equal_ref),
		cmocka_unit_test(the_largest_of_what_is_no_number_is_none),
		cmocka_unit_test(inspect_finds_one_bad_number_anywhere),
		cmocka_unit_test(scaler_changes_as_ref),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
