/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"
#include "core/shape.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	if (!dtrain__shape_equal(&roles->of['W']->shape, &roles->of['X']->shape))
		return dtrain__op_bad(desc, "shape does not match", roles->of['X'], err);
	return BETON_OK;
}

/* Rounding is exact, and so is the bound. */
#define CASE(ndim, ...)                                                    \
	{                                                                  \
		.shapes = { {ndim, {__VA_ARGS__}}, {ndim, {__VA_ARGS__}} } \
	}
static const dtrain__op_case cases[] = {
	CASE(4, 16, 8, 3, 3), CASE(4, 33, 31, 3, 5), CASE(4, 19, 17, 1, 1), CASE(4, 5, 1, 2, 2),
	CASE(4, 1, 1, 1, 1),  CASE(2, 17, 5),        CASE(2, 64, 96),       CASE(1, 100003),
};

const dtrain__op_rules dtrain__op_cast = {.inputs = "W", .outputs = "X", .check = check, DTRAIN__OP_CASES(cases)};
