/* SPDX-License-Identifier: Apache-2.0 */
#include "common/error.h"
#include "core/op.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_dropout_attrs *a = &desc->attrs.dropout;
	const dtrain_shape *x = &roles->of['X']->shape;
	double p = a->p;
	if (x->ndim < 1)
		return dtrain__op_bad(desc, "needs [n, ...], not", roles->of['X'], err);
	bool halves = a->chunks.ranks && !a->parts;
	if (a->chunks.ranks && ((halves && (x->ndim < 2 || x->dim[1] % 2)) || a->per_row || a->chunks.rank < 0 ||
				a->chunks.rank >= a->chunks.ranks))
		return dtrain__op_bad(desc, "needs two chunks of rows [n, t, ...], not", roles->of['X'], err);
	if (a->parts < 0 || a->first < 0 || (a->parts && a->chunks.ranks && a->parts % 2))
		return dtrain__op_bad(desc, "parts of rows are numbered from 0, and two chunks have an even number",
				      NULL, err);
	return p >= 0 && p < 1 ? BETON_OK
			       : bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: p = %g", dtrain__op_name(desc->kind), p);
}

#define CASE(p_, layer_, rows, ...)                                                               \
	{                                                                                         \
		.shapes = {{__VA_ARGS__}, {1, {DTRAIN_RANDOMS}}},                                 \
		.attrs.dropout = {.p = (p_), .layer = (layer_), .per_row = (rows)}, .bound = 2e-7 \
	}
#define CHUNKS(p_, of_ranks, which, ...)                                                                      \
	{                                                                                                     \
		.shapes = {{__VA_ARGS__}, {1, {DTRAIN_RANDOMS}}},                                             \
		.attrs.dropout = {.p = (p_), .chunks = {.ranks = (of_ranks), .rank = (which)}}, .bound = 2e-7 \
	}
#define PARTS(p_, of, from, rows, of_ranks, which, ...)                             \
	{                                                                           \
		.shapes = {{__VA_ARGS__}, {1, {DTRAIN_RANDOMS}}},                   \
		.attrs.dropout = {.p = (p_),                                        \
				  .per_row = (rows),                                \
				  .chunks = {.ranks = (of_ranks), .rank = (which)}, \
				  .parts = (of),                                    \
				  .first = (from)},                                 \
		.bound = 2e-7                                                       \
	}
static const dtrain__op_case cases[] = {
	CASE(0, 0, false, 2, {5, 7}),
	CASE(0.1, 3, false, 3, {3, 5, 17}),
	CASE(0.5, 1, false, 1, {1003}),
	CASE(0.9, -2, true, 2, {64, 3}),
	CASE(0.25, 7, true, 4, {9, 1, 2, 3}),
	CASE(0.3, 0, false, 2, {3, 64}),
	CHUNKS(0.3, 2, 0, 3, {3, 6, 5}),
	CHUNKS(0.5, 3, 1, 3, {2, 4, 16}),
	CHUNKS(0.2, 2, 1, 2, {1, 2}),
	PARTS(0.4, 5, 3, false, 0, 0, 2, {7, 24}),
	PARTS(0.4, 3, 1, false, 0, 0, 2, {4, 9}),
	PARTS(0.4, 4, 6, true, 0, 0, 2, {8, 16}),
	PARTS(0.4, 4, 3, false, 2, 1, 2, {6, 8}),
	PARTS(0.4, 0, 4, false, 2, 1, 3, {2, 4, 8}),
};
/* x, and the four numbers of random, which are not negative. */
static const dtrain__op_range ranges[] = {{-1, 1}, {0, 1000}};

const dtrain__op_rules dtrain__op_dropout = {
	.inputs = "Xr", .outputs = "X", .check = check, .in_place = 1u << 0, .ranges = ranges, DTRAIN__OP_CASES(cases)};
