/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm with statistics, and sums of its gradient, over several ranks' batches.
 */
#include "core/op.h"
#include "core/shape.h"

static int64_t row_length(const dtrain_shape *x)
{
	return 2 * x->dim[1] + 1;
}

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape;
	const dtrain_operand *numbers = roles->of['M'], *mask = roles->of['m'];
	if (x->ndim != 2 && x->ndim != 4)
		return dtrain__op_bad(desc, "needs [n, c] or [n, c, h, w], not", roles->of['X'], err);
	if (roles->of['C'] && !dtrain__op_is_vector(roles->of['C'], x->dim[1]))
		return dtrain__op_bad(desc, "needs a value for each channel, not", roles->of['C'], err);
	bool has_ranks = desc->kind == DTRAIN_OP_BATCH_NORM_MOMENTS || desc->kind == DTRAIN_OP_BATCH_NORM_SYNC;
	if (has_ranks && (numbers->shape.ndim != 2 || numbers->shape.dim[1] != row_length(x)))
		return dtrain__op_bad(desc, "needs [ranks, 2 c + 1], not", numbers, err);
	if (!has_ranks && !dtrain__op_is_vector(numbers, row_length(x)))
		return dtrain__op_bad(desc, "needs [2 c + 1], not", numbers, err);
	if (mask && !dtrain__shape_equal(&mask->shape, x))
		return dtrain__op_bad(desc, "bad mask", mask, err);
	return BETON_OK;
}

static int check_moments(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	int status = check(desc, roles, err);
	int32_t rank = desc->attrs.norm.rank;
	if (status == BETON_OK && (rank < 0 || rank >= roles->of['M']->shape.dim[0]))
		return dtrain__op_bad(desc, "the rank is not one of", roles->of['M'], err);
	return status;
}

static int check_relu(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	int status = check(desc, roles, err);
	if (status == BETON_OK && desc->attrs.relu != (roles->of['m'] != NULL))
		return dtrain__op_bad(desc, "takes a mask with relu, and only then", NULL, err);
	bool residual = desc->kind == DTRAIN_OP_BATCH_NORM_SYNC       ? desc->num_inputs > 6
			: desc->kind == DTRAIN_OP_BATCH_NORM_SYNC_BWD ? desc->num_outputs > 1
								      : false;
	if (status == BETON_OK && residual && !desc->attrs.relu)
		return dtrain__op_bad(desc, "takes a residual with relu, and only then", NULL, err);
	return status;
}

static void repeat(dtrain_op_attrs *attrs)
{
	attrs->norm.momentum = 0;
}

const dtrain__op_rules dtrain__op_batch_norm_moments = {.inputs = "X", .outputs = "M", .check = check_moments};

const dtrain__op_rules dtrain__op_batch_norm_sync = {.inputs = "XCCCCM",
						     .optional_inputs = "X",
						     .outputs = "XCC",
						     .optional_outputs = "m",
						     .check = check_relu,
						     .updates = 1u << 3 | 1u << 4,
						     .repeat = repeat};

const dtrain__op_rules dtrain__op_batch_norm_sums = {
	.inputs = "XXCC", .optional_inputs = "m", .outputs = "MCC", .check = check_relu};

const dtrain__op_rules dtrain__op_batch_norm_sync_bwd = {
	.inputs = "XXCCCM", .optional_inputs = "m", .outputs = "X", .optional_outputs = "X", .check = check_relu};
