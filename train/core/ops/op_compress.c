/* SPDX-License-Identifier: Apache-2.0
 *
 * Compressing gradients before they are sent, and decompressing received ones.
 */
#include "core/op.h"

static int check_flat(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_operand *x = &desc->inputs[0], *y = &desc->outputs[0];
	(void)roles;
	if (x->shape.ndim != 1 || y->shape.ndim != 1 || x->shape.dim[0] != y->shape.dim[0])
		return dtrain__op_bad(desc, "needs vectors of equal length, not", x, err);
	return BETON_OK;
}

/* Number of blocks or pairs of that many bytes: all that are written, or one part's that are read. -1: wrong form. */
static int64_t lines_of(const dtrain_shape *shape, bool parts, int64_t bytes)
{
	if (shape->ndim < 2 || (parts && shape->ndim != 3) || shape->dim[shape->ndim - 1] != bytes)
		return -1;
	return parts ? shape->dim[1] : dtrain_shape_count(shape) / bytes;
}

static int check_quantize(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['F']->shape, *codes = &roles->of['c']->shape;
	int64_t blocks = lines_of(codes, desc->kind == DTRAIN_OP_DEQUANTIZE, DTRAIN_CODE_BYTES);
	if (x->ndim != 1)
		return dtrain__op_bad(desc, "needs a vector, not", roles->of['F'], err);
	if (blocks < (x->dim[0] + DTRAIN_CODE_BLOCK - 1) / DTRAIN_CODE_BLOCK)
		return dtrain__op_bad(desc, "needs codes of all elements, not", roles->of['c'], err);
	return BETON_OK;
}

/* An index is an i32. */
static int check_pairs(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['F']->shape, *pairs = &roles->of['c']->shape;
	int64_t count = lines_of(pairs, desc->kind == DTRAIN_OP_SPREAD, DTRAIN_PAIR_BYTES);
	if (x->ndim != 1 || x->dim[0] > INT32_MAX)
		return dtrain__op_bad(desc, "needs a vector of at most 2^31 - 1 elements, not", roles->of['F'], err);
	if (count < 1 || count > x->dim[0])
		return dtrain__op_bad(desc, "needs pairs, no more than elements, not", roles->of['c'], err);
	return BETON_OK;
}

static int check_columns(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['F']->shape;
	if (x->ndim != 2 || x->dim[1] > x->dim[0])
		return dtrain__op_bad(desc, "needs a matrix with no more columns than rows, not", roles->of['F'], err);
	return BETON_OK;
}

static const dtrain__op_case factor_cases[] = {
	{.shapes = {{1, {1}}, {1, {1}}}, .attrs.factor = 0.5, .bound = 2e-7},
	{.shapes = {{1, {1003}}, {1, {1003}}}, .attrs.factor = -3, .bound = 2e-7},
	{.shapes = {{1, {100003}}, {1, {100003}}}, .attrs.factor = 1, .bound = 2e-7},
};
static const dtrain__op_case carry_cases[] = {
	{.shapes = {{1, {1}}}, .attrs.factor = -0.5, .bound = 2e-7},
	{.shapes = {{1, {100003}}}, .attrs.factor = -0.25, .bound = 2e-7},
};

const dtrain__op_rules dtrain__op_narrow = {
	.inputs = "F", .outputs = "X", .check = check_flat, DTRAIN__OP_CASES(factor_cases)};

const dtrain__op_rules dtrain__op_widen = {
	.inputs = "X", .outputs = "F", .check = check_flat, DTRAIN__OP_CASES(factor_cases)};

const dtrain__op_rules dtrain__op_carry = {
	.inputs = "FF", .outputs = "F", .check = check_flat, .in_place = 1u << 0, DTRAIN__OP_CASES(carry_cases)};

const dtrain__op_rules dtrain__op_quantize = {
	.inputs = "F", .outputs = "cF", .check = check_quantize, .updates = 1u << 0, .read_twice = 1u << 0};

const dtrain__op_rules dtrain__op_dequantize = {.inputs = "c", .outputs = "F", .check = check_quantize};

const dtrain__op_rules dtrain__op_top_k = {
	.inputs = "F", .outputs = "cF", .check = check_pairs, .updates = 1u << 0, .read_twice = 1u << 0};

const dtrain__op_rules dtrain__op_spread = {.inputs = "c", .outputs = "F", .check = check_pairs};

const dtrain__op_rules dtrain__op_orthonormalize = {
	.inputs = "Fr", .outputs = "Fr", .check = check_columns, .updates = 1u << 0 | 1u << 1};
