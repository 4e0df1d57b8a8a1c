/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *w = &roles->of['W']->shape, *y = &roles->of['Y']->shape;
	if (x->ndim != 4 || w->ndim != 4 || y->ndim != 4)
		return dtrain__op_bad(desc, "needs 4 dimensions", NULL, err);
	if (x->dim[0] != y->dim[0] || x->dim[1] != w->dim[1] || y->dim[1] != w->dim[0])
		return dtrain__op_bad(desc, "batch or channels do not match; weights", roles->of['W'], err);
	return dtrain__op_check_window(desc, x, y, &w->dim[2], err);
}

static double forward_flops(const dtrain_op_desc *desc)
{
	return dtrain__op_product_flops(&desc->inputs[1].shape, &desc->outputs[0].shape);
}

static double data_flops(const dtrain_op_desc *desc)
{
	return dtrain__op_product_flops(&desc->inputs[1].shape, &desc->inputs[0].shape);
}

static double weight_flops(const dtrain_op_desc *desc)
{
	return dtrain__op_product_flops(&desc->outputs[0].shape, &desc->inputs[1].shape);
}

/* clang-format off */
#define CASE(n, c, h, w, out, kh, kw, sh, sw, ph, pw, oh, ow) \
	{.shapes = {{4, {n, c, h, w}}, {4, {out, c, kh, kw}}, {4, {n, out, oh, ow}}}, \
	 .attrs.window = {.stride = {sh, sw}, .padding = {ph, pw}}, .bound = 2e-6}
/* clang-format on */
static const dtrain__op_case cases[] = {
	/* Convolutions of the models. */
	CASE(2, 3, 16, 16, 16, 3, 3, 1, 1, 1, 1, 16, 16),
	CASE(2, 16, 8, 8, 16, 3, 3, 1, 1, 1, 1, 8, 8),
	CASE(2, 16, 8, 8, 32, 3, 3, 2, 2, 1, 1, 4, 4),
	CASE(2, 16, 8, 8, 32, 1, 1, 2, 2, 0, 0, 4, 4),
	CASE(1, 3, 33, 33, 64, 7, 7, 2, 2, 3, 3, 17, 17),
	CASE(2, 64, 7, 7, 64, 1, 1, 1, 1, 0, 0, 7, 7),
	/* Channels that are not a multiple of a vector, odd sizes, one element, rectangles. */
	CASE(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1),
	CASE(1, 5, 7, 9, 3, 3, 3, 1, 1, 1, 1, 7, 9),
	CASE(3, 17, 5, 5, 19, 3, 3, 2, 2, 1, 1, 3, 3),
	CASE(1, 2, 9, 6, 4, 5, 3, 2, 1, 2, 0, 5, 4),
	CASE(2, 31, 4, 6, 33, 1, 1, 2, 2, 0, 0, 2, 3),
	CASE(1, 4, 3, 3, 4, 3, 3, 1, 1, 0, 0, 1, 1),
	CASE(2, 8, 8, 8, 16, 5, 5, 2, 2, 2, 2, 4, 4),
};

/* With an addend. */
/* clang-format off */
#define SUM(n, c, h, w, out, kh, kw, sh, sw, ph, pw, oh, ow) \
	{.shapes = {{4, {n, out, oh, ow}}, {4, {out, c, kh, kw}}, {4, {n, c, h, w}}}, .optional_inputs = 1, \
	 .attrs.window = {.stride = {sh, sw}, .padding = {ph, pw}}, .bound = 2e-6}
/* clang-format on */
static const dtrain__op_case data_cases[] = {
	SUM(2, 64, 7, 7, 16, 1, 1, 1, 1, 0, 0, 7, 7),
	SUM(2, 16, 8, 8, 32, 3, 3, 2, 2, 1, 1, 4, 4),
	SUM(3, 5, 7, 9, 3, 3, 3, 1, 1, 1, 1, 7, 9),
};

const dtrain__op_rules dtrain__op_conv2d = {
	.inputs = "XW", .outputs = "Y", .check = check, .flops = forward_flops, DTRAIN__OP_CASES(cases)};

const dtrain__op_rules dtrain__op_conv2d_bwd_data = {.inputs = "YW",
						     .optional_inputs = "X",
						     .outputs = "X",
						     .check = check,
						     .flops = data_flops,
						     .in_place = 1u << 2,
						     DTRAIN__OP_CASES(data_cases)};

const dtrain__op_rules dtrain__op_conv2d_bwd_weight = {
	.inputs = "XY", .outputs = "W", .check = check, .flops = weight_flops};
