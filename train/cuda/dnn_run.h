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
	dnn_plan *plan;    /* shared */
	dnn_plan *partner; /* of the backward op, kept for it; NULL: none */
	dnn_pack pack;
	int num_inputs, num_operands;
	int addend;            /* the operand that becomes part of the output; -1: none */
	bool adds_after;       /* no engine adds: a kernel does, */
	size_t unadded;        /* and the engine's part is at this offset in the workspace */
	dtrain_dtype sum_type; /* of the output */
	size_t sum_bytes;
	dnn_move moves[DNN_MAX_OPERANDS];
	size_t plan_workspace; /* offset of the plan's own */
	size_t bytes;          /* of the whole workspace; a multiple of 256 */
} dnn_op;

/* What engines have to keep to on the device. */
dnn_target dnn_target_of(const dtrain_device *device);

/* Chooses an engine for the op, and plans the copies. backward: the op that reads what only cuDNN understands of this
 * one's outputs, which must not be left without an engine then; NULL: none. UNSUPPORTED: there is no engine for one of
 * the two. On failure nothing is left. */
int dnn_op_create(dtrain_device *device, const dtrain_op_desc *desc, const dtrain_op_desc *backward, dnn_op **out,
		  beton_error *err);
void dnn_op_destroy(void *op); /* NULL allowed; with the device locked */
int dnn_op_run(dnn_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err);

/* The builder of ops that are one engine and its copies. backward: as above. */
int cuda_build_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, const dtrain_op_desc *backward, beton_error *err);

/* The engine for the op (dnn_choose.c): from the device's store, by timing, or the heuristics' first. Ops of equal
 * graphs get the same plan, which takes as many releases. Both with the device locked. */
int dnn_choose(dtrain_device *device, const dtrain_op_desc *desc, dnn_plan **plan, beton_error *err);
void dnn_release(dtrain_device *device, dnn_plan *plan); /* NULL allowed */

#endif
