/* SPDX-License-Identifier: Apache-2.0
 *
 * A convolution of 1 x 1 pixels with stride 1 is a matrix product in NHWC, so cuBLASLt can run it: the linear layer
 * over all pixels.
 */
#include <stdlib.h>

#include "common/error.h"
#include "core/op.h"
#include "devices/cuda/cuda.h"

typedef struct conv_product {
	dtrain_op inner;
	bool adds;    /* operand 2 is added to the result, operand 3 */
	size_t bytes; /* of the result */
} conv_product;

static bool is_activation(const dtrain_op_desc *desc, const dtrain_operand *operand)
{
	const dtrain_operand *weight = desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT ? &desc->outputs[0] : &desc->inputs[1];
	return operand != weight;
}

bool cuda_conv_is_product(const dtrain_op_desc *desc)
{
	const dtrain_window_attrs *window = &desc->attrs.window;
	bool gradient = desc->kind == DTRAIN_OP_CONV2D_BWD_WEIGHT;
	const int64_t *weight = gradient ? desc->outputs[0].shape.dim : desc->inputs[1].shape.dim;
	bool product = weight[2] == 1 && weight[3] == 1;
	for (int i = 0; i < 2; i++)
		product = product && window->stride[i] == 1 && window->padding[i] == 0;
	for (int i = 0; i < desc->num_inputs; i++)
		product = product && (!is_activation(desc, &desc->inputs[i]) || cuda_is_nhwc(&desc->inputs[i]));
	return product && (gradient || cuda_is_nhwc(&desc->outputs[0]));
}

/* The operand as a matrix: a weight [filters, channels], else [pixels, channels]. */
static dtrain_operand matrix_of(const dtrain_op_desc *desc, const dtrain_operand *operand)
{
	dtrain_operand matrix = *operand;
	const int64_t *dim = operand->shape.dim;
	const int64_t rows = is_activation(desc, operand) ? dim[0] * dim[2] * dim[3] : dim[0];
	matrix.shape = dtrain_shape_of(2, (int64_t[]){rows, dim[1]});
	matrix.bytes = (size_t)(rows * dim[1]) * dtrain_dtype_size(operand->dtype);
	matrix.layout = NULL;
	return matrix;
}

static dtrain_op_desc product_of(const dtrain_op_desc *desc)
{
	static const dtrain_op_kind kinds[] = {
		[DTRAIN_OP_CONV2D] = DTRAIN_OP_LINEAR,
		[DTRAIN_OP_CONV2D_BWD_DATA] = DTRAIN_OP_LINEAR_BWD_DATA,
		[DTRAIN_OP_CONV2D_BWD_WEIGHT] = DTRAIN_OP_LINEAR_BWD_WEIGHT,
	};
	dtrain_op_desc product = {.kind = kinds[desc->kind], .num_inputs = 2, .num_outputs = 1};
	for (int i = 0; i < 2; i++)
		product.inputs[i] = matrix_of(desc, &desc->inputs[i]);
	product.outputs[0] = matrix_of(desc, &desc->outputs[0]);
	return product;
}

static int run(dtrain_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err)
{
	conv_product *self = op->state;
	void *result = operands[self->adds ? 3 : 2];
	int status = BETON_OK;
	if (self->adds && operands[2] != result)
		status = cuda_check(cudaMemcpyAsync(result, operands[2], self->bytes, cudaMemcpyDeviceToDevice, stream),
				    err, "copy of what is added to");
	if (status != BETON_OK)
		return status;
	return self->inner.run(&self->inner, stream, (void *[]){operands[0], operands[1], result}, workspace, err);
}

static void destroy(void *state)
{
	conv_product *self = state;
	if (self->inner.destroy)
		self->inner.destroy(self->inner.state);
	free(self);
}

int cuda_build_conv_product(dtrain_op *op, dtrain_op_desc *desc, beton_error *err)
{
	conv_product *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for op %s", dtrain__op_name(desc->kind));
	dtrain_op_desc product = product_of(desc);
	self->inner.device = op->device;
	int status = cuda_build_linear(&self->inner, &product, err);
	if (status != BETON_OK) {
		destroy(self);
		return status;
	}
	self->inner.desc = product;
	self->adds = desc->num_inputs > 2;
	self->bytes = product.outputs[0].bytes;
	cuda_linear_adds(&self->inner, self->adds);
	desc->workspace_bytes = product.workspace_bytes;
	op->run = run;
	op->destroy = destroy;
	op->state = self;
	return BETON_OK;
}
