/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"
#include "core/shape.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *w = &roles->of['W']->shape, *y = &roles->of['Y']->shape, *index = &roles->of['e']->shape;
	bool same = w->ndim == 2 && y->ndim == index->ndim + 1;
	for (int i = 0; same && i < index->ndim; i++)
		same = y->dim[i] == index->dim[i];
	if (!same || y->dim[y->ndim - 1] != w->dim[1])
		return dtrain__op_bad(desc, "needs w [v, c], index [n, ...] and y [n, ..., c], not", roles->of['Y'],
				      err);
	const dtrain_table_attrs *table = &desc->attrs.table;
	bool inside = !table->all || (table->first >= 0 && table->first <= table->all - w->dim[0]);
	return inside ? BETON_OK : dtrain__op_bad(desc, "needs rows inside the table, not", roles->of['W'], err);
}

/* clang-format off */
#define CASE(v, c, ndim, ...) \
	{.shapes = {{2, {v, c}}, {(ndim), {__VA_ARGS__}}, {(ndim) + 1, {__VA_ARGS__, c}}}, .bound = 1e-6, \
	 .ranges = (const dtrain__op_range[]){{-1, 1}, {0, (v) - 0.01}}}
#define CASE2(v, c, n, t) \
	{.shapes = {{2, {v, c}}, {2, {n, t}}, {3, {n, t, c}}}, .bound = 1e-6, \
	 .ranges = (const dtrain__op_range[]){{-1, 1}, {0, (v) - 0.01}}}
/* v rows from `from` on, of `rows`. */
#define PART(v, from, rows, c, n) \
	{.shapes = {{2, {v, c}}, {1, {n}}, {2, {n, c}}}, .attrs.table = {from, rows}, .bound = 1e-6, \
	 .ranges = (const dtrain__op_range[]){{-1, 1}, {0, (rows) - 0.01}}}
/* clang-format on */
static const dtrain__op_case cases[] = {
	CASE(7, 5, 1, 12),    CASE2(50, 16, 3, 7),  CASE2(1, 1, 1, 1),     CASE2(3, 33, 4, 20),
	CASE2(1009, 8, 2, 5), PART(4, 0, 9, 8, 30), PART(5, 4, 9, 3, 200), PART(300, 200, 900, 16, 40),
};

const dtrain__op_rules dtrain__op_embedding = {.inputs = "We", .outputs = "Y", .check = check, DTRAIN__OP_CASES(cases)};

const dtrain__op_rules dtrain__op_embedding_bwd = {
	.inputs = "Ye", .optional_inputs = "W", .outputs = "W", .check = check, .in_place = 1u << 2};
