/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_sync.
 */
#ifndef DTRAIN_PARALLEL_SYNC_H
#define DTRAIN_PARALLEL_SYNC_H

#include <dtrain/overlap.h>

#include "comm/work.h"
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

/* What an operation moves. */
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

/* A collective that runs issue and wait for. */
typedef struct sync_operation {
	dtrain_sync *sync;
	int index;              /* among the operations that have marks; -1: it has none */
	dtrain_event *ready;    /* on the stream, in front of the operation */
	dtrain_work *work;      /* NULL: it is not running */
	bool on_stream;         /* while it is running */
	struct sync_mark *mark; /* of the run that it is in; NULL: none */
	char label[48];         /* "bucket 2 of 7" */
} sync_operation;

/* How a sum over shards is sent in a type of 16 bits (rounding.c). */
typedef struct sync_rounding {
	dtrain_op *narrow, *widen; /* NULL: it is sent as it is */
	void *memory;              /* of the unit's rounded gradients: a lease */
} sync_rounding;

/* An array that is summed over the ranks in each step: the gradients of a unit, or the figures. */
typedef struct sync_reduction {
	sync_operation sum; /* over the data ranks; with a shard, over the ranks that have the others */
	/* After that: over the ranks that have the same shard; of the figures, the maximum over the model's ranks. Its
	 * sync is NULL unless another rank takes part. */
	sync_operation replicas;
	void *memory; /* NULL: a lease that has not begun */
	int64_t count;
	void *shard;         /* this rank's part of the sum; NULL: all ranks get the whole */
	int64_t shard_count; /* elements of it */
	sync_rounding rounding;
	bool each_run; /* every run of a step is reduced, and the runs' shards are added up */
	/* With a hook for this array, or for the shard, in place of the allreduce. */
	void *state; /* NULL: none */
	dtrain_hook_part *parts;
	sync_operation second;  /* its second round; the first is `sum`, or `replicas` */
	dtrain_event *packed;   /* for its rounds */
	bool called;            /* it has called an operation in this step */
	void *runs;             /* sum over the runs of this step; NULL: steps have one run */
	dtrain_op *add;         /* adds the array, or the shard, to the sum of the runs, or the other way round */
	struct sync_tree *tree; /* of sums in the order of parts (tree.h); NULL: others */
	bool leaves;            /* memory and shard are in the arena until they are in host memory */
	dtrain_event *complete, *left;
} sync_reduction;

/* What a unit's values, or its compute copies, are gathered from, and into. */
typedef struct sync_form {
	int unit;
	bool copies;
	bool is_whole; /* the unit has memory; otherwise it is in the arena, by lease */
	bool visits;   /* the shard is copied from the host to its place in the unit; see dtrain_params_offload */
	void *memory;  /* of the unit if it is whole, otherwise of the shard; NULL: that of the host */
	int64_t first; /* elements of the unit in front of the shard */
	int64_t count; /* elements of the shard */
	dtrain_dtype dtype;
} sync_form;

/* Leases of a program, and the gathers that fill them: what its calls refer to. */
typedef struct sync_gather {
	sync_operation gather;
	sync_form form;
	int32_t lease;       /* -1: into the whole */
	dtrain_event *begun; /* of a unit that visits: its memory is free; NULL: it does not */
} sync_gather;

/* The gradients of a unit in a program's arena, from the first to the end of their reduction. */
typedef struct sync_grads {
	dtrain_sync *sync;
	sync_reduction *reduction;
	int32_t lease;
	/* What no op of the program writes: padding, parameters without a gradient. Bytes. */
	struct {
		size_t begin, count;
	} * gaps;
	int num_gaps;
} sync_grads;

/* The rounded gradients of a unit in a program's arena, while they are sent. */
typedef struct sync_rounded {
	sync_reduction *reduction;
	int32_t lease;
} sync_rounded;

/* A collective of the graph, which changes its tensor in place. */
typedef struct sync_exchange {
	sync_operation operation;
	sync_collective kind;
	dtrain_group *group; /* NULL: the sync has no mesh */
	dtrain_tensor tensor;
	int64_t count; /* elements of a rank: of its row, or of the tensor */
	dtrain_dtype dtype;
} sync_exchange;

typedef struct sync_memory sync_memory; /* memory.c */
typedef struct sync_parts sync_parts;   /* tree.h */
typedef struct sync_tree sync_tree;

typedef struct sync_program {
	struct sync_program *next;
	sync_parts *parts; /* of each reduction; NULL: none */
	sync_gather *gathers;
	int num_gathers;
	sync_grads *grads;
	int num_grads;
	sync_rounded *rounded;
	int num_rounded;
	sync_exchange *exchanges;
	int num_exchanges;
	struct sync_node_mark *node_marks; /* NULL: none */
} sync_program;

/* With the option overlap: what the last program with backward has. */
typedef struct sync_timeline {
	dtrain_overlap overlap; /* without times */
	dtrain__op_cost *costs; /* of each node */
	int *operations;        /* of each transfer, among the operations that have marks */
} sync_timeline;

/* The times of one operation of a step. The events are marked if the group is stream-ordered. */
typedef struct sync_mark {
	dtrain_event *begin, *end;      /* around the operation, on the group's stream */
	dtrain_event *waiting, *passed; /* on the run's stream, around the wait */
	bool used;                      /* in the step */
	double begin_ms, end_ms;        /* of the operation, on the host's clock or from the step's first mark on */
	double exposed_ms;
} sync_mark;

struct dtrain_sync_marks {
	dtrain_sync *sync;
	dtrain_event *began, *forward; /* marks: the first operation; the end of forward */
	double began_ms;               /* the same time on the host's clock */
	sync_mark *operations;
	int count;
	dtrain_event **nodes; /* marked behind each; NULL: the sync has no timeline */
	int num_nodes;
	bool recorded;         /* the last step marked all events, which have its times */
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
	const dtrain_mesh *mesh; /* NULL: created without one */
	dtrain_group *group;     /* the mesh's data group; NULL: created without a mesh */
	dtrain_group *model;     /* the ranks that compute this rank's model together; NULL: this rank alone */
	dtrain_group *shards;    /* those among which units are divided; NULL: they are not */
	dtrain_group *replicas;  /* the ranks that have the same shards; NULL: this rank alone */
	dtrain_group *gathers;   /* the same ranks as shards, with a lane of its own; owned */
	dtrain_stream *visits;   /* copies units from the host; NULL: none visits */
	dtrain_stream *leaves;   /* copies their gradients there */
	sync_memory *memories;   /* what the groups may register, the last one first */
	dtrain_hook hook;        /* create NULL: none */
	dtrain_dtype sent;       /* of sums over shards; the parameters' type unless a compression rounds it */
	void *rounding_workspace;
	size_t rounding_workspace_bytes;
	int32_t num_shards;   /* ranks among which units are divided; 1: they are not */
	int32_t num_replicas; /* of what this rank has */
	bool started;
	bool apart; /* runs reduce the figures alone */

	sync_reduction *reductions; /* the figures, then each unit that is trained; created with the first program */
	int count;
	int *operation_units; /* for each operation that has marks */
	int num_operations;
	sync_program *programs; /* all that were compiled */
	bool within_run;        /* a run that trains has begun */
	bool within_step;       /* earlier runs of the step were put on the stream */
	int run;                /* the runs of the step before this one; counted with the option parts */
	void *sums;             /* memory of all reductions' sums; NULL: steps have one run */
	size_t sums_bytes;
	void *add_workspace;
	bool sums_open;   /* a step has begun, and the sums are not zero again */
	bool sums_stale;  /* the sums belong to a step that is not continued */
	uint8_t *covered; /* for each parameter, then each figure: the programs write it; NULL: no program yet */

	dtrain_sync_listener listener; /* of complete units; NULL: none */
	void *listener_context;

	dtrain_sync_marks *marks; /* of the next steps; the caller's, NULL: none */
	sync_timeline *timeline;  /* NULL: without the option overlap */
	/* Bytes that the last program with backward gathers in each run, and once a step: the last compiled one, or
	 * measured one while none is compiled. */
	uint64_t gathers_of_run, gathers_of_step;

	sync_operation between_steps; /* collectives outside of programs, one at a time */
	dtrain_event *packed_ready;   /* recorded when the buffers are packed */
	void *packed;                 /* all buffers, for a single reduction; in device memory, as the group requires */
	int64_t packed_count;
	int64_t moving_count; /* elements of the buffers that are not fixed */
	float *part_buffers;  /* [runs of a step][moving_count]: see tree_buffers.c; NULL: none */
};

/* ---- the mesh (mesh.c) ---- */

/* The group of the ranks that differ along these axes alone (bits 1 << dtrain_axis): one axis, the data axes, or the
 * model axes. NULL: another set. */
dtrain_group *dtrain__mesh_line(const dtrain_mesh *mesh, uint32_t axes);
dtrain__lines dtrain__mesh_lines(const dtrain_mesh *mesh);

/* ---- operations (operation.c) ---- */

/* has_marks: it belongs to programs that train. unit: -1 of the figures. */
int dtrain__operation_open(sync_operation *operation, dtrain_sync *sync, int unit, bool has_marks, beton_error *err);
void dtrain__operation_close(sync_operation *operation);
/* Starts it behind everything on the stream. marked: this run is the one of the step that has marks. */
int dtrain__operation_issue(sync_operation *operation, const sync_transfer *transfer, dtrain_stream *stream,
			    bool marked, beton_error *err);
/* Makes later work on the stream wait for it, if it is running. */
int dtrain__operation_wait(sync_operation *operation, dtrain_stream *stream, beton_error *err);
/* Nothing writes to its memory afterwards. */
void dtrain__operation_abandon(sync_operation *operation);

/* For calls whose issue or wait has nothing to do. */
int dtrain__sync_nothing(void *context, const dtrain__run *run, beton_error *err);

/* Makes an op with one output, in memory that is plain. The inputs' bytes are set here; *workspace grows to what the op
 * needs. */
int dtrain__sync_create_op(const dtrain_sync *sync, dtrain_op_desc *desc, dtrain_op **out, size_t *workspace,
			   beton_error *err);

/* ---- reductions (reduce.c) ---- */

/* At the first call of a run that trains. */
int dtrain__sync_begin_run(dtrain_sync *sync, const dtrain__run *run, beton_error *err);

/* What every reduction begins with: the run's begin, and the sums over runs that are not sent. */
int dtrain__sync_begin_reduction(sync_reduction *reduction, const dtrain__run *run, beton_error *err);
/* Whether this run sends the array. */
bool dtrain__sync_sends(const sync_reduction *reduction, const dtrain__run *run);
/* Behind the last wait of a run that trains. */
void dtrain__sync_end_run(dtrain_sync *sync, const dtrain__run *run);
/* dtrain__call.abandon of a reduction. */
void dtrain__sync_abandon(void *reduction);
/* Tells the listener that a unit's gradients are complete. */
int dtrain__sync_tell(const sync_reduction *reduction, const dtrain__run *run, beton_error *err);

/* The call that starts reduction `index` (0: the figures; otherwise of a unit), and the wait for it. Every index must
 * be waited for, in order. */
dtrain__call dtrain__sync_reduce_call(dtrain_sync *sync, int index);
/* The call that adds up the shards of the replicas, which begins when the call above is waited for. */
dtrain__call dtrain__sync_replicas_call(dtrain_sync *sync, int index);

/* The parameters must be allocated. */
int dtrain__sync_create_reductions(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_reductions(dtrain_sync *sync);
/* Waits for running operations: groups still write to the arrays and wait for the events. */
void dtrain__sync_drain(dtrain_sync *sync);

/* ---- memory that groups register (memory.c) ---- */

/* Allocates what the ranks exchange of the parameters, and of programs, from now on. */
void dtrain__sync_supply_memory(dtrain_sync *sync);
/* No more; what there is goes on without the sync. */
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
/* What a round of the hook moves. */
sync_transfer dtrain__sync_hook_transfer(sync_reduction *reduction, int round);
/* Calls the hook's round: see dtrain__operation_issue. */
int dtrain__sync_begin_round(sync_operation *operation, const sync_transfer *transfer, dtrain_stream *stream,
			     const work_notes *notes, beton_error *err);
/* The call that ends the hook's last round with a unit, and writes its results. */
dtrain__call dtrain__sync_finish_call(dtrain_sync *sync, int index);
/* What the ranks must agree on: method and options, or the name of the caller's hook. */
uint64_t dtrain__sync_hash_hook(const dtrain_sync *sync);

/* ---- sums over shards in 16 bits (rounding.c) ---- */

/* Makes the ops, if the compression is a rounding and units are divided. */
int dtrain__sync_create_roundings(dtrain_sync *sync, beton_error *err);
void dtrain__sync_destroy_roundings(dtrain_sync *sync);
/* The call that begins the memory of the rounded gradients. */
dtrain__call dtrain__sync_rounded_call(sync_rounded *rounded);
size_t dtrain__sync_rounded_bytes(const sync_reduction *reduction);
/* Rounds the gradients of a unit on the stream, and makes the transfer that of the rounded ones. */
int dtrain__sync_round(sync_reduction *reduction, dtrain_stream *stream, sync_transfer *transfer, beton_error *err);
/* Puts on the stream what writes the received sum to the shard. */
int dtrain__sync_unround(sync_reduction *reduction, dtrain_stream *stream, beton_error *err);

/* ---- gathers (gather.c) ---- */

/* Whether ops' operands in this form need a gather: a unit's values, or its copies. A unit that visits the device is
 * gathered from the host. */
bool dtrain__sync_form_of(const dtrain_sync *sync, int unit, bool copies, sync_form *out);
int dtrain__sync_open_gather(sync_gather *gather, const sync_form *form, dtrain_sync *sync, bool trains,
			     beton_error *err);
void dtrain__sync_close_gather(sync_gather *gather);
dtrain__call dtrain__sync_gather_call(sync_gather *gather);
dtrain__call dtrain__sync_grads_call(sync_grads *grads);

/* ---- units in host memory (visits.c) ---- */

/* The streams, if units visit the device. */
int dtrain__sync_open_visits(dtrain_sync *sync, beton_error *err);
void dtrain__sync_close_visits(dtrain_sync *sync);
/* Copies the shard to its place in the unit's memory behind everything on the stream, beside what comes later. */
int dtrain__sync_visit(sync_gather *gather, void *place, dtrain_stream *stream, beton_error *err);
/* The unit's gradients have memory in the arena, and this rank's part of them. */
void dtrain__sync_place_grads(sync_reduction *reduction, void *memory);
/* When a unit's sums are complete on the run's stream: copies this rank's part to the host, at the end of a step. */
int dtrain__sync_leave(sync_reduction *reduction, const dtrain__run *run, beton_error *err);
/* The call whose wait is the end of that. The memory is free behind it, and what the listener puts on the stream. */
dtrain__call dtrain__sync_leave_call(dtrain_sync *sync, int index);

/* ---- collectives of the graph (collectives.c) ---- */

/* Adds the calls of a program. */
int dtrain__sync_plan_collectives(dtrain_sync *sync, sync_program *program, dtrain__schedule *schedule,
				  beton_error *err);
void dtrain__sync_close_collectives(sync_program *program);

/* ---- the pass (plan.c) ---- */

/* Adds the strategy's calls to a program's schedule. */
int dtrain__sync_plan(dtrain_sync *sync, dtrain__schedule *schedule, beton_error *err);
/* Frees what belongs to the programs that were planned after `until` (NULL: all). */
void dtrain__sync_destroy_programs(dtrain_sync *sync, const sync_program *until);

/* ---- nodes and transfers of a step (timeline.c); without the option overlap these do nothing ---- */

int dtrain__timeline_create(dtrain_sync *sync, beton_error *err);
void dtrain__timeline_destroy(dtrain_sync *sync);
/* Notes the nodes of a program with backward in place of those of the one before, and adds calls that mark them. */
int dtrain__timeline_begin(dtrain_sync *sync, sync_program *program, dtrain__schedule *schedule, beton_error *err);
/* Notes a transfer behind the earlier ones. */
int dtrain__timeline_add(dtrain_sync *sync, const dtrain_overlap_transfer *transfer, const sync_operation *operation,
			 beton_error *err);

/* ---- what a rank sends (facts.c) ---- */

/* The program is the last one with backward. */
void dtrain__sync_note_gathers(dtrain_sync *sync, const sync_program *program);

/* ---- marks (marks.c): the times of the last run of a step, for the marks that are set ---- */

/* At the first operation of a run, and at the end of forward. */
int dtrain__sync_mark_began(dtrain_sync *sync, dtrain_stream *stream, beton_error *err);
int dtrain__sync_mark_forward(dtrain_sync *sync, dtrain_stream *stream, bool sends, beton_error *err);
/* The marks of an operation; NULL: none. */
sync_mark *dtrain__sync_mark_of(const dtrain_sync *sync, const sync_operation *operation);

/* An op that adds two arrays of the parameters' type, the result in place of the first. *workspace grows to what it
 * needs. */
int dtrain__sync_create_add(const dtrain_sync *sync, int64_t count, dtrain_op **out, size_t *workspace,
			    beton_error *err);

/* Memory and ops for the sums of a step's runs. */
int dtrain__sync_create_sums(dtrain_sync *sync, beton_error *err);
/* The next run begins a step, whatever was summed so far. */
void dtrain__sync_give_up_step(dtrain_sync *sync);
/* At the beginning of a run: zeroes the sums of a step that was given up. */
int dtrain__sync_begin_sums(dtrain_sync *sync, const dtrain__run *run, beton_error *err);
/* Puts an addition on the stream. With run->more the array is added to the sum of the step's runs; otherwise the sum is
 * added to the array. */
int dtrain__sync_accumulate(sync_reduction *reduction, const dtrain__run *run, beton_error *err);
void dtrain__sync_destroy_sums(dtrain_sync *sync);

/* Collective: MISMATCH when the ranks have different models or units. */
int dtrain__sync_compare(const dtrain_sync *sync, beton_error *err);

/* Collective: broadcasts rank 0's values and buffers. */
int dtrain__sync_broadcast(dtrain_sync *sync, beton_error *err);

#endif
