/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"
#include "core/shape.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape;
	if (x->ndim != 2 && x->ndim != 4)
		return dtrain__op_bad(desc, "needs [n, c] or [n, c, h, w], not", roles->of['X'], err);
	if (!dtrain__op_is_vector(roles->of['C'], x->dim[1]))
		return dtrain__op_bad(desc, "needs a value for each channel, not", roles->of['C'], err);
	if (roles->of['m'] && !dtrain__shape_equal(&roles->of['m']->shape, x))
		return dtrain__op_bad(desc, "bad mask", roles->of['m'], err);
	if (desc->kind != DTRAIN_OP_BATCH_NORM_EVAL && dtrain_shape_count(x) == x->dim[1])
		return dtrain__op_bad(desc, "statistics of one value a channel; x is", roles->of['X'], err);
	bool needs_mask = desc->attrs.relu && desc->kind != DTRAIN_OP_BATCH_NORM_EVAL;
	if (needs_mask != (roles->of['m'] != NULL))
		return dtrain__op_bad(desc, "takes a mask with relu, and only then", NULL, err);
	bool residual = desc->kind == DTRAIN_OP_BATCH_NORM_BWD ? desc->num_outputs > 3 : desc->num_inputs > 5;
	if (residual && !desc->attrs.relu)
		return dtrain__op_bad(desc, "takes a residual with relu, and only then", NULL, err);
	return BETON_OK;
}

static void repeat(dtrain_op_attrs *attrs)
{
	attrs->norm.momentum = 0;
}

/* x, gamma, beta, running mean and variance, residual */
static const dtrain__op_range ranges[] = {{-2, 3}, {0.5, 1.5}, {-1, 1}, {-1, 1}, {0.5, 2}, {-2, 2}};
static const dtrain__op_range pair_ranges[] = {{-2, 3}, {0.5, 1.5}, {-1, 1}, {-1, 1}, {0.5, 2},
					       {-3, 1}, {0.5, 1.5}, {-1, 1}, {-1, 1}, {0.5, 2}};

/* clang-format off */
#define TRAIN(ndim, n, c, h, w, relu, residual) \
	{.shapes = {{ndim, {n, c, h, w}}, {1, {c}}, {ndim, {n, c, h, w}}}, \
	 .attrs = {relu, .norm = {.epsilon = 1e-5, .momentum = 0.1}}, \
	 .optional_inputs = (residual), .optional_outputs = (relu), .bound = 1e-5}
#define PAIR(ndim, n, c, h, w) \
	{.shapes = {{ndim, {n, c, h, w}}, {1, {c}}, {ndim, {n, c, h, w}}}, \
	 .attrs = {true, .norm = {.epsilon = 1e-5, .momentum = 0.1}}, .bound = 1e-5}
#define EVAL(n, c, h, w, relu, residual) \
	{.shapes = {{4, {n, c, h, w}}, {1, {c}}}, .attrs = {relu, .norm = {.epsilon = 1e-5, .momentum = 0.1}}, \
	 .optional_inputs = (residual), .bound = 2e-6}
/* clang-format on */
static const dtrain__op_case training_cases[] = {
	TRAIN(4, 2, 16, 4, 4, 0, 0), TRAIN(4, 2, 16, 4, 4, 1, 0), TRAIN(4, 1, 3, 5, 7, 0, 0),
	TRAIN(4, 3, 5, 3, 3, 1, 0),  TRAIN(4, 5, 33, 1, 1, 1, 0), TRAIN(2, 6, 20, 0, 0, 0, 0),
	TRAIN(4, 2, 16, 4, 4, 1, 1), TRAIN(4, 3, 5, 3, 7, 1, 1),  TRAIN(2, 7, 12, 0, 0, 1, 1),
};
static const dtrain__op_case pair_cases[] = {
	PAIR(4, 2, 16, 4, 4), PAIR(4, 3, 5, 3, 7), PAIR(4, 5, 33, 1, 1), PAIR(4, 7, 8, 9, 5), PAIR(2, 7, 12, 0, 0),
};
static const dtrain__op_case evaluation_cases[] = {
	EVAL(2, 16, 4, 4, 1, 1),
	EVAL(3, 5, 1, 7, 1, 1),
	EVAL(2, 16, 4, 4, 1, 0),
	EVAL(1, 5, 3, 1, 0, 0),
};

const dtrain__op_rules dtrain__op_batch_norm_train = {.inputs = "XCCCC",
						      .optional_inputs = "X",
						      .outputs = "XCC",
						      .optional_outputs = "m",
						      .check = check,
						      .updates = 1u << 3 | 1u << 4,
						      .repeat = repeat,
						      .read_twice = 1u << 0,
						      .ranges = ranges,
						      DTRAIN__OP_CASES(training_cases)};

const dtrain__op_rules dtrain__op_batch_norm_eval = {.inputs = "XCCCC",
						     .optional_inputs = "X",
						     .outputs = "X",
						     .check = check,
						     .ranges = ranges,
						     DTRAIN__OP_CASES(evaluation_cases)};

/* x, d_y and the mask are read twice. */
const dtrain__op_rules dtrain__op_batch_norm_bwd = {.inputs = "XXCCC",
						    .optional_inputs = "m",
						    .outputs = "XCC",
						    .optional_outputs = "X",
						    .check = check,
						    .read_twice = 1u << 0 | 1u << 1 | 1u << 5};

const dtrain__op_rules dtrain__op_batch_norm_pair = {.inputs = "XCCCCXCCCC",
						     .outputs = "XCCCCm",
						     .check = check,
						     .updates = 1u << 3 | 1u << 4 | 1u << 8 | 1u << 9,
						     .repeat = repeat,
						     .read_twice = 1u << 0 | 1u << 5,
						     .ranges = pair_ranges,
						     DTRAIN__OP_CASES(pair_cases)};

/* Both x, d_y and the mask are read twice. */
const dtrain__op_rules dtrain__op_batch_norm_pair_bwd = {.inputs = "XXCCCmXCCC",
							 .outputs = "XCCXCC",
							 .check = check,
							 .read_twice = 1u << 0 | 1u << 1 | 1u << 5 | 1u << 6};
