/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of a tensor, a row before others, and other orders of dimensions and of rows.
 */
#include "core/op.h"

/* The parts of x are the outputs of SLICE, and the inputs of SLICE_BWD. */
static int check_slice(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *part = &roles->of['Y']->shape;
	const dtrain_slice_attrs *slice = &desc->attrs.slice;
	bool same = x->ndim == part->ndim && slice->dim >= 0 && slice->dim < x->ndim;
	for (int i = 0; same && i < x->ndim; i++)
		same = i == slice->dim || x->dim[i] == part->dim[i];
	if (!same)
		return dtrain__op_bad(desc, "the sides do not match", roles->of['Y'], err);
	int64_t parts = desc->num_outputs;
	if (desc->kind == DTRAIN_OP_SLICE_BWD) {
		uint32_t places = slice->places;
		for (parts = 0; places >> parts; parts++)
			;
		if (__builtin_popcount(places) != desc->num_inputs)
			return dtrain__op_bad(desc, "needs a place for each part", NULL, err);
	}
	if (slice->begin < 0 || parts * part->dim[slice->dim] > x->dim[slice->dim] - slice->begin)
		return dtrain__op_bad(desc, "parts lie outside of", roles->of['X'], err);
	return BETON_OK;
}

static int check_permute(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *y = &roles->of['Y']->shape;
	const int32_t *order = desc->attrs.permute.order;
	unsigned seen = 0;
	bool same = x->ndim == y->ndim;
	for (int i = 0; same && i < x->ndim; i++) {
		same = order[i] >= 0 && order[i] < x->ndim && !(seen >> order[i] & 1) && y->dim[i] == x->dim[order[i]];
		seen |= 1u << (order[i] & 31);
	}
	return same ? BETON_OK : dtrain__op_bad(desc, "the sides do not match", roles->of['Y'], err);
}

static int check_prepend(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape, *y = &roles->of['Y']->shape;
	if (x->ndim != 3 || y->ndim != 3 || y->dim[0] != x->dim[0] || y->dim[1] != x->dim[1] + 1 ||
	    y->dim[2] != x->dim[2])
		return dtrain__op_bad(desc, "needs x [n, t, c] and y [n, t + 1, c], not", roles->of['Y'], err);
	if (!dtrain__op_is_vector(roles->of['W'], x->dim[2]))
		return dtrain__op_bad(desc, "needs a row [c], not", roles->of['W'], err);
	return BETON_OK;
}

static int check_prepend_bwd(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *y = &roles->of['Y']->shape;
	if (y->ndim != 3 || !dtrain__op_is_vector(roles->of['W'], y->dim[2]))
		return dtrain__op_bad(desc, "needs d_y [n, t + 1, c] and d_w [c], not", roles->of['W'], err);
	return BETON_OK;
}

static int check_chunks(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	bool joins = desc->kind == DTRAIN_OP_JOIN_CHUNKS;
	const dtrain_shape *parts = &roles->of[joins ? 'X' : 'Y']->shape, *whole = &roles->of[joins ? 'Y' : 'X']->shape;
	bool rows = parts->ndim == 3 && whole->ndim == 3 && parts->dim[1] % 2 == 0 && parts->dim[2] == whole->dim[2];
	int64_t ranks = rows ? parts->dim[0] / whole->dim[0] : 0;
	return rows && parts->dim[0] == ranks * whole->dim[0] && whole->dim[1] == ranks * parts->dim[1]
		       ? BETON_OK
		       : dtrain__op_bad(desc, "needs two chunks of each rank and the rows of all, not",
					roles->of[joins ? 'Y' : 'X'], err);
}

static const dtrain__op_case slice_cases[] = {
	{.shapes = {{2, {5, 12}}, {2, {5, 4}}}, .attrs.slice = {.dim = 1, .begin = 3}},
	{.shapes = {{2, {5, 12}}, {2, {5, 4}}}, .attrs.slice = {.dim = 1}, .optional_outputs = 2},
	{.shapes = {{3, {3, 7, 5}}, {3, {3, 2, 5}}}, .attrs.slice = {.dim = 1, .begin = 1}, .optional_outputs = 1},
	{.shapes = {{6, {2, 1, 3, 2, 4, 2}}, {6, {1, 1, 3, 2, 4, 2}}}, .attrs.slice = {.dim = 0, .begin = 1}},
};
static const dtrain__op_case permute_cases[] = {
	{.shapes = {{2, {5, 7}}, {2, {7, 5}}}, .attrs.permute.order = {1, 0}},
	{.shapes = {{4, {2, 3, 4, 5}}, {4, {2, 4, 3, 5}}}, .attrs.permute.order = {0, 2, 1, 3}},
	{.shapes = {{5, {2, 3, 4, 5, 3}}, {5, {4, 3, 2, 3, 5}}}, .attrs.permute.order = {2, 1, 0, 4, 3}},
	{.shapes = {{3, {1, 6, 1}}, {3, {6, 1, 1}}}, .attrs.permute.order = {1, 2, 0}},
};

#define CHUNKS(ranks, b, l, c)                                                                 \
	{                                                                                      \
		.shapes = { {3, {(ranks) * (b), 2 * (l), c}}, {3, {b, 2 * (l) * (ranks), c}} } \
	}
#define SPLIT(ranks, b, l, c)                                                                  \
	{                                                                                      \
		.shapes = { {3, {b, 2 * (l) * (ranks), c}}, {3, {(ranks) * (b), 2 * (l), c}} } \
	}
static const dtrain__op_case join_cases[] = {CHUNKS(2, 3, 1, 5), CHUNKS(3, 1, 4, 2), CHUNKS(1, 2, 2, 7),
					     CHUNKS(4, 2, 3, 16)};
static const dtrain__op_case split_cases[] = {SPLIT(2, 3, 1, 5), SPLIT(3, 1, 4, 2), SPLIT(1, 2, 2, 7),
					      SPLIT(4, 2, 3, 16)};

static const dtrain__op_case prepend_cases[] = {
	{.shapes = {{3, {3, 5, 8}}, {1, {8}}, {3, {3, 6, 8}}}, .bound = 2e-7},
	{.shapes = {{3, {1, 1, 1}}, {1, {1}}, {3, {1, 2, 1}}}, .bound = 2e-7},
	{.shapes = {{3, {4, 16, 33}}, {1, {33}}, {3, {4, 17, 33}}}, .bound = 2e-7},
};

const dtrain__op_rules dtrain__op_slice = {.inputs = "X",
					   .outputs = "Y",
					   .optional_outputs = "YYYYYYY",
					   .check = check_slice,
					   DTRAIN__OP_CASES(slice_cases)};

const dtrain__op_rules dtrain__op_slice_bwd = {
	.inputs = "Y", .optional_inputs = "YYYYYYY", .outputs = "X", .check = check_slice};

const dtrain__op_rules dtrain__op_permute = {
	.inputs = "X", .outputs = "Y", .check = check_permute, DTRAIN__OP_CASES(permute_cases)};

const dtrain__op_rules dtrain__op_prepend = {
	.inputs = "XW", .outputs = "Y", .check = check_prepend, DTRAIN__OP_CASES(prepend_cases)};

const dtrain__op_rules dtrain__op_prepend_bwd = {.inputs = "Y", .outputs = "W", .check = check_prepend_bwd};

const dtrain__op_rules dtrain__op_join_chunks = {
	.inputs = "X", .outputs = "Y", .check = check_chunks, DTRAIN__OP_CASES(join_cases)};

const dtrain__op_rules dtrain__op_split_chunks = {
	.inputs = "X", .outputs = "Y", .check = check_chunks, DTRAIN__OP_CASES(split_cases)};
