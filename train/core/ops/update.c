/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done to parameters after the gradients are there.
 */
#include "common/error.h"
#include "core/op.h"

static int check_sgd(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *scalars = &roles->of['R']->shape;
	int64_t runs = (dtrain_shape_count(&roles->of['F']->shape) + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
	double divisor = desc->attrs.sgd.grad_divisor;
	if (scalars->ndim != 2 || scalars->dim[0] > DTRAIN_PARAM_GROUPS || scalars->dim[1] != DTRAIN_SGD_SCALARS)
		return dtrain__op_bad(desc, "needs two scalars for each of 256 groups at most, not", roles->of['R'],
				      err);
	if (!dtrain__op_is_vector(roles->of['G'], runs))
		return dtrain__op_bad(desc, "needs a group for each 16 elements, not", roles->of['G'], err);
	return divisor > 0 ? BETON_OK
			   : bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: gradients divided by %g",
				     dtrain__op_name(desc->kind), divisor);
}

static int check_lookahead(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	return dtrain__op_is_vector(roles->of['H'], 1)
		       ? BETON_OK
		       : dtrain__op_bad(desc, "needs one weight, not", roles->of['H'], err);
}

const dtrain__op_rules dtrain__op_sgd = {
	.inputs = "FFFRG", .optional_inputs = "A", .outputs = "FF", .check = check_sgd};

const dtrain__op_rules dtrain__op_lookahead = {
	.inputs = "FFH", .outputs = "F", .optional_outputs = "F", .check = check_lookahead};

const dtrain__op_rules dtrain__op_scaler_inspect = {.inputs = "FA", .outputs = "A"};

const dtrain__op_rules dtrain__op_scaler_update = {.inputs = "A", .outputs = "A"};
