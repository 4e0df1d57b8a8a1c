/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross entropy of logits whose classes are divided among ranks.
 */
#include "common/error.h"
#include "core/op.h"

/* part is [ranks, 3, n]. */
static int check_numbers(const dtrain_op_desc *desc, const dtrain__op_roles *roles, int64_t rows, beton_error *err)
{
	const dtrain_operand *part = roles->of['M'];
	if (part->shape.ndim != 3 || part->shape.dim[1] != 3 || part->shape.dim[2] != rows)
		return dtrain__op_bad(desc, "needs [ranks, 3, n], not", part, err);
	if (!dtrain__op_is_vector(roles->of['l'], rows))
		return dtrain__op_bad(desc, "needs a label for each row, not", roles->of['l'], err);
	if (desc->attrs.loss.ignored > 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: the label to be ignored, %lld, is not negative",
			       dtrain__op_name(desc->kind), (long long)desc->attrs.loss.ignored);
	return BETON_OK;
}

static int check_part(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_operand *logits = roles->of['L'];
	const dtrain_loss_attrs *attrs = &desc->attrs.loss;
	if (logits->shape.ndim != 2)
		return dtrain__op_bad(desc, "needs logits [n, c], not", logits, err);
	int status = check_numbers(desc, roles, logits->shape.dim[0], err);
	if (status == BETON_OK && (attrs->rank < 0 || attrs->rank >= roles->of['M']->shape.dim[0] || attrs->first < 0))
		return dtrain__op_bad(desc, "the rank is not one of", roles->of['M'], err);
	return status;
}

static int check_join(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_operand *loss = roles->of['N'];
	const dtrain_loss_attrs *attrs = &desc->attrs.loss;
	if (loss->shape.ndim != 1)
		return dtrain__op_bad(desc, "needs a loss for each row, not", loss, err);
	if (!(attrs->label_smoothing >= 0 && attrs->label_smoothing <= 1) || attrs->classes < 1)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: label smoothing %g of %lld classes",
			       dtrain__op_name(desc->kind), attrs->label_smoothing, (long long)attrs->classes);
	return check_numbers(desc, roles, loss->shape.dim[0], err);
}

/* Labels are cut off, so that the range from -1.99 has the label -1. */
#define PART(n, c, all, from, ranks, number, least)                                              \
	{                                                                                        \
		.shapes = {{2, {n, c}}, {1, {n}}, {3, {ranks, 3, n}}},                           \
		.attrs.loss = {.ignored = -1, .first = (from), .rank = (number)}, .bound = 5e-6, \
		.ranges = (const dtrain__op_range[]){{-6, 6}, {least, (all)-0.01}},              \
	}
#define JOIN(n, all, ranks, least, with_scaler, smoothing)                                                      \
	{                                                                                                       \
		.shapes = {{3, {ranks, 3, n}}, {1, {n}}, {1, {n}}},                                             \
		.attrs.loss = {.label_smoothing = (smoothing), .ignored = -1, .classes = (all)}, .bound = 5e-6, \
		.optional_inputs = (with_scaler),                                                               \
		.ranges = (const dtrain__op_range[]){{-6, 6}, {least, (all)-0.01}, {0, 0}},                     \
	}
static const dtrain__op_case part_cases[] = {
	PART(5, 6, 13, 0, 2, 0, 0),          PART(7, 7, 13, 6, 2, 1, -1.99),  PART(1, 1, 1, 0, 1, 0, 0),
	PART(9, 131, 400, 131, 3, 1, -1.99), PART(3, 1009, 2018, 0, 2, 0, 0),
};
static const dtrain__op_case join_cases[] = {
	JOIN(5, 13, 2, 0, 0, 0),
	JOIN(7, 13, 2, -1.99, 1, 0.1),
	JOIN(1, 1, 1, 0, 0, 0.2),
	JOIN(300, 50257, 4, -1.99, 0, 0.1),
};

const dtrain__op_rules dtrain__op_xent_part = {
	.inputs = "Ll", .outputs = "M", .check = check_part, DTRAIN__OP_CASES(part_cases)};

const dtrain__op_rules dtrain__op_xent_part_bwd = {
	.inputs = "LlMM", .outputs = "L", .check = check_part, .in_place = 1u << 0};

const dtrain__op_rules dtrain__op_xent_join = {.inputs = "Ml",
					       .optional_inputs = "A",
					       .outputs = "NM",
					       .check = check_join,
					       .loss_gradients = 1,
					       DTRAIN__OP_CASES(join_cases)};
