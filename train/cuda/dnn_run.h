/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that cuDNN runs: the engine that was chosen, and the copies around it. cuDNN gets NHWC activations and KRSC
 * weights of the activations' type; operands that are otherwise go through the op's workspace.
 */
#ifndef DTRAIN_CUDA_DNN_RUN_H
#define DTRAIN_CUDA_DNN_RUN_H

#include "cuda.h"
#include "dnn.h"

#define DNN_MAX_OPERANDS (2 * DTRAIN_OP_MAX_OPERANDS)

/* A copy with another layout or type: [batch][rows][columns] to [batch][columns][rows]. */
typedef struct dnn_move {
	bool needed;
	bool transposes; /* else only the type changes */
	int64_t batch, rows, columns;
	dtrain_dtype from, to;
	size_t offset; /* in the workspace, of the end that is no operand */
} dnn_move;

typedef struct dnn_op {
	dtrain_device *device;
	dnn_plan *plan; /* shared */
	dnn_pack pack;
	int num_inputs, num_operands;
	dnn_move moves[DNN_MAX_OPERANDS];
	size_t plan_workspace; /* offset of the plan's own */
	size_t bytes;          /* of the whole workspace; a multiple of 256 */
} dnn_op;

/* What engines have to keep to on the device. */
dnn_target dnn_target_of(const dtrain_device *device);

/* Chooses an engine for the op, and plans the copies. UNSUPPORTED: there is none. On failure nothing is left. */
int dnn_op_create(dtrain_device *device, const dtrain_op_desc *desc, dnn_op **out, beton_error *err);
void dnn_op_destroy(void *op); /* NULL allowed; with the device locked */
int dnn_op_run(dnn_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err);

/* Whether there is an engine for the op at all: asked before its forward op leaves behind what only cuDNN reads. */
bool dnn_op_exists(const dtrain_device *device, const dtrain_op_desc *desc);

/* The engine for the op (dnn_choose.c): from the device's store, by timing, or the heuristics' first. Ops of equal
 * graphs get the same plan, which takes as many releases. Both with the device locked. */
int dnn_choose(dtrain_device *device, const dtrain_op_desc *desc, dnn_plan **plan, beton_error *err);
void dnn_release(dtrain_device *device, dnn_plan *plan); /* NULL allowed */

/* The offset behind `bytes` more bytes of workspace. */
static inline size_t dnn_reserve(size_t *workspace, size_t bytes)
{
	size_t offset = *workspace;
	*workspace = (offset + bytes + 255) / 256 * 256;
	return offset;
}

#endif
