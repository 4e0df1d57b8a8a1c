/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's engine: device, stream, parameters, a task's networks, and the feed of batches into them. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <dtrain/optimizer.h>
#include <dtrain/sync.h>

#include "feed.h"
#include "task.h"

/* Step metrics of a step, summed over its micro-batches and over the ranks. */
enum {
	ENGINE_STEP_METRIC_LOSS = 0, /* each micro-batch adds the mean over its batch */
	ENGINE_STEP_METRIC_STOP = 1, /* above 0: some rank got a stop request */
	ENGINE_STEP_METRIC_HITS = 2, /* each micro-batch adds the mean over its batch */
};

typedef enum engine_precision {
	ENGINE_PRECISION_F32 = 0,
	ENGINE_PRECISION_TF32 = 1,
	ENGINE_PRECISION_BF16 = 2,
	ENGINE_PRECISION_FP16 = 3,
} engine_precision;

/* Callbacks, in the thread that calls the engine. Each may be NULL. */
typedef struct engine_caller {
	void *context;
	bool (*stop_requested)(void *context); /* true: this rank got a stop request */
	/* The thread waits for the device between arm and disarm. what: prefix for a message. in_step: the time limit
	 * is that of a step; otherwise that of ranks waiting for each other. */
	void (*arm)(void *context, const char *what, bool in_step);
	void (*disarm)(void *context);
} engine_caller;

/* The stages of a pipeline. */
typedef struct engine_stages {
	dtrain_pipeline_schedule *schedule; /* of training; NULL: this rank has the whole model */
	int32_t rank;                       /* this one, of the schedule's */
	int32_t first[DTRAIN_MAX_STAGES];   /* each stage's first block, once a graph is cut */
	int32_t blocks;                     /* of the model, likewise */
	dtrain_params *outline;             /* the whole model's parameters, without memory; NULL: not cut */
} engine_stages;

struct engine_rank {
	engine_job job;
	const engine_data *data;
	engine_caller caller;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_device_caps caps;
	bool staged;        /* the host cannot access device memory: batches are copied by the feed */
	dtrain_dtype dtype; /* of activations */
	dtrain_stream *stream;
	dtrain_device *host; /* updates offloaded parameters; NULL: none are */
	dtrain_params *params;
	dtrain_sync_options strategy;
	/* This rank among the mesh's data ranks, which share the samples, and among the ranks that compute one model.
	 */
	int data_rank, data_ranks, model_ranks;
	int gradient_ranks;  /* ranks that add up their gradients: each has a loss of its own */
	bool has_results;    /* of the ranks that compute one model, this one has results of evaluations */
	bool counts_samples; /* and this one counts their samples */
	engine_stages stages;
	dtrain_sync *sync;     /* compiled the training network; started by the caller */
	dtrain_scaler *scaler; /* NULL: the loss is not scaled */
	engine_network train;  /* not present if the job only evaluates */
	engine_network val;    /* present if the data has validation samples */
	engine_feed feed;
};

/* Gives the job's patterns of frozen parameters to params, which must have no declared parameter. */
int engine_freeze(const engine_job *job, dtrain_params *params, beton_error *err);
/* Makes parameters, none declared yet, with the job's patterns of frozen ones and its offloading. *out may not be NULL
 * even on failure. */
int engine_create_params(const engine_rank *engine, dtrain_params **out, beton_error *err);

/* Takes ownership of the device, even on failure. The data that job, data and sync point to must outlive the engine.
 * mesh: see dtrain_sync_create. sync: how gradients are synchronized; the job decides whether they are accumulated.
 * Close the engine after a failure, too, once the groups that use the device are destroyed. Errors: UNSUPPORTED (the
 * device cannot compute in that precision), and errors of the device, the sync and the task's build. */
int engine_open(engine_rank *engine, const engine_job *job, const engine_data *data, dtrain_device *device,
		engine_precision precision, dtrain_mesh *mesh, const dtrain_sync_options *sync, beton_error *err);
/* The same without parameters and networks, for engine_memory_plan. */
int engine_open_plan(engine_rank *engine, const engine_job *job, const engine_data *data, dtrain_device *device,
		     engine_precision precision, const dtrain_sync_options *sync, beton_error *err);
/* A zeroed struct is allowed. */
void engine_close(engine_rank *engine);
/* The parameters of the whole model. This rank may have a stage, or parts, of them. */
const dtrain_params *engine_whole_params(const engine_rank *engine);
/* Closes all but the device, which has the caller again. */
void engine_close_parts(engine_rank *engine);

/* beton_iterator_next without a time limit. Errors name no option of the loader that a task has set. */
int engine_next_batch(const engine_rank *engine, beton_iterator *iterator, beton_batch **out, beton_error *err);

/* Leaves out the batches of the iterator's epoch that are too few for a step, and goes on to its next epoch. */
int engine_end_epoch(const engine_rank *engine, beton_iterator *iterator, beton_error *err);

/* Copies the batch to the network's inputs, of all its stages, on the stream. The batch must stay alive until work that
 * is put on the stream afterwards is complete. */
int engine_feed_network(engine_rank *engine, const engine_network *network, const beton_batch *batch, beton_error *err);

/* The validation network, or the last one of this rank's stages of it: it has the results if this rank has any. */
const engine_network *engine_results_network(const engine_rank *engine);

/* Waits for the stream, outside of steps. what: named in the message if the device hangs. */
int engine_synchronize(const engine_rank *engine, const char *what, beton_error *err);

bool engine_stop_requested(const engine_rank *engine);
void engine_arm(const engine_rank *engine, const char *what, bool in_step);
void engine_disarm(const engine_rank *engine);

#endif
