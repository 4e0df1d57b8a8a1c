/* SPDX-License-Identifier: Apache-2.0
 *
 * Lower bounds of an op's memory traffic and arithmetic.
 */
#include "op.h"

double dtrain__op_product_flops(const dtrain_shape *w, const dtrain_shape *y)
{
	return 2.0 * (double)dtrain_shape_count(y) * (double)(dtrain_shape_count(w) / w->dim[0]);
}

/* Queries, keys and values of packed attention are one operand, which is there three times. */
static bool is_read(const dtrain_op_desc *desc, int input)
{
	switch (desc->kind) {
	case DTRAIN_OP_ATTENTION:
	case DTRAIN_OP_ATTENTION_BWD:
	case DTRAIN_OP_ATTENTION_DROPOUT:
	case DTRAIN_OP_ATTENTION_DROPOUT_BWD:
		return !desc->attrs.attention.packed || (input != 1 && input != 2);
	default:
		return true;
	}
}

dtrain__op_cost dtrain__op_cost_of(const dtrain_op_desc *desc)
{
	const dtrain__op_rules *rules = dtrain__op_rules_of(desc->kind);
	dtrain__op_cost cost = {.flops = rules->flops ? rules->flops(desc) : 0};
	for (int i = 0; i < desc->num_inputs; i++)
		if (is_read(desc, i))
			cost.bytes += (rules->read_twice >> i & 1 ? 2 : 1) * (double)desc->inputs[i].bytes;
	for (int i = 0; i < desc->num_outputs; i++)
		cost.bytes += (double)desc->outputs[i].bytes;
	return cost;
}
