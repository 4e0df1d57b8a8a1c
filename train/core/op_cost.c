/* SPDX-License-Identifier: Apache-2.0
 *
 * What an op has to move and to compute at least.
 */
#include "op.h"

static double product_flops(const dtrain_op_desc *desc)
{
	const dtrain_shape *w, *y;
	switch (desc->kind) {
	case DTRAIN_OP_CONV2D:
	case DTRAIN_OP_LINEAR:
		w = &desc->inputs[1].shape;
		y = &desc->outputs[0].shape;
		break;
	case DTRAIN_OP_CONV2D_BWD_DATA:
	case DTRAIN_OP_LINEAR_BWD_DATA:
		w = &desc->inputs[1].shape;
		y = &desc->inputs[0].shape;
		break;
	case DTRAIN_OP_CONV2D_BWD_WEIGHT:
	case DTRAIN_OP_LINEAR_BWD_WEIGHT:
		w = &desc->outputs[0].shape;
		y = &desc->inputs[1].shape;
		break;
	default:
		return 0;
	}
	return 2.0 * (double)dtrain_shape_count(y) * (double)(dtrain_shape_count(w) / w->dim[0]);
}

/* How often an input comes from memory: batch norm needs its sums before it can write anything. */
static int passes(const dtrain_op_desc *desc, int input)
{
	switch (desc->kind) {
	case DTRAIN_OP_BATCH_NORM_TRAIN: /* x */
		return input == 0 ? 2 : 1;
	case DTRAIN_OP_BATCH_NORM_BWD: /* x, d_y, mask */
		return input < 2 || input == 5 ? 2 : 1;
	default:
		return 1;
	}
}

dtrain__op_cost dtrain__op_cost_of(const dtrain_op_desc *desc)
{
	dtrain__op_cost cost = {.flops = product_flops(desc)};
	for (int i = 0; i < desc->num_inputs; i++)
		cost.bytes += passes(desc, i) * (double)desc->inputs[i].bytes;
	for (int i = 0; i < desc->num_outputs; i++)
		cost.bytes += (double)desc->outputs[i].bytes;
	return cost;
}
