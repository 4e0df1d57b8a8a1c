/* SPDX-License-Identifier: Apache-2.0
 *
 * The norm of the gradients, and clipping by it.
 */
#include <math.h>

#include "common/error.h"
#include "core/op.h"

static int check_norm(const dtrain_op_desc *desc, beton_error *err)
{
	int norm = (int)desc->attrs.clip.norm;
	return norm >= DTRAIN_NORM_2 && norm <= DTRAIN_NORM_MAX
		       ? BETON_OK
		       : bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: norm %d", dtrain__op_name(desc->kind), norm);
}

static int check_grad_norm(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	double divisor = desc->attrs.clip.grad_divisor;
	(void)roles;
	return divisor > 0 && isfinite(divisor) ? check_norm(desc, err)
						: bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: gradients divided by %g",
							  dtrain__op_name(desc->kind), divisor);
}

static int check_clip(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	double most = desc->attrs.clip.max_norm;
	(void)roles;
	return most > 0 ? check_norm(desc, err)
			: bt_fail(err, BETON_INVALID_ARGUMENT, "op %s: clips gradients to a norm of %g, not above 0",
				  dtrain__op_name(desc->kind), most);
}

#define NORM_CASE(of, size, divisor, scalers)                                                     \
	{                                                                                         \
		.shapes = {{1, {size}}}, .attrs.clip = {.norm = (of), .grad_divisor = (divisor)}, \
		.optional_inputs = (scalers), .bound = 1e-6                                       \
	}
#define CLIP_CASE(of, most, scalers)                                                                          \
	{                                                                                                     \
		.attrs.clip = {.norm = (of), .max_norm = (most)}, .optional_inputs = (scalers), .bound = 1e-6 \
	}

/* Sizes close to the parts that devices cut a range into. */
static const dtrain__op_case grad_norm_cases[] = {
	NORM_CASE(DTRAIN_NORM_2, 1, 1, 0),       NORM_CASE(DTRAIN_NORM_2, 5, 1, 1),
	NORM_CASE(DTRAIN_NORM_2, 1003, 3, 0),    NORM_CASE(DTRAIN_NORM_2, 16384, 1, 0),
	NORM_CASE(DTRAIN_NORM_2, 16385, 1, 0),   NORM_CASE(DTRAIN_NORM_2, 65537, 2, 1),
	NORM_CASE(DTRAIN_NORM_2, 100003, 1, 0),  NORM_CASE(DTRAIN_NORM_1, 5, 1, 1),
	NORM_CASE(DTRAIN_NORM_1, 65537, 2, 1),   NORM_CASE(DTRAIN_NORM_MAX, 5, 1, 1),
	NORM_CASE(DTRAIN_NORM_MAX, 65537, 2, 1),
};
static const dtrain__op_case clip_cases[] = {
	CLIP_CASE(DTRAIN_NORM_2, 0.5, 0),   CLIP_CASE(DTRAIN_NORM_2, 0.5, 1),      CLIP_CASE(DTRAIN_NORM_2, 1000, 0),
	CLIP_CASE(DTRAIN_NORM_2, 1000, 1),  CLIP_CASE(DTRAIN_NORM_2, INFINITY, 0), CLIP_CASE(DTRAIN_NORM_1, 0.5, 1),
	CLIP_CASE(DTRAIN_NORM_MAX, 0.5, 0),
};
/* Totals and scales are positive. */
static const dtrain__op_range grad_norm_ranges[] = {{-1, 1}, {0.5, 2}, {0.5, 2}};
static const dtrain__op_range clip_ranges[] = {{0.5, 2}, {0.5, 2}};

const dtrain__op_rules dtrain__op_grad_norm = {.inputs = "FA",
					       .optional_inputs = "A",
					       .outputs = "A",
					       .check = check_grad_norm,
					       .ranges = grad_norm_ranges,
					       DTRAIN__OP_CASES(grad_norm_cases)};

const dtrain__op_rules dtrain__op_clip = {.inputs = "A",
					  .optional_inputs = "A",
					  .outputs = "A",
					  .check = check_clip,
					  .ranges = clip_ranges,
					  DTRAIN__OP_CASES(clip_cases)};
