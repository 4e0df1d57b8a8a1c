/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of a program, and of the instances that it runs in.
 */
#ifndef DTRAIN_CORE_PROGRAM_H
#define DTRAIN_CORE_PROGRAM_H

#include "graph.h"
#include "op.h"
#include "plan.h"
#include "schedule.h"
#include "swap.h"

/* The memory that contains a program's tensors. Each unit and each input has its own bases. */
enum dtrain__base {
	DTRAIN__BASE_NONE,    /* places are addresses of memory owned by the caller */
	DTRAIN__BASE_BUFFERS, /* the parameters' buffers; the next: their step metrics */
	DTRAIN__BASE_STEP_METRICS,
	DTRAIN__BASE_ARENA,  /* the instance's */
	DTRAIN__BASE_SHARED, /* of all instances; dtrain_graph_share_scratch */
	DTRAIN__BASE_UNITS,  /* each unit's values, gradients and compute copies; then each input */
};

static inline uint32_t dtrain__base_of_values(int32_t unit)
{
	return DTRAIN__BASE_UNITS + 3 * (uint32_t)unit;
}

static inline uint32_t dtrain__base_of_grads(int32_t unit)
{
	return DTRAIN__BASE_UNITS + 3 * (uint32_t)unit + 1;
}

static inline uint32_t dtrain__base_of_copies(int32_t unit)
{
	return DTRAIN__BASE_UNITS + 3 * (uint32_t)unit + 2;
}

/* The position of a tensor, the same in every instance. */
typedef struct dtrain__place {
	uint32_t base;
	uint64_t offset; /* bytes */
} dtrain__place;

typedef struct dtrain__step {
	dtrain_op *op;
	int32_t num_operands;
	dtrain__place operands[2 * DTRAIN_OP_MAX_OPERANDS]; /* inputs, then outputs */
	dtrain__op_cost cost;
} dtrain__step;

struct dtrain_program {
	dtrain_graph *graph;
	const dtrain_device_api *api;
	dtrain_device *device;
	dtrain__schedule schedule;
	dtrain__step *steps;      /* one for each node */
	dtrain_operand *operands; /* one for each tensor, like the next two */
	dtrain__place *places;
	/* Tensors, then transient buffers: first and last steps of the schedule, and offsets in the arena. */
	dtrain__span *spans;
	int32_t num_spans;
	uint32_t num_bases, first_input;           /* first_input: the inputs' bases are the last ones */
	void *shared, *workspace;                  /* NULL: instances have their own */
	struct dtrain__memory_owner *shared_owner; /* NULL: the device */
	dtrain__swaps *swaps;                      /* NULL: none */
	dtrain_instance *first;                    /* the instance of dtrain_program_run */
	bool has_early_grads;                      /* forward computes gradients of parameters */
	dtrain_program_info info;
};

struct dtrain_instance {
	const dtrain_program *program;
	void *arena, *workspace;
	struct dtrain__memory_owner *arena_owner; /* NULL: the device */
	uintptr_t *bases;
	void *swapped;                     /* activations in pinned host memory; NULL: none */
	bool borrows;                      /* arena and swapped are the caller's */
	void **states;                     /* of the schedule's calls */
	struct dtrain__captures *captures; /* NULL: ops are put on the stream one by one */
	/* The execution whose next phase this is; phase 0: none has begun. */
	int next_phase;
	int32_t micro_batch, micro_batches;
	int32_t left_from; /* the step after the op that failed in the last run; 0: none did; -1: a call did */
};

static inline void *dtrain__address(const dtrain_instance *instance, dtrain__place place)
{
	return (void *)(instance->bases[place.base] + (uintptr_t)place.offset);
}

/* Memory of an instance: arena, of arena_bytes - shared_bytes, and host_bytes of pinned memory; NULL: no bytes. */
typedef struct dtrain__instance_memory {
	void *arena, *host;
} dtrain__instance_memory;

/* dtrain_instance_create in the caller's memory, which outlives the instance. Instances may have common memory if one
 * begins after another one has ended. The program has no transient buffers, which other ranks find. */
int dtrain__instance_create_in(const dtrain_program *program, const dtrain__instance_memory *memory,
			       dtrain_instance **out, beton_error *err);

/* Gives an instance that owns its memory, and has not run, at least so many bytes of it, for others that borrow it. The
 * program has no transient buffers. */
int dtrain__instance_enlarge(dtrain_instance *instance, size_t arena, size_t host, beton_error *err);

/* Allocates the memory that instances share. */
int dtrain__program_allocate(dtrain_program *program, beton_error *err);

/* The transient buffer's memory in the arena. */
void *dtrain__instance_transient(const dtrain_instance *instance, int32_t transient);
/* Ops that are put on the stream from here on find the unit there. */
void dtrain__instance_use_transient(dtrain_instance *instance, int32_t transient);

/* Puts one node's op on the stream. */
int dtrain__instance_run_node(const dtrain_instance *instance, int32_t node, dtrain_stream *stream, beton_error *err);

/* With row-major operands, before there is a program. */
dtrain__op_cost dtrain__node_cost(const dtrain_graph *graph, const dtrain__node *node);

/* Frees the ops, and the tables that depend on them. */
void dtrain__program_release_ops(dtrain_program *program);
/* Frees everything but the graph. */
void dtrain__program_release(dtrain_program *program);

#endif
