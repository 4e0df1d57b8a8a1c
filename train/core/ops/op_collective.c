/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives: what a tensor becomes when ranks of a mesh exchange it.
 */
#include "core/op.h"

static bool has_part(const dtrain_shape *whole, const dtrain_shape *part, int64_t ranks)
{
	bool same = whole->ndim == part->ndim && whole->ndim >= 1 && part->dim[0] * ranks == whole->dim[0];
	for (int i = 1; same && i < whole->ndim; i++)
		same = whole->dim[i] == part->dim[i];
	return same;
}

static int check_parts(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_collective_attrs *attrs = &desc->attrs.collective;
	bool gathers = desc->kind == DTRAIN_OP_ALL_GATHER;
	const dtrain_operand *whole = roles->of[gathers ? 'Y' : 'X'], *part = roles->of[gathers ? 'X' : 'Y'];
	bool in_place = gathers && has_part(&whole->shape, &part->shape, 1) && whole->shape.dim[0] % attrs->ranks == 0;
	if (attrs->rank < 0 || attrs->rank >= attrs->ranks)
		return dtrain__op_bad(desc, "needs a rank among the ranks", NULL, err);
	return in_place || has_part(&whole->shape, &part->shape, attrs->ranks)
		       ? BETON_OK
		       : dtrain__op_bad(desc, "needs a part for each rank, not", part, err);
}

const dtrain__op_rules dtrain__op_all_reduce = {.inputs = "X", .outputs = "X", .collective = true, .in_place = 1};
const dtrain__op_rules dtrain__op_all_gather = {
	.inputs = "X", .outputs = "Y", .check = check_parts, .collective = true, .in_place = 1};
const dtrain__op_rules dtrain__op_reduce_scatter = {
	.inputs = "X", .outputs = "Y", .check = check_parts, .collective = true};
