/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of a run: one JSON object a line for each step, evaluation and epoch, and short lines for people. */
#ifndef RUN_METRICS_H
#define RUN_METRICS_H

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
	double samples_per_second; /* of all ranks */
	double data_wait_ms;
	double comm_exposed_ms;
	bool asynchronous;  /* the device works while this process goes on: the figures that follow */
	double launch_ms;   /* to put the step on the device's streams */
	double device_busy; /* share of the time in which the device computed, 0 .. 1 */
	double loss_scale;  /* 0: none */
	bool normed;        /* the figure that follows */
	double grad_norm;   /* of the mean gradients, before they are clipped; may be infinite or NaN */
} run_step_metrics;

typedef struct run_evaluation {
	int64_t epoch;
	int64_t after_step;
	engine_evaluation result;
	/* Of this process: training up to here, without evaluations, and this evaluation. */
	double train_seconds;
	double val_seconds;
} run_evaluation;

/* Where the time of an epoch went, or of what a process did of it. */
typedef struct run_epoch_metrics {
	int64_t epoch;
	int64_t at_step; /* the last that is done */
	int64_t steps;
	uint64_t total_ns; /* the sum of the parts */
	uint64_t part_ns[RUN_PARTS];
	const double *bucket_ms;   /* of RUN_PART_COMM, by bucket; borrowed */
	int bucket_count;          /* 0: not known, as is the next */
	uint64_t comm_bytes;       /* of arrays that were handed to reductions */
	beton_bottleneck limit;    /* of the loader, in this epoch */
	const char *diagnosis;     /* in words */
	beton_loader_stats stages; /* the loader's, of this epoch */
} run_epoch_metrics;

typedef struct run_metrics {
	const engine_task *task; /* what names there are for samples and metrics */
	int fd;                  /* -1: no log file */
	const char *path;
	uint64_t printed_ns;
	uint64_t epoch_printed_ns;
	int64_t total_steps;
	beton_error print_error; /* code 0: standard output takes what is printed */
} run_metrics;

/* How a process begins to write into a log. */
typedef struct run_beginning {
	bool resumed;
	int64_t after_step; /* of a run that is resumed */
	int64_t total_steps;
	const engine_task *task;
	int world_size;
	char *const *changes; /* of options; NULL when there are none */
	int change_count;
} run_beginning;

/* path NULL: no file; borrowed. What the file holds stays: a line is added that says that a run begins, or goes on and
 * behind which step. */
int run_metrics_open(run_metrics *metrics, const char *path, const run_beginning *beginning, beton_error *err);
void run_metrics_close(run_metrics *metrics);

/* Write the line at once, and print for people: every evaluation; a step, and where the time of an epoch went, every
 * few seconds, the first and the last. Errors: NO_SPACE, IO (naming the file). Where standard output fails, training is
 * asked to stop and print_error says why. */
int run_metrics_step(run_metrics *metrics, const run_step_metrics *step, beton_error *err);
int run_metrics_epoch(run_metrics *metrics, const run_epoch_metrics *epoch, beton_error *err);
int run_metrics_evaluation(run_metrics *metrics, const run_evaluation *evaluation, beton_error *err);

#endif
