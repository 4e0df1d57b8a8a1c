/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that cuDNN runs: the chosen engine, and the copies around it. cuDNN gets NHWC activations and KRSC weights of the
 * activations' type, as CAST makes them; other operands are converted in the op's workspace.
 */
#ifndef DTRAIN_CUDA_CUDNN_DNN_RUN_H
#define DTRAIN_CUDA_CUDNN_DNN_RUN_H

#include "devices/cuda/cuda.h"
#include "dnn.h"

#define DNN_MAX_OPERANDS (2 * DTRAIN_OP_MAX_OPERANDS)

/* A copy with another layout or type: [batch][rows][columns] to [batch][columns][rows]. */
typedef struct dnn_move {
	bool needed;
	bool transposes; /* otherwise only the type changes */
	int64_t batch, rows, columns;
	dtrain_dtype from, to;
	size_t offset; /* of the end in the workspace */
} dnn_move;

typedef struct dnn_op {
	dtrain_device *device;
	dnn_plan *plan;    /* shared */
	dnn_plan *partner; /* plan of the backward op, kept for it; NULL: none */
	dnn_pack pack;
	int num_inputs, num_operands;
	int addend;            /* index of the operand that is added to the output; -1: none */
	bool adds_after;       /* no engine adds: a kernel does */
	size_t unadded;        /* offset of the engine's result in the workspace */
	dtrain_dtype sum_type; /* of the output */
	size_t sum_bytes;
	dnn_move moves[DNN_MAX_OPERANDS];
	size_t scratch;        /* offset of the graph's DNN_SCRATCH */
	bool clears;           /* that before each run */
	size_t plan_workspace; /* offset of the plan's own workspace */
	size_t bytes;          /* of the whole workspace; a multiple of 256 */
} dnn_op;

/* Requirements for engines on the device. */
dnn_target dnn_target_of(const dtrain_device *device);

/* Chooses an engine for the op, and plans the copies. backward: the op that reads this one's private outputs, and so
 * needs an engine too; NULL: none. UNSUPPORTED: one of the two has no engine. On failure everything is freed. */
int dnn_op_create(dtrain_device *device, const dtrain_op_desc *desc, const dtrain_op_desc *backward, dnn_op **out,
		  beton_error *err);
void dnn_op_destroy(void *op); /* NULL allowed; with the device locked */
int dnn_op_run(dnn_op *op, cudaStream_t stream, void *const *operands, void *workspace, beton_error *err);

/* Builder of ops that are one engine and its copies. backward: as above. */
int cuda_build_by_cudnn(dtrain_op *op, dtrain_op_desc *desc, const dtrain_op_desc *backward, beton_error *err);

/* Chooses the engine for the op (dnn_choose.c): from the device's store, by timing, or the heuristics' first. Ops with
 * equal graphs share a plan; each must release it. Both with the device locked. */
int dnn_choose(dtrain_device *device, const dtrain_op_desc *desc, dnn_plan **plan, beton_error *err);
void dnn_release(dtrain_device *device, dnn_plan *plan); /* NULL allowed */

#endif
