/* SPDX-License-Identifier: Apache-2.0
 *
 * Which operands an op takes: the rule for types, residuals with relu alone, sides that match.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "op_trial.h"

static const trial trials[] = {
	/* Half activations with float weights, or all of one type. */
	{NULL, DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(BF16), KERNEL(F32)}, {PICTURES(BF16)}},
	{NULL, DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(F64), KERNEL(F64)}, {PICTURES(F64)}},
	{NULL, DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(F16), KERNEL(F16)}, {PICTURES(F16)}},
	{NULL, DTRAIN_OP_LINEAR_BWD_DATA, false, 2, 1, {MATRIX(BF16), SQUARE(BF16)}, {MATRIX(BF16)}},
	{"wrong type of the operand", DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(F16), KERNEL(BF16)}, {PICTURES(F16)}},
	{"wrong type of the operand", DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(BF16), KERNEL(F32)}, {PICTURES(F16)}},
	{"wrong type of the operand", DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(BF16), KERNEL(F32)}, {PICTURES(F32)}},
	{"wrong type of the operand", DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(F32), KERNEL(F64)}, {PICTURES(F32)}},
	{"real numbers alone", DTRAIN_OP_CONV2D, false, 2, 1, {PICTURES(U8), KERNEL(F32)}, {PICTURES(U8)}},
	{NULL, DTRAIN_OP_LINEAR_BWD_WEIGHT, false, 2, 2, {MATRIX(F16), MATRIX(F16)}, {SQUARE(F32), CHANNELS(F32)}},
	{"wrong type of the operand",
	 DTRAIN_OP_LINEAR_BWD_WEIGHT,
	 false,
	 2,
	 2,
	 {MATRIX(F16), MATRIX(F16)},
	 {SQUARE(F16), CHANNELS(F32)}},
	/* A bias may be missing, and nothing else. */
	{NULL, DTRAIN_OP_LINEAR, false, 3, 1, {MATRIX(F16), SQUARE(F32), CHANNELS(F32)}, {MATRIX(F16)}},
	{NULL, DTRAIN_OP_LINEAR, false, 2, 1, {MATRIX(F16), SQUARE(F32)}, {MATRIX(F16)}},
	{NULL, DTRAIN_OP_LINEAR_BWD_WEIGHT, false, 2, 1, {MATRIX(F16), MATRIX(F16)}, {SQUARE(F32)}},
	{NULL, DTRAIN_OP_LINEAR, true, 2, 1, {MATRIX(F16), SQUARE(F32)}, {MATRIX(F16)}},
	{"takes no relu", DTRAIN_OP_LINEAR_BWD_DATA, true, 2, 1, {MATRIX(F16), SQUARE(F32)}, {MATRIX(F16)}},
	{"takes no relu", DTRAIN_OP_LINEAR_BWD_WEIGHT, true, 2, 1, {MATRIX(F16), MATRIX(F16)}, {SQUARE(F32)}},
	{"an operand is missing", DTRAIN_OP_LINEAR, false, 1, 1, {MATRIX(F16)}, {MATRIX(F16)}},
	{"bad bias", DTRAIN_OP_LINEAR, false, 3, 1, {MATRIX(F32), SQUARE(F32), FLAT(F32)}, {MATRIX(F32)}},
	{"wrong type of the operand", DTRAIN_OP_SCALE, false, 1, 1, {PICTURES(F16)}, {PICTURES(F32)}},
	/* The bias and its gradient are float, one for each channel. */
	{NULL, DTRAIN_OP_CHANNEL_BIAS, false, 2, 1, {PICTURES(F16), CHANNELS(F32)}, {PICTURES(F16)}},
	{NULL, DTRAIN_OP_CHANNEL_BIAS_BWD, false, 1, 1, {PICTURES(BF16)}, {CHANNELS(F32)}},
	{"wrong type of the operand",
	 DTRAIN_OP_CHANNEL_BIAS,
	 false,
	 2,
	 1,
	 {PICTURES(F16), CHANNELS(F16)},
	 {PICTURES(F16)}},
	{"wrong type of the operand", DTRAIN_OP_CHANNEL_BIAS_BWD, false, 1, 1, {PICTURES(F16)}, {CHANNELS(F16)}},
	{"value for each channel", DTRAIN_OP_CHANNEL_BIAS, false, 2, 1, {PICTURES(F32), ROWS(F32)}, {PICTURES(F32)}},
	{"value for each channel", DTRAIN_OP_CHANNEL_BIAS_BWD, false, 1, 1, {PICTURES(F32)}, {FLAT(F32)}},
	{"needs [n, c, h, w]", DTRAIN_OP_CHANNEL_BIAS, false, 2, 1, {MATRIX(F32), CHANNELS(F32)}, {MATRIX(F32)}},
	{"needs [n, c, h, w]", DTRAIN_OP_CHANNEL_BIAS_BWD, false, 1, 1, {MATRIX(F32)}, {CHANNELS(F32)}},
	{"shape does not match", DTRAIN_OP_CHANNEL_BIAS, false, 2, 1, {PICTURES(F32), CHANNELS(F32)}, {OTHER(F32)}},
	{NULL, DTRAIN_OP_GELU_BWD, false, 2, 1, {PICTURES(F16), PICTURES(F16)}, {PICTURES(F16)}},
	{"shape does not match", DTRAIN_OP_GELU, false, 1, 1, {PICTURES(F32)}, {OTHER(F32)}},
	{"an operand is missing", DTRAIN_OP_GELU_BWD, false, 1, 1, {PICTURES(F32)}, {PICTURES(F32)}},
	{"wrong type of the operand", DTRAIN_OP_ADD, false, 2, 1, {PICTURES(F16), PICTURES(BF16)}, {PICTURES(F16)}},
	/* Pixels: bytes, four channels at most, moved sides. */
	{NULL,
	 DTRAIN_OP_NORMALIZE,
	 false,
	 1,
	 1,
	 {{.dtype = U8, .shape = {4, {2, 5, 6, 4}}}},
	 {{.dtype = F16, .shape = {4, {2, 4, 5, 6}}}}},
	{"at most 4 channels",
	 DTRAIN_OP_NORMALIZE,
	 false,
	 1,
	 1,
	 {{.dtype = U8, .shape = {4, {2, 8, 8, 5}}}},
	 {{.dtype = F32, .shape = {4, {2, 5, 8, 8}}}}},
	{"sides do not match",
	 DTRAIN_OP_NORMALIZE,
	 false,
	 1,
	 1,
	 {{.dtype = U8, .shape = {4, {2, 8, 8, 3}}}},
	 {{.dtype = F32, .shape = {4, {2, 8, 8, 3}}}}},
	{"wrong type of the operand",
	 DTRAIN_OP_NORMALIZE,
	 false,
	 1,
	 1,
	 {{.dtype = F32, .shape = {4, {2, 8, 8, 3}}}},
	 {{.dtype = F32, .shape = {4, {2, 3, 8, 8}}}}},
	{"real numbers alone",
	 DTRAIN_OP_NORMALIZE,
	 false,
	 1,
	 1,
	 {{.dtype = U8, .shape = {4, {2, 8, 8, 3}}}},
	 {{.dtype = U8, .shape = {4, {2, 3, 8, 8}}}}},
	/* The loss is float, its gradient as the logits. */
	{NULL, DTRAIN_OP_SOFTMAX_XENT, false, 3, 2, {MATRIX(F16), ROWS(I64), FOUR(F32)}, {ROWS(F32), MATRIX(F16)}},
	{"wrong type of the operand",
	 DTRAIN_OP_SOFTMAX_XENT,
	 false,
	 2,
	 2,
	 {MATRIX(F16), ROWS(I64)},
	 {ROWS(F16), MATRIX(F16)}},
	{"wrong type of the operand",
	 DTRAIN_OP_SOFTMAX_XENT,
	 false,
	 2,
	 2,
	 {MATRIX(F16), ROWS(I64)},
	 {ROWS(F32), MATRIX(F32)}},
	{"wrong type of the operand",
	 DTRAIN_OP_SOFTMAX_XENT,
	 false,
	 2,
	 2,
	 {MATRIX(F16), ROWS(U8)},
	 {ROWS(F32), MATRIX(F16)}},
	{"scaler of four elements",
	 DTRAIN_OP_SOFTMAX_XENT,
	 false,
	 3,
	 2,
	 {MATRIX(F16), ROWS(I64), CHANNELS(F32)},
	 {ROWS(F32), MATRIX(F16)}},
	/* Two labels and lambda for each row, in the type of the loss. */
	{NULL,
	 DTRAIN_OP_SOFTMAX_XENT_MIXED,
	 false,
	 5,
	 2,
	 {MATRIX(F16), ROWS(I64), ROWS(I64), ROWS(F32), FOUR(F32)},
	 {ROWS(F32), MATRIX(F16)}},
	{"wrong type of the operand",
	 DTRAIN_OP_SOFTMAX_XENT_MIXED,
	 false,
	 4,
	 2,
	 {MATRIX(F16), ROWS(I64), ROWS(I64), ROWS(F16)},
	 {ROWS(F32), MATRIX(F16)}},
	{"shape does not match",
	 DTRAIN_OP_SOFTMAX_XENT_MIXED,
	 false,
	 4,
	 2,
	 {MATRIX(F16), ROWS(I64), FOUR(I64), ROWS(F32)},
	 {ROWS(F32), MATRIX(F16)}},
	{"an operand is missing",
	 DTRAIN_OP_SOFTMAX_XENT_MIXED,
	 false,
	 2,
	 2,
	 {MATRIX(F16), ROWS(I64)},
	 {ROWS(F32), MATRIX(F16)}},
	{"wrong type of the operand", DTRAIN_OP_MEAN, false, 1, 1, {ROWS(F16)}, {{.dtype = F32}}},
	/* The optimizer and the scaler see floats alone. */
	{NULL,
	 DTRAIN_OP_SGD,
	 false,
	 6,
	 2,
	 {FLAT(F64), FLAT(F64), FLAT(F64), RATES(F32), FOUR(U8), FOUR(F32)},
	 {FLAT(F64), FLAT(F64)}},
	{NULL,
	 DTRAIN_OP_SGD,
	 false,
	 5,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(U8)},
	 {FLAT(F32), FLAT(F32)}},
	{"wrong type of the operand",
	 DTRAIN_OP_SGD,
	 false,
	 5,
	 2,
	 {FLAT(F16), FLAT(F16), FLAT(F16), RATES(F32), FOUR(U8)},
	 {FLAT(F16), FLAT(F16)}},
	{"wrong type of the operand",
	 DTRAIN_OP_SGD,
	 false,
	 5,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(F32)},
	 {FLAT(F32), FLAT(F32)}},
	{"wrong type of the operand",
	 DTRAIN_OP_SGD,
	 false,
	 6,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(U8), FOUR(F64)},
	 {FLAT(F32), FLAT(F32)}},
	{"scaler of four elements",
	 DTRAIN_OP_SGD,
	 false,
	 6,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(U8), ROWS(F32)},
	 {FLAT(F32), FLAT(F32)}},
	{"an operand is missing",
	 DTRAIN_OP_SGD,
	 false,
	 4,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32)},
	 {FLAT(F32), FLAT(F32)}},
	{"two scalars for each",
	 DTRAIN_OP_SGD,
	 false,
	 5,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), ROWS(F32), FOUR(U8)},
	 {FLAT(F32), FLAT(F32)}},
	{"two scalars for each",
	 DTRAIN_OP_SGD,
	 false,
	 5,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), MATRIX(F32), FOUR(U8)},
	 {FLAT(F32), FLAT(F32)}},
	{"two scalars for each",
	 DTRAIN_OP_SGD,
	 false,
	 5,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), {.dtype = F32, .shape = {2, {257, 2}}}, FOUR(U8)},
	 {FLAT(F32), FLAT(F32)}},
	{"a group for each 16 elements",
	 DTRAIN_OP_SGD,
	 false,
	 5,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), CHANNELS(U8)},
	 {FLAT(F32), FLAT(F32)}},
	{"step of eight elements",
	 DTRAIN_OP_ADAM,
	 false,
	 7,
	 3,
	 {FLAT(F32), FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(U8), FOUR(F32)},
	 {FLAT(F32), FLAT(F32), FLAT(F32)}},
	{"if and only if it is amsgrad",
	 DTRAIN_OP_ADAM,
	 false,
	 8,
	 4,
	 {FLAT(F32), FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(U8), FOUR(F32), FLAT(F32)},
	 {FLAT(F32), FLAT(F32), FLAT(F32), FLAT(F32)}},
	{"two scalars for each",
	 DTRAIN_OP_LION,
	 false,
	 5,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), ROWS(F32), FOUR(U8)},
	 {FLAT(F32), FLAT(F32)}},
	{"five numbers for each piece",
	 DTRAIN_OP_LARS,
	 false,
	 6,
	 2,
	 {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(U8), ROWS(I64)},
	 {FLAT(F32), FLAT(F32)}},
	{"step of eight elements", DTRAIN_OP_COUNT_STEP, false, 1, 1, {FOUR(F32)}, {FOUR(F32)}},
	{NULL, DTRAIN_OP_LOOKAHEAD, false, 3, 2, {FLAT(F64), FLAT(F64), ONE(F32)}, {FLAT(F64), FLAT(F64)}},
	{"needs one weight",
	 DTRAIN_OP_LOOKAHEAD,
	 false,
	 3,
	 2,
	 {FLAT(F32), FLAT(F32), ROWS(F32)},
	 {FLAT(F32), FLAT(F32)}},
	{"wrong type of the operand",
	 DTRAIN_OP_LOOKAHEAD,
	 false,
	 3,
	 2,
	 {FLAT(F32), FLAT(F32), ONE(F64)},
	 {FLAT(F32), FLAT(F32)}},
	{"shape does not match",
	 DTRAIN_OP_LOOKAHEAD,
	 false,
	 3,
	 2,
	 {FLAT(F32), ROWS(F32), ONE(F32)},
	 {FLAT(F32), FLAT(F32)}},
	{NULL, DTRAIN_OP_SCALER_INSPECT, false, 2, 1, {FLAT(F32), FOUR(F32)}, {FOUR(F32)}},
	{"wrong type of the operand", DTRAIN_OP_SCALER_INSPECT, false, 2, 1, {FLAT(BF16), FOUR(F32)}, {FOUR(F32)}},
	{"scaler of four elements", DTRAIN_OP_SCALER_INSPECT, false, 2, 1, {FLAT(F32), ROWS(F32)}, {ROWS(F32)}},
	{"an operand is missing", DTRAIN_OP_SCALER_INSPECT, false, 1, 1, {FLAT(F32)}, {FOUR(F32)}},
	{NULL, DTRAIN_OP_GRAD_NORM, false, 3, 1, {FLAT(F64), FOUR(F32), FOUR(F32)}, {FOUR(F32)}},
	{"wrong type of the operand", DTRAIN_OP_GRAD_NORM, false, 2, 1, {FLAT(F16), FOUR(F32)}, {FOUR(F32)}},
	{"wrong type of the operand", DTRAIN_OP_GRAD_NORM, false, 2, 1, {FLAT(F64), FOUR(F64)}, {FOUR(F64)}},
	{"scaler of four elements", DTRAIN_OP_GRAD_NORM, false, 2, 1, {FLAT(F32), ROWS(F32)}, {ROWS(F32)}},
	{"an operand is missing", DTRAIN_OP_GRAD_NORM, false, 1, 1, {FLAT(F32)}, {FOUR(F32)}},
	{NULL, DTRAIN_OP_CLIP, false, 2, 1, {FOUR(F32), FOUR(F32)}, {FOUR(F32)}},
	{"shape does not match", DTRAIN_OP_CLIP, false, 2, 1, {FOUR(F32), ONE(F32)}, {FOUR(F32)}},
	{"too many operands", DTRAIN_OP_CLIP, false, 3, 1, {FOUR(F32), FOUR(F32), FOUR(F32)}, {FOUR(F32)}},
	{"scaler of four elements", DTRAIN_OP_SCALER_UPDATE, false, 1, 1, {FLAT(F32)}, {FLAT(F32)}},
	{NULL, DTRAIN_OP_CAST, false, 1, 1, {FLAT(F32)}, {FLAT(BF16)}},
	{NULL, DTRAIN_OP_CAST, false, 1, 1, {FLAT(F64)}, {FLAT(F64)}},
	{"wrong type of the operand", DTRAIN_OP_CAST, false, 1, 1, {FLAT(F16)}, {FLAT(F32)}},
	{"wrong type of the operand", DTRAIN_OP_CAST, false, 1, 1, {FLAT(F16)}, {FLAT(BF16)}},
	{"shape does not match", DTRAIN_OP_CAST, false, 1, 1, {FLAT(F32)}, {FOUR(BF16)}},
	{"shape does not match", DTRAIN_OP_CAST, false, 1, 1, {SQUARE(F32)}, {SQUARE(BF16)}},
};

static void gradients_are_divided_by_a_number(void **state)
{
	(void)state;
	static const double bad[] = {0, -1, NAN};
	dtrain_op_desc desc = {.kind = DTRAIN_OP_SGD,
			       .num_inputs = 5,
			       .num_outputs = 2,
			       .inputs = {FLAT(F32), FLAT(F32), FLAT(F32), RATES(F32), FOUR(U8)},
			       .outputs = {FLAT(F32), FLAT(F32)}};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		beton_error err = {0};
		desc.attrs.sgd.grad_divisor = bad[i];
		assert_int_equal(dtrain__op_check(&desc, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "op sgd: gradients divided by "));
	}
}

static void expect_bad_numbers(const dtrain_op_desc *desc, const char *message)
{
	beton_error err = {0};
	assert_int_equal(dtrain__op_check(desc, &err), BETON_INVALID_ARGUMENT);
	if (!strstr(err.message, message))
		fail_msg("'%s' does not say '%s'", err.message, message);
}

static void updates_have_numbers_in_their_ranges(void **state)
{
	(void)state;
	static const double betas[] = {-0.1, 1, NAN}, above[] = {0, -1, NAN};
	dtrain_op_desc adam = {.kind = DTRAIN_OP_ADAM,
			       .num_inputs = 7,
			       .num_outputs = 3,
			       .inputs = {FLAT(F32),
					  FLAT(F32),
					  FLAT(F32),
					  FLAT(F32),
					  RATES(F32),
					  FOUR(U8),
					  {.dtype = F32, .shape = {1, {DTRAIN_STEPS}}}},
			       .outputs = {FLAT(F32), FLAT(F32), FLAT(F32)}};
	dtrain_op_desc lars = {.kind = DTRAIN_OP_LARS,
			       .num_inputs = 6,
			       .num_outputs = 2,
			       .inputs = {FLAT(F32),
					  FLAT(F32),
					  FLAT(F32),
					  RATES(F32),
					  FOUR(U8),
					  {.dtype = I64, .shape = {2, {1, DTRAIN_PIECE_NUMBERS}}}},
			       .outputs = {FLAT(F32), FLAT(F32)}};
	const dtrain_adam_attrs good_adam = {.epsilon = 1, .grad_divisor = 1};
	const dtrain_lars_attrs good_lars = {.trust = 1, .epsilon = 1, .grad_divisor = 1};
	beton_error err = {0};
	adam.attrs.adam = good_adam;
	lars.attrs.lars = good_lars;
	assert_int_equal(dtrain__op_check(&adam, &err), BETON_OK);
	assert_int_equal(dtrain__op_check(&lars, &err), BETON_OK);
	for (size_t i = 0; i < sizeof(betas) / sizeof(betas[0]); i++) {
		adam.attrs.adam.beta1 = betas[i];
		expect_bad_numbers(&adam, "op adam: betas ");
		adam.attrs.adam = good_adam;
		adam.attrs.adam.beta2 = betas[i];
		expect_bad_numbers(&adam, "op adam: betas ");
		adam.attrs.adam = good_adam;
		adam.attrs.adam.epsilon = above[i];
		expect_bad_numbers(&adam, "op adam: an epsilon of ");
		adam.attrs.adam = good_adam;
		adam.attrs.adam.grad_divisor = above[i];
		expect_bad_numbers(&adam, "op adam: gradients divided by ");
		adam.attrs.adam = good_adam;
		lars.attrs.lars.trust = above[i];
		expect_bad_numbers(&lars, "op lars: a trust of ");
		lars.attrs.lars = good_lars;
	}
}

static void muon_has_matrices_in_order(void **state)
{
	(void)state;
	dtrain_matrices shapes[] = {{3, 5, 9, 0}, {4, 4, 1, 256}};
	const dtrain_matrices good_shapes[] = {shapes[0], shapes[1]};
	const dtrain_muon_attrs good = {
		.adamw = {.epsilon = 1, .grad_divisor = 1}, .steps = 5, .num_matrices = 2, .matrices = shapes};
	dtrain_muon_attrs bad[6];
	dtrain_op_desc muon = {.kind = DTRAIN_OP_MUON,
			       .num_inputs = 8,
			       .num_outputs = 3,
			       .inputs = {FLAT(F32),
					  FLAT(F32),
					  FLAT(F32),
					  FLAT(F32),
					  RATES(F32),
					  FOUR(U8),
					  {.dtype = F32, .shape = {1, {DTRAIN_STEPS}}},
					  {.dtype = I64, .shape = {2, {1, DTRAIN_PIECE_NUMBERS}}}},
			       .outputs = {FLAT(F32), FLAT(F32), FLAT(F32)},
			       .attrs.muon = good};
	beton_error err = {0};
	assert_int_equal(dtrain__op_check(&muon, &err), BETON_OK);
	for (int i = 0; i < 6; i++)
		bad[i] = good;
	bad[0].momentum = 1;
	bad[1].steps = 0;
	bad[2].steps = 100;
	bad[3].adamw.epsilon = NAN;
	bad[4].adamw.amsgrad = true;
	bad[5].adamw_lr_scale = -1;
	for (int i = 0; i < 6; i++) {
		muon.attrs.muon = bad[i];
		expect_bad_numbers(&muon, "op muon: a momentum of ");
	}
	muon.attrs.muon = good;
	shapes[1].place = 128;
	expect_bad_numbers(&muon, "op muon: 1 matrices [4, 4] at 128");
	shapes[1].place = 257;
	expect_bad_numbers(&muon, "op muon: 1 matrices [4, 4] at 257");
	shapes[1] = good_shapes[1];
	shapes[0].columns = 0;
	expect_bad_numbers(&muon, "op muon: 9 matrices [3, 0] at 0");
}

static void norms_have_a_divisor_and_a_limit(void **state)
{
	(void)state;
	static const double bad[] = {0, -1, NAN};
	dtrain_op_desc norm = {.kind = DTRAIN_OP_GRAD_NORM,
			       .num_inputs = 2,
			       .num_outputs = 1,
			       .inputs = {FLAT(F32), FOUR(F32)},
			       .outputs = {FOUR(F32)}};
	dtrain_op_desc clip = {.kind = DTRAIN_OP_CLIP,
			       .num_inputs = 1,
			       .num_outputs = 1,
			       .inputs = {FOUR(F32)},
			       .outputs = {FOUR(F32)}};
	beton_error err = {0};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		norm.attrs.clip.grad_divisor = clip.attrs.clip.max_norm = bad[i];
		assert_int_equal(dtrain__op_check(&norm, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "op grad_norm: gradients divided by "));
		assert_int_equal(dtrain__op_check(&clip, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "op clip: clips gradients to a norm of "));
	}
	norm.attrs.clip.grad_divisor = clip.attrs.clip.max_norm = INFINITY;
	assert_int_equal(dtrain__op_check(&norm, &err), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain__op_check(&clip, &err), BETON_OK);
}

static void segments_lie_in_order(void **state)
{
	(void)state;
	static const struct {
		int32_t count;
		dtrain_segment segments[2];
	} bad[] = {
		{0, {{0}}},
		{1, {{1, {1, {16}}, NULL}}},                        /* not at a multiple of 16 */
		{1, {{-16, {1, {16}}, NULL}}},                      /* before the range */
		{1, {{48, {1, {17}}, NULL}}},                       /* after it */
		{1, {{0, {2, {1 << 30, 1 << 30}}, NULL}}},          /* larger than memory */
		{1, {{0, {2, {4, 0}}, NULL}}},                      /* nothing */
		{2, {{16, {1, {16}}, NULL}, {0, {1, {16}}, NULL}}}, /* in the wrong order */
		{2, {{0, {1, {17}}, NULL}, {16, {1, {16}}, NULL}}}, /* one over the other */
	};
	dtrain_op_desc desc = {.kind = DTRAIN_OP_CAST,
			       .num_inputs = 1,
			       .num_outputs = 1,
			       .inputs = {FLAT(F32)},
			       .outputs = {FLAT(F16)}};
	beton_error err = {0};
	dtrain_segment segments[] = {{0, {4, {2, 2, 2, 2}}, NULL}, {32, {1, {32}}, NULL}};
	desc.attrs.cast = (dtrain_cast_attrs){.segments = segments, .num_segments = 2};
	assert_int_equal(dtrain__op_check(&desc, &err), BETON_OK);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memcpy(segments, bad[i].segments, sizeof(segments));
		desc.attrs.cast.num_segments = bad[i].count;
		assert_int_equal(dtrain__op_check(&desc, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "op cast: "));
	}
	desc.attrs.cast = (dtrain_cast_attrs){.num_segments = 1};
	assert_int_equal(dtrain__op_check(&desc, &err), BETON_INVALID_ARGUMENT);
}

static void operands_follow_the_rules(void **state)
{
	(void)state;
	const size_t count = sizeof(trials) / sizeof(trials[0]);
	for (size_t i = 0; i < count + num_norm_trials; i++) {
		const trial *t = i < count ? &trials[i] : &norm_trials[i - count];
		beton_error err = {0};
		dtrain_op_desc desc = {.kind = t->kind,
				       .attrs.relu = t->relu,
				       .num_inputs = t->num_inputs,
				       .num_outputs = t->num_outputs};
		if (t->kind == DTRAIN_OP_SGD)
			desc.attrs.sgd.grad_divisor = 1;
		if (t->kind == DTRAIN_OP_ADAM)
			desc.attrs.adam = (dtrain_adam_attrs){.epsilon = 1, .grad_divisor = 1};
		if (t->kind == DTRAIN_OP_LION)
			desc.attrs.lion.grad_divisor = 1;
		if (t->kind == DTRAIN_OP_LARS)
			desc.attrs.lars = (dtrain_lars_attrs){.trust = 1, .epsilon = 1, .grad_divisor = 1};
		dtrain_segment first = {.shape = {1, {4}}};
		if (t->kind == DTRAIN_OP_CAST)
			desc.attrs.cast = (dtrain_cast_attrs){.segments = &first, .num_segments = 1};
		if (t->kind == DTRAIN_OP_GRAD_NORM || t->kind == DTRAIN_OP_CLIP)
			desc.attrs.clip = (dtrain_clip_attrs){.grad_divisor = 1, .max_norm = 1};
		else if (t->kind == DTRAIN_OP_CONV2D)
			desc.attrs.window = (dtrain_window_attrs){.stride = {1, 1}};
		memcpy(desc.inputs, t->inputs, sizeof(desc.inputs));
		memcpy(desc.outputs, t->outputs, sizeof(desc.outputs));
		int status = dtrain__op_check(&desc, &err);
		if (status != (t->message ? BETON_INVALID_ARGUMENT : BETON_OK) ||
		    (t->message && !strstr(err.message, t->message)))
			fail_msg("trial %zu: %d '%s', not '%s'", i, status, err.message, t->message ? t->message : "");
		if (t->message)
			assert_non_null(strstr(err.message, dtrain__op_name(t->kind)));
	}
}

static void moments_belong_to_a_rank(void **state)
{
	(void)state;
	dtrain_op_desc desc = {.kind = DTRAIN_OP_BATCH_NORM_MOMENTS,
			       .num_inputs = 1,
			       .num_outputs = 1,
			       .inputs = {PICTURES(F32)},
			       .outputs = {MOMENTS(F32)}};
	for (int32_t rank = -1; rank <= 4; rank++) {
		beton_error err = {0};
		desc.attrs.norm.rank = rank;
		bool right = rank >= 0 && rank < 4;
		assert_int_equal(dtrain__op_check(&desc, &err), right ? BETON_OK : BETON_INVALID_ARGUMENT);
		assert_true(right || strstr(err.message, "the rank is not one of [4, 7]"));
	}
}

/* Descriptions that are right, and what makes each of them wrong. */
static dtrain_op_desc attention_desc(int32_t heads, int32_t kv_heads)
{
	return (dtrain_op_desc){
		.kind = DTRAIN_OP_ATTENTION,
		.attrs.attention = {.heads = heads, .kv_heads = kv_heads, .causal = true},
		.num_inputs = 3,
		.num_outputs = 2,
		.inputs = {{.dtype = F16, .shape = {3, {2, 5, 12}}},
			   {.dtype = F16, .shape = {3, {2, 5, 6}}},
			   {.dtype = F16, .shape = {3, {2, 5, 6}}}},
		.outputs = {{.dtype = F16, .shape = {3, {2, 5, 12}}}, {.dtype = F32, .shape = {3, {2, 4, 5}}}}};
}

static dtrain_op_desc one_to_one(dtrain_op_kind kind, const dtrain_op_attrs *attrs, int32_t ndim, int64_t last)
{
	dtrain_operand x = {.dtype = BF16, .shape = {ndim, {2, 3, last}}};
	dtrain_op_desc desc = {
		.kind = kind, .attrs = *attrs, .num_inputs = 1, .num_outputs = 1, .inputs = {x}, .outputs = {x}};
	if (kind == DTRAIN_OP_DROPOUT)
		desc.inputs[desc.num_inputs++] = (dtrain_operand){.dtype = I64, .shape = {1, {DTRAIN_RANDOMS}}};
	return desc;
}

static void expect_fault(const dtrain_op_desc *desc, const char *fault)
{
	beton_error err = {0};
	int status = dtrain__op_check(desc, &err);
	assert_int_equal(status, fault ? BETON_INVALID_ARGUMENT : BETON_OK);
	if (fault && !strstr(err.message, fault))
		fail_msg("'%s', not '%s'", err.message, fault);
}

static void attention_has_heads_that_fit(void **state)
{
	(void)state;
	dtrain_op_desc desc = attention_desc(4, 2);
	expect_fault(&desc, NULL);
	desc.inputs[1].shape.dim[1] = desc.inputs[2].shape.dim[1] = 4;
	expect_fault(&desc, "more queries than keys");
	desc.attrs.attention.causal = false;
	expect_fault(&desc, NULL);
	desc.num_inputs = 4;
	desc.inputs[3] = (dtrain_operand){.dtype = DTRAIN_I32, .shape = {2, {2, 5}}};
	expect_fault(&desc, "a segment [b, s] of each query and key");
	desc = attention_desc(4, 3);
	expect_fault(&desc, "4 heads for 3 heads of keys");
	desc = attention_desc(4, 4);
	expect_fault(&desc, "keys [b, s, kv_heads * d]");
	desc = attention_desc(5, 5);
	expect_fault(&desc, "queries [b, t, heads * d]");
	desc = attention_desc(4, 2);
	desc.attrs.attention.scale = -1;
	expect_fault(&desc, "scale -1");
	desc = attention_desc(4, 2);
	desc.outputs[1].shape.dim[1] = 5;
	expect_fault(&desc, "logarithms [b, heads, t]");
}

static void attributes_of_transformers_have_ranges(void **state)
{
	(void)state;
	dtrain_op_attrs rotary = {.rotary = {.head_dim = 4, .theta = 10000}}, dropout = {.dropout = {.p = 0.5}};
	dtrain_op_desc desc = one_to_one(DTRAIN_OP_ROTARY, &rotary, 3, 8);
	expect_fault(&desc, NULL);
	desc.attrs.rotary.head_dim = 3;
	expect_fault(&desc, "heads of 3 elements");
	desc.attrs.rotary = (dtrain_rotary_attrs){.head_dim = 4, .theta = 0};
	expect_fault(&desc, "theta 0");
	desc = one_to_one(DTRAIN_OP_ROTARY, &rotary, 3, 6);
	expect_fault(&desc, "needs [b, t, heads * head_dim]");
	desc = one_to_one(DTRAIN_OP_DROPOUT, &dropout, 3, 6);
	expect_fault(&desc, NULL);
	desc.attrs.dropout.p = 1;
	expect_fault(&desc, "p = 1");
	desc.attrs.dropout.p = NAN;
	expect_fault(&desc, "p = ");
	desc.attrs.dropout.p = 0;
	desc.inputs[1].shape.dim[0] = 3;
	expect_fault(&desc, "needs seed, step, first row and row stride");
}

static void tables_and_losses_have_rows_that_fit(void **state)
{
	(void)state;
	dtrain_op_desc desc = {
		.kind = DTRAIN_OP_EMBEDDING,
		.num_inputs = 2,
		.num_outputs = 1,
		.inputs = {{.dtype = F32, .shape = {2, {9, 4}}}, {.dtype = DTRAIN_I32, .shape = {2, {2, 3}}}},
		.outputs = {{.dtype = BF16, .shape = {3, {2, 3, 4}}}}};
	expect_fault(&desc, NULL);
	desc.inputs[1].dtype = U8;
	expect_fault(&desc, "wrong type of the operand");
	desc.inputs[1].dtype = I64;
	desc.outputs[0].shape.dim[2] = 5;
	expect_fault(&desc, "needs w [v, c], index [n, ...]");
	dtrain_op_desc loss = {.kind = DTRAIN_OP_LINEAR_XENT_EVAL,
			       .attrs.loss = {.ignored = -100},
			       .num_inputs = 3,
			       .num_outputs = 1,
			       .inputs = {{.dtype = BF16, .shape = {2, {3, 4}}},
					  {.dtype = F32, .shape = {2, {9, 4}}},
					  {.dtype = I64, .shape = {1, {3}}}},
			       .outputs = {{.dtype = F32, .shape = {1, {3}}}}};
	expect_fault(&loss, NULL);
	loss.attrs.loss.ignored = 7;
	expect_fault(&loss, "the label to be ignored, 7, is not negative");
	loss.attrs.loss = (dtrain_loss_attrs){.chunk = -1};
	expect_fault(&loss, "chunks of -1 rows");
	loss.attrs.loss.chunk = 0;
	loss.inputs[2].shape.dim[0] = loss.outputs[0].shape.dim[0] = 2;
	expect_fault(&loss, "labels and a loss for each row");
	loss.inputs[3] = loss.inputs[2];
	loss.inputs[2] = (dtrain_operand){.dtype = F32, .shape = {1, {9}}};
	loss.inputs[3].shape.dim[0] = loss.outputs[0].shape.dim[0] = 3;
	loss.num_inputs = 4;
	expect_fault(&loss, "wrong type of the operand");
	loss.kind = DTRAIN_OP_LINEAR_XENT_BIAS_EVAL;
	expect_fault(&loss, NULL);
	loss.inputs[2].shape.dim[0] = 4;
	expect_fault(&loss, "needs a bias for each class");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operands_follow_the_rules),
		cmocka_unit_test(moments_belong_to_a_rank),
		cmocka_unit_test(updates_have_numbers_in_their_ranges),
		cmocka_unit_test(muon_has_matrices_in_order),
		cmocka_unit_test(norms_have_a_divisor_and_a_limit),
		cmocka_unit_test(segments_lie_in_order),
		cmocka_unit_test(gradients_are_divided_by_a_number),
		cmocka_unit_test(attention_has_heads_that_fit),
		cmocka_unit_test(attributes_of_transformers_have_ranges),
		cmocka_unit_test(tables_and_losses_have_rows_that_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
