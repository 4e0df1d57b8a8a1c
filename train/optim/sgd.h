/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of SGD's step.
 */
#ifndef DTRAIN_OPTIM_SGD_H
#define DTRAIN_OPTIM_SGD_H

#include <dtrain/optim.h>

#include "core/op.h"

typedef struct dtrain__sgd_op {
	dtrain_op_desc desc;
	dtrain_op *op;
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS]; /* inputs, then outputs */
} dtrain__sgd_op;

/* What dtrain_sgd_apply puts on the stream, one after the other, and the workspace that all of them share. */
const dtrain__sgd_op *dtrain__sgd_ops(const dtrain_sgd *sgd, int *count);
void *dtrain__sgd_workspace(const dtrain_sgd *sgd);

#endif
