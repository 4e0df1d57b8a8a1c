/* SPDX-License-Identifier: Apache-2.0
 *
 * What is trained, as a table of functions. Only a task knows what a sample is; stepper, feed and evaluation know
 * tensors of batches, inputs of networks and sums of metrics. */
#ifndef ENGINE_TASK_H
#define ENGINE_TASK_H

#include <beton/beton.h>
#include <beton/loader.h>
#include <dtrain/graph.h>

enum {
	ENGINE_FIELDS = 2,  /* of the data, that a task reads */
	ENGINE_INPUTS = 4,  /* of a network, from the batch */
	ENGINE_RESULTS = 2, /* of a validation network */
	ENGINE_METRICS = 4, /* of an evaluation */
};

typedef struct engine_rank engine_rank; /* engine.h */
typedef struct engine_task engine_task;

/* What is asked for. */
typedef struct engine_job {
	const engine_task *task;
	const void *options; /* the task's own; vision/vision.h: vision_options */
	const char *model;
	int64_t batch_size; /* samples in a run of one rank */
	int runs;           /* in a step of one rank, each with a batch of its own, >= 1 */
	int64_t classes;    /* 0: as many as the data has */
	double label_smoothing;
} engine_job;

typedef struct engine_dataset {
	uint64_t samples;     /* of all its files; 0: there is none */
	uint64_t fingerprint; /* beton_reader_fingerprint; of several files a hash of theirs */
	uint64_t class_names; /* a hash; 0: they have none */
	char fields[ENGINE_FIELDS][BETON_NAME_MAX + 1]; /* that the task reads, in its order */
} engine_dataset;

/* What is known of the data before anything is opened. */
typedef struct engine_data {
	engine_dataset train, val;
	int64_t classes; /* of the model */
} engine_data;

/* One of a program's inputs, [batch size, ...], and the tensor of a batch that goes there, of the same type. */
typedef struct engine_input {
	char name[BETON_NAME_MAX + 16];
	dtrain_tensor tensor;
} engine_input;

/* A compiled graph and the tensors that are filled before a run or read after it. */
typedef struct engine_network {
	dtrain_program *program; /* NULL: there is none */
	engine_input inputs[ENGINE_INPUTS];
	int num_inputs;
	dtrain_tensor results[ENGINE_RESULTS]; /* of validation, [batch size, ...], which the host gets */
	int num_results;
	dtrain_tensor more[2]; /* the task's own */
} engine_network;

/* Opens files of the run: adds to the options how they are read. */
typedef struct engine_files {
	int (*open)(const void *context, beton_loader_options *options, beton_loader **out, beton_error *err);
	const void *context;
} engine_files;

/* A metric of an evaluation: a mean over its samples. */
typedef struct engine_metric {
	const char *key;  /* in the log: val_KEY */
	const char *name; /* for people */
	bool share;       /* 0 .. 1: in percent for people */
} engine_metric;

struct engine_task {
	const char *sample; /* "picture"; several get an s */
	const char *unit;   /* of throughput, "images": in the log UNIT_per_second */
	int class_field;    /* which of the fields has a sample's class */
	engine_metric metrics[ENGINE_METRICS];
	int num_metrics;

	/* What does not go together in the options, as a sentence; NULL: nothing. validates: there is --val. */
	const char *(*find_problem)(const engine_job *job, bool validates);

	/* Reads what has to be known of the files, and checks it. val NULL: none. Errors name the file. */
	int (*read_data)(const engine_job *job, const char *const *paths, int count, const char *val, engine_data *out,
			 beton_error *err);

	/* Whether the model can be built; begins: and started, too. */
	int (*check)(const engine_job *job, const engine_data *data, bool begins, beton_error *err);

	/* Adds to the options what the batches of the training or validation network are, and opens files with them. */
	int (*open_loader)(const engine_rank *engine, bool training, beton_loader_options *options,
			   const engine_files *files, beton_loader **out, beton_error *err);

	/* Adds inputs and model to the graph and sets what network says of them. Returns the losses of the samples, a
	 * vector; their mean is trained. */
	dtrain_tensor (*build)(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network);

	/* Rank 0, before the first step: what is not trained, but computed from the training files. */
	int (*prepare)(engine_rank *engine, const engine_files *files, beton_error *err);

	/* The name of a parameter that is trained in the first *epochs alone; NULL: there is none. */
	const char *(*find_early)(const engine_job *job, double *epochs);

	/* Puts runs of the validation network on the stream, behind which its results are those of the batch. */
	int (*run_batch)(engine_rank *engine, const beton_batch *batch, beton_error *err);

	/* Adds the metrics of the batch's samples to sums. results: the host's copies, of the batch's rows. Errors:
	 * NO_MEMORY. */
	int (*add_batch)(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
			 beton_error *err);
};

#endif
