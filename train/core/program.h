/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a program.
 */
#ifndef DTRAIN_CORE_PROGRAM_H
#define DTRAIN_CORE_PROGRAM_H

#include "graph.h"
#include "op.h"

/* A parameter's gradient is complete after this node. */
typedef struct dtrain__ready {
	int32_t node;
	int32_t param;
	int64_t offset; /* of the parameter in the flat space */
} dtrain__ready;

typedef struct dtrain__step {
	dtrain_op *op;
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS]; /* inputs, then outputs */
	dtrain__op_cost cost;
} dtrain__step;

struct dtrain_program {
	dtrain_graph *graph;
	const dtrain_device_api *api;
	dtrain_device *device;
	dtrain__step *steps;      /* one for each node */
	dtrain_operand *operands; /* one for each tensor */
	void **data;              /* one for each tensor */
	dtrain__ready *ready;     /* in the order in which the hook is called */
	int num_ready;
	int32_t num_forward; /* nodes before backward */
	void *arena, *workspace;
	dtrain_program_facts facts;
};

/* Frees everything but the graph. */
void dtrain__program_release(dtrain_program *program);

#endif
