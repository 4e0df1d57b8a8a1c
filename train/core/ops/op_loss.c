/* SPDX-License-Identifier: Apache-2.0 */
#include "common/error.h"
#include "core/op.h"
#include "core/shape.h"

static int check_share(const dtrain_op_desc *desc, const char *what, double value, beton_error *err)
{
	return value >= 0 && value <= 1 ? BETON_OK
					: bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %s %g is not in [0, 1]",
						  dtrain__op_name(desc->kind), what, value);
}

/* Checks that all losses of labels share. rows: of the logits. */
static int check_rows(const dtrain_op_desc *desc, const dtrain__op_roles *roles, int64_t rows, beton_error *err)
{
	if (!dtrain__op_is_vector(roles->of['l'], rows) || !dtrain__op_is_vector(roles->of['N'], rows))
		return dtrain__op_bad(desc, "needs labels and a loss for each row, not", roles->of['l'], err);
	int status = check_share(desc, "label smoothing", desc->attrs.loss.label_smoothing, err);
	if (status != BETON_OK)
		return status;
	if (desc->attrs.loss.ignored > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: the label to be ignored, %lld, is not negative",
			       dtrain__op_name(desc->kind), (long long)desc->attrs.loss.ignored);
	return BETON_OK;
}

static int check_loss(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *logits = &roles->of['L']->shape;
	if (logits->ndim != 2)
		return dtrain__op_bad(desc, "needs logits [n, c], not", roles->of['L'], err);
	return check_rows(desc, roles, logits->dim[0], err);
}

static int check_target_loss(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *logits = &roles->of['L']->shape;
	if (logits->ndim != 2 || !dtrain__shape_equal(logits, &roles->of['D']->shape))
		return dtrain__op_bad(desc, "needs [n, c] and a target of that shape, not", roles->of['D'], err);
	if (!dtrain__op_is_vector(roles->of['N'], logits->dim[0]))
		return dtrain__op_bad(desc, "needs a loss for each row, not", roles->of['N'], err);
	int status = check_share(desc, "label smoothing", desc->attrs.loss.label_smoothing, err);
	return status == BETON_OK ? check_share(desc, "threshold", desc->attrs.loss.threshold, err) : status;
}

static int check_one_hot(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *target = &roles->of['D']->shape;
	const dtrain_operand *lambda = roles->of['N'];
	if (target->ndim != 2 || !dtrain__op_is_vector(roles->of['l'], target->dim[0]))
		return dtrain__op_bad(desc, "needs a label for each row of [n, c], not", roles->of['l'], err);
	if (desc->num_inputs == 2 || (lambda && !dtrain__op_is_vector(lambda, target->dim[0])))
		return dtrain__op_bad(desc, "needs a share for each second label, not", lambda, err);
	return BETON_OK;
}

static int check_linear_loss(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *w = &roles->of['W']->shape;
	if (x->ndim != 2 || w->ndim != 2 || x->dim[1] != w->dim[1])
		return dtrain__op_bad(desc, "needs [n, c] and a weight [v, c], not", roles->of['W'], err);
	if (roles->of['B'] && !dtrain__op_is_vector(roles->of['B'], w->dim[0]))
		return dtrain__op_bad(desc, "needs a bias for each class, not", roles->of['B'], err);
	if (desc->attrs.loss.chunk < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: chunks of %lld rows", dtrain__op_name(desc->kind),
			       (long long)desc->attrs.loss.chunk);
	return check_rows(desc, roles, x->dim[0], err);
}

static double linear_loss_flops(const dtrain_op_desc *desc)
{
	const dtrain_shape *x = &desc->inputs[0].shape, *w = &desc->inputs[1].shape;
	double product = 2.0 * (double)dtrain_shape_count(x) * (double)w->dim[0];
	return dtrain__op_rules_of(desc->kind)->loss_gradients ? 3 * product : product;
}

static int check_mean(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_operand *x = roles->of['N'];
	if (x->shape.ndim != 1 || roles->of['S']->shape.ndim != 0)
		return dtrain__op_bad(desc, "goes from [n] to a scalar, not from", x, err);
	if (roles->of['l'] && !dtrain__shape_equal(&roles->of['l']->shape, &x->shape))
		return dtrain__op_bad(desc, "needs a label for each row, not", roles->of['l'], err);
	return BETON_OK;
}

/* x, w, label, scaler (which the tests set): labels are cut off, so that the range from -1.99 has the label -1. BIASED
 * has the bias before the label. */
#define LABELS(v, least)                            \
	{                                           \
		least, (least) < -1 ? (v)-0.01 : -1 \
	}
#define CASE(n, c, v, least, with_scaler, with_hits, smoothing, rows)                             \
	{                                                                                         \
		.shapes = {{2, {n, c}}, {2, {v, c}}, {1, {n}}, {1, {n}}},                         \
		.attrs.loss = {.label_smoothing = (smoothing), .ignored = -1, .chunk = (rows)},   \
		.optional_inputs = (with_scaler), .optional_outputs = (with_hits), .bound = 5e-6, \
		.ranges = (const dtrain__op_range[]){{-2, 2}, {-1, 1}, LABELS(v, least), {0, 0}}, \
	}
#define BIASED(n, c, v, least, with_scaler, with_hits, smoothing, rows)                                    \
	{                                                                                                  \
		.shapes = {{2, {n, c}}, {2, {v, c}}, {1, {v}}, {1, {n}}, {1, {n}}},                        \
		.attrs.loss = {.label_smoothing = (smoothing), .ignored = -1, .chunk = (rows)},            \
		.optional_inputs = (with_scaler), .optional_outputs = (with_hits), .bound = 5e-6,          \
		.ranges = (const dtrain__op_range[]){{-2, 2}, {-1, 1}, {-3, 3}, LABELS(v, least), {0, 0}}, \
	}
#define EVAL(n, c, v, least, with_hits, smoothing) CASE(n, c, v, least, 0, with_hits, smoothing, 0)
#define BIASED_EVAL(n, c, v, least, with_hits, smoothing) BIASED(n, c, v, least, 0, with_hits, smoothing, 0)
static const dtrain__op_case linear_cases[] = {
	CASE(4, 8, 10, -1.01, 0, 0, 0, 0),   CASE(7, 16, 5, -1.99, 0, 1, 0.1, 3),
	CASE(1, 1, 1, -1.01, 0, 1, 0, 1),    CASE(13, 24, 50, -1.99, 0, 1, 0, 13),
	CASE(5, 3, 4, -1, 0, 0, 0, 2),       CASE(3, 5, 1009, -1.99, 0, 1, 0.2, 2),
	CASE(6, 9, 12, -1.99, 1, 1, 0.1, 4),
};
static const dtrain__op_case linear_eval_cases[] = {
	EVAL(7, 16, 5, -1.99, 1, 0.1),
	EVAL(5, 3, 4, -1, 1, 0),
	EVAL(3, 5, 1009, -1.99, 0, 0),
};
static const dtrain__op_case biased_cases[] = {
	BIASED(4, 8, 10, -1.01, 0, 0, 0, 0),   BIASED(7, 16, 5, -1.99, 0, 1, 0.1, 3),
	BIASED(1, 1, 1, -1.01, 0, 1, 0, 1),    BIASED(13, 24, 50, -1.99, 0, 1, 0, 13),
	BIASED(5, 3, 4, -1, 0, 0, 0, 2),       BIASED(3, 5, 1009, -1.99, 0, 1, 0.2, 2),
	BIASED(6, 9, 12, -1.99, 1, 1, 0.1, 4),
};
static const dtrain__op_case biased_eval_cases[] = {
	BIASED_EVAL(7, 16, 5, -1.99, 1, 0.1),
	BIASED_EVAL(5, 3, 4, -1, 1, 0),
	BIASED_EVAL(3, 5, 1009, -1.99, 0, 0),
};

/* logits or x, target, scaler; the shapes: of these two, and of the loss. */
#define TARGETS(n, c, with_scaler, with_hits, smoothing, above)                                   \
	{                                                                                         \
		.shapes = {{2, {n, c}}, {2, {n, c}}, {1, {n}}},                                   \
		.attrs.loss = {.label_smoothing = (smoothing), .threshold = (above)},             \
		.optional_inputs = (with_scaler), .optional_outputs = (with_hits), .bound = 5e-6, \
	}
static const dtrain__op_range target_ranges[] = {{-6, 6}, {0, 1}, {0, 0}};
static const dtrain__op_case soft_cases[] = {
	TARGETS(4, 10, 0, 1, 0, 0),
	TARGETS(1, 1, 0, 1, 0.1, 0),
	TARGETS(3, 131, 0, 0, 0.1, 0),
	TARGETS(7, 5, 1, 1, 0.2, 0),
};
static const dtrain__op_case sigmoid_cases[] = {
	TARGETS(4, 10, 0, 1, 0, 0),     TARGETS(1, 1, 0, 1, 0.1, 0), TARGETS(3, 131, 0, 0, 0, 0.3),
	TARGETS(7, 5, 1, 1, 0.1, 0.25), TARGETS(5, 3, 1, 0, 0.3, 0),
};
static const dtrain__op_case squared_cases[] = {
	TARGETS(4, 1, 0, 0, 0, 0),
	TARGETS(3, 131, 0, 0, 0, 0),
	TARGETS(7, 5, 1, 0, 0, 0),
};

/* label, mixed, lambda: the labels are cut off. */
#define ONE_HOT(n, c, with_mixed)                                                                            \
	{                                                                                                    \
		.shapes = {{1, {n}}, {1, {n}}, {2, {n, c}}}, .optional_inputs = (with_mixed), .bound = 1e-7, \
		.ranges = (const dtrain__op_range[]){{0, (c)-0.01}, {0, (c)-0.01}, {0, 1}},                  \
	}
static const dtrain__op_case one_hot_cases[] = {ONE_HOT(4, 10, 0), ONE_HOT(1, 1, 2), ONE_HOT(9, 2, 2),
						ONE_HOT(3, 300, 2)};

const dtrain__op_rules dtrain__op_softmax_xent = {.inputs = "Ll",
						  .optional_inputs = "A",
						  .outputs = "NL",
						  .optional_outputs = "N",
						  .check = check_loss,
						  .loss_gradients = 1};

const dtrain__op_rules dtrain__op_softmax_xent_mixed = {.inputs = "LllN",
							.optional_inputs = "A",
							.outputs = "NL",
							.optional_outputs = "N",
							.check = check_loss,
							.loss_gradients = 1};

const dtrain__op_rules dtrain__op_one_hot = {.inputs = "l",
					     .optional_inputs = "lN",
					     .outputs = "D",
					     .check = check_one_hot,
					     DTRAIN__OP_CASES(one_hot_cases)};

const dtrain__op_rules dtrain__op_softmax_xent_soft = {.inputs = "LD",
						       .optional_inputs = "A",
						       .outputs = "NL",
						       .optional_outputs = "N",
						       .check = check_target_loss,
						       .loss_gradients = 1,
						       .ranges = target_ranges,
						       DTRAIN__OP_CASES(soft_cases)};

const dtrain__op_rules dtrain__op_sigmoid_xent = {.inputs = "LD",
						  .optional_inputs = "A",
						  .outputs = "NL",
						  .optional_outputs = "N",
						  .check = check_target_loss,
						  .loss_gradients = 1,
						  .ranges = target_ranges,
						  DTRAIN__OP_CASES(sigmoid_cases)};

const dtrain__op_rules dtrain__op_squared_error = {.inputs = "LD",
						   .optional_inputs = "A",
						   .outputs = "NL",
						   .check = check_target_loss,
						   .loss_gradients = 1,
						   .ranges = target_ranges,
						   DTRAIN__OP_CASES(squared_cases)};

const dtrain__op_rules dtrain__op_linear_xent = {.inputs = "XWl",
						 .optional_inputs = "A",
						 .outputs = "NXW",
						 .optional_outputs = "N",
						 .check = check_linear_loss,
						 .flops = linear_loss_flops,
						 .loss_gradients = 2,
						 DTRAIN__OP_CASES(linear_cases)};

const dtrain__op_rules dtrain__op_linear_xent_eval = {.inputs = "XWl",
						      .outputs = "N",
						      .optional_outputs = "N",
						      .check = check_linear_loss,
						      .flops = linear_loss_flops,
						      DTRAIN__OP_CASES(linear_eval_cases)};

const dtrain__op_rules dtrain__op_linear_xent_bias = {.inputs = "XWBl",
						      .optional_inputs = "A",
						      .outputs = "NXWB",
						      .optional_outputs = "N",
						      .check = check_linear_loss,
						      .flops = linear_loss_flops,
						      .loss_gradients = 3,
						      DTRAIN__OP_CASES(biased_cases)};

const dtrain__op_rules dtrain__op_linear_xent_bias_eval = {.inputs = "XWBl",
							   .outputs = "N",
							   .optional_outputs = "N",
							   .check = check_linear_loss,
							   .flops = linear_loss_flops,
							   DTRAIN__OP_CASES(biased_eval_cases)};

const dtrain__op_rules dtrain__op_mean = {.inputs = "N", .optional_inputs = "l", .outputs = "S", .check = check_mean};
