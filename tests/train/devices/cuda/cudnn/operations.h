/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes cuDNN's graphs. In cuDNN's place are descriptors of operations.c, and each operation of a graph is done by
 * itself, element by element, on the views that its tensors describe.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_CUDNN_OPERATIONS_H
#define TESTS_TRAIN_DEVICES_CUDA_CUDNN_OPERATIONS_H

#include "devices/cuda/cudnn/dnn.h"

enum { MAX_OPERANDS = 2 * DTRAIN_OP_MAX_OPERANDS };

/* Operands of the graph's op, and their bytes, beyond which nothing may be read or written. */
typedef struct operations_run {
	const dnn_graph *graph;
	void *operands[MAX_OPERANDS];
	size_t bytes[MAX_OPERANDS];
} operations_run;

/* The result of cudnnGetVersion. */
extern size_t operations_version;

/* Does all operations of the graph, in order; each result is rounded to its tensor's type. */
void operations_do(const operations_run *run);

#endif
