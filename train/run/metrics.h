/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of a run: one JSON object a line for each step, evaluation and epoch, and short lines for people. */
#ifndef RUN_METRICS_H
#define RUN_METRICS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "engine/evaluate.h"

/* steps and epochs count from 1. */
typedef struct run_step_metrics {
	int64_t step;
	int64_t epoch;
	double loss; /* mean over the global batch */
	double lr;
	double samples_per_second; /* over all ranks */
	double data_wait_ms;
	double comm_exposed_ms;
	bool asynchronous;  /* the device works asynchronously: the next two are valid */
	double launch_ms;   /* to put the step on the device's streams */
	double device_busy; /* share of the time that the device computed, 0 .. 1 */
	double loss_scale;  /* 0: none */
	bool normed;        /* the next is valid */
	double grad_norm;   /* of the mean gradients, before clipping; may be infinite or NaN */
} run_step_metrics;

typedef struct run_evaluation {
	int64_t epoch; /* from 1; 0: of an evaluation alone */
	int64_t after_step;
	bool average; /* the weights were the moving average */
	engine_evaluation result;
	/* Of this process: training so far without evaluations, and this evaluation. */
	double train_seconds;
	double val_seconds;
} run_evaluation;

/* How the time of an epoch, or of this process's part of it, was spent. */
typedef struct run_epoch_metrics {
	int64_t epoch;
	int64_t at_step; /* the last completed step */
	int64_t steps;
	uint64_t total_ns; /* the sum of the parts */
	uint64_t part_ns[RUN_PARTS];
	const double *bucket_ms;   /* RUN_PART_COMM by bucket; borrowed */
	int bucket_count;          /* 0: not known, nor is the next */
	uint64_t comm_bytes;       /* size of the arrays that were reduced */
	int64_t bad;               /* samples that others took the place of, on all ranks */
	beton_bottleneck limit;    /* the loader's bottleneck in this epoch */
	const char *diagnosis;     /* a sentence */
	beton_loader_stats stages; /* the loader's, of this epoch */
} run_epoch_metrics;

typedef struct run_metrics {
	const engine_task *task; /* names of its samples and metrics */
	int fd;                  /* -1: no log file */
	const char *path;
	uint64_t printed_ns;
	uint64_t epoch_printed_ns;
	int64_t total_steps;
	beton_error print_error; /* of standard output; code 0: none */
} run_metrics;

/* The first line that a process writes to a log. */
typedef struct run_beginning {
	bool resumed;
	int64_t after_step; /* the step that a resumed run continues from */
	int64_t total_steps;
	const engine_task *task;
	int world_size;
	char *const *changes; /* of options; NULL: none */
	int change_count;
	bool evaluates; /* there is no training */
	json_t *init;   /* run_init_json, which run_metrics_open takes over; NULL: no --init */
} run_beginning;

/* path NULL: no file; borrowed. The file's content is kept; a line is appended that the run begins, or from which step
 * it continues. */
int run_metrics_open(run_metrics *metrics, const char *path, const run_beginning *beginning, beton_error *err);
void run_metrics_close(run_metrics *metrics);

/* Write the log's line at once. Print every evaluation; print steps and the division of an epoch's time every few
 * seconds, and the first and the last. Errors: NO_SPACE, IO (naming the file). If standard output fails, training is
 * asked to stop and print_error says why. */
int run_metrics_step(run_metrics *metrics, const run_step_metrics *step, beton_error *err);
int run_metrics_epoch(run_metrics *metrics, const run_epoch_metrics *epoch, beton_error *err);
int run_metrics_evaluation(run_metrics *metrics, const run_evaluation *evaluation, beton_error *err);

#endif
