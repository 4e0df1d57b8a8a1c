/* SPDX-License-Identifier: Apache-2.0
 *
 * A job for a model alone, without data of its own: what programs time and plan. */
#ifndef ENGINE_EXAMPLE_H
#define ENGINE_EXAMPLE_H

#include "engine.h"
#include "engine/tasks/lm/lm.h"
#include "engine/tasks/vision/vision.h"
#include "model_choice.h"

typedef struct engine_example {
	engine_model model;
	vision_options vision;
	lm_options lm;
	engine_data data;
	engine_job job;
} engine_example;

/* The model's samples, as options of a program describe them; 0: not given. */
typedef struct engine_example_options {
	const char *model;
	int64_t batch_size;
	int64_t classes;        /* else 1,000 */
	int64_t image_size;     /* else usual_size */
	int64_t usual_size;     /* of a side; 0: the model's */
	int64_t context_length; /* else the model's longest */
} engine_example_options;

/* Fills out, whose address must not change. Close it even on failure. Errors: the model is not found;
 * INVALID_ARGUMENT (an option that is given is not of samples of such a model). */
int engine_example_open(engine_example *out, const engine_example_options *options, beton_error *err);
void engine_example_close(engine_example *example);

/* Gives the training network of an open engine, of any job, a batch of made-up samples, which it keeps. */
int engine_example_feed(engine_rank *engine, beton_error *err);

#endif
