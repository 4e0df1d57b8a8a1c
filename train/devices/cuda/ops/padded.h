/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of pictures whose channels are padded with zeros (conv_padded.c).
 */
#ifndef DTRAIN_CUDA_OPS_PADDED_H
#define DTRAIN_CUDA_OPS_PADDED_H

#include <dtrain/device.h>

/* With elements of 2 bytes these are the 16 bytes that an engine reads at once. */
enum { CUDA_PADDED_CHANNELS = 8 };

/* CONV2D or CONV2D_BWD_WEIGHT with that many channels: its x, and its weight in x's type or the weight's gradient.
 * Layouts stay. */
static inline dtrain_op_desc cuda_padded_conv(const dtrain_op_desc *desc)
{
	dtrain_op_desc padded = *desc;
	bool forward = desc->kind == DTRAIN_OP_CONV2D;
	dtrain_operand *x = &padded.inputs[0], *w = forward ? &padded.inputs[1] : &padded.outputs[0];
	if (forward)
		w->dtype = x->dtype;
	x->shape.dim[1] = w->shape.dim[1] = CUDA_PADDED_CHANNELS;
	x->bytes = (size_t)dtrain_shape_count(&x->shape) * dtrain_dtype_size(x->dtype);
	w->bytes = (size_t)dtrain_shape_count(&w->shape) * dtrain_dtype_size(w->dtype);
	return padded;
}

#endif
