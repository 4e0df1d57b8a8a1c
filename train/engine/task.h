/* SPDX-License-Identifier: Apache-2.0
 *
 * A training task, as a table of functions. Only a task knows what a sample is; stepper, feed and evaluation know
 * tensors of batches, inputs of networks and sums of metrics. */
#ifndef ENGINE_TASK_H
#define ENGINE_TASK_H

#include <beton/beton.h>
#include <beton/loader.h>
#include <dtrain/pipeline_run.h>
#include <dtrain/transformer.h>

#include "engine/memory/offload_option.h"

enum {
	ENGINE_FIELDS = 2,              /* data fields that a task reads */
	ENGINE_INPUTS = 4,              /* network inputs that come from the batch */
	ENGINE_RESULTS = 2,             /* results of a validation network */
	ENGINE_METRICS = 4,             /* metrics of an evaluation */
	ENGINE_WEIGHT = ENGINE_METRICS, /* after the sums of metrics: their divisor */
	ENGINE_SUMS,
};

/* Counts of an evaluation's samples of one class. */
typedef struct engine_class_count {
	int64_t samples;
	int64_t hits; /* samples that the model gets right */
} engine_class_count;

typedef struct engine_rank engine_rank; /* engine.h */
typedef struct engine_task engine_task;

/* The option --recompute; zeros: nothing. */
typedef struct engine_recompute {
	dtrain_recompute what;
	int64_t blocks; /* of DTRAIN_RECOMPUTE_FULL */
} engine_recompute;

/* The configuration of a run. */
typedef struct engine_job {
	const engine_task *task;
	const void *options; /* of the task, for example vision_options in vision/vision.h */
	const char *model;
	const dtrain_transformer *transformer; /* what model names or describes (model.h); NULL: no transformer */
	int64_t batch_size;                    /* samples per rank and micro-batch */
	int micro_batches;                     /* of a rank in a step, each with its own batch; >= 1 */
	const char *schedule;                  /* of a pipeline, see <dtrain/pipeline.h> */
	const char *schedule_file;             /* its lists, in place of schedule; NULL: none */
	int32_t chunks;                        /* stages of a rank of the pipeline; 0: as the schedule has them */
	const char *stages;       /* blocks of each stage, with commas between them; NULL: stages with equal products */
	int deterministic_shards; /* see dtrain_sync_options */
	double label_smoothing;
	double dropout;             /* in place of the transformer's own; below 0: that */
	bool evaluates;             /* nothing is trained */
	bool per_class;             /* evaluations count by class */
	uint64_t seed;              /* of random numbers in the training network */
	const char *optimizer;      /* its kind, for estimates of memory; NULL: nothing is updated */
	int states;                 /* of the optimizer, each as large as the parameters; for the same */
	engine_recompute recompute; /* in training; see recompute.h */
	engine_offload offload;     /* in training */
	int32_t host_threads;       /* that update there; 0: as dtrain_device_options.threads */
	const char *freeze;         /* patterns with commas between them: see dtrain_params_freeze; NULL: none */
	/* Options of the caller that depend on the parameters, which engine_check_network has declared; NULL: none. */
	int (*check_params)(const void *context, dtrain_params *params, beton_error *err);
	const void *context;
	int32_t tensor, pipeline; /* ranks of the mesh along these axes, which compute one model; 0: 1 */
	bool sequence_parallel;   /* the ranks along "tensor" divide the rows of a batch, too */
	int32_t tensor_overlap;   /* in so many parts; 0: 1 */
	int32_t context_ranks;    /* of its axis "context", which have parts of the same samples; 0: 1 */
} engine_job;

typedef struct engine_dataset {
	const char *path;     /* of its file, for messages, or the option that lists its files; borrowed */
	uint64_t samples;     /* of all its files; 0: no such data set */
	uint64_t fingerprint; /* beton_reader_fingerprint; for several files a hash of theirs */
	uint64_t class_names; /* a hash; 0: no names */
	char fields[ENGINE_FIELDS][BETON_NAME_MAX + 1]; /* the task's fields, in its order */
} engine_dataset;

/* A metric of an evaluation: the mean over its samples, or over what the task counts instead. */
typedef struct engine_metric {
	const char *key;  /* log key: val_KEY */
	const char *name; /* printed name */
	bool share;       /* 0 .. 1, printed as a percentage */
	bool exponential; /* of the mean */
	int above;        /* 0, or printed only for a model of more classes: it is always 1 with fewer */
} engine_metric;

/* The kind of the model's outputs, and how an evaluation measures them. */
typedef struct engine_outputs {
	const char *key;      /* in the metadata of weights; NULL: not there */
	const char *names[2]; /* singular and plural */
	engine_metric metrics[ENGINE_METRICS];
	int num_metrics;
} engine_outputs;

/* Facts about the data before the loaders are opened. */
typedef struct engine_data {
	engine_dataset train, val;
	int64_t classes; /* outputs of the model: classes that it tells apart, tokens of its vocabulary, numbers */
	const engine_outputs *outputs;
} engine_data;

/* An input of a program, [batch size, ...], and the batch tensor of the same type that is copied there. */
typedef struct engine_input {
	char name[BETON_NAME_MAX + 16];
	dtrain_tensor tensor;
	dtrain_chunk_attrs chunks; /* ranks > 0: the input has this rank's chunks of each sample */
	bool counts;               /* the input has the numbers of its columns, i64, and the batch no such tensor */
} engine_input;

/* A compiled graph, its tensors to fill before a run, and its tensors to read afterwards. */
typedef struct engine_network {
	dtrain_graph *graph;     /* until it is compiled */
	dtrain_program *program; /* NULL: no such network */
	engine_input inputs[ENGINE_INPUTS];
	int num_inputs;
	size_t batch_bytes;                    /* of the inputs */
	dtrain_tensor results[ENGINE_RESULTS]; /* of validation, [batch size, ...]; copied to the host */
	int num_results;
	dtrain_tensor hits; /* of training, [batch size]: 1 for each sample that the model gets right, else 0 */
	bool has_hits;
	dtrain_tensor random; /* of training, i64 [DTRAIN_RANDOMS]: set for each micro-batch; see dtrain_dropout */
	bool has_random;
	bool masked;           /* some labels have no loss: the mean is that over the other ones */
	dtrain_tensor more[2]; /* used by the task */
	/* A stage of a pipeline (stages.h), which may lack inputs, results and hits: their tensors are negative. NULL:
	 * the network has the whole model. */
	dtrain_stage *stage;
	int32_t number;              /* of the stage */
	int32_t micro_batch;         /* whose inputs get the next batch */
	dtrain_pipeline *pipeline;   /* of all this rank's stages, which share it */
	struct engine_network *next; /* with the next of this rank's stages; NULL: there is none */
} engine_network;

/* Opens files of the run. Adds to the options how the files are read. */
typedef struct engine_files {
	int (*open)(const void *context, beton_loader_options *options, beton_loader **out, beton_error *err);
	const void *context;
} engine_files;

/* The default that an option of the trainer has for a task. */
typedef struct engine_default {
	const char *option; /* without dashes; NULL ends the list */
	const char *value;
} engine_default;

/* A share is the better the higher it is; another metric is a loss. */
static inline bool engine_metric_is_better(const engine_metric *metric, double value, double than)
{
	return metric->share ? value > than : value < than;
}

struct engine_task {
	const char *name;                       /* of --task */
	const char *sample;                     /* singular, "picture"; the plural adds an s */
	const char *unit;                       /* of throughput, "images"; log key: UNIT_per_second */
	const char *field_names[ENGINE_FIELDS]; /* printed names of the fields */
	int num_fields;
	int class_field;                /* index of the field with a sample's class; -1: samples have none */
	bool has_head;                  /* the last layer is for the number of classes: other weights may lack it */
	const engine_default *defaults; /* NULL: none */
	const char *const *no_decay;    /* names of parameters without weight decay, then NULL; NULL: none */

	/* The models that have a name, NULL past the end. */
	const char *(*model_name)(int index);

	/* Why the task cannot train such a transformer, a text that continues "'NAME' is"; NULL: it can. */
	const char *(*find_model_problem)(const dtrain_transformer *model);

	/* Units of throughput in a sample; NULL: 1. */
	int64_t (*units)(const engine_rank *engine);

	/* Floating-point operations to train on a unit, for a model's utilization of the device; NULL: not known. */
	double (*flops)(const engine_rank *engine);

	/* Reads and checks the facts about the files. val NULL: none. Errors name the file. */
	int (*read_data)(const engine_job *job, const char *const *paths, int count, const char *val, engine_data *out,
			 beton_error *err);

	/* The names of the data's classes as a JSON array, malloc'ed; NULL: it has none. The function may be NULL. */
	int (*class_names)(const engine_job *job, const char *const *paths, int count, char **out, beton_error *err);

	/* Checks that the model can be built and, with begins, that training can start. */
	int (*check)(const engine_job *job, const engine_data *data, bool begins, beton_error *err);

	/* Puts an error of the loader that names an option of the loader in words of the trainer; NULL: none does. */
	void (*explain)(const engine_job *job, beton_error *err);

	/* Adds the files' kind of samples to the options; NULL: samples of .beton files. */
	void (*set_samples)(const engine_job *job, const engine_data *data, bool training,
			    beton_loader_options *options);

	/* Adds the operations that make the training or validation batches to the options, and opens files with
	 * them; NULL: the options have all. */
	int (*open_loader)(const engine_rank *engine, bool training, beton_loader_options *options,
			   const engine_files *files, beton_loader **out, beton_error *err);

	/* Adds inputs and model to the graph and fills network. Returns a vector with each sample's loss, or with
	 * equally many losses of each sample; training minimizes the mean. An evaluation of samples without labels
	 * returns any tensor. */
	dtrain_tensor (*build)(const engine_rank *engine, dtrain_graph *graph, bool training, engine_network *network);

	/* Computes weights that are not trained from the training files. Rank 0 only, before the first step. The
	 * function may be NULL. */
	int (*prepare)(engine_rank *engine, const engine_files *files, beton_error *err);

	/* The name of a parameter that is trained only in the first *epochs; NULL: none. The function may be NULL. */
	const char *(*find_early)(const engine_job *job, double *epochs);

	/* Checks what is in a batch before the network gets it. The function may be NULL. MISMATCH: names the sample.
	 */
	int (*check_batch)(const engine_rank *engine, bool training, const beton_batch *batch, beton_error *err);

	/* Puts what the validation network reads in a run of the batch on the stream: 0 <= run < count_runs (NULL:
	 * one). After the last run the batch's results are in its result tensors. */
	int (*feed_run)(engine_rank *engine, const beton_batch *batch, int run, beton_error *err);
	int (*count_runs)(const engine_job *job);

	/* Adds the metrics of the batch's samples to sums, the number of samples to sums[ENGINE_WEIGHT] (or of what
	 * the metrics are means over), and to the counts of their classes (NULL: not wanted). results: host copies, as
	 * many rows as the batch. Errors: NO_MEMORY. */
	int (*add_batch)(const engine_rank *engine, const beton_batch *batch, void *const *results, double *sums,
			 engine_class_count *classes, beton_error *err);
};

#endif
