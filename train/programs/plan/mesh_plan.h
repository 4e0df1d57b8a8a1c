/* SPDX-License-Identifier: Apache-2.0
 *
 * A mesh of ranks with all that decides the time of a step and the memory of a rank, and a prediction of both. */
#ifndef PROGRAMS_PLAN_MESH_PLAN_H
#define PROGRAMS_PLAN_MESH_PLAN_H

#include "stage_cost.h"

typedef struct plan_mesh {
	int32_t pipeline, replicate, shard, context, tensor;
	bool sequence;        /* the axis tensor divides the rows between layers, too */
	const char *strategy; /* "ddp", "zero1", "zero2" or "zero3"; zero3 with copies is hsdp */
	int64_t batch;        /* samples of a micro-batch */
	int32_t micro_batches;
	const char *schedule; /* of a pipeline; "1f1b" without one */
	int32_t chunks;       /* stages of a rank */
	int recompute;        /* engine_recompute_name's index */
} plan_mesh;

/* Bytes of the rank that needs most. */
typedef struct plan_mesh_memory {
	double values, copies, gradients, sums, states;
	double activations; /* arena, and for further live micro-batches what is not common */
	double messages;    /* received tensors of a pipeline */
	double batches;
	double total;
	double elements, arena, common; /* that these are made of */
	double live;                    /* micro-batches of all stages of the rank */
	int32_t rank;                   /* of the pipeline */
} plan_mesh_memory;

/* Seconds of a step. */
typedef struct plan_mesh_time {
	double compute;  /* of the busiest stage: forward and backward of all micro-batches */
	double tensor;   /* that stage waits for sums, or gathers and reductions, over the axis tensor, */
	double context;  /* for keys and values of the axis context, */
	double gathers;  /* and, in each micro-batch, for gathers and reductions of zero2 and zero3 */
	double pipeline; /* waits for other stages, transfers included */
	double data;     /* sums of gradients and gathers of values once a step, as far as they are exposed */
	double update;   /* of the optimizer */
	double total;
	/* That these are made of. */
	double tensor_exchanges, tensor_bytes; /* of a micro-batch: sums, or gathers and reductions to shards */
	double data_seconds, data_hidden;      /* once a step: alone, and during the last backward */
	int32_t stage;                         /* the busiest */
	double utilization;                    /* model products over peak, 0 to 1 */
} plan_mesh_time;

typedef struct plan_mesh_row {
	plan_mesh mesh;
	plan_mesh_memory memory;
	plan_mesh_time time;
} plan_mesh_row;

/* The compute lists of a schedule. */
typedef struct plan_schedule {
	const char *name;
	int32_t ranks, chunks, micro_batches;
	dtrain_pipeline_schedule *lists;
	int32_t live[DTRAIN_MAX_STAGES]; /* the most micro-batches that each stage keeps at a time */
} plan_schedule;

enum { PLAN_SCHEDULES = 16 };

/* The newest schedules: neighbouring meshes of a search mostly have the same one. Zero it before use. */
typedef struct plan_schedules {
	plan_schedule kept[PLAN_SCHEDULES];
	int next; /* the oldest */
} plan_schedules;

void plan_schedules_close(plan_schedules *schedules);

int32_t plan_mesh_ranks(const plan_mesh *mesh);
/* Whether the memory suffices. */
bool plan_mesh_fits(const plan_costs *costs, const plan_mesh_row *row);
/* Fills in the memory, and the time if the memory suffices. Errors: as plan_costs_of; INVALID_ARGUMENT (the schedule is
 * not for these numbers). */
int plan_mesh_predict(plan_costs *costs, plan_schedules *schedules, plan_mesh_row *row, beton_error *err);

/* The axes' lines: neighbouring ranks differ along tensor, then context, shard, replicate and pipeline. */
plan_line plan_mesh_tensor(const plan_mesh *mesh);
plan_line plan_mesh_context(const plan_mesh *mesh);
plan_line plan_mesh_shard(const plan_mesh *mesh);
plan_line plan_mesh_replicate(const plan_mesh *mesh);
plan_line plan_mesh_pipeline(const plan_mesh *mesh);

/* ---- its parts ---- */

/* mesh_memory.c: stages: [pipeline * chunks]. Error: NO_MEMORY. */
int plan_mesh_remember(const plan_costs *costs, const plan_mesh *mesh, const plan_schedule *schedule,
		       const plan_cost *stages, plan_mesh_memory *out, beton_error *err);

/* mesh_schedule.c. The compute lists of as many micro-batches as a rank's memory depends on; they belong to schedules,
 * until it has made PLAN_SCHEDULES more. Errors: INVALID_ARGUMENT (the schedule is not for these numbers), NO_MEMORY.
 */
int plan_mesh_schedule(plan_schedules *schedules, const plan_mesh *mesh, const plan_schedule **out, beton_error *err);
int32_t plan_mesh_rank_of_stage(const plan_mesh *mesh, int32_t stage);
/* Runs the schedule with these costs of stages. *makespan: of all micro-batches. Errors: as plan_mesh_schedule. */
int plan_mesh_simulate(plan_schedules *schedules, const plan_mesh *mesh, const dtrain_stage_cost *costs,
		       double *makespan, beton_error *err);
/* Whether the schedule computes the gradients of weights apart. */
bool plan_mesh_splits_backward(const char *schedule);

#endif
