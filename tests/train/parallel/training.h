/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of strategies: one small network, trained by ranks that have parts of each step's samples.
 */
#ifndef TESTS_TRAIN_PARALLEL_TRAINING_H
#define TESTS_TRAIN_PARALLEL_TRAINING_H

#include <dtrain/optimizer.h>
#include <dtrain/sync.h>

#include "tests/train/support/far_place.h"

enum { BATCH = 4, STEPS = 10, MAX_ELEMENTS = 4096 };

/* A network, and how it is trained. */
typedef struct setup {
	const char *strategy;
	int shard;            /* ranks that share a copy; 0: all */
	int64_t in, mid, out; /* of two linear layers, or vocabulary, width and classes of a tied head */
	enum { PLAIN, TWICE, TIED, WIDE, BAD } network;
	int micro_batches; /* of a step */
	/* The phases of a step with an instance for each micro-batch: "F0F1B0B1". Without `deferred` B is all of
	 * backward, with it the gradients of weights are W. NULL: each micro-batch as a whole, in turn. */
	const char *order;
	bool deferred;
	bool in_parts; /* sums in the order of parts: one for each micro-batch of each rank */
	const dtrain_compression *compression;
	bool restarts; /* each step begins with a micro-batch that is given up */
	bool locally, keep, in_one_unit, bf16, late;
	size_t prefetch;
	double clip; /* 0: none */
	dtrain_norm norm;
	const char *kind;     /* NULL: adamw */
	int tensor;           /* ranks of the mesh's axis "tensor", which have the same samples; 0: no such axis */
	bool context;         /* copies are along the axis "context", not "replicate" */
	dtrain_group *within; /* the ranks that train; NULL: all */
} setup;

/* The result on every rank: values of all parameters, sharded or not, and the losses. */
typedef struct result {
	float values[MAX_ELEMENTS];
	int count;
	float losses[STEPS];
	size_t arena, kept;          /* bytes */
	int64_t gathered, scattered; /* elements in all steps, of whole units */
	float norm;
} result;

typedef struct training {
	struct rank *r;
	const setup *job;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_mesh *mesh;
	dtrain_sync *sync;
	dtrain_program *program;
	dtrain_instance *instances[8];
	dtrain_instance *filled; /* what `fill` writes to; NULL: the program's own */
	dtrain_optimizer *optimizer;
	dtrain_tensor x, label;
	int rank, ranks; /* among the data ranks */
} training;

/* adamw with clipping, one micro-batch a step. */
setup standard_setup(void);
setup with(setup of, const char *strategy);

/* The device and its stream are the caller's. */
void open_training(training *t, struct rank *r, const setup *job, dtrain_device *on, dtrain_stream *put_on);
void close_training(training *t);
/* Puts this rank's samples of a step's micro-batch on the stream, and waits. */
void fill(training *t, int step, int micro_batch);
/* The values of all parameters, by order of declaration: each rank gives the values that it keeps. */
void collect(const training *t, result *out);

/* Trains for STEPS steps. */
void train_on(struct rank *r, const setup *job, dtrain_device *on, dtrain_stream *put_on, result *out);
/* The same on the device "ref", which the group of all ranks keeps. */
void train(struct rank *r, const setup *job, result *out);
void open_device(dtrain_device **device, dtrain_stream **stream);

void expect_close(const result *a, const result *b, float bound);

#endif
