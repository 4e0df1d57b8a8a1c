/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_sync.
 */
#ifndef DTRAIN_PARALLEL_DATA_SYNC_H
#define DTRAIN_PARALLEL_DATA_SYNC_H

#include <dtrain/overlap.h>
#include <dtrain/stage.h>

#include "comm/group/work.h"
#include "core/graph.h"
#include "core/op.h"
#include "core/params.h"
#include "core/schedule.h"

typedef enum sync_collective {
	SYNC_ALLREDUCE,
	SYNC_REDUCE_SCATTER,
	SYNC_ALL_GATHER,
	SYNC_HOOK,
	SYNC_ALL_TO_ALL
} sync_collective;

/* The data that an operation moves. */
typedef struct sync_transfer {
	sync_collective kind;
	dtrain_group *group;
	void *output;
	const void *input;
	int64_t count; /* elements of a rank: of the part of one if the kind has parts */
	dtrain_dtype dtype;
	dtrain_reduce_op op; /* of reductions; SUM, unless set */
	void *state;         /* SYNC_HOOK: of the hook; it has no output, input and count */
	int round;
	dtrain_event *packed;
	bool *called; /* SYNC_HOOK: set if the hook called an operation in this round or the one before */
} sync_transfer;

/* A collective that executions issue and wait for. */
typedef struct sync_operation {
	dtrain_sync *sync;
	int index;         /* among the operations that are traced; -1: it has none */
	char label[48];    /* "bucket 2 of 7" */
	bool within_model; /* a collective of the graph that is not of the data ranks */
} sync_operation;

/* An operation of one execution. */
typedef struct sync_flight {
	dtrain_event *ready; /* on the stream, before the operation */
	dtrain_work *work;   /* NULL: it is not running */
	bool on_stream;      /* while it is running */
	struct sync_trace_event *trace_event;
} sync_flight;

typedef struct sync_reduction sync_reduction;
typedef struct sync_stage sync_stage;
typedef struct sync_tree sync_tree; /* tree.h */

enum { SYNC_STAGES = 8 };

/* The arrays of a reduction in one execution, and the operations on them. */
typedef struct sync_arrays {
	void *memory;                 /* what backward writes */
	void *shard;                  /* this rank's part of the sum; NULL: all ranks get the whole */
	void *transient[SYNC_STAGES]; /* of each stage that has bytes */
	sync_flight flights[SYNC_STAGES];
	int at;    /* the stage that has been issued, and is not complete; the number of stages: none */
	bool last; /* no other execution of the step adds to the reduction */
} sync_arrays;

/* When a stage that is waited for ends. */
typedef enum sync_stage_end {
	SYNC_END_SOON, /* in the order of the reductions, when memory is wanted back; only the first stage that ends */
	SYNC_END_LEAVING, /* some units later */
	SYNC_END_OF_RUN,  /* after backward, when all reductions have ended the stage before */
} sync_stage_end;

/* A way to treat the array of a reduction. Stages without `wait` put everything on the run's stream. */
typedef struct sync_stage_kind {
	bool sends; /* skipped by a rank alone, and by units of a step that is not synchronized */
	sync_stage_end end;
	/* Begins when the stage before is complete on the run's stream. */
	int (*issue)(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err);
	int (*wait)(const sync_stage *stage, sync_arrays *arrays, const dtrain__run *run, beton_error *err);
	/* After a run that failed, besides the operation. NULL: nothing to do. */
	void (*abandon)(const sync_stage *stage);
	/* Memory in the arena from the issue of the reduction until the stage, or the next one with `wait`, is waited
	 * for. NULL: none. */
	size_t (*bytes)(const sync_stage *stage);
} sync_stage_kind;

struct sync_stage {
	const sync_stage_kind *kind;
	sync_reduction *reduction;
	int index;                /* in the list */
	sync_operation operation; /* sync NULL: the kind has none */
	dtrain_group *group;      /* NULL: the rank is alone */
	dtrain_reduce_op op;
	bool of_shard; /* it changes the shard, not the whole array */
	bool of_parts; /* it adds up what the ranks of one model have computed of a gradient */
	int round;     /* of the hook */
};

/* An array that is summed over the ranks in each step: the gradients of a unit, or the step metrics. It passes through
 * its stages in their order (reduce.c). */
struct sync_reduction {
	dtrain_sync *sync;
	int unit;       /* -1: the step metrics */
	char label[48]; /* "bucket 2 of 7" */
	void *memory;   /* NULL: in a program's arena */
	int64_t count;
	void *shard;          /* NULL: there is none, or it is in a program's arena */
	int64_t shard_count;  /* elements of it */
	bool offloaded_grads; /* memory and shard are in the arena until they are in host memory */
	sync_stage stages[SYNC_STAGES];
	int num_stages;

	/* Executions of the step's last micro-batch that will add to it: one for each stage. Earlier micro-batches are
	 * not counted, because a captured one runs again without these calls. */
	int32_t left;
	dtrain_op *add;             /* accumulate.c: adds an array to the sum over the micro-batches */
	void *sums;                 /* that sum; NULL: steps have one micro-batch */
	bool each_micro_batch;      /* every micro-batch is reduced, and its shard is added up */
	dtrain_op *narrow, *widen;  /* rounding.c; NULL: the sum is sent as it is */
	sync_tree *tree;            /* of sums in the order of parts (tree.h); NULL: others */
	dtrain_event *offload_done; /* unit_offload.c; NULL: gradients stay */
	/* hooks.c, with a hook for this array, or for the shard, in place of the allreduce */
	void *state; /* NULL: none */
	dtrain_hook_part *parts;
	dtrain_event *packed; /* for its rounds */
	bool called;          /* it has called an operation in this step */
};

/* A stage of a reduction in a program: the context of its call. */
typedef struct sync_step {
	struct sync_planned *planned;
	int stage;
} sync_step;

/* A reduction in a program. Its calls share a state, sync_arrays. */
typedef struct sync_planned {
	sync_reduction *reduction;
	sync_step steps[SYNC_STAGES];
	int32_t state, issued;           /* of its calls; the call that issues it */
	int32_t grads;                   /* the transient buffer of its memory; -1: it is not in the arena */
	int32_t transients[SYNC_STAGES]; /* of what stages need; -1: nothing */
	/* Ranges in bytes that no op of the program writes: padding, parameters without a gradient. */
	struct {
		size_t begin, count;
	} * gaps;
	int num_gaps;
} sync_planned;

/* The source and destination when a unit's values, or its compute copies, are gathered. */
typedef struct sync_form {
	int unit;
	bool copies;
	bool is_whole;   /* the unit has memory; otherwise it is in the arena, by transient buffer */
	bool prefetched; /* the shard is copied from the host to its place in the unit; see dtrain_params_offload */
	void *memory;    /* of the unit if it is whole, otherwise of the shard; NULL: that of the host */
	int64_t first;   /* elements of the unit before the shard */
	int64_t count;   /* elements of the shard */
	dtrain_dtype dtype;
} sync_form;

/* A gather of a program, and the transient buffer that it fills: what its call refers to. */
typedef struct sync_gather {
	sync_operation gather;
	sync_form form;
	bool trains;
	int32_t transient; /* -1: into the whole */
} sync_gather;

/* A collective of the graph. */
typedef struct sync_exchange {
	sync_operation operation;
	sync_collective kind;
	dtrain_group *group; /* NULL: the sync has no mesh */
	int32_t ranks;
	dtrain_tensor tensor, input; /* input -1: the tensor is changed in place */
	int64_t count;               /* elements of a rank: of its part, or of the tensor */
	dtrain_dtype dtype;
} sync_exchange;

/* The programs of a step: one, or one for each stage that the rank has. */
static inline int32_t sync_number(const dtrain_graph *graph)
{
	return graph->stage < 0 ? 0 : graph->stage;
}

static inline uint64_t sync_bit(const dtrain_graph *graph)
{
	return UINT64_C(1) << sync_number(graph);
}

/* Bytes that a program sends in a micro-batch, and once a step. */
typedef struct sync_traffic {
	uint64_t gathers_of_micro_batch, gathers_of_step, exchanges_of_micro_batch;
} sync_traffic;

typedef struct sync_memory sync_memory; /* memory.c */

/* An execution of a program with backward, while it is not complete: the state of the calls that begin and end it. */
typedef struct sync_execution {
	struct sync_execution *next;
	dtrain_instance *instance; /* NULL: it is complete */
} sync_execution;

typedef struct sync_program {
	struct sync_program *next;
	sync_planned *planned; /* of each reduction; NULL: no backward */
	sync_gather *gathers;
	int num_gathers;
	sync_exchange *exchanges;
	int num_exchanges;
	struct trace_node *trace_nodes; /* NULL: none */
} sync_program;

/* With the option overlap: what the last program with backward has. */
typedef struct sync_timeline {
	dtrain_overlap overlap; /* without times */
	dtrain__op_cost *costs; /* of each node */
	int *operations;        /* of each transfer, among the operations that are traced */
} sync_timeline;

/* The times of one operation of a step. The events are traced if the group is stream-ordered. */
typedef struct sync_trace_event {
	dtrain_event *begin, *end;      /* around the operation, on the group's stream */
	dtrain_event *waiting, *passed; /* on the run's stream, around the wait */
	bool used;                      /* in the step */
	double begin_ms, end_ms; /* of the operation, on the host's clock or from the step's first trace event on */
	double exposed_ms;
} sync_trace_event;

struct dtrain_sync_trace {
	dtrain_sync *sync;
	dtrain_event *began, *forward, *backward; /* trace events: the first op; the ends of forward and backward */
	double began_ms;                          /* the same time on the host's clock */
	sync_trace_event *operations;
	int count;
	dtrain_event **nodes; /* traced after each; NULL: the sync has no timeline */
	int num_nodes;
	bool recorded;         /* the last step traced all events, which have its times */
	dtrain_sync_step step; /* what is not in the events */
};

/* A strategy for keeping the ranks' parameters the same: a row of a table. */
typedef struct dtrain__sync_kind {
	const char *name;
	const char *unit;               /* what users of the strategy call a unit */
	bool shards;                    /* units are divided among the ranks of the axis "shard" */
	bool whole_values, whole_grads; /* see dtrain__sharding */
	bool has_rounds;                /* see <dtrain/local.h>: gradients become means, and may stay on the rank */
} dtrain__sync_kind;

struct dtrain_sync {
	dtrain_params *params;
	dtrain_device *device;
	const dtrain_device_api *api;
	const dtrain__sync_kind *kind;
	dtrain_sync_options options;
	const dtrain_mesh *mesh;        /* NULL: created without one */
	dtrain_group *group;            /* the mesh's gradient group; NULL: created without a mesh */
	dtrain_group *pipeline;         /* the stages of this rank's pipeline; NULL: it has the whole model */
	dtrain_group *model;            /* the ranks that compute this rank's model together; NULL: this rank alone */
	dtrain_group *shards;           /* those among which units are divided; NULL: they are not */
	dtrain_group *replicas;         /* the ranks that have the same shards; NULL: this rank alone */
	dtrain_group *gathers;          /* the same ranks as shards, with a lane of its own; owned */
	dtrain_stream *prefetched;      /* copies units from the host; NULL: none is prefetched */
	dtrain_stream *offloaded_grads; /* copies their gradients there */
	sync_memory *memories;          /* what the groups may register, the last one first */
	dtrain_hook hook;               /* create NULL: none */
	dtrain_dtype sent;              /* of sums over shards; the parameters' type unless a compression rounds it */
	void *rounding_workspace;
	size_t rounding_workspace_bytes;
	int32_t num_shards;   /* ranks among which units are divided; 1: they are not */
	int32_t num_replicas; /* of what this rank has */
	bool started;
	bool unsynchronized; /* micro-batches reduce the step metrics alone */

	sync_reduction
		*reductions; /* the step metrics, then each unit that is trained; created with the first program */
	int count;
	int *operation_units; /* for each operation that is traced */
	int num_operations;
	uint64_t model_waited_ns;   /* see dtrain_sync_model_waited_ms */
	sync_program *programs;     /* all that were compiled */
	sync_execution *executions; /* not complete yet */
	void *sums;                 /* memory of all reductions' sums; NULL: steps have one micro-batch */
	size_t sums_bytes;
	void *add_workspace;
	/* Bits of programs (sync_bit): the first micro-batch of a step was put on the stream, the last one not yet, and
	 * none was abandoned. */
	uint64_t steps_open;
	bool sums_open; /* the sums are not zero */
	/* For each parameter, then each step metric: bits of the programs that write it; NULL: no program yet. */
	uint64_t *covered;
	uint64_t covering; /* bits of the programs that were compiled */

	dtrain_sync_listener listener; /* of complete units; NULL: none */
	void *listener_context;

	dtrain_sync_trace *trace; /* of the next steps; the caller's, NULL: none */
	sync_timeline *timeline;  /* NULL: without the option overlap */
	/* For each number of a program: the last one with backward that was compiled, or measured while none is. */
	sync_traffic traffic[DTRAIN_MAX_STAGES];

	sync_operation between_steps; /* collectives outside of programs, one at a time */
	sync_flight between;
	dtrain_event *packed_ready; /* recorded when the buffers are packed */
	void *packed;               /* all buffers, for a single reduction; in device memory, as the group requires */
	int64_t packed_count;
	int64_t moving_count; /* elements of the buffers that are not fixed */
	float *part_buffers;  /* [micro-batches of a step][moving_count]: see tree_buffers.c; NULL: none */
};

/* ---- operations (operation.c) ---- */

/* is_traced: it belongs to programs that train. unit: -1 of the step metrics. */
int dtrain__operation_open(sync_operation *operation, dtrain_sync *sync, int unit, bool is_traced, beton_error *err);
/* Starts it after everything on the stream. traced: the step's trace events take its times. */
int dtrain__operation_issue(const sync_operation *operation, sync_flight *flight, const sync_transfer *transfer,
			    dtrain_stream *stream, bool traced, beton_error *err);
/* Makes later work on the stream wait for it, if it is running. */
int dtrain__operation_wait(const sync_operation *operation, sync_flight *flight, dtrain_stream *stream,
			   beton_error *err);
/* Waits for it, so that its memory is free. */
void dtrain__flight_abandon(sync_flight *flight);
/* For operations outside of programs. */
int dtrain__flight_open(const dtrain_sync *sync, sync_flight *flight, beton_error *err);
void dtrain__flight_close(const dtrain_sync *sync, sync_flight *flight);

/* Makes an op with one output, in memory that is plain. The inputs' bytes are set here; *workspace grows to what the op
 * needs. */
int dtrain__sync_create_op(const dtrain_sync *sync, dtrain_op_desc *desc, dtrain_op **out, size_t *workspace,
			   beton_error *err);

/* ---- executions and steps (step.c) ---- */

/* Adds the call that begins an execution, as the first one, and the call that ends it, as the last one. */
int dtrain__sync_plan_begin(dtrain_sync *sync, dtrain__schedule *schedule, int32_t *state, beton_error *err);
int dtrain__sync_plan_end(dtrain_sync *sync, dtrain__schedule *schedule, int32_t state, beton_error *err);
/* Gives up executions whose last phase has not run: groups still write to their arrays and wait for their events. */
void dtrain__sync_drain(dtrain_sync *sync);
/* The next micro-batch begins a step, whatever was summed so far. */
void dtrain__sync_give_up_step(dtrain_sync *sync);

/* ---- reductions (reduce.c) ---- */

/* The reductions with their stages. The parameters must be allocated. */
int dtrain__sync_create_reductions(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_reductions(dtrain_sync *sync);

/* Lists the stages of each reduction, when all that they use exists. */
int dtrain__sync_open_stages(dtrain_sync *sync, beton_error *err);
sync_stage *dtrain__stage_add(sync_reduction *reduction, const sync_stage_kind *kind, dtrain_group *group);
/* The next stage after `stage` (-1: the first one) that is waited for. The number of stages: none. */
int dtrain__stage_after(const sync_reduction *reduction, int stage);
/* The state of a reduction's calls. */
dtrain__state dtrain__sync_arrays_state(void);
/* The call that issues a reduction and waits for its first stage, and that for a later stage. */
dtrain__call dtrain__sync_reduce_call(sync_planned *planned);
dtrain__call dtrain__sync_stage_call(sync_planned *planned, int stage);
/* The call that begins the memory of gradients in the arena. */
dtrain__call dtrain__sync_grads_call(sync_planned *planned);

extern const sync_stage_kind dtrain__stage_accumulate; /* accumulate.c */
extern const sync_stage_kind dtrain__stage_sum;        /* reduce.c; so the next */
extern const sync_stage_kind dtrain__stage_scatter;
extern const sync_stage_kind dtrain__stage_round; /* rounding.c */
extern const sync_stage_kind dtrain__stage_unround;
extern const sync_stage_kind dtrain__stage_offload; /* unit_offload.c */
extern const sync_stage_kind dtrain__stage_hook;    /* hooks.c: a round */
extern const sync_stage_kind dtrain__stage_finish;

/* ---- memory that groups register (memory.c) ---- */

/* Allocates what the ranks exchange of the parameters, and of programs, from now on. */
void dtrain__sync_supply_memory(dtrain_sync *sync);
/* Stops that; existing memory stays valid without the sync. */
void dtrain__sync_leave_memory(dtrain_sync *sync);
/* Collective: registers what there is with the groups that use it. The ranks must have compared their models. */
int dtrain__sync_register_memory(dtrain_sync *sync, beton_error *err);

/* ---- hooks (hooks.c) ---- */

/* The hook that the options name; create NULL: none. free_hook frees what it has made. */
int dtrain__sync_take_hook(const dtrain_sync_options *options, dtrain_hook *out, beton_error *err);
void dtrain__sync_free_hook(const dtrain_sync_options *options, dtrain_hook *hook);
/* States of the hook for all units; nothing without a hook, or with one rank. */
int dtrain__sync_create_states(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_states(dtrain_sync *sync);
/* Calls the hook's round: see dtrain__operation_issue. */
int dtrain__sync_begin_round(const sync_operation *operation, sync_flight *flight, const sync_transfer *transfer,
			     dtrain_stream *stream, const work_notes *notes, beton_error *err);
/* A hash for the ranks to compare: method and options, or the name of the caller's hook. */
uint64_t dtrain__sync_hash_hook(const dtrain_sync *sync);

/* ---- sums over shards in 16 bits (rounding.c) ---- */

/* Makes the ops, if the compression is a rounding and units are divided. */
int dtrain__sync_create_roundings(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_roundings(dtrain_sync *sync);
/* This rank's part of the rounded gradients. */
void *dtrain__sync_rounded_part(const sync_reduction *reduction, void *rounded);

/* ---- gathers (gather.c) ---- */

/* Whether ops' operands in this form need a gather: a unit's values, or its copies. A prefetched unit is
 * gathered from the host. */
bool dtrain__sync_form_of(const dtrain_sync *sync, int unit, bool copies, sync_form *out);
int dtrain__sync_open_gather(sync_gather *gather, const sync_form *form, dtrain_sync *sync, bool trains,
			     beton_error *err);
/* The call and its state. */
int dtrain__sync_add_gather(sync_gather *gather, dtrain__schedule *schedule, int32_t after, int32_t before,
			    beton_error *err);

/* ---- units in host memory (unit_offload.c) ---- */

/* The streams, if units are prefetched. */
int dtrain__sync_open_unit_offload(dtrain_sync *sync, beton_error *err);
void dtrain__sync_close_unit_offload(dtrain_sync *sync);
/* Copies the shard to its place in the unit's memory after everything on the stream, beside what comes later. begun,
 * ready: events around the copy. */
int dtrain__sync_prefetch(const sync_gather *gather, dtrain_event *begun, dtrain_event *ready, void *place,
			  dtrain_stream *stream, beton_error *err);

/* ---- collectives of the graph (collectives.c) ---- */

/* Adds the calls of a program. */
int dtrain__sync_plan_collectives(dtrain_sync *sync, sync_program *program, dtrain__schedule *schedule,
				  beton_error *err);

/* ---- the pass (plan.c) ---- */

/* Adds the strategy's calls to a program's schedule. */
int dtrain__sync_plan(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err);
/* Frees what belongs to the programs that were planned after `until` (NULL: all). */
void dtrain__sync_destroy_programs(dtrain_sync *sync, const sync_program *until);

/* ---- nodes and transfers of a step (timeline.c); without the option overlap these do nothing ---- */

int dtrain__timeline_create(dtrain_sync *sync, beton_error *err);
void dtrain__timeline_destroy(dtrain_sync *sync);
/* Notes the nodes of a program with backward, replacing the program before, and adds calls that mark them. */
int dtrain__timeline_begin(dtrain_sync *sync, sync_program *program, dtrain__schedule *schedule, beton_error *err);
/* Notes a transfer after the earlier ones. */
int dtrain__timeline_add(dtrain_sync *sync, const dtrain_overlap_transfer *transfer, const sync_operation *operation,
			 beton_error *err);

/* ---- what a rank sends (facts.c) ---- */

/* The program is the last one of its number with backward. */
void dtrain__sync_note_traffic(dtrain_sync *sync, const dtrain_graph *graph, const sync_program *program);

/* ---- trace (trace_events.c): the times of the last micro-batch of a step, for the trace events that are set ---- */

/* When a micro-batch begins, and at the ends of forward and backward. */
int dtrain__sync_trace_began(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
int dtrain__sync_trace_forward(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
int dtrain__sync_trace_backward(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
/* The trace events of the step are complete. */
void dtrain__sync_trace_ended(dtrain_sync *sync);
/* The trace events of an operation; NULL: none. */
sync_trace_event *dtrain__sync_trace_event_of(const dtrain_sync *sync, const sync_operation *operation);

/* An op that adds two arrays of the parameters' type, the result in place of the first. *workspace grows to what it
 * needs. */
int dtrain__sync_create_add(const dtrain_sync *sync, int64_t count, dtrain_op **out, size_t *workspace,
			    beton_error *err);

/* Memory and ops for the sums over a step's micro-batches. */
int dtrain__sync_create_sums(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_sums(dtrain_sync *sync);

/* Collective: MISMATCH when the ranks have different models or units. */
int dtrain__sync_compare(const dtrain_sync *sync, beton_error *err);

/* Collective: broadcasts rank 0's values and buffers. */
int dtrain__sync_broadcast(dtrain_sync *sync, beton_error *err);

#endif
