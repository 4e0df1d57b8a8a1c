/* SPDX-License-Identifier: Apache-2.0
 *
 * Pooling, and flattening to rows.
 */
#include "core/op.h"
#include "core/shape.h"

static int check_max_pool(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *y = &roles->of['Y']->shape;
	const int32_t *kernel = desc->attrs.window.kernel, *padding = desc->attrs.window.padding;
	if (x->ndim != 4 || y->ndim != 4 || x->dim[0] != y->dim[0] || x->dim[1] != y->dim[1])
		return dtrain__op_bad(desc, "batch or channels do not match", roles->of['Y'], err);
	if (!dtrain__shape_equal(&roles->of['i']->shape, y))
		return dtrain__op_bad(desc, "bad index", roles->of['i'], err);
	if (padding[0] > kernel[0] / 2 || padding[1] > kernel[1] / 2)
		return dtrain__op_bad(desc, "padding above half of the kernel", NULL, err);
	if (kernel[0] < 1 || kernel[1] < 1 || (int64_t)kernel[0] * kernel[1] > 256)
		return dtrain__op_bad(desc, "a window of more than 256 elements", NULL, err);
	return dtrain__op_check_window(desc, x, y, (int64_t[]){kernel[0], kernel[1]}, err);
}

static int check_rows(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *y = &roles->of['Y']->shape;
	bool flatten = desc->kind == DTRAIN_OP_FLATTEN || desc->kind == DTRAIN_OP_FLATTEN_BWD;
	bool same = flatten ? dtrain_shape_count(x) == dtrain_shape_count(y) : x->ndim == 4 && x->dim[1] == y->dim[1];
	if (x->ndim < 2 || y->ndim != 2 || x->dim[0] != y->dim[0] || !same)
		return dtrain__op_bad(desc, "the sides do not match", roles->of['Y'], err);
	return BETON_OK;
}

/* clang-format off */
#define MAX(n, c, h, w, kh, kw, sh, sw, ph, pw, oh, ow) \
	{.shapes = {{4, {n, c, h, w}}, {4, {n, c, oh, ow}}, {4, {n, c, oh, ow}}}, \
	 .attrs.window = {.kernel = {kh, kw}, .stride = {sh, sw}, .padding = {ph, pw}}, .bound = 2e-7}
/* clang-format on */
static const dtrain__op_case max_cases[] = {
	MAX(2, 16, 8, 8, 3, 3, 2, 2, 1, 1, 4, 4),
	MAX(1, 3, 7, 9, 2, 2, 2, 2, 0, 0, 3, 4),
	MAX(1, 5, 6, 5, 3, 2, 1, 2, 1, 0, 6, 2),
	MAX(2, 17, 3, 3, 3, 3, 3, 3, 0, 0, 1, 1),
	/* Windows of the whole picture. */
	MAX(2, 16, 6, 6, 6, 6, 6, 6, 0, 0, 1, 1),
	MAX(1, 3, 8, 16, 8, 16, 8, 16, 0, 0, 1, 1),
};
static const dtrain__op_case average_cases[] = {
	{.shapes = {{4, {2, 16, 4, 4}}, {2, {2, 16}}}, .bound = 1e-6},
	{.shapes = {{4, {1, 64, 1, 1}}, {2, {1, 64}}}, .bound = 1e-6},
	{.shapes = {{4, {3, 7, 5, 3}}, {2, {3, 7}}}, .bound = 1e-6},
};
static const dtrain__op_case flatten_cases[] = {
	{.shapes = {{4, {2, 3, 4, 5}}, {2, {2, 60}}}},
	{.shapes = {{4, {1, 16, 1, 1}}, {2, {1, 16}}}},
};

const dtrain__op_rules dtrain__op_max_pool = {
	.inputs = "X", .outputs = "Yi", .check = check_max_pool, .distinct = true, DTRAIN__OP_CASES(max_cases)};

const dtrain__op_rules dtrain__op_max_pool_bwd = {.inputs = "Yi", .outputs = "X", .check = check_max_pool};

const dtrain__op_rules dtrain__op_global_avg_pool = {
	.inputs = "X", .outputs = "Y", .check = check_rows, DTRAIN__OP_CASES(average_cases)};

const dtrain__op_rules dtrain__op_global_avg_pool_bwd = {.inputs = "Y", .outputs = "X", .check = check_rows};

const dtrain__op_rules dtrain__op_flatten = {
	.inputs = "X", .outputs = "Y", .check = check_rows, DTRAIN__OP_CASES(flatten_cases)};

const dtrain__op_rules dtrain__op_flatten_bwd = {.inputs = "Y", .outputs = "X", .check = check_rows};
