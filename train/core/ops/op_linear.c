/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *w = &roles->of['W']->shape, *y = &roles->of['Y']->shape;
	const dtrain_linear_attrs *a = &desc->attrs.linear;
	int in = a->weight_in_out ? 0 : 1;
	bool forward = desc->kind == DTRAIN_OP_LINEAR, multiplies = !forward && desc->num_inputs > 2;
	if (x->ndim != 2 || w->ndim != 2 || y->ndim != 2)
		return dtrain__op_bad(desc, "needs 2 dimensions", NULL, err);
	if (x->dim[0] != y->dim[0] || x->dim[1] != w->dim[in] || y->dim[1] != w->dim[1 - in])
		return dtrain__op_bad(desc, "batch or features do not match; weights", roles->of['W'], err);
	if (roles->of['B'] && !dtrain__op_is_vector(roles->of['B'], y->dim[1]))
		return dtrain__op_bad(desc, "bad bias", roles->of['B'], err);
	if (desc->attrs.relu && !forward)
		return dtrain__op_bad(desc, "takes no relu", NULL, err);
	if (a->activation && ((!forward && !multiplies) || desc->attrs.relu))
		return dtrain__op_bad(desc, "takes no activation", NULL, err);
	if (multiplies && a->activation != DTRAIN_ACTIVATION_GELU_TANH)
		return dtrain__op_bad(desc, "has a third input for a GELU with tanh alone", NULL, err);
	if (forward && desc->num_outputs > 1 && !a->activation)
		return dtrain__op_bad(desc, "has a second output with an activation, and only then", NULL, err);
	return BETON_OK;
}

/* A product with rows of x and y. */
static double flops(const dtrain_shape *x, const dtrain_shape *y)
{
	return 2.0 * (double)x->dim[0] * (double)x->dim[1] * (double)y->dim[1];
}

static double forward_flops(const dtrain_op_desc *desc)
{
	return flops(&desc->inputs[0].shape, &desc->outputs[0].shape);
}

static double data_flops(const dtrain_op_desc *desc)
{
	return flops(&desc->outputs[0].shape, &desc->inputs[0].shape);
}

static double weight_flops(const dtrain_op_desc *desc)
{
	return flops(&desc->inputs[0].shape, &desc->inputs[1].shape);
}

/* clang-format off */
#define CASE(n, in, out, bias, ends_in_relu) \
	{.shapes = {{2, {n, in}}, {2, {out, in}}, {1, {out}}, {2, {n, out}}}, .attrs.relu = (ends_in_relu), \
	 .optional_inputs = (bias), .bound = 2e-6}
#define WITH(n, in, out, bias, function, is_in_out) \
	{.shapes = {{2, {n, in}}, {2, {(is_in_out) ? (in) : (out), (is_in_out) ? (out) : (in)}}, {1, {out}}, {2, {n, out}}}, \
	 .attrs.linear = {.activation = DTRAIN_ACTIVATION_##function, .weight_in_out = (is_in_out)}, \
	 .optional_inputs = (bias), .optional_outputs = DTRAIN_ACTIVATION_##function != DTRAIN_ACTIVATION_NONE, .bound = 5e-6}
/* clang-format on */
static const dtrain__op_case cases[] = {
	CASE(4, 32, 16, 1, false),
	CASE(1, 1, 1, 1, false),
	CASE(3, 17, 5, 1, false),
	CASE(7, 192, 10, 1, false),
	CASE(3, 17, 5, 0, false),
	CASE(4, 128, 10, 0, false),
	CASE(4, 32, 16, 1, true),
	CASE(1, 1, 1, 1, true),
	CASE(3, 17, 5, 1, true),
	CASE(7, 192, 10, 1, true),
	CASE(3, 17, 5, 0, true),
	CASE(4, 128, 10, 0, true),
	WITH(4, 32, 16, 1, NONE, true),
	WITH(3, 17, 5, 0, NONE, true),
	WITH(1, 1, 1, 1, NONE, true),
	WITH(5, 33, 70, 1, GELU_TANH, true),
	WITH(4, 16, 33, 1, GELU, false),
	WITH(3, 7, 5, 0, SILU, false),
	WITH(9, 40, 24, 0, GELU, true),
	WITH(1, 5, 1, 1, GELU_TANH, false),
	WITH(16, 32, 64, 1, GELU_TANH, true),
	WITH(8, 24, 16, 0, GELU_TANH, false),
};

/* With the argument of an activation. */
/* clang-format off */
#define SLOPE(n, in, out, is_in_out) \
	{.shapes = {{2, {n, out}}, {2, {(is_in_out) ? (in) : (out), (is_in_out) ? (out) : (in)}}, {2, {n, in}}}, \
	 .attrs.linear = {.activation = DTRAIN_ACTIVATION_GELU_TANH, .weight_in_out = (is_in_out)}, \
	 .optional_inputs = 1, .bound = 5e-6}
/* clang-format on */
static const dtrain__op_case data_cases[] = {
	SLOPE(16, 64, 32, true),
	SLOPE(4, 16, 40, false),
	SLOPE(3, 7, 5, true),
};

const dtrain__op_rules dtrain__op_linear = {.inputs = "XW",
					    .optional_inputs = "B",
					    .outputs = "Y",
					    .optional_outputs = "Y",
					    .check = check,
					    .flops = forward_flops,
					    DTRAIN__OP_CASES(cases)};

const dtrain__op_rules dtrain__op_linear_bwd_data = {.inputs = "YW",
						     .optional_inputs = "X",
						     .outputs = "X",
						     .check = check,
						     .flops = data_flops,
						     DTRAIN__OP_CASES(data_cases)};

const dtrain__op_rules dtrain__op_linear_bwd_weight = {
	.inputs = "XY", .outputs = "W", .optional_outputs = "B", .check = check, .flops = weight_flops};
