/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of dtrain-ffcv. */
#ifndef OPTIONS_OPTIONS_H
#define OPTIONS_OPTIONS_H

#include <jansson.h>
#include <stdio.h>

#include <beton/loader.h>
#include <dtrain/optim.h>

#include "device_choice.h"
#include "engine/engine.h"
#include "engine/tasks/lm/lm.h"
#include "engine/tasks/vision/vision.h"
#include "recipes.h"

#define RUN_STEPS_MAX 1e12
#define RUN_MILESTONES_MAX 32
#define RUN_NOT_SET (-1.0) /* a number of the optimizer: its kind decides */
#define RUN_ROWS_MAX 192   /* maximum number of rows in the table of options */

typedef enum run_resume_mode {
	RUN_RESUME_NO = 0,
	RUN_RESUME_YES = 1,
	RUN_RESUME_AUTO = 2, /* if there is a checkpoint */
} run_resume_mode;

/* How much is printed of the memory that a run needs. */
typedef enum run_plan {
	RUN_PLAN_NO = 0,
	RUN_PLAN_SHORT = 1,
	RUN_PLAN_FULL = 2,
} run_plan;

typedef enum run_task {
	RUN_TASK_VISION = 0,
	RUN_TASK_LM = 1,
} run_task;

typedef enum run_order {
	RUN_ORDER_SEQUENTIAL = 0,
	RUN_ORDER_RANDOM = 1,
	RUN_ORDER_QUASI_RANDOM = 2,
	RUN_ORDER_WEIGHTED = 3,
	RUN_ORDER_WEIGHTED_UNIQUE = 4,
	RUN_ORDER_BALANCED = 5,
	RUN_ORDER_LIST = 6,
	RUN_ORDER_FFCV_RANDOM = 7,
	RUN_ORDER_TORCH_DISTRIBUTED = 8,
	RUN_ORDER_UNIFORM = 9,
} run_order;

/* When algorithms are timed that a device does not know. */
typedef enum run_tune {
	RUN_TUNE_LATER = 0,
	RUN_TUNE_NOW = 1,
} run_tune;

/* The rule by which the learning rate depends on the global batch. */
typedef enum run_lr_scale {
	RUN_LR_SCALE_NONE = 0,
	RUN_LR_SCALE_LINEAR = 1,
	RUN_LR_SCALE_SQRT = 2,
} run_lr_scale;

typedef enum run_bad_samples {
	RUN_BAD_FAIL = 0,
	RUN_BAD_SKIP = 1,
} run_bad_samples;

#define RUN_FILES_MAX 64

/* The value of an option that is a list of files. */
typedef struct run_files {
	int count;
	const char *paths[RUN_FILES_MAX];
} run_files;

/* The checkpoint that a run is resumed from, and its options. */
typedef struct run_saved {
	char *path;                  /* of the checkpoint */
	char *json;                  /* its options, as stored */
	char *texts[RUN_ROWS_MAX];   /* by row of the table; NULL: none */
	char *changes[RUN_ROWS_MAX]; /* "--lr 0.05 (was 0.1)" */
	int change_count;
	bool changed[RUN_ROWS_MAX]; /* by row of the table; not of options that are free */
	int64_t shares;             /* ranks that shared a step's samples */
} run_saved;

typedef enum run_strategy {
	RUN_STRATEGY_DDP,
	RUN_STRATEGY_ZERO1,
	RUN_STRATEGY_ZERO2,
	RUN_STRATEGY_ZERO3,
	RUN_STRATEGY_FSDP,
	RUN_STRATEGY_HSDP,
	RUN_STRATEGY_LOCAL,
	RUN_STRATEGY_ASYNC,
} run_strategy;

/* Every option; texts are borrowed from argv, recipe_file, kept or saved. Epochs and steps of 0: not given. */
typedef struct run_options {
	int task; /* run_task */
	run_files data;
	const char *data_weights;          /* as given; NULL: none */
	double data_weight[RUN_FILES_MAX]; /* the numbers in data_weights, for each file of data; 0: none */
	const char *val;
	const char *model;
	const char *description; /* text of the config.json that describes the model: that of the weights that are
				    evaluated or of the run that is resumed, or the file's; NULL: model is a name */
	bool is_transformer;
	dtrain_transformer transformer; /* the model, if it is one */
	const char *recipe;             /* as given; NULL: none */
	const char *init;               /* a file of weights, or a checkpoint's folder; NULL: none */
	const char *freeze;             /* patterns; NULL: none */
	bool evaluate;
	int plan; /* run_plan */
	bool overlap;
	bool tune_units;       /* sizes of units are still to be chosen */
	const char *device;    /* as given: NAME or NAME:INDEX */
	const char *recompute; /* as given */
	engine_recompute recomputed;
	run_device_choice chosen;
	const char *log;
	const char *tensorboard;
	const char *pipeline_timeline;
	int64_t log_every;   /* steps */
	int64_t print_every; /* steps; 0: by time */
	bool quiet;
	const char *checkpoint;
	int precision; /* engine_precision */
	int64_t world_size;
	int64_t master_port;   /* 0: chosen by the system */
	const char *interface; /* NULL: not given */
	double timeout;        /* seconds */
	double epochs;
	int64_t steps;
	int64_t batch_size;   /* samples per rank and run */
	int64_t global_batch; /* samples per step; 0: not given. See run_options_divide_batch */
	int64_t accumulate;   /* runs per step */
	int compress;         /* index of the row's choices: a method of dtrain_compression */
	double compress_ratio;
	bool no_error_feedback, no_warm_start;
	int64_t powersgd_rank, powersgd_start;
	double powersgd_min_rate;
	int64_t reproducible; /* parts of a step; 0: the order of sums depends on the ranks. See
				 run_deterministic_shards_divide */
	int64_t threads;
	int64_t workers;
	uint64_t seed;
	const char *optimizer; /* the kind; the options of its numbers: see optimizer.h */
	double lr;
	int lr_scale; /* run_lr_scale */
	int64_t lr_base_batch;
	double initial_lr; /* 0: not given */
	double final_lr;
	double momentum;
	double beta1, beta2;
	double epsilon;
	double trust;
	double adamw_lr_scale, ns_steps;
	double weight_decay;
	double bias_lr_scale;
	double layer_decay;       /* factor on the rate from one block of the model to the one before */
	const char *no_decay;     /* patterns; NULL: none */
	const char *param_groups; /* "PATTERN=X[:DECAY],..."; NULL: none */
	double label_smoothing;
	double dropout;         /* of a transformer; below 0: its own */
	double clip_norm;       /* 0: off */
	int clip_norm_type;     /* dtrain_norm */
	int schedule;           /* dtrain_schedule_kind */
	double decay_share;     /* of the schedule wsd: share of all steps */
	double schedule_power;  /* of polynomial */
	const char *milestones; /* of step, as given: epochs with commas between them; NULL: none */
	double milestone_factor;
	double warmup_epochs;
	int64_t warmup_steps;
	double warmup_share; /* share of all steps */
	int64_t lookahead;   /* steps; 0: off */
	double ema;          /* decay; 0: off */
	bool ema_warmup;
	int64_t ema_every;       /* steps */
	int order;               /* run_order */
	const char *indices;     /* file of sample numbers; NULL: all samples */
	const char *weights;     /* a field, or a file if it has a slash */
	const char *class_field; /* NULL: the label */
	int64_t window_pages;
	int64_t epoch_samples; /* 0: the number of samples */
	int engine;            /* beton_engine */
	bool direct;
	int64_t read_ahead;         /* samples; 0: automatic */
	int64_t memory_limit;       /* bytes; 0: none */
	int64_t max_pixels;         /* 0: the loader's default */
	int bad_samples;            /* run_bad_samples */
	double bucket_mb;           /* MiB; 0: the library's default */
	int strategy;               /* run_strategy */
	int64_t shard;              /* ranks that share a copy of the parameters; 0: not given */
	int pipeline_schedule;      /* its place in the possible values */
	int64_t pipeline_chunks;    /* 0: as the schedule has them */
	const char *pipeline_lists; /* NULL: pipeline_schedule */
	const char *stages;         /* NULL: equally expensive ones */
	const char *mesh;           /* see run_axes_read; NULL: the strategy's */
	const char *rank_order;     /* see run_axes_order; NULL: the usual one */
	double unit_mb;             /* MiB; 0: by block */
	const char *unit_pattern;   /* NULL: none */
	double prefetch_mb;
	bool keep_gathered;
	bool accumulate_locally;
	bool sequence_parallel;
	int64_t tensor_overlap; /* parts of the rows */
	bool sync_batch_norm;
	int buffers;          /* dtrain_sync_buffers_mode */
	int64_t local_steps;  /* of a round */
	int64_t local_warmup; /* steps */
	double outer_lr, outer_momentum;
	int64_t staleness; /* bound of --strategy async, in a worker's batches */
	int offload;       /* engine_offload */
	vision_options vision;
	lm_options lm;
	int64_t val_every;    /* epochs */
	int64_t eval_every;   /* steps; 0: no */
	int64_t eval_batches; /* of each rank or part; 0: all. See run_deterministic_shards_eval_batches */
	bool val_per_class;
	int64_t checkpoint_every;
	int64_t keep_checkpoints;
	bool checkpoint_async;
	bool keep_best;
	bool nesterov;
	bool amsgrad, match_rms_adamw;
	bool no_bias_decay;
	bool deterministic;
	bool no_capture;
	int tune; /* run_tune */
	bool share_device;
	int resume; /* run_resume_mode */
	bool help;
	bool version;
	bool given[RUN_ROWS_MAX]; /* on the command line; by row of the table */
	int64_t compute_threads;  /* of this process: see run_cores_count_threads */
	int64_t loader_threads;
	bool threads_from_environment; /* set by OMP_NUM_THREADS, not by --threads */
	int64_t newest_step;           /* of the checkpoints in --checkpoint, for run_options_resume; -1: none */
	bool resuming;                 /* a checkpoint to resume from exists; set by run_options_resume */
	char **kept;                   /* kept_count texts that are parts of others */
	int kept_count;
	run_recipe *recipe_file; /* NULL: no recipe */
	json_t *info; /* what the weights that are evaluated, or the checkpoint, say of their model; NULL: not read yet
		       */
	run_saved *saved; /* NULL: the run is not resumed, or its checkpoint has no options */
} run_options;

/* Sets defaults, then the recipe's options, then those in argv; with help or version no option is required. With
 * resume, call run_options_resume next. Errors: INVALID_ARGUMENT; the message names the option, its value and its
 * range. */
int run_options_parse(run_options *options, int argc, char **argv, beton_error *err);

/* Call it after run_options_parse if the run may be resumed. Options not given in argv are taken from the newest
 * checkpoint of --checkpoint, if it has options; changes are recorded. world_size: ranks started by another launcher;
 * 0: none. Errors: INVALID_ARGUMENT, NOT_FOUND (no checkpoint, and resume is not RUN_RESUME_AUTO), MISMATCH (an option
 * that cannot change is given with another value), and a damaged checkpoint's error if all are damaged. */
int run_options_resume(run_options *options, int argc, char **argv, int world_size, beton_error *err);

/* With --global-batch, sets batch_size to a rank's share. Call it when world_size is final. INVALID_ARGUMENT: the ranks
 * cannot share it evenly. */
int run_options_divide_batch(run_options *options, beton_error *err);

/* All options as a JSON object {"lr": "0.1", ...} of texts as on the command line, null for none; malloc'ed. */
int run_options_to_json(const run_options *options, char **out, beton_error *err);

/* Appends what the recipe has for options that the message names and the command line does not have. */
void run_options_blame_recipe(const run_options *options, beton_error *err);

/* Compares with another rank's options, made by run_options_to_json. MISMATCH: an option differs that must be the same
 * on all ranks; the message names the first one, and both values. */
int run_options_compare(const run_options *options, const char *other, beton_error *err);

/* Whether the program tells something and exits: it leaves files and folders as they are. */
static inline bool run_options_only_tell(const run_options *options)
{
	return options->plan || options->overlap;
}

/* The weights of --evaluate: --init, or the newest checkpoint of --checkpoint. */
static inline const char *run_options_weights(const run_options *options)
{
	return options->init ? options->init : options->checkpoint;
}

/* The optimizer's states, each as large as the parameters (optimizer.c). */
int run_options_states(const run_options *options);

/* The models of all tasks, NULL past the end (tasks.c). */
const char *run_task_model(int index);

/* The engine's configuration; options must outlive it (tasks.c). */
engine_job run_options_job(const run_options *options);

void run_options_free(run_options *options);

void run_options_help(FILE *out);

#endif
