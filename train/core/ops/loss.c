/* SPDX-License-Identifier: Apache-2.0 */
#include "common/error.h"
#include "core/op.h"
#include "core/shape.h"

/* What all losses have in common. rows: of the logits. */
static int check_rows(const dtrain_op_desc *desc, const dtrain__op_roles *roles, int64_t rows, beton_error *err)
{
	double smoothing = desc->attrs.loss.label_smoothing;
	if (!dtrain__op_is_vector(roles->of['l'], rows) || !dtrain__op_is_vector(roles->of['N'], rows))
		return dtrain__op_bad(desc, "needs labels and a loss for each row, not", roles->of['l'], err);
	if (!(smoothing >= 0 && smoothing <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: label smoothing %g is not in [0, 1]",
			       dtrain__op_name(desc->kind), smoothing);
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

static int check_linear_loss(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *w = &roles->of['W']->shape;
	if (x->ndim != 2 || w->ndim != 2 || x->dim[1] != w->dim[1])
		return dtrain__op_bad(desc, "needs [n, c] and a weight [v, c], not", roles->of['W'], err);
	if (desc->attrs.loss.chunk < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: chunks of %lld rows", dtrain__op_name(desc->kind),
			       (long long)desc->attrs.loss.chunk);
	return check_rows(desc, roles, x->dim[0], err);
}

static double linear_loss_flops(const dtrain_op_desc *desc)
{
	const dtrain_shape *x = &desc->inputs[0].shape, *w = &desc->inputs[1].shape;
	double product = 2.0 * (double)dtrain_shape_count(x) * (double)w->dim[0];
	return desc->kind == DTRAIN_OP_LINEAR_XENT ? 3 * product : product;
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

/* x, w, label, scaler (which the tests set): labels are cut off, so that the range from -1.99 has the label -1. */
#define CASE(n, c, v, least, with_scaler, with_hits, smoothing, rows)                                                  \
	{                                                                                                              \
		.shapes = {{2, {n, c}}, {2, {v, c}}, {1, {n}}, {1, {n}}},                                              \
		.attrs.loss = {.label_smoothing = (smoothing), .ignored = -1, .chunk = (rows)},                        \
		.optional_inputs = (with_scaler), .optional_outputs = (with_hits), .bound = 5e-6,                      \
		.ranges = (const dtrain__op_range[]){{-2, 2}, {-1, 1}, {least, (least) < -1 ? (v)-0.01 : -1}, {0, 0}}, \
	}
#define EVAL(n, c, v, least, with_hits, smoothing) CASE(n, c, v, least, 0, with_hits, smoothing, 0)
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

const dtrain__op_rules dtrain__op_mean = {.inputs = "N", .optional_inputs = "l", .outputs = "S", .check = check_mean};
