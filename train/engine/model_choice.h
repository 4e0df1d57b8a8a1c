/* SPDX-License-Identifier: Apache-2.0
 *
 * The model that a run names: a name that the task knows, or a transformer's description in a file. */
#ifndef ENGINE_MODEL_CHOICE_H
#define ENGINE_MODEL_CHOICE_H

#include <dtrain/transformer.h>

#include "task.h"

/* A model's description, found by its name. */
typedef struct engine_model {
	char *text; /* of its config.json, malloc'ed, if that was read */
	bool is_transformer;
	dtrain_transformer transformer; /* if it is one */
} engine_model;

/* Finds the transformer of that name or file. text: the text of a config.json to use instead; NULL: none. An unknown
 * name succeeds here: see engine_check_model. Errors: as for reading and parsing a description. */
int engine_model_find(const char *name, const char *text, engine_model *out, beton_error *err);

/* The side in pixels of the pictures that the model is for: a ViT's description has it, others get 224. */
int64_t engine_model_image_size(const engine_model *model);

/* A zeroed struct is allowed. */
void engine_model_free(engine_model *model);

/* Checks that the task can train the job's model. Errors: INVALID_ARGUMENT, whose message lists the names. */
int engine_check_model(const engine_job *job, beton_error *err);

/* The job's transformer with the job's dropout. The job must have one. */
dtrain_transformer engine_model_of(const engine_job *job);
/* Adds the input of random numbers to a training network whose model draws some. Returns it; -1: none. */
dtrain_tensor engine_model_random(const dtrain_transformer *model, dtrain_graph *graph, bool training,
				  engine_network *network);

#endif
