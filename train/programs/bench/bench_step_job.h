/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is trained to be timed, by the trainer's own stepper: what `dtrain-bench step` runs.
 */
#ifndef PROGRAMS_BENCH_BENCH_STEP_JOB_H
#define PROGRAMS_BENCH_BENCH_STEP_JOB_H

#include "engine/example.h"
#include "engine/stepper.h"
#include "options/device_choice.h"
#include "options/options.h"

typedef struct bench_step_options {
	run_device_choice device;
	const char *model;
	const char *data; /* NULL: the same synthetic samples in each step */
	int precision;    /* engine_precision */
	engine_recompute recompute;
	uint64_t side, context, batch, classes, threads, workers, steps; /* context 0: the model's longest */
	bool no_capture;
	int tune;                /* run_tune */
	bool profile;            /* also measures op by op */
	bool plan;               /* prints the memory plan only */
	double bandwidth, flops; /* the profile's limits; 0: the device's, or measured */
	bool json, help;
} bench_step_options;

typedef struct bench_job {
	const bench_step_options *options;
	engine_example example;
	engine_rank engine;
	dtrain_optimizer *optimizer;
	engine_stepper *stepper;
	beton_loader *loader;
	beton_iterator *iterator;
	int64_t steps;
	uint64_t began_ns;
} bench_job;

typedef struct bench_times {
	double step_seconds;   /* median on a synchronous device without loading, else the mean */
	double launch_seconds; /* on the host, per step; asynchronous devices only, like the next */
	double device_seconds; /* from a step's beginning to its end */
	double data_seconds;   /* waiting for data */
	double first_seconds;  /* from bench_job_open to the end of the first step */
} bench_times;

/* Call close even on failure. */
int bench_job_open(bench_job *job, const bench_step_options *options, beton_error *err);
void bench_job_close(bench_job *job);
/* Units of throughput (engine_task.unit) in a step. */
double bench_job_units(const bench_job *job);
int bench_job_time(bench_job *job, bench_times *out, beton_error *err);
/* Runs some more steps, and reads what the device does while it computes them. *known: false if the device does not
 * tell. */
int bench_job_activity(bench_job *job, bool *known, dtrain_device_activity *out, beton_error *err);

#endif
