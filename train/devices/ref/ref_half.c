/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops in F16 and BF16, by the rule for mixed precision in <dtrain/device.h>: operands of the type are widened to float,
 * F32 weights are rounded to the type, the float function runs, and its results are rounded once.
 */
#include "common/half.h"
#include "core/host.h"
#include "core/op.h"
#include "core/shape.h"
#include "ref.h"

float dtrain__ref_half_rounded(dtrain_dtype dtype, float value)
{
	return dtype == DTRAIN_F16 ? bt_widen_float16(bt_float16(value)) : bt_widen_bfloat16(bt_bfloat16(value));
}

static bool is_weight(const struct dtrain_op *op, int operand)
{
	return operand < op->num_inputs && dtrain__op_input_letter(op->kind, operand) == 'W';
}

/* Whether the float function gets a copy of the operand. CAST runs here, since rounding is all that it does. */
static bool is_copied(const struct dtrain_op *op, int operand)
{
	if (op->kind == DTRAIN_OP_CAST)
		return false;
	return op->dtypes[operand] == op->dtype || is_weight(op, operand);
}

static int64_t count_of(const struct dtrain_op *op, int operand)
{
	return dtrain_shape_count(operand < op->num_inputs ? &op->inputs[operand]
							   : &op->outputs[operand - op->num_inputs]);
}

static size_t copy_bytes(const struct dtrain_op *op, int operand)
{
	return dtrain__round_up((size_t)count_of(op, operand) * sizeof(float), DTRAIN__HOST_ALIGNMENT);
}

size_t dtrain__ref_half_workspace(const struct dtrain_op *op)
{
	size_t bytes = 0;
	for (int i = 0; i < op->num_inputs + op->num_outputs; i++)
		bytes += is_copied(op, i) ? copy_bytes(op, i) : 0;
	return bytes;
}

static void copy_input(const struct dtrain_op *op, int operand, const void *from, float *to)
{
	for (int64_t i = 0, elements = count_of(op, operand); i < elements; i++)
		if (op->dtypes[operand] == DTRAIN_F32)
			to[i] = dtrain__ref_half_rounded(op->dtype, ((const float *)from)[i]);
		else
			to[i] = op->dtype == DTRAIN_F16 ? bt_widen_float16(((const uint16_t *)from)[i])
							: bt_widen_bfloat16(((const uint16_t *)from)[i]);
}

static void copy_output(const struct dtrain_op *op, int operand, const float *from, uint16_t *to)
{
	for (int64_t i = 0, elements = count_of(op, operand); i < elements; i++)
		to[i] = op->dtype == DTRAIN_F16 ? bt_float16(from[i]) : bt_bfloat16(from[i]);
}

int dtrain__ref_half_run(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	void *wide[2 * DTRAIN_OP_MAX_OPERANDS] = {NULL};
	char *place = workspace;
	int count = op->num_inputs + op->num_outputs;
	if (op->kind == DTRAIN_OP_CAST) {
		copy_output(op, 1, operands[0], operands[1]);
		return BETON_OK;
	}
	for (int i = 0; i < count; i++) {
		wide[i] = operands[i];
		if (!is_copied(op, i))
			continue;
		wide[i] = place;
		place += copy_bytes(op, i);
		if (i < op->num_inputs)
			copy_input(op, i, operands[i], wide[i]);
	}
	int status = op->run(op, wide, err);
	uint32_t updates = dtrain__op_rules_of(op->kind)->updates;
	for (int i = 0; i < count && status == BETON_OK; i++)
		if (is_copied(op, i) && (i >= op->num_inputs || updates >> i & 1))
			copy_output(op, i, wide[i], operands[i]);
	return status;
}
