/* SPDX-License-Identifier: Apache-2.0
 *
 * Space to depth: a convolution with stride 2 over a picture's few channels is one with stride 1 over cells of 2 x 2
 * pixels. Its kernel has half the height and width, and the channels of the cell's pixels side by side. The cells
 * contain the padding.
 *
 * A cell has CUDA_CELL_CHANNELS channels. The first half has the channels of the upper two pixels, then zeros; the
 * second half has the channels of the lower two. With elements of 2 bytes a half is the 16 bytes that an engine reads
 * at once.
 */
#ifndef DTRAIN_CUDA_OPS_SPACE_TO_DEPTH_H
#define DTRAIN_CUDA_OPS_SPACE_TO_DEPTH_H

#include <dtrain/device.h>

#include "devices/cuda/kernels/kernels.h"

enum { CUDA_CELL_LARGEST_PICTURE = 4 /* channels */ };

/* Whether convolutions with this window over that many channels can read cells. A window of one pixel would read three
 * that it does not need. */
static inline bool cuda_window_fits_cells(const dtrain_window_attrs *window, int64_t channels)
{
	return window->stride[0] == 2 && window->stride[1] == 2 && window->kernel[0] > 1 && window->kernel[1] > 1 &&
	       channels <= CUDA_CELL_LARGEST_PICTURE;
}

/* The shape of a picture of cells, for such a convolution whose y has the height and width. */
static inline dtrain_shape cuda_cells(int64_t pictures, const int64_t y[2], const int64_t kernel[2])
{
	return dtrain_shape_of(4, (int64_t[]){pictures, CUDA_CELL_CHANNELS, y[0] + (kernel[0] + 1) / 2 - 1,
					      y[1] + (kernel[1] + 1) / 2 - 1});
}

/* The same, from the picture's shape and a window with a kernel. */
static inline dtrain_shape cuda_cells_of(const dtrain_shape *x, const dtrain_window_attrs *window)
{
	int64_t y[2], kernel[2];
	for (int i = 0; i < 2; i++) {
		kernel[i] = window->kernel[i];
		y[i] = (x->dim[2 + i] + 2 * window->padding[i] - kernel[i]) / 2 + 1;
	}
	return cuda_cells(x->dim[0], y, kernel);
}

/* CONV2D or CONV2D_BWD_WEIGHT over cells: its x, and its weight in x's type or the weight's gradient. Layouts stay. */
static inline dtrain_op_desc cuda_conv_of_cells(const dtrain_op_desc *desc)
{
	dtrain_op_desc cells = *desc;
	bool forward = desc->kind == DTRAIN_OP_CONV2D;
	dtrain_operand *x = &cells.inputs[0], *w = forward ? &cells.inputs[1] : &cells.outputs[0];
	const dtrain_operand *y = forward ? &desc->outputs[0] : &desc->inputs[1];
	if (forward)
		w->dtype = x->dtype;
	x->shape = cuda_cells(x->shape.dim[0], &y->shape.dim[2], &w->shape.dim[2]);
	w->shape = dtrain_shape_of(4, (int64_t[]){w->shape.dim[0], CUDA_CELL_CHANNELS, (w->shape.dim[2] + 1) / 2,
						  (w->shape.dim[3] + 1) / 2});
	x->bytes = (size_t)dtrain_shape_count(&x->shape) * dtrain_dtype_size(x->dtype);
	w->bytes = (size_t)dtrain_shape_count(&w->shape) * dtrain_dtype_size(w->dtype);
	for (int i = 0; i < 2; i++) {
		cells.attrs.window.stride[i] = 1;
		cells.attrs.window.padding[i] = 0;
	}
	return cells;
}

#endif
