/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's progress for people. On a terminal one line is rewritten in place; in a file or a pipe there is a line every
 * few steps. Lines about evaluations and epochs stay in both. */
#ifndef REPORT_PROGRESS_H
#define REPORT_PROGRESS_H

#include <stdint.h>

#include <beton/error.h>
#include <jansson.h>

#include "device_activity.h"
#include "launch/status_line.h"
#include "metrics.h"

typedef struct run_progress {
	const engine_task *task;
	const engine_outputs *outputs; /* of the evaluations; NULL before the first */
	enum { RUN_PROGRESS_QUIET, RUN_PROGRESS_LINES, RUN_PROGRESS_TERMINAL, RUN_PROGRESS_LAUNCHER } form;
	status_line status;
	int64_t classes;
	int64_t print_every;
	int64_t total_steps, steps_per_epoch, val_every, eval_every;
	uint64_t printed_ns;
	double step_ms;      /* a running mean; 0: no step yet */
	double val_seconds;  /* of the last evaluation; 0: none */
	double best, latest; /* the first metric of evaluations */
	bool evaluated;
	char activity[RUN_ACTIVITY_TEXT]; /* of the device; "": not known */
	beton_error error;                /* of standard output; code 0: none */
} run_progress;

/* print_every: steps between lines; 0: a line every two seconds. */
void run_progress_open(run_progress *self, const run_beginning *beginning, bool quiet, int64_t print_every);

/* If standard output fails, training is asked to stop, so that what was trained is saved. */
void run_progress_step(run_progress *self, const run_step_metrics *step);
/* Lines about steps have it from now on. */
void run_progress_activity(run_progress *self, const dtrain_device_activity *activity);
void run_progress_tuning(run_progress *self, const run_tuning_metrics *tuning);
void run_progress_evaluation(run_progress *self, const run_evaluation *evaluation);
/* A line for each class that has samples. names: an array; NULL: none. */
void run_progress_classes(run_progress *self, const engine_class_count *counts, int64_t classes, const json_t *names);
void run_progress_epoch(run_progress *self, const run_epoch_metrics *epoch);
/* Removes the line that is rewritten. */
void run_progress_close(run_progress *self);

#endif
