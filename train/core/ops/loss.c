/* SPDX-License-Identifier: Apache-2.0 */
#include "common/error.h"
#include "core/op.h"

static int check_loss(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *logits = &roles->of['L']->shape;
	double smoothing = desc->attrs.label_smoothing;
	if (logits->ndim != 2)
		return dtrain__op_bad(desc, "needs logits [n, c], not", roles->of['L'], err);
	if (!dtrain__op_is_vector(roles->of['l'], logits->dim[0]) ||
	    !dtrain__op_is_vector(roles->of['N'], logits->dim[0]))
		return dtrain__op_bad(desc, "needs labels and a loss for each row, not", roles->of['l'], err);
	if (!(smoothing >= 0 && smoothing <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: label smoothing %g is not in [0, 1]",
			       dtrain__op_name(desc->kind), smoothing);
	return BETON_OK;
}

static int check_mean(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	if (roles->of['N']->shape.ndim != 1 || roles->of['S']->shape.ndim != 0)
		return dtrain__op_bad(desc, "goes from [n] to a scalar, not from", roles->of['N'], err);
	return BETON_OK;
}

const dtrain__op_rules dtrain__op_softmax_xent = {.inputs = "Ll",
						  .optional_inputs = "A",
						  .outputs = "NL",
						  .optional_outputs = "N",
						  .check = check_loss,
						  .is_loss = true};

const dtrain__op_rules dtrain__op_softmax_xent_mixed = {.inputs = "LllN",
							.optional_inputs = "A",
							.outputs = "NL",
							.optional_outputs = "N",
							.check = check_loss,
							.is_loss = true};

const dtrain__op_rules dtrain__op_mean = {.inputs = "N", .outputs = "S", .check = check_mean};
