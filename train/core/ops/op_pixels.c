/* SPDX-License-Identifier: Apache-2.0 */
#include "core/op.h"
#include "core/shape.h"

static int check(const dtrain_op_desc *desc, const dtrain__op_roles *roles, beton_error *err)
{
	const dtrain_shape *x = &roles->of['u']->shape, *y = &roles->of['X']->shape;
	if (x->ndim != 4 || y->ndim != 4 || x->dim[3] > 4)
		return dtrain__op_bad(desc, "needs [n, h, w, c] with at most 4 channels, not", roles->of['u'], err);
	dtrain_shape moved = dtrain_shape_of(4, (int64_t[]){x->dim[0], x->dim[3], x->dim[1], x->dim[2]});
	return dtrain__shape_equal(&moved, y) ? BETON_OK
					      : dtrain__op_bad(desc, "the sides do not match", roles->of['X'], err);
}

const dtrain__op_rules dtrain__op_normalize = {.inputs = "u", .outputs = "X", .check = check};
