/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of one type from a flat range of another.
 */
#include "common/error.h"
#include "core/op.h"
#include "core/shape.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_cast_attrs *a = &desc->attrs.cast;
	const dtrain_shape *flat = &roles->of['F']->shape;
	int64_t end = 0;
	if (flat->ndim != 1 || !dtrain__shape_equal(flat, &roles->of['X']->shape))
		return dtrain__op_bad(desc, "shape does not match", roles->of['X'], err);
	if (a->num_segments < 1 || !a->segments)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: %d segments", dtrain__op_name(desc->kind),
			       a->num_segments);
	for (int32_t i = 0; i < a->num_segments; i++) {
		const dtrain_segment *segment = &a->segments[i];
		int64_t count = dtrain_shape_count(&segment->shape);
		char text[DTRAIN__SHAPE_TEXT];
		if (count < 1 || segment->offset < end || segment->offset % DTRAIN_PARAM_ALIGN != 0 ||
		    segment->offset > flat->dim[0] - count)
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "op %s: segment %d, %s from element %lld on, after element %lld of %lld",
				       dtrain__op_name(desc->kind), i, dtrain__shape_text(&segment->shape, text),
				       (long long)segment->offset, (long long)end, (long long)flat->dim[0]);
		end = segment->offset + count;
	}
	return BETON_OK;
}

/* Filters of one pixel; filters of one channel; filters smaller and larger than the piece that a kernel moves at once;
 * matrices and vectors between them; one segment alone. Nothing lies between two segments, because its value is not
 * specified. op_create writes the layouts. */
static dtrain_segment filters[] = {
	{0, {4, {16, 8, 3, 3}}, NULL},     {1152, {4, {32, 1, 2, 2}}, NULL},   {1280, {1, {64}}, NULL},
	{1344, {4, {8, 520, 3, 3}}, NULL}, {38784, {4, {2, 8, 33, 33}}, NULL}, {56208, {4, {7, 48, 1, 1}}, NULL},
	{56544, {2, {33, 17}}, NULL},
};
static dtrain_segment one_filter[] = {{0, {4, {5, 31, 3, 5}}, NULL}};
static dtrain_segment one_vector[] = {{0, {1, {100003}}, NULL}};
static dtrain_segment one_element[] = {{0, {0}, NULL}};
/* Rounding is exact, and so is the bound. */
#define CASE(n, list)                                                    \
	{                                                                \
		.shapes = {{1, {n}}, {1, {n}}}, .attrs.cast = {          \
			.segments = (list),                              \
			.num_segments = sizeof(list) / sizeof((list)[0]) \
		}                                                        \
	}
static const dtrain__op_case cases[] = {
	CASE(56544 + 33 * 17, filters),
	CASE(5 * 31 * 3 * 5, one_filter),
	CASE(100003, one_vector),
	CASE(1, one_element),
};

const dtrain__op_rules dtrain__op_cast = {.inputs = "F", .outputs = "X", .check = check, DTRAIN__OP_CASES(cases)};
