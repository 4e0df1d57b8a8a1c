/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of a program's run: ops, and calls that move data meanwhile (reductions, gathers, messages between stages).
 * The core knows a call only by the functions below. Passes insert calls between ops, after backward and before memory
 * is planned. A call's tensors are alive from its issue to its wait.
 */
#ifndef DTRAIN_CORE_SCHEDULE_H
#define DTRAIN_CORE_SCHEDULE_H

#include "graph.h"

enum { DTRAIN__CALL_TENSORS = 8 };

/* An execution of a program: see dtrain_instance_run. */
typedef struct dtrain__run {
	dtrain_instance *instance;
	dtrain_stream *stream;
	int32_t micro_batch, micro_batches;
	void *state; /* of the call, in this instance; NULL: the call has none */
} dtrain__run;

static inline bool dtrain__run_is_last(const dtrain__run *run)
{
	return run->micro_batch + 1 == run->micro_batches;
}

enum { DTRAIN__STATE_EVENTS = 8 };

/* A call's data in each instance, so that several executions can be in flight: `bytes` of memory, zero at first. The
 * instance creates an event at each of the offsets `events`. */
typedef struct dtrain__state {
	size_t bytes;
	size_t events[DTRAIN__STATE_EVENTS];
	int32_t num_events;
} dtrain__state;

typedef struct dtrain__call {
	const char *name; /* for messages and the plan; copied */
	/* Starts the work after everything on the stream. */
	int (*issue)(void *context, const dtrain__run *run, beton_error *err); /* NULL: nothing to do; so the next */
	/* Makes everything put on the stream from here on wait for the result. */
	int (*wait)(void *context, const dtrain__run *run, beton_error *err);
	/* After a run that failed, whether the call was issued or not: nothing may write to its memory afterwards. */
	void (*abandon)(void *context, void *state);
	void *context; /* must outlive the program */
	int32_t state; /* of dtrain__schedule_state, shared with other calls; 0: none */
	/* Activations that the call reads or writes. One that no node writes is alive from the issue on. */
	dtrain_tensor tensors[DTRAIN__CALL_TENSORS];
	int32_t num_tensors;
	bool ends_in_phase; /* the wait belongs to the phase before the node that it is placed before */
} dtrain__call;

/* A unit's memory in the arena for a part of a run: gathered values or copies, or gradients that are reduced to a
 * shard. The call that begins it gets the memory from dtrain__instance_transient, and tells the instance when to use
 * it. */
typedef struct dtrain__transient {
	const char *name; /* for the plan; copied */
	uint32_t base;    /* dtrain__base_of_values(unit), ... */
	size_t bytes;
	int32_t begin;     /* call, from whose issue on the memory is used */
	int32_t end;       /* call, until whose wait it is; -1: none */
	int32_t last_node; /* until which it is used, too; -1: none */
} dtrain__transient;

typedef enum dtrain__step_kind {
	DTRAIN__RUN,  /* of node `index` */
	DTRAIN__CALL, /* of call `index`; so the next */
	DTRAIN__WAIT,
} dtrain__step_kind;

typedef struct dtrain__scheduled {
	dtrain__step_kind kind;
	int32_t index;
} dtrain__scheduled;

enum { DTRAIN__PHASES = 3 };

typedef struct dtrain__schedule {
	const dtrain_graph *graph;
	dtrain__scheduled *steps;
	int32_t count;
	dtrain__call *calls;
	int32_t num_calls;
	dtrain__transient *transients;
	int32_t num_transients;
	dtrain__state *states;
	int32_t num_states;
	int32_t phase_ends[DTRAIN__PHASES]; /* the number of steps to the end of each phase; see dtrain__schedule_cut */
} dtrain__schedule;

/* Changes the schedule; may read, but not change, the graph. */
typedef struct dtrain__pass {
	int (*run)(void *context, dtrain__schedule *schedule, beton_error *err);
	void *context;
} dtrain__pass;

/* A schedule of all nodes in order. */
int dtrain__schedule_create(const dtrain_graph *graph, dtrain__schedule *out, beton_error *err);
void dtrain__schedule_free(dtrain__schedule *schedule);

/* Adds a call that is issued after node `after` (-1: at the beginning) and waited for before node `before` (the number
 * of nodes: at the end). Calls at the same place keep their order of addition, and come before waits. Its index is the
 * number of calls before it. Errors: INVALID_ARGUMENT if `before` is not after `after`, or a tensor is invalid;
 * NO_MEMORY. */
int dtrain__schedule_add(dtrain__schedule *schedule, const dtrain__call *call, int32_t after, int32_t before,
			 beton_error *err);

/* Adds a state of calls that are added afterwards. *out: for dtrain__call.state. Errors: NO_MEMORY. */
int dtrain__schedule_state(dtrain__schedule *schedule, const dtrain__state *state, int32_t *out, beton_error *err);

/* Finds the ends of the phases, when all calls are added. What is issued after a phase's last op belongs to it. */
void dtrain__schedule_cut(dtrain__schedule *schedule);

/* Adds a transient buffer; its index is the number of transient buffers before it. Errors: INVALID_ARGUMENT (no such
 * call), NO_MEMORY. */
int dtrain__schedule_transient(dtrain__schedule *schedule, const dtrain__transient *transient, beton_error *err);

/* dtrain_graph_compile with passes, which run in order. */
int dtrain__graph_compile(dtrain_graph **graph, const dtrain__pass *passes, int num_passes, dtrain_program **out,
			  beton_error *err);
/* dtrain_graph_measure with passes. */
int dtrain__graph_measure(dtrain_graph **graph, const dtrain__pass *passes, int num_passes, dtrain_program_info *out,
			  beton_error *err);

#endif
