/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's need of device memory, and the bytes it sends, with one strategy or another: computed without other ranks,
 * and without that memory. */
#ifndef ENGINE_MEMORY_MEMORY_PLAN_H
#define ENGINE_MEMORY_MEMORY_PLAN_H

#include "engine/engine.h"

/* A step of one rank, at least: see time_plan.h. */
typedef struct engine_time {
	double compute_ms; /* forward, backward and update, of all micro-batches of a step */
	double exposed_ms; /* the step waits for communication */
} engine_time;

/* Bytes, where nothing else is said. */
typedef struct engine_memory {
	int64_t elements; /* of all parameters, without padding */
	size_t parameters, copies, buffers;
	size_t gradients, sums; /* sums of a step's micro-batches */
	size_t compression;     /* of gradients */
	size_t states;          /* of the optimizer, as many as the job says, and the group of each element */
	size_t updates;         /* scratch memory of the optimizer */
	/* In the memory of the host: values, gradients and copies on their way; states; scratch memory of the
	 * optimizer; activations of training. */
	size_t host_parameters, host_states, host_updates, host_activations;
	/* The training network's, then the evaluation network's. */
	size_t activations[2], scratch[2], batches[2];
	size_t transients[2]; /* units that are gathered, and gradients on their way to a shard */
	uint64_t gathered, scattered, added_up, exchanged; /* a step: see dtrain_sync_info */
	uint64_t passed;                                   /* a step: to other stages of a pipeline */
} engine_memory;

/* Bytes of the device, and of the host. */
size_t engine_memory_total(const engine_memory *memory);
size_t engine_memory_host(const engine_memory *memory);
uint64_t engine_memory_traffic(const engine_memory *memory);

/* Reads an open engine's memory. Errors: engine_update_scratch's. */
int engine_memory_read(const engine_rank *engine, engine_memory *out, beton_error *err);

/* A strategy, and of how many ranks as many share a copy of the parameters. */
typedef struct engine_layout {
	const char *strategy; /* of dtrain_sync_options */
	int32_t ranks, shard; /* shard 0: all of them */
} engine_layout;

enum { ENGINE_LAYOUTS = 6 };

/* The layouts that so many ranks have to choose from, from the one with the most memory to that with the least, and
 * hybrid sharding with `shard` ranks for each copy; then `chosen` (NULL: none), if it is another one. Returns their
 * number, at least 1. */
int engine_layouts(int32_t ranks, int32_t shard, const engine_layout *chosen, engine_layout out[ENGINE_LAYOUTS]);
/* Whether they keep the same parts on a rank. */
bool engine_layout_is(const engine_layout *a, const engine_layout *b);

/* The engine's options for that layout, without other ranks. It keeps the units of the engine's strategy if both
 * shard, or both do not. */
dtrain_sync_options engine_layout_options(const engine_rank *engine, const engine_layout *layout);

/* A rank's memory with that layout; the engine may be open_plan'ed. Units follow the engine's strategy if both or
 * neither of the strategies shard. Errors: as for building the networks. */
int engine_memory_plan(const engine_rank *engine, const engine_layout *layout, engine_memory *out, beton_error *err);

/* The engine with parameters that are only planned, and a sync of those options, which have plan_ranks. The engine may
 * be open_plan'ed, and must outlive it. Close it even on failure. */
int engine_planned_open(const engine_rank *engine, const dtrain_sync_options *options, engine_rank *out,
			beton_error *err);
void engine_planned_close(engine_rank *planned);
/* Plans its networks, that of training first. out: zeroed. */
int engine_planned_measure(engine_rank *planned, engine_memory *out, beton_error *err);

/* A line of the table. */
typedef struct engine_memory_row {
	engine_layout layout;
	engine_memory memory;
	int64_t batch;    /* samples of a rank; read where the table has batches or times */
	engine_time time; /* read where the table has times */
} engine_memory_row;

/* Plans each layout, with the engine's batch. */
int engine_memory_rows(const engine_rank *engine, const engine_layout *layouts, int count, engine_memory_row *out,
		       beton_error *err);

typedef struct engine_memory_table_options {
	const engine_layout *chosen; /* is marked; NULL: none */
	size_t limit;                /* bytes that a rank has, for a column that says which fit; 0: none */
	bool batches, times;         /* columns */
} engine_memory_table_options;

/* A table for people, freed by the caller: in MB, or in GB if a layout needs as much. */
int engine_memory_table(const engine_rank *engine, const engine_memory_row *rows, int count,
			const engine_memory_table_options *options, char **out, beton_error *err);

#endif
