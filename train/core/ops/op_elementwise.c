/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise additions and multiplications.
 */
#include "core/op.h"

static int check_channel_bias(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape;
	if (x->ndim != 4)
		return dtrain__op_bad(desc, "needs [n, c, h, w], not", roles->of['X'], err);
	if (!dtrain__op_is_vector(roles->of['C'], x->dim[1]))
		return dtrain__op_bad(desc, "needs a value for each channel, not", roles->of['C'], err);
	return BETON_OK;
}

static const dtrain__op_case add_cases[] = {
	{.shapes = {{4, {2, 16, 4, 4}}}, .attrs.relu = true, .bound = 1e-7},
	{.shapes = {{4, {1, 3, 5, 7}}}, .bound = 1e-7},
	{.shapes = {{2, {5, 9}}}, .attrs.relu = true, .bound = 1e-7},
	{.shapes = {{1, {1}}}, .bound = 1e-7},
	{.shapes = {{1, {100003}}}, .bound = 1e-7},
};
static const dtrain__op_case scale_cases[] = {
	{.shapes = {{4, {2, 16, 4, 4}}}, .attrs.factor = 0.2, .bound = 2e-7},
	{.shapes = {{2, {5, 9}}}, .attrs.factor = -3, .bound = 2e-7},
};
static const dtrain__op_case bias_cases[] = {
	{.shapes = {{4, {2, 16, 4, 4}}, {1, {16}}}, .bound = 2e-7},
	{.shapes = {{4, {3, 5, 1, 7}}, {1, {5}}}, .bound = 2e-7},
	{.shapes = {{4, {1, 1, 1, 1}}, {1, {1}}}, .bound = 2e-7},
	{.shapes = {{4, {5, 33, 1, 1}}, {1, {33}}}, .bound = 2e-7},
	{.shapes = {{4, {2, 17, 9, 3}}, {1, {17}}}, .bound = 2e-7},
	{.shapes = {{4, {8, 24, 15, 15}}, {1, {24}}}, .bound = 2e-6},
};

const dtrain__op_rules dtrain__op_add = {
	.inputs = "XX", .outputs = "X", .in_place = 1u << 0, DTRAIN__OP_CASES(add_cases)};

const dtrain__op_rules dtrain__op_scale = {.inputs = "X", .outputs = "X", DTRAIN__OP_CASES(scale_cases)};

const dtrain__op_rules dtrain__op_channel_bias = {
	.inputs = "XC", .outputs = "X", .check = check_channel_bias, .in_place = 1u << 0, DTRAIN__OP_CASES(bias_cases)};

const dtrain__op_rules dtrain__op_channel_bias_bwd = {.inputs = "X", .outputs = "C", .check = check_channel_bias};
