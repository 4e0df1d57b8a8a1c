/* SPDX-License-Identifier: Apache-2.0
 *
 * A model that is trained to be timed: what `dtrain-bench step` runs.
 */
#ifndef BENCH_STEP_JOB_H
#define BENCH_STEP_JOB_H

#include <beton/loader.h>
#include <dtrain/model.h>
#include <dtrain/optim.h>

#include "run/device_choice.h"
#include "engine/feed.h"

enum bench_precision { BENCH_F32, BENCH_TF32, BENCH_BF16, BENCH_FP16 };

typedef struct bench_step_options {
	run_device_choice device;
	const char *model;
	const char *data; /* NULL: the same made-up pictures in each step */
	int precision;    /* enum bench_precision */
	uint64_t side, batch, classes, threads, workers, steps;
	bool no_capture;
	bool profile;            /* op by op, besides */
	bool plan;               /* the memory, and nothing else */
	double bandwidth, flops; /* limits for that; 0: the device's, or measured */
	bool json, help;
} bench_step_options;

enum { BENCH_SLOTS = 2 };

/* A step that is under way. */
typedef struct bench_slot {
	dtrain_event *began, *ended, *done;
	void *captured;
	beton_batch *batch;
} bench_slot;

typedef struct bench_job {
	const bench_step_options *options;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_device_caps caps;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_scaler *scaler;
	dtrain_graph *graph;
	dtrain_program *program;
	dtrain_sgd *sgd;
	dtrain_tensor image, label;
	engine_feed feed;
	beton_loader *loader;
	beton_iterator *iterator;
	uint64_t epoch;
	bench_slot slots[BENCH_SLOTS];
	uint64_t launched, settled;
} bench_job;

typedef struct bench_times {
	double step_seconds;   /* median where the device works within the call and nothing is loaded, else the mean */
	double launch_seconds; /* of the host, for each step; asynchronous devices only, like the next */
	double device_seconds; /* between beginning and end of a step */
	double data_seconds;   /* waited for pictures */
} bench_times;

/* The type of activations. */
dtrain_dtype bench_job_type(const bench_job *job);

/* On failure close is still to be called. */
int bench_job_open(bench_job *job, const bench_step_options *options, beton_error *err);
void bench_job_close(bench_job *job);
int bench_job_time(bench_job *job, bench_times *out, beton_error *err);

#endif
