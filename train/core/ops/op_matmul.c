/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"
#include "core/shape.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_matmul_attrs *at = &desc->attrs.matmul;
	const dtrain_shape *a = &roles->of['X']->shape, *b = &roles->of['Y']->shape, *y = &roles->of['K']->shape;
	int n = y->ndim, row = n - 2, column = n - 1;
	bool same = n >= 2 && a->ndim == n && b->ndim == n;
	for (int i = 0; same && i < row; i++)
		same = a->dim[i] == y->dim[i] && b->dim[i] == y->dim[i];
	same = same && a->dim[at->transpose_a ? column : row] == y->dim[row] &&
	       b->dim[at->transpose_b ? row : column] == y->dim[column] &&
	       a->dim[at->transpose_a ? row : column] == b->dim[at->transpose_b ? column : row];
	return same ? BETON_OK : dtrain__op_bad(desc, "the sides do not match", roles->of['Y'], err);
}

static double flops(const dtrain_op_desc *desc)
{
	const dtrain_shape *a = &desc->inputs[0].shape;
	int64_t inner = a->dim[a->ndim - (desc->attrs.matmul.transpose_a ? 2 : 1)];
	return 2.0 * (double)dtrain_shape_count(&desc->outputs[0].shape) * (double)inner;
}

/* clang-format off */
#define CASE(batch, m, n, k, a_is, b_is, factor) \
	{.shapes = {{3, {batch, (a_is) ? (k) : (m), (a_is) ? (m) : (k)}}, {3, {batch, (b_is) ? (n) : (k), (b_is) ? (k) : (n)}}, \
		    {3, {batch, m, n}}}, \
	 .attrs.matmul = {.transpose_a = (a_is), .transpose_b = (b_is), .alpha = (factor)}, .bound = 5e-6}
/* clang-format on */
static const dtrain__op_case cases[] = {
	CASE(2, 5, 7, 3, false, false, 1),
	CASE(1, 1, 1, 1, false, true, 2),
	CASE(3, 4, 9, 17, true, false, 0.125),
	CASE(2, 33, 6, 20, true, true, -1.5),
	{.shapes = {{2, {5, 12}}, {2, {12, 8}}, {2, {5, 8}}}, .attrs.matmul.alpha = 1, .bound = 5e-6},
};

const dtrain__op_rules dtrain__op_matmul = {
	.inputs = "XY", .outputs = "K", .check = check, .flops = flops, DTRAIN__OP_CASES(cases)};
