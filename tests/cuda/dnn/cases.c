/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include "train/op_case.h"
#include "core/op.h"

static dtrain_operand operand(dtrain_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
	dtrain_operand out = {.dtype = dtype, .shape = dtrain_shape_of(4, (int64_t[]){n, c, h, w})};
	out.bytes = (size_t)dtrain_shape_count(&out.shape) * dtrain_dtype_size(dtype);
	return out;
}

static dtrain_operand vector(int64_t count)
{
	return (dtrain_operand){
		.dtype = DTRAIN_F32, .shape = dtrain_shape_of(1, &count), .bytes = (size_t)count * sizeof(float)};
}

static void add(record *out, dtrain_op_kind kind, const op_case *layer, int num_inputs, const dtrain_operand *inputs,
		int num_outputs, const dtrain_operand *outputs)
{
	dtrain_op_desc *desc = &out->ops[out->count++];
	*desc = (dtrain_op_desc){.kind = kind, .num_inputs = num_inputs, .num_outputs = num_outputs};
	for (int i = 0; i < 2; i++) {
		desc->attrs.kernel[i] = layer->kernel[i];
		desc->attrs.stride[i] = layer->stride[i];
		desc->attrs.padding[i] = layer->padding[i];
	}
	desc->attrs.relu = layer->relu;
	desc->attrs.epsilon = 1e-5;
	desc->attrs.momentum = 0.1;
	for (int i = 0; i < num_inputs; i++)
		desc->inputs[i] = inputs[i];
	for (int i = 0; i < num_outputs; i++)
		desc->outputs[i] = outputs[i];
}

static int64_t sides(const op_case *layer, int i)
{
	return dtrain__window_count(layer->x[2 + i], layer->kernel[i], layer->stride[i], layer->padding[i]);
}

static void add_conv(record *out, const op_case *layer, dtrain_dtype dtype)
{
	const int64_t *d = layer->x;
	dtrain_operand x = operand(dtype, d[0], d[1], d[2], d[3]);
	dtrain_operand w = operand(DTRAIN_F32, layer->out, d[1], layer->kernel[0], layer->kernel[1]);
	dtrain_operand y = operand(dtype, d[0], layer->out, sides(layer, 0), sides(layer, 1));
	add(out, DTRAIN_OP_CONV2D, layer, 2, (dtrain_operand[]){x, w}, 1, &y);
	add(out, DTRAIN_OP_CONV2D_BWD_DATA, layer, 2, (dtrain_operand[]){y, w}, 1, &x);
	add(out, DTRAIN_OP_CONV2D_BWD_DATA, layer, 3, (dtrain_operand[]){y, w, x}, 1, &x);
	add(out, DTRAIN_OP_CONV2D_BWD_WEIGHT, layer, 2, (dtrain_operand[]){x, y}, 1, &w);
}

static void add_norm(record *out, const op_case *layer, dtrain_dtype dtype)
{
	const int64_t *d = layer->x;
	dtrain_operand x = operand(dtype, d[0], d[1], d[2], d[3]), c = vector(d[1]);
	dtrain_operand mask = operand(DTRAIN_U8, d[0], d[1], d[2], d[3]);
	int relu = layer->relu;
	for (int residual = 0; residual <= relu; residual++)
		add(out, DTRAIN_OP_BATCH_NORM_TRAIN, layer, 5 + residual, (dtrain_operand[]){x, c, c, c, c, x},
		    3 + relu, (dtrain_operand[]){x, c, c, mask});
	for (int residual = 0; residual <= relu; residual++)
		add(out, DTRAIN_OP_BATCH_NORM_BWD, layer, 5 + relu, (dtrain_operand[]){x, x, c, c, c, mask},
		    3 + residual, (dtrain_operand[]){x, c, c, x});
}

static void add_pool(record *out, const op_case *layer, dtrain_dtype dtype)
{
	const int64_t *d = layer->x;
	dtrain_operand x = operand(dtype, d[0], d[1], d[2], d[3]);
	dtrain_operand y = operand(dtype, d[0], d[1], sides(layer, 0), sides(layer, 1));
	dtrain_operand index = operand(DTRAIN_U8, d[0], d[1], sides(layer, 0), sides(layer, 1));
	add(out, DTRAIN_OP_MAX_POOL, layer, 1, &x, 2, (dtrain_operand[]){y, index});
	add(out, DTRAIN_OP_MAX_POOL_BWD, layer, 2, (dtrain_operand[]){y, index}, 1, &x);
}

void record_case(record *out, const struct op_case *layer, dtrain_dtype dtype)
{
	if (layer->family == CONV)
		add_conv(out, layer, dtype);
	else if (layer->family == BATCH_NORM && layer->x[2] > 0)
		add_norm(out, layer, dtype);
	else if (layer->family == MAX_POOL)
		add_pool(out, layer, dtype);
}
