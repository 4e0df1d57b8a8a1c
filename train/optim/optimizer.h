/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of an optimizer. A kind is a file with a dtrain__optimizer_kind; the list of them is in kinds.c.
 */
#ifndef DTRAIN_OPTIM_OPTIMIZER_H
#define DTRAIN_OPTIM_OPTIMIZER_H

#include <dtrain/optimizer.h>

#include "core/op.h"
#include "scalars.h"

enum { DTRAIN__MAX_STATES = 5 };

/* An operand's description and its memory. */
typedef struct dtrain__argument {
	dtrain_operand operand;
	void *memory;
} dtrain__argument;

typedef struct dtrain__update_range dtrain__update_range;

/* One op; without `op` an addition over the ranks that have the other shards, or a gather. */
typedef struct dtrain__update_op {
	dtrain_op_desc desc;
	dtrain_op *op; /* NULL: operands[0] is added up or gathered over ranks */
	int64_t count; /* without an op: of the numbers there */
	bool gathers;  /* operands[1] gets the numbers of all ranks along `axis` */
	dtrain_axis axis;
	bool over_model;                            /* the same: over the ranks of one model, not over shards */
	dtrain__update_range *leaving;              /* whose gradients it reads before they leave; NULL: no such */
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS]; /* inputs, then outputs */
} dtrain__update_op;

/* Ops of a device that are put on a stream in order. */
typedef struct dtrain__update_ops {
	dtrain_device *device;
	dtrain__update_op *ops;
	int count, capacity;
	void *workspace; /* shared by all ops; allocated when all are added */
	size_t workspace_bytes;
} dtrain__update_ops;

/* A range of the flat space that is updated. */
struct dtrain__update_range {
	int64_t begin, count;  /* elements of the flat space */
	int64_t first;         /* of its elements, in the states */
	void *values, *grads;  /* first elements */
	void *raw_grads;       /* where backward offloaded_grads the gradients, on the parameters' device */
	bool offloaded_grads;  /* they are there for a part of a run, in the arena, and otherwise in `grads` alone */
	int first_op, num_ops; /* in the updates */
	bool shared;           /* other shards have the same range, so one of them counts its gradients */
	bool counts;           /* see dtrain_range */
	int64_t *pieces;       /* [num_pieces][DTRAIN_PIECE_NUMBERS] on the device; NULL: none */
	int64_t num_pieces;
	dtrain_matrices *matrices; /* [num_matrices]: shapes */
	int32_t num_matrices;
	/* Whole parameters, where ranks along the axis have parts (whole.c). */
	int64_t *wholes; /* [parameters] their places in an array of whole_count elements; NULL: no parts */
	int64_t whole_count;
	int32_t parts;
	dtrain_axis axis;
	void *whole_groups; /* as dtrain_optimizer.group */
};

/* Memory for one range's whole parameters at a time, on the device that updates. */
typedef struct dtrain__whole {
	int64_t count, gathered_count; /* elements of each array, of `gathered` and of `parts`; 0: none is needed */
	void *arrays[4];               /* values, gradients, states */
	void *gathered, *parts;
	void *groups; /* of all ranges */
} dtrain__whole;

/* A second set of weights: see average.c. */
typedef struct dtrain__average {
	dtrain__update_ops ops; /* none: the optimizer was made without it */
	dtrain__scalars weight; /* of the next addition */
} dtrain__average;

enum { DTRAIN__SLOW, DTRAIN__EMA, DTRAIN__AVERAGES };

typedef struct dtrain__optimizer_kind {
	dtrain_optimizer_kind info;
	int32_t num_scalars; /* scalars of a group in device memory */
	/* Computes a group's scalars for a step. lr: already multiplied by the group's lr_scale. */
	void (*fill)(const double *hypers, double lr, float *scalars);
	/* Checks combinations of hyper-parameters. NULL: all are allowed. */
	int (*check)(const double *hypers, beton_error *err);
	/* The update gets the state of a step (dtrain__optimizer_step), made with these hyper-parameters as beta1 and
	 * beta2. 0: it counts no steps. */
	int beta1, beta2;
	/* The update gets the pieces of whole parameters (dtrain__optimizer_pieces), or only of whole matrices. */
	bool needs_norms, needs_matrices;
	/* Adds the ops of an update, with dtrain__optimizer_add. */
	int (*create)(dtrain_optimizer *optimizer, beton_error *err);
} dtrain__optimizer_kind;

/* Updates of offloaded parameters: see host_update.c. */
typedef struct dtrain__host_update dtrain__host_update;

struct dtrain_optimizer {
	const dtrain_device_api *api; /* of the device that updates, and has the states */
	dtrain_device *device;
	dtrain_params *params;
	const dtrain__optimizer_kind *kind;
	dtrain__update_range *ranges;
	int num_ranges;
	dtrain__update_range *range; /* for which ops are being added */
	int64_t count;               /* elements of all ranges */
	bool of_params;              /* the values are the parameters' own, which have compute copies */
	/* See dtrain_optimizer_options. */
	int (*add)(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err);
	void *add_context;
	int (*add_model)(void *context, void *memory, int64_t count, dtrain_stream *stream, beton_error *err);
	int (*gather)(void *context, dtrain_axis axis, void *out, const void *in, int64_t count, dtrain_stream *stream,
		      beton_error *err);
	int32_t model_ranks, model_rank;
	dtrain__whole whole;
	double grad_divisor, clip_norm;
	int norm_parts;
	dtrain_norm norm;
	float *norm_table;       /* see norm.c; NULL: none */
	size_t norm_table_bytes; /* of its states, without states that stay 0 */
	double *hypers;          /* [num_groups][kind->facts.num_hypers] */
	int32_t num_groups;
	void *scaler; /* the loss scaler's state; NULL: none */
	void *clip;   /* DTRAIN_CLIPS elements; NULL: none */
	dtrain_optimizer_state states[DTRAIN__MAX_STATES];
	int num_states;
	dtrain__scalars scalars; /* [num_groups][kind->num_scalars] */
	uint8_t *group;          /* on the device: the group of each run of DTRAIN_PARAM_ALIGN elements */
	int64_t runs;            /* number of these */
	float *step;             /* DTRAIN_STEPS elements on the device; NULL: the kind counts no steps */
	const bool *adamw;       /* dtrain_optimizer_options.adamw, while the optimizer is made */
	void *stand_in;          /* of all arrays, while ops are measured that never run; NULL: each has its own */
	/* The ops of apply: on the parameters' device, on the optimizer's, and on the parameters' again. */
	dtrain__update_ops before, update, after;
	dtrain__host_update *host_update; /* NULL: both are the same device */
	dtrain__average averages[DTRAIN__AVERAGES];
};

extern const dtrain__optimizer_kind dtrain__sgd, dtrain__adam, dtrain__adamw, dtrain__lion, dtrain__lars, dtrain__lamb,
	dtrain__muon;

/* NULL: no such kind. */
const dtrain__optimizer_kind *dtrain__optimizer_kind_find(const char *name);

/* ---- options (kinds.c) ---- */

int dtrain__optimizer_check(const dtrain_params *params, const dtrain_optimizer_options *options, beton_error *err);
/* Sets the numbers of all groups to the options or defaults, and checks them. */
int dtrain__optimizer_set_hypers(dtrain_optimizer *optimizer, const dtrain_optimizer_options *options,
				 beton_error *err);

/* ---- for kinds ---- */

/* An element of an array in the parameters' type. */
void *dtrain__optimizer_element(const dtrain_optimizer *optimizer, void *array, int64_t element);

/* The values, gradients, and a state by its index, of the range for which ops are being added. */
dtrain__argument dtrain__optimizer_values(const dtrain_optimizer *optimizer);
dtrain__argument dtrain__optimizer_grads(const dtrain_optimizer *optimizer);
/* Adds an op before updates: raw gradients, state, [more] -> state. Adds nothing if the gradients have no memory,
 * because they are all zero. */
int dtrain__optimizer_add_reader(dtrain_optimizer *optimizer, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
				 dtrain__argument state, dtrain__argument more, beton_error *err);
dtrain__argument dtrain__optimizer_state(const dtrain_optimizer *optimizer, int index);
/* The scalars of the groups, and the group of each run of DTRAIN_PARAM_ALIGN elements. */
dtrain__argument dtrain__optimizer_scalars(const dtrain_optimizer *optimizer);
dtrain__argument dtrain__optimizer_groups(const dtrain_optimizer *optimizer);
/* The divisor of gradients in updates, on the parameters' device: the state of the scaler or of clipping; NULL:
 * none. */
void *dtrain__optimizer_scale(const dtrain_optimizer *optimizer);
/* The scaler argument of an update; memory NULL: none. */
dtrain__argument dtrain__optimizer_scaler(const dtrain_optimizer *optimizer);
/* The state of the step, which has what a scaler has, too. */
dtrain__argument dtrain__optimizer_step(const dtrain_optimizer *optimizer);
dtrain__argument dtrain__optimizer_pieces(const dtrain_optimizer *optimizer);
dtrain__argument dtrain__argument_array(dtrain_dtype dtype, int64_t count, void *memory);
/* Memory of DTRAIN_SCALERS floats. */
dtrain__argument dtrain__argument_four(void *memory);

/* Inputs and outputs each end with an argument whose memory is NULL. attrs NULL: none. */
int dtrain__optimizer_add(dtrain_optimizer *optimizer, dtrain__update_ops *to, dtrain_op_kind kind,
			  const dtrain_op_attrs *attrs, const dtrain__argument *inputs, const dtrain__argument *outputs,
			  beton_error *err);
/* Adds an addition of F32 numbers over the ranks that have the other shards; nothing if all ranks have everything. */
int dtrain__optimizer_add_sum(dtrain_optimizer *optimizer, dtrain__update_ops *to, float *memory, int64_t count,
			      beton_error *err);
/* The same over the ranks that compute one model. */
int dtrain__optimizer_add_model_sum(dtrain_optimizer *optimizer, dtrain__update_ops *to, float *memory, int64_t count,
				    beton_error *err);
/* Adds a gather of the current range: out [parts][elements of the range]. */
int dtrain__optimizer_add_gather(dtrain_optimizer *optimizer, dtrain__update_ops *to, void *in, void *out,
				 beton_error *err);
/* Allocates the workspace, when all ops are added. */
int dtrain__optimizer_seal(dtrain__update_ops *ops, beton_error *err);
void dtrain__optimizer_free_ops(dtrain__update_ops *ops);
/* Adds the update of a kind with one state: w, g, state, scalars, group, [pieces], [scaler] -> w, state. */
int dtrain__optimizer_add_momentum(dtrain_optimizer *optimizer, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
				   beton_error *err);
/* Adds the update of a kind with two moments: w, g, m, v, scalars, group, step, [pieces, or a third state] -> w, m, v,
 * [the third state]. */
int dtrain__optimizer_add_moments(dtrain_optimizer *optimizer, dtrain_op_kind kind, const dtrain_op_attrs *attrs,
				  beton_error *err);
/* Puts `count` ops on the stream, or all of them. Gradients that leave must be in the arena for the ops that read
 * them. */
int dtrain__optimizer_run_part(dtrain_optimizer *optimizer, const dtrain__update_ops *ops, int first, int count,
			       dtrain_stream *stream, beton_error *err);
int dtrain__optimizer_run(dtrain_optimizer *optimizer, const dtrain__update_ops *ops, dtrain_stream *stream,
			  beton_error *err);
/* To be called after ops that have changed the values: puts the compute copies of them on the stream. */
int dtrain__optimizer_changed(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);
/* Fills device memory from host memory, and waits. */
int dtrain__optimizer_upload(dtrain_optimizer *optimizer, void *to, const void *from, size_t bytes, beton_error *err);
/* Allocates another state, unless arrays have a stand-in. with_buffers: it also has elements for the buffers. */
int dtrain__optimizer_add_state(dtrain_optimizer *optimizer, const char *name, bool with_buffers, beton_error *err);

/* A group's scalars for ops with DTRAIN_UPDATE_SCALARS: the rate, and hyper-parameter 1, which is the decay. */
void dtrain__fill_rates(const double *hypers, double lr, float *scalars);

/* ---- the state of the step, and the table of pieces (parts.c) ---- */

/* Whether the parameter is in the range, wholly or not. */
bool dtrain__range_has(const dtrain__update_range *range, const dtrain_param *param);

int dtrain__step_create(dtrain_optimizer *optimizer, beton_error *err);
/* Counts the range's pieces, and makes the table of matrices, as the kind needs them. UNSUPPORTED: the kind needs whole
 * parameters, and the range or a placement divides one. */
int dtrain__pieces_count(dtrain_optimizer *optimizer, beton_error *err);
/* Makes the table of the pieces that are counted. */
int dtrain__pieces_create(dtrain_optimizer *optimizer, beton_error *err);

/* ---- updates of whole parameters where ranks have parts (whole.c) ---- */

/* For kinds that need whole parameters, before their pieces are counted: lays out all ranges. UNSUPPORTED: parts that
 * differ in size. */
int dtrain__whole_open(dtrain_optimizer *optimizer, beton_error *err);
int dtrain__whole_allocate(dtrain_optimizer *optimizer, const uint8_t *group_of, beton_error *err);
/* Bytes that dtrain__whole_allocate allocates. */
size_t dtrain__whole_bytes(const dtrain_optimizer *optimizer);
void dtrain__whole_close(dtrain_optimizer *optimizer);
/* Before and after the kind's ops of a range; nothing for ranges without parts. */
int dtrain__whole_add_gathers(dtrain_optimizer *optimizer, beton_error *err);
int dtrain__whole_add_parts(dtrain_optimizer *optimizer, beton_error *err);

/* ---- parts that can be combined with any kind: ops and states ---- */

int dtrain__clip_create(dtrain_optimizer *optimizer, beton_error *err);
/* The part of it that adds up, where norm_parts > 0. */
/* A table of states of clipping, which are 0 at first; an op that makes them 0 again; and some of them. */
int dtrain__norm_table_create(dtrain_optimizer *optimizer, int64_t states, beton_error *err);
int dtrain__norm_table_zero(dtrain_optimizer *optimizer, int64_t states, beton_error *err);
dtrain__argument dtrain__norm_table(const dtrain_optimizer *optimizer, int64_t first, int64_t states);
int dtrain__norm_create(dtrain_optimizer *optimizer, const dtrain_op_attrs *attrs, beton_error *err);

/* ---- updates of offloaded parameters (host_update.c) ---- */

/* When the ranges are known, before any op is added. */
int dtrain__host_update_open(dtrain_optimizer *optimizer, beton_error *err);
void dtrain__host_update_close(dtrain_optimizer *optimizer);
/* The copy that updates read of the state of the scaler or of clipping, DTRAIN_SCALERS floats in host memory. */
float *dtrain__host_update_scaler(const dtrain_optimizer *optimizer);
/* dtrain_optimizer_apply. */
int dtrain__host_update_apply(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);
/* dtrain_optimizer_abandon. */
int dtrain__host_update_abandon(dtrain_optimizer *optimizer, dtrain_stream *stream, beton_error *err);

/* which: DTRAIN__SLOW or DTRAIN__EMA. close accepts one that was not created. */
int dtrain__average_create(dtrain_optimizer *optimizer, int which, beton_error *err);
void dtrain__average_close(dtrain_optimizer *optimizer, int which);

#endif
