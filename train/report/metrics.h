/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's reports: records of each step, evaluation and epoch for the log and for TensorBoard, and lines for people. */
#ifndef REPORT_METRICS_H
#define REPORT_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "engine/evaluate.h"

/* steps and epochs count from 1. */
typedef struct run_step_metrics {
	int64_t step;
	int64_t epoch;
	double loss;   /* mean over the global batch */
	bool has_hits; /* the next is valid */
	double hits;   /* share of the global batch that the model got right */
	double lr;
	double units_per_second; /* of the task, over all ranks */
	double mfu;              /* share of the device's peak that the model needs; 0: not known */
	double step_ms;          /* from the end of the step before to the end of this one */
	double data_wait_ms;
	double compute_ms;
	double comm_exposed_ms;
	bool asynchronous;  /* the device works asynchronously: the next two are valid */
	double launch_ms;   /* to put the step on the device's streams */
	double device_busy; /* share of the time that the device computed, 0 .. 1 */
	double loss_scale;  /* 0: none */
	bool normed;        /* the next is valid */
	double grad_norm;   /* of the mean gradients, before clipping; may be infinite or NaN */
	int workers;        /* of a parameter server, whose gradients these were; 0: none, and the next are not valid */
	int worker;         /* the first of them */
	int64_t staleness;  /* steps since it got its parameters */
	int64_t lead;       /* batches that it was ahead of the slowest one then */
} run_step_metrics;

typedef struct run_evaluation {
	int64_t epoch; /* from 1; 0: of an evaluation alone */
	int64_t step;  /* completed before it */
	bool average;  /* the weights were the moving average */
	engine_evaluation result;
	/* Seconds in this process: training so far without evaluations, and this evaluation. */
	double train_seconds;
	double val_seconds;
} run_evaluation;

/* How the time of an epoch, or of this process's part of it, was spent. */
typedef struct run_epoch_metrics {
	int64_t epoch;
	int64_t step; /* the last completed step */
	int64_t steps;
	uint64_t total_ns; /* the sum of the parts */
	uint64_t part_ns[RUN_PARTS];
	uint64_t saving_ns;      /* that a thread took for checkpoints, beside the parts; 0: there were none */
	const double *bucket_ms; /* RUN_PART_COMM by bucket; borrowed */
	int bucket_count;
	uint64_t comm_bytes;       /* size of the arrays that were reduced */
	int64_t bad;               /* samples that others took the place of, on all ranks */
	beton_bottleneck limit;    /* the loader's bottleneck in this epoch */
	const char *diagnosis;     /* a sentence */
	beton_loader_stats stages; /* the loader's, of this epoch */
} run_epoch_metrics;

/* The search for algorithms has ended. */
typedef struct run_tuning_metrics {
	int64_t step;
	int64_t ops;      /* that began with algorithms that were ready at once */
	double seconds;   /* since the search began */
	double lent_ms;   /* device time that it took from training */
	const char *kept; /* why the ops keep their algorithms until the next start; NULL: they have the fastest */
} run_tuning_metrics;

/* A run, or the part of it that this process does. Everything is borrowed. */
typedef struct run_beginning {
	bool resumed;
	int64_t after_step; /* the step that a resumed run continues from */
	int64_t total_steps, steps_per_epoch, global_batch;
	int64_t samples; /* of the training set */
	int64_t classes;
	const engine_task *task;
	int world_size;
	const char *device, *processor;
	double peak_flops;  /* of the device of one rank; 0: not known */
	size_t arena_bytes; /* of training */
	char *const *data;
	int data_count;
	const char *val; /* NULL: no evaluation */
	int64_t val_every, eval_every;
	const char *options;     /* a JSON object */
	const char *class_names; /* of --val, a JSON array; NULL: none */
	char *const *changes;    /* of options; NULL: none */
	int change_count;
	json_t *init; /* run_init_json; NULL: no --init */
} run_beginning;

typedef struct run_metrics_options {
	const char *log;         /* a file; NULL: none. Its content is kept */
	const char *tensorboard; /* a folder; NULL: none */
	int64_t log_every;       /* steps between records of steps, >= 1; the last step has one too */
	int fifo_wait_s;         /* how long a log that is a FIFO waits for its reader, in seconds; >= 1 */
	bool quiet;              /* nothing is printed */
	int64_t print_every;     /* see run_progress_open */
} run_metrics_options;

typedef struct run_metrics run_metrics;

/* Writes the record that the run begins. The options and the beginning are copied but for the texts of the options.
 * Errors: NO_SPACE, IO (naming the file), and run_tensorboard_open's. */
int run_metrics_open(const run_metrics_options *options, const run_beginning *beginning, run_metrics **out,
		     beton_error *err);

/* Write the record at once. If a file or standard output cannot be written, training is asked to stop, so that what was
 * trained is saved, and run_metrics_close returns the error. */
void run_metrics_step(run_metrics *metrics, const run_step_metrics *step);
void run_metrics_epoch(run_metrics *metrics, const run_epoch_metrics *epoch);
/* The activity of rank 0's device, after a step. */
void run_metrics_activity(run_metrics *metrics, int64_t step, const dtrain_device_activity *activity);
void run_metrics_tuning(run_metrics *metrics, const run_tuning_metrics *tuning);
void run_metrics_evaluation(run_metrics *metrics, const run_evaluation *evaluation);

/* NULL allowed. Everything is closed in any case. Errors: of the first record or line that could not be written:
 * NO_MEMORY, NO_SPACE, IO (naming the file). */
int run_metrics_close(run_metrics **metrics, beton_error *err);

#endif
