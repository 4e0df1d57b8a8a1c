/* SPDX-License-Identifier: Apache-2.0
 *
 * The members of dtrain_params.
 */
#ifndef DTRAIN_CORE_PARAMS_H
#define DTRAIN_CORE_PARAMS_H

#include <dtrain/graph.h>
#include <jansson.h>

#include "copies.h"
#include "offload.h"

/* The use of memory that ranks exchange. */
typedef enum dtrain__memory_use {
	DTRAIN__MEMORY_GRADS,
	DTRAIN__MEMORY_VALUES, /* or compute copies */
	DTRAIN__MEMORY_ARENA,  /* of a program that has transient buffers */
} dtrain__memory_use;

/* The owner of memory, if that is not the device; the first member of a larger struct. */
typedef struct dtrain__memory_owner {
	void (*free)(struct dtrain__memory_owner *owner);
} dtrain__memory_owner;

/* Where such memory comes from, in place of the device. */
typedef struct dtrain__memory_source {
	void *context;
	/* *memory: zeroed memory of the device, which belongs to *owner; NULL: to the device. program: of an arena,
	 * whose owner is freed before the program. */
	int (*alloc)(void *context, dtrain__memory_use use, const dtrain_program *program, size_t bytes, void **memory,
		     dtrain__memory_owner **owner, beton_error *err);
} dtrain__memory_source;

/* How units are divided among ranks. */
typedef struct dtrain__sharding {
	int32_t shards, shard;          /* of each unit, this rank has `shard`; 1 and 0: nothing is divided */
	bool whole_values, whole_grads; /* the other ranks' shards have memory here, too: what ops read and write */
	bool alike;                     /* with 1 shard the layout is that of several */
	bool offload_grads;             /* gradients of prefetched units leave the device when they are complete */
} dtrain__sharding;

/* A unit's memory on the device: from its first element on if it is whole, otherwise that of this rank's shard. */
typedef struct dtrain__unit_memory {
	void *values;
	void *grads;  /* of a unit whose gradients leave: of this rank's shard while it is in the arena, set by a run */
	void *copies; /* NULL: the unit has none */
	bool offloaded;       /* the values are in host memory alone */
	bool prefetched;      /* so is all that ops read: it is in the arena while it is read */
	bool offloaded_grads; /* and its gradients are in the arena until they are in host memory */
	bool whole_values, whole_grads, whole_copies;
} dtrain__unit_memory;

/* The ranks that differ from this one along a set of a mesh's axes alone. */
typedef struct dtrain__line {
	int32_t size, rank; /* size 0: the rank is alone, because it has no mesh */
} dtrain__line;

/* The lines that graphs ask for. dtrain_sync_create sets them, before layers declare parameters. */
typedef struct dtrain__lines {
	dtrain__line data, model; /* along the data axes, along the model axes */
	uint32_t data_axes;
	dtrain__line along[DTRAIN_AXES];
} dtrain__lines;

struct dtrain_params {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_dtype dtype;
	bool allocated;
	bool only_plan; /* allocated means laid out, without memory */

	dtrain_param *params; /* by order of declaration */
	int count, capacity;
	dtrain_buffer *buffers;
	int buffer_count, buffer_capacity;
	json_t *param_names, *buffer_names; /* objects: the index of each name */
	dtrain_unit_policy policy;
	char *unit_pattern; /* the policy's */
	dtrain_unit *units; /* in flat order; made by allocate */
	int unit_count;
	dtrain__sharding sharding;
	dtrain__unit_memory *memory; /* of each unit */
	dtrain_range *ranges;
	int range_count;

	struct frozen_pattern {
		char *text;
		bool used;
	} * patterns;
	int pattern_count, pattern_capacity;

	uint32_t partial_axes; /* of later parameters, less the axis of a placement: see dtrain_param */
	int32_t block;         /* block of the next parameter */
	int32_t last_block;    /* of the whole model's parameters, if these are a stage's */
	uint64_t own_stages;   /* of the pipeline: stages with these parameters, as bits; 0: the whole model */
	bool block_used;

	int64_t flat_count;
	void *values, *grads; /* all units' memory, in their order */
	dtrain__memory_owner *values_owner, *grads_owner;
	int64_t values_count, grads_count; /* elements of these: flat_count if all units are whole */
	dtrain__memory_source source;      /* alloc NULL: the device */
	void *step_metrics;
	void *buffer_memory;
	int64_t buffer_elements; /* in buffer_memory, with the padding between buffers, which is zero */
	dtrain__copies copies;

	dtrain__lines lines; /* this rank's place in the mesh */
	bool divides_rows;   /* between the layers that the ranks along "tensor" divide: see nn/token_rows.h */
	int32_t row_parts;   /* these ranks exchange the rows in so many parts; 0: 1 */
	bool sync_norms;     /* batch norms that train have the statistics of all data ranks' batches */
	dtrain__offload offload;
};

/* Each unit has a range of its own, which the rank keeps all or a part of; otherwise one range has everything. */
bool dtrain__params_divided(const dtrain_params *params);

/* Before the parameters are allocated. shards: the policy of the units must have as many. */
int dtrain__params_shard(dtrain_params *params, const dtrain__sharding *sharding, beton_error *err);

/* Where this rank's range of a unit begins in the unit's memory, which has all of the unit or this rank's shard. */
void *dtrain__unit_kept(const dtrain_params *params, int unit, void *memory, bool whole, dtrain_dtype dtype);

/* Where backward, and the reduction, leave the gradients of a range: on the device. */
void *dtrain__range_grads(const dtrain_params *params, int range);

/* Which elements of a unit this rank keeps: its shard, or all of them. */
dtrain_range dtrain__unit_range(const dtrain_params *params, int unit);

/* Memory of the device; of parameters that are only planned, NULL. */
int dtrain__params_alloc(const dtrain_params *params, size_t bytes, void **out, beton_error *err);
/* Memory of the source, if there is one; program: see dtrain__memory_source. */
int dtrain__params_take(const dtrain_params *params, dtrain__memory_use use, const dtrain_program *program,
			size_t bytes, void **memory, dtrain__memory_owner **owner, beton_error *err);
/* Frees it. owner NULL: it is the device's. */
void dtrain__params_give(const dtrain_device_api *api, dtrain_device *device, void *memory,
			 dtrain__memory_owner *owner);
/* A place in memory that may be NULL. */
static inline void *dtrain__params_place(void *memory, size_t bytes)
{
	return memory ? (char *)memory + bytes : NULL;
}

/* Allocates values and gradients, and lists the ranges (ranges.c). The units must be laid out. */
int dtrain__ranges_allocate(dtrain_params *params, beton_error *err);
void dtrain__ranges_free(dtrain_params *params);

/* Sets the source of later allocations. The context must exist until the next call. NULL: the device. */
void dtrain__params_set_source(dtrain_params *params, const dtrain__memory_source *source);

/* Offsets of all parameters, and the units. */
int dtrain__units_lay_out(dtrain_params *params, beton_error *err);

/* Declares a parameter of other parameters, which a pipeline's stage has; see dtrain_param for `stages` and `repeated`.
 * Returns its index, or a negative code. */
int dtrain__params_declare_of(dtrain_params *params, const dtrain_param *param, uint64_t stages, bool repeated,
			      beton_error *err);
/* Notes the last block of the whole model, and which patterns of frozen parameters match its parameters. */
void dtrain__params_note_whole(dtrain_params *params, const dtrain_params *whole);

/* The first pattern of dtrain_params_freeze that matches the name; NULL: none. */
const char *dtrain__params_pattern_of(const dtrain_params *params, const char *name);

/* The shape and first index of a parameter's part under a placement. NULL: the whole parameter. Errors:
 * INVALID_ARGUMENT, which names the parameter. */
int dtrain__placement_part(const char *name, const dtrain_shape *shape, const dtrain_placement *placement,
			   dtrain_shape *part, int64_t *first, beton_error *err);
int64_t dtrain__placement_blocks(const dtrain_placement *placement);
/* Elements that the flat space has for a parameter: as many on all ranks that have parts of it. */
int64_t dtrain__placement_room(const dtrain_param *param);
const char *dtrain__axis_name(dtrain_axis axis);
/* Whether ranks that differ along the axis have different samples. */
bool dtrain__axis_is_of_data(dtrain_axis axis);
/* Whether they add up their gradients: along the data axes, and along "context". */
bool dtrain__axis_adds_up(dtrain_axis axis);
/* DTRAIN_AXES: no axis has this name. */
dtrain_axis dtrain__axis_find(const char *name);
bool dtrain__placement_equal(const dtrain_placement *a, const dtrain_placement *b);

/* Elements of a parameter or buffer, and where their initial values go. */
typedef struct dtrain__init_piece {
	void *out;
	int64_t first, count; /* in the part that this rank has */
	/* Element i of the part is element base + i / run * pitch + i % run of the whole. */
	int64_t base, run, pitch;
	dtrain_init init;
	const dtrain_shape *shape; /* of the whole */
	int64_t fan_in;
	const char *name;
} dtrain__init_piece;

#define DTRAIN__INIT_THREADS 64  /* more would have no work in models of today's size */
#define DTRAIN__INIT_PIECE 65536 /* elements: a millisecond or two */

/* Writes each piece's initial values as dtype (F32 or F64), on at most that many threads, including the caller's. A
 * value is a pure function of (seed, name, declaration, element), rounded to float for any dtype, so it is the same on
 * every device, rank and number of threads. */
void dtrain__init_fill(const dtrain__init_piece *pieces, int64_t count, dtrain_dtype dtype, uint64_t seed, int threads);

#endif
