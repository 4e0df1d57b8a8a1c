/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_pipeline.
 */
#ifndef DTRAIN_PARALLEL_PIPELINE_PIPELINE_H
#define DTRAIN_PARALLEL_PIPELINE_PIPELINE_H

#include <dtrain/pipeline_run.h>

#include "core/params.h"
#include "core/program.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/schedules.h"

/* Tensors that cross a border; each has a tag of its own. */
enum { PIPELINE_MOST_CROSSINGS = 1024 };

typedef enum pipeline_direction {
	PIPELINE_VALUES_IN,
	PIPELINE_VALUES_OUT,
	PIPELINE_GRADS_IN,
	PIPELINE_GRADS_OUT,
	PIPELINE_DIRECTIONS
} pipeline_direction;

/* The messages of a micro-batch over a border of a stage, in one direction. */
typedef struct pipeline_message {
	dtrain_event *ready; /* on the stream, before the messages */
	dtrain_work **works; /* of each tensor of the border; NULL: not on its way */
} pipeline_message;

/* The tensors that cross a border of a stage. */
typedef struct pipeline_border {
	int32_t count;
	dtrain_crossing *crossings;
	int64_t *elements;
	dtrain_dtype *dtypes;
	int32_t peer; /* the rank of the stage beyond */
} pipeline_border;

/* Memory that a micro-batch has from its first action to its last one: so many are in flight. */
typedef struct pipeline_rooms {
	int32_t *of;   /* of each micro-batch: its room */
	int32_t count; /* of rooms */
} pipeline_rooms;

/* Inputs of a stage that the caller fills. */
typedef struct pipeline_inputs {
	int32_t count;
	dtrain_tensor *tensors;
} pipeline_inputs;

typedef struct pipeline_stage {
	int32_t number;
	const dtrain_program *program;
	pipeline_border before, after;
	pipeline_inputs inputs;
	pipeline_rooms of_inputs, of_values, of_grads;
	dtrain_instance **instances; /* [slots.count]; NULL: the stage does not use the slot */
	const int32_t *slot_of;      /* of each micro-batch */
	void **filled;               /* [of_inputs.count][inputs.count] */
	void **values;               /* received; [of_values.count][before.count] */
	void **grads;                /* received; [of_grads.count][after.count]; NULL: the tensor has no gradient */
	pipeline_message *messages[PIPELINE_DIRECTIONS]; /* of each micro-batch */
} pipeline_stage;

/* Stages that have the same parameters, and the group of their ranks. */
typedef struct pipeline_sharing {
	uint64_t stages;
	dtrain_group *group; /* NULL: this rank has none of them */
} pipeline_sharing;

/* The micro-batch that used a slot last in this step. */
typedef struct pipeline_user {
	pipeline_stage *stage; /* NULL: none */
	int32_t micro_batch;
} pipeline_user;

struct dtrain_pipeline {
	dtrain_device *device;
	const dtrain_device_api *api;
	const dtrain_params *params;
	dtrain_mesh *mesh;
	dtrain_action *actions;      /* of this rank */
	int32_t num_actions, at;     /* at: the next one */
	int32_t micro_batches, next; /* next: the micro-batch that dtrain_pipeline_run gets */
	bool trains;
	pipeline_stage *stages;
	int32_t num_stages;
	dtrain__slots slots;             /* of activations */
	dtrain__instance_memory *memory; /* [slots.count]; NULL inside: the slot's instance has its own */
	pipeline_user *users;            /* [slots.count] */
	pipeline_sharing *sharings;
	int32_t num_sharings;
	dtrain_event *complete;
	dtrain_event **times; /* of each action: its moments; NULL: they are not recorded */
	uint64_t waited_ns;   /* in all steps, the thread waited for messages */
	uint64_t began_ns;    /* when the first action of the last step began; 0: none has */
};

/* Moments of an action: the rank has reached it; the messages that it needs are there; it is complete. */
typedef enum pipeline_moment { PIPELINE_BEGAN, PIPELINE_READY, PIPELINE_ENDED } pipeline_moment;

/* Notes the time at which the stream reaches this moment of the next action, if times are recorded. */
int dtrain__pipeline_mark(dtrain_pipeline *pipeline, pipeline_moment moment, dtrain_stream *stream, beton_error *err);
void dtrain__pipeline_forget_times(dtrain_pipeline *pipeline);

/* The group of ranks that have parameters of these stages; NULL: one rank alone. */
dtrain_group *dtrain__pipeline_sharers(const dtrain_pipeline *pipeline, uint64_t stages);

/* NULL: it is not one of this rank. */
pipeline_stage *dtrain__pipeline_stage(const dtrain_pipeline *pipeline, int32_t number);

const pipeline_border *dtrain__pipeline_border(const pipeline_stage *stage, pipeline_direction direction);

/* Waits for messages in flight, and abandons micro-batches. */
void dtrain__pipeline_drain(dtrain_pipeline *pipeline);

#endif
