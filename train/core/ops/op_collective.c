/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives: what a tensor becomes when ranks of a mesh exchange it.
 */
#include "core/op.h"

static int check_rows(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_operand *x = roles->of['X'];
	int32_t rank = desc->attrs.collective.rank;
	return x->shape.ndim >= 1 && rank >= 0 && rank < x->shape.dim[0]
		       ? BETON_OK
		       : dtrain__op_bad(desc, "needs a row for each rank, not", x, err);
}

const dtrain__op_rules dtrain__op_all_reduce = {.inputs = "X", .outputs = "X", .collective = true, .in_place = 1};
const dtrain__op_rules dtrain__op_all_gather = {
	.inputs = "X", .outputs = "X", .check = check_rows, .collective = true, .in_place = 1};
