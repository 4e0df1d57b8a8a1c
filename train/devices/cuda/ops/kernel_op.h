/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops of our own kernels: the kernel, and transpositions of operands whose layout it does not support.
 */
#ifndef DTRAIN_CUDA_OPS_KERNEL_OP_H
#define DTRAIN_CUDA_OPS_KERNEL_OP_H

#include "devices/cuda/cuda.h"

/* A tensor in the workspace that replaces an operand for the kernel. */
typedef struct cuda_turn {
	bool needed;
	dtrain_dtype dtype;
	int64_t batch, rows, columns; /* of the source of the transposition */
	size_t offset;
} cuda_turn;

typedef struct cuda_kernel_op cuda_kernel_op;

/* Puts the op's kernels on the stream. operands: inputs, then outputs; 4-dimensional operands have the layout of
 * k->nhwc. workspace: k->own_bytes, aligned to 256. */
typedef cudaError_t cuda_kernel_launch(const cuda_kernel_op *k, const dtrain_op_desc *desc, cudaStream_t stream,
				       void *const *operands, void *workspace);

struct cuda_kernel_op {
	cuda_kernel_launch *launch;
	bool nhwc;
	size_t own_bytes, own_offset;
	int64_t *fault; /* the device's */
	cuda_turn turns[2 * DTRAIN_OP_MAX_OPERANDS];
};

/* Makes an op that launches k, which is copied. Reads the layouts of desc's operands, sets its workspace_bytes. Errors:
 * NO_MEMORY. */
int cuda_kernel_op_create(dtrain_op *op, dtrain_op_desc *desc, const cuda_kernel_op *k, beton_error *err);

/* n, c and h * w of pictures, of a matrix with area 1. */
typedef struct cuda_extent {
	int64_t n, channels, area;
} cuda_extent;
cuda_extent cuda_extent_of(const dtrain_operand *operand);

#endif
