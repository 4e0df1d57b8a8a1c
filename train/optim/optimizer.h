/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of an optimizer. A kind is a file with a dtrain__optimizer_kind; the list of them is in kinds.c.
 */
#ifndef DTRAIN_OPTIM_OPTIMIZER_H
#define DTRAIN_OPTIM_OPTIMIZER_H

#include <dtrain/optimizer.h>

#include "core/op.h"
#include "scalars.h"

enum { DTRAIN__MAX_STATES = 4, DTRAIN__MAX_UPDATE_OPS = 8 };

/* An operand and its memory. */
typedef struct dtrain__argument {
	dtrain_operand operand;
	void *memory;
} dtrain__argument;

typedef struct dtrain__update_op {
	dtrain_op_desc desc;
	dtrain_op *op;
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS]; /* inputs, then outputs */
} dtrain__update_op;

/* Ops that are put on a stream one after the other. */
typedef struct dtrain__update_ops {
	dtrain__update_op ops[DTRAIN__MAX_UPDATE_OPS];
	int count;
} dtrain__update_ops;

typedef struct dtrain__optimizer_kind {
	dtrain_optimizer_kind facts;
	int32_t num_scalars; /* of each group, in device memory */
	/* A group's scalars in a step of rate lr, which has been multiplied with its lr_scale. */
	void (*fill)(const double *hypers, double lr, float *scalars);
	/* What hyper-parameters must be together. NULL: anything. */
	int (*check)(const double *hypers, beton_error *err);
	/* Adds the ops of an update, with dtrain__optimizer_add. */
	int (*create)(dtrain_optimizer *optimizer, beton_error *err);
} dtrain__optimizer_kind;

struct dtrain_optimizer {
	const dtrain_device_api *api;
	dtrain_device *device;
	dtrain_params *params;
	const dtrain__optimizer_kind *kind;
	int64_t begin, count; /* of the range */
	void *values, *grads; /* of the range */
	double grad_divisor, clip_norm;
	double *hypers; /* [num_groups][kind->facts.num_hypers] */
	int32_t num_groups;
	void *scaler; /* state of the loss's scale; NULL */
	void *clip;   /* DTRAIN_CLIPS; NULL */
	dtrain_optimizer_state states[DTRAIN__MAX_STATES];
	int num_states;
	dtrain__scalars scalars;   /* [num_groups][kind->num_scalars] */
	uint8_t *group;            /* on the device: of each DTRAIN_PARAM_ALIGN elements */
	int64_t runs;              /* of such elements */
	dtrain__update_ops update; /* what apply puts on the stream */
	dtrain__update_ops look_ahead;
	dtrain__scalars weight; /* of the slow side's step */
	void *workspace;        /* of all ops */
	size_t workspace_bytes;
};

/* Of name; NULL: there is none. */
const dtrain__optimizer_kind *dtrain__optimizer_kind_find(const char *name);

/* ---- options (kinds.c) ---- */

int dtrain__optimizer_check(const dtrain_params *params, const dtrain_optimizer_options *options, beton_error *err);
/* Sets the numbers of all groups to what options say and defaults; checks them. */
int dtrain__optimizer_set_hypers(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options,
				 beton_error *err);

/* ---- for kinds ---- */

/* The range's values, gradients, and a state by its index. */
dtrain__argument dtrain__optimizer_values(const dtrain_optimizer *optimizer);
dtrain__argument dtrain__optimizer_grads(const dtrain_optimizer *optimizer);
dtrain__argument dtrain__optimizer_state(const dtrain_optimizer *optimizer, int index);
/* The scalars of the groups; the group of each run of DTRAIN_PARAM_ALIGN elements. */
dtrain__argument dtrain__optimizer_scalars(const dtrain_optimizer *optimizer);
dtrain__argument dtrain__optimizer_groups(const dtrain_optimizer *optimizer);
/* What an update takes as its scaler: memory NULL: it takes none. */
dtrain__argument dtrain__optimizer_scaler(const dtrain_optimizer *optimizer);
/* Memory of DTRAIN_SCALERS floats. */
dtrain__argument dtrain__argument_four(void *memory);

/* Inputs and outputs end with memory NULL. attrs NULL: none. */
int dtrain__optimizer_add(dtrain_optimizer *optimizer, dtrain__update_ops *to, dtrain_op_kind kind,
			  const dtrain_op_attrs *attrs, const dtrain__argument *inputs, const dtrain__argument *outputs,
			  beton_error *err);
int dtrain__optimizer_run(dtrain_optimizer *optimizer, const dtrain__update_ops *ops, dtrain_stream *stream,
			  beton_error *err);
/* Allocates one more state. with_buffers: it has elements for the buffers, too. */
int dtrain__optimizer_add_state(dtrain_optimizer *optimizer, const char *name, bool with_buffers, beton_error *err);

/* ---- what any kind may have around it: ops and states ---- */

int dtrain__clip_create(dtrain_optimizer *optimizer, beton_error *err);
int dtrain__lookahead_create(dtrain_optimizer *optimizer, beton_error *err);

#endif
