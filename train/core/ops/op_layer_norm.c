/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['X']->shape;
	if (x->ndim < 2)
		return dtrain__op_bad(desc, "needs [n, ..., c], not", roles->of['X'], err);
	int64_t columns = x->dim[x->ndim - 1];
	if (!dtrain__op_is_vector(roles->of['P'], columns))
		return dtrain__op_bad(desc, "needs a value for each column, not", roles->of['P'], err);
	if (!dtrain__op_is_vector(roles->of['N'], dtrain_shape_count(x) / columns))
		return dtrain__op_bad(desc, "needs statistics of each row, not", roles->of['N'], err);
	return BETON_OK;
}

/* x, gamma, beta */
static const dtrain__op_range ranges[] = {{-2, 3}, {0.5, 1.5}, {-1, 1}};

#define CASE(beta, ndim, columns, rows, ...)                                                                \
	{                                                                                                   \
		.shapes = {{ndim, {__VA_ARGS__}}, {1, {columns}}, {1, {rows}}}, .attrs.norm.epsilon = 1e-5, \
		.optional_inputs = (beta), .bound = 1e-5                                                    \
	}
static const dtrain__op_case cases[] = {
	CASE(1, 2, 64, 5, 5, 64), CASE(1, 3, 17, 6, 2, 3, 17), CASE(1, 4, 9, 12, 3, 2, 2, 9),
	CASE(1, 2, 3, 33, 33, 3), CASE(0, 2, 64, 5, 5, 64),    CASE(0, 3, 35, 21, 7, 3, 35),
};
static const dtrain__op_case rms_cases[] = {
	CASE(0, 2, 64, 5, 5, 64),
	CASE(0, 3, 17, 6, 2, 3, 17),
	CASE(0, 2, 3, 33, 33, 3),
	CASE(0, 3, 7, 1, 1, 1, 7),
};

/* With an addend: x, d_y, gamma, statistics, addend. */
static const dtrain__op_range sum_ranges[] = {{-2, 3}, {-1, 1}, {0.5, 1.5}, {-1, 1}, {0.5, 2}, {-2, 2}};
static const dtrain__op_range rms_sum_ranges[] = {{-2, 3}, {-1, 1}, {0.5, 1.5}, {0.5, 2}, {-2, 2}};
#define SUM(beta, list, ndim, columns, rows, ...)                                                           \
	{                                                                                                   \
		.shapes = {{ndim, {__VA_ARGS__}}, {1, {columns}}, {1, {rows}}}, .attrs.norm.epsilon = 1e-5, \
		.optional_inputs = 1, .optional_outputs = (beta), .bound = 1e-5, .ranges = (list)           \
	}
static const dtrain__op_case sum_cases[] = {
	SUM(1, sum_ranges, 2, 64, 5, 5, 64),
	SUM(1, sum_ranges, 3, 17, 6, 2, 3, 17),
	SUM(0, sum_ranges, 3, 35, 21, 7, 3, 35),
};
static const dtrain__op_case rms_sum_cases[] = {
	SUM(0, rms_sum_ranges, 2, 64, 5, 5, 64),
	SUM(0, rms_sum_ranges, 3, 17, 6, 2, 3, 17),
};

const dtrain__op_rules dtrain__op_layer_norm = {.inputs = "XP",
						.optional_inputs = "P",
						.outputs = "XNN",
						.check = check,
						.ranges = ranges,
						DTRAIN__OP_CASES(cases)};

const dtrain__op_rules dtrain__op_layer_norm_bwd = {.inputs = "XXPNN",
						    .optional_inputs = "X",
						    .outputs = "XP",
						    .optional_outputs = "P",
						    .check = check,
						    .in_place = 1u << 5,
						    DTRAIN__OP_CASES(sum_cases)};

const dtrain__op_rules dtrain__op_rms_norm = {
	.inputs = "XP", .outputs = "XN", .check = check, .ranges = ranges, DTRAIN__OP_CASES(rms_cases)};

const dtrain__op_rules dtrain__op_rms_norm_bwd = {.inputs = "XXPN",
						  .optional_inputs = "X",
						  .outputs = "XP",
						  .check = check,
						  .in_place = 1u << 4,
						  DTRAIN__OP_CASES(rms_sum_cases)};
