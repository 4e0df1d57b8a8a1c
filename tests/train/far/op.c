/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops: those of `ref` in float. With half precision the operands are made float before an op and rounded after it, and
 * weights are rounded first: the sums are those of <dtrain/device.h>, in more than its precision.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/builtin.h"
#include "core/op.h"
#include "far.h"

struct dtrain_op {
	dtrain_device *device;
	dtrain_op_desc desc;
	dtrain_op *inner; /* ref's */
	dtrain_dtype dtype;
};

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

static uint16_t to_bf16(float x)
{
	uint32_t bits = bits_of(x);
	if (x != x)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The addition of a power of two as large as the result's last place times 2^13 rounds as the hardware does. */
static uint16_t to_f16(float x)
{
	uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
	if (size > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (size >= 0x477ff000) /* rounds to 65536 or more */
		return (uint16_t)(sign | 0x7c00);
	if (size < 0x38800000) /* below the least normal number: whole multiples of 2^-24 */
		return (uint16_t)(sign | (bits_of(float_of(size) + 0.5f) - bits_of(0.5f)));
	uint32_t rounded = size + 0xfff + (size >> 13 & 1);
	return (uint16_t)(sign | (rounded - 0x38000000) >> 13);
}

static float from_f16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7fff;
	float x = size >= 0x7c00 ? float_of(0x7f800000 | (size & 0x3ff) << 13) : float_of(size << 13) * 0x1p112f;
	return float_of(bits_of(x) | sign);
}

static void widen(float *to, const void *from, dtrain_dtype dtype, int64_t count)
{
	const uint16_t *half = from;
	for (int64_t i = 0; i < count; i++)
		to[i] = dtype == DTRAIN_F16 ? from_f16(half[i]) : float_of((uint32_t)half[i] << 16);
}

static void narrow(void *to, const float *from, dtrain_dtype dtype, int64_t count)
{
	uint16_t *half = to;
	for (int64_t i = 0; i < count; i++)
		half[i] = dtype == DTRAIN_F16 ? to_f16(from[i]) : to_bf16(from[i]);
}

static bool is_half(dtrain_dtype dtype)
{
	return dtype == DTRAIN_F16 || dtype == DTRAIN_BF16;
}

/* The operand that is rounded to the type of the activations: w. */
static bool is_weight(const dtrain_op *op, int input)
{
	dtrain_op_kind kind = op->desc.kind;
	return input == 1 && (kind == DTRAIN_OP_CONV2D || kind == DTRAIN_OP_CONV2D_BWD_DATA ||
			      kind == DTRAIN_OP_LINEAR || kind == DTRAIN_OP_LINEAR_BWD_DATA);
}

int far_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	*out = NULL;
	int status = dtrain__op_check(desc, err);
	if (status != BETON_OK)
		return status;
	dtrain_op *op = calloc(1, sizeof(*op));
	if (!op)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	dtrain_op_desc inner = *desc;
	for (int i = 0; i < desc->num_inputs; i++)
		if (is_half(inner.inputs[i].dtype))
			inner.inputs[i].dtype = DTRAIN_F32;
	for (int i = 0; i < desc->num_outputs; i++)
		if (is_half(inner.outputs[i].dtype))
			inner.outputs[i].dtype = DTRAIN_F32;
	op->device = device;
	op->dtype = dtrain__op_compute_type(desc);
	status = dtrain__ref_api.op_create(device, &inner, &op->inner, err);
	if (status != BETON_OK) {
		free(op);
		return status;
	}
	for (int i = 0; i < desc->num_outputs; i++) {
		desc->outputs[i].layout = NULL;
		desc->outputs[i].bytes = is_half(desc->outputs[i].dtype)
						 ? (size_t)dtrain_shape_count(&desc->outputs[i].shape) * 2
						 : inner.outputs[i].bytes;
	}
	desc->workspace_bytes = 0;
	op->desc = *desc;
	*out = op;
	return BETON_OK;
}

void far_op_destroy(dtrain_op *op)
{
	if (!op)
		return;
	far_settle(op->device);
	dtrain__ref_api.op_destroy(op->inner);
	free(op);
}

int far_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	struct far_task task = {.kind = FAR_OP, .op = op};
	int count = op->desc.num_inputs + op->desc.num_outputs;
	(void)workspace;
	if (far_fails(stream->device, FAR_OP_RUN, err))
		return BETON_DEVICE;
	for (int i = 0; i < count; i++) {
		if (!far_is_device(operands[i]))
			return bt_fail(err, BETON_INVALID_ARGUMENT,
				       "device 'far': operand %d of op %s is no memory of the device", i,
				       dtrain__op_name(op->desc.kind));
		task.operands[i] = far_to_host(operands[i]);
	}
	return far_enqueue(stream, &task, err);
}

static float *make_float(const dtrain_op *op, int i, const dtrain_operand *operand, void *memory)
{
	int64_t count = dtrain_shape_count(&operand->shape);
	float *copy = calloc((size_t)count, sizeof(float));
	if (copy && i < op->desc.num_inputs && is_half(operand->dtype))
		widen(copy, memory, operand->dtype, count);
	else if (copy && i < op->desc.num_inputs) {
		uint16_t half;
		for (int64_t k = 0; k < count; k++) {
			narrow(&half, (const float *)memory + k, op->dtype, 1);
			widen(copy + k, &half, op->dtype, 1);
		}
	}
	return copy;
}

int far_op_execute(const dtrain_op *op, void *const *operands, beton_error *err)
{
	const dtrain_op_desc *desc = &op->desc;
	float *copies[2 * DTRAIN_OP_MAX_OPERANDS] = {NULL};
	void *used[2 * DTRAIN_OP_MAX_OPERANDS];
	int count = desc->num_inputs + desc->num_outputs, status = BETON_OK;
	for (int i = 0; i < count && status == BETON_OK; i++) {
		const dtrain_operand *operand =
			i < desc->num_inputs ? &desc->inputs[i] : &desc->outputs[i - desc->num_inputs];
		bool converted = is_half(operand->dtype) || (is_half(op->dtype) && is_weight(op, i));
		copies[i] = converted ? make_float(op, i, operand, operands[i]) : NULL;
		used[i] = converted ? (void *)copies[i] : operands[i];
		if (!used[i])
			status = bt_fail(err, BETON_NO_MEMORY, "out of memory for an operand");
	}
	if (status == BETON_OK)
		status = dtrain__ref_api.op_run(op->inner, NULL, used, NULL, err);
	for (int i = 0; i < count; i++) {
		if (copies[i] && i >= desc->num_inputs && status == BETON_OK)
			narrow(operands[i], copies[i], desc->outputs[i - desc->num_inputs].dtype,
			       dtrain_shape_count(&desc->outputs[i - desc->num_inputs].shape));
		free(copies[i]);
	}
	return status;
}
