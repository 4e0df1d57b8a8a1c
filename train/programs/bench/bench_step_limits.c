/* SPDX-License-Identifier: Apache-2.0 */
#include "bench_step_limits.h"

#include <stdlib.h>

#include "common/error.h"
#include "common/half.h"
#include "core/op.h"

enum { BANDWIDTH_RUNS = 5, BANDWIDTH_ELEMENTS = 16 << 20, OPERANDS = 3, BATCH = 32 };

/* An op of two inputs and an output of equal sizes, with memory of its own. */
typedef struct trial {
	bench_job *job;
	dtrain_op_desc desc;
	dtrain_op *op;
	void *operands[OPERANDS], *workspace;
	dtrain_event *events[2];
} trial;

static int open_trial(trial *t, bench_job *job, const dtrain_op_desc *desc, beton_error *err)
{
	*t = (trial){.job = job, .desc = *desc};
	const dtrain_device_api *api = job->engine.api;
	int status = api->op_create(job->engine.device, &t->desc, &t->op, err);
	for (int i = 0; i < OPERANDS && status == BETON_OK; i++)
		status = api->alloc(job->engine.device, desc->outputs[0].bytes, &t->operands[i], err);
	if (status == BETON_OK && t->desc.workspace_bytes)
		status = api->alloc(job->engine.device, t->desc.workspace_bytes, &t->workspace, err);
	for (int i = 0; i < 2 && status == BETON_OK; i++)
		status = api->event_create(job->engine.device, &t->events[i], err);
	return status;
}

static void close_trial(trial *t)
{
	const dtrain_device_api *api = t->job->engine.api;
	for (int i = 0; i < 2; i++)
		if (t->events[i])
			api->event_destroy(t->events[i]);
	api->free(t->job->engine.device, t->workspace);
	for (int i = 0; i < OPERANDS; i++)
		api->free(t->job->engine.device, t->operands[i]);
	if (t->op)
		api->op_destroy(t->op);
}

/* Milliseconds of `runs` runs, one after the other. */
static int time_runs(trial *t, int runs, double *ms, beton_error *err)
{
	const dtrain_device_api *api = t->job->engine.api;
	dtrain_stream *stream = t->job->engine.stream;
	int status = api->event_mark(t->events[0], stream, err);
	for (int i = 0; i < runs && status == BETON_OK; i++)
		status = api->op_run(t->op, stream, t->operands, t->workspace, err);
	if (status == BETON_OK)
		status = api->event_mark(t->events[1], stream, err);
	if (status == BETON_OK)
		status = api->stream_synchronize(stream, err);
	return status == BETON_OK ? api->event_elapsed_ms(t->events[0], t->events[1], ms, err) : status;
}

/* ---- memory ---- */

int bench_measure_bandwidth(bench_job *job, double *out, beton_error *err)
{
	int64_t count = BANDWIDTH_ELEMENTS;
	dtrain_operand flat = {
		.dtype = DTRAIN_F32, .shape = dtrain_shape_of(1, &count), .bytes = (size_t)count * sizeof(float)};
	const dtrain_op_desc desc = {.kind = DTRAIN_OP_ADD,
				     .num_inputs = 2,
				     .num_outputs = 1,
				     .inputs = {flat, flat},
				     .outputs = {flat},
				     .plain_output = {true}};
	trial t;
	double best = 0;
	int status = open_trial(&t, job, &desc, err);
	for (int i = 0; i < BANDWIDTH_RUNS && status == BETON_OK; i++) {
		double ms = 0;
		status = time_runs(&t, 1, &ms, err);
		best = i == 0 || ms < best ? ms : best;
	}
	*out = best > 0 ? dtrain__op_cost_of(&desc).bytes / best * 1e3 : 0;
	close_trial(&t);
	return status;
}

/* ---- products ---- */

/* Numbers in -1 ... 1 without a pattern: zeros take less power, and so leave a GPU a higher clock. */
static void make_random(void *out, int64_t count, dtrain_dtype dtype)
{
	uint32_t seed = 1;
	for (int64_t i = 0; i < count; i++) {
		seed = seed * 1664525 + 1013904223;
		float x = (float)(seed >> 8) * 0x1p-23f - 1;
		if (dtype == DTRAIN_F32)
			((float *)out)[i] = x;
		else
			((uint16_t *)out)[i] = dtype == DTRAIN_F16 ? bt_float16(x) : bt_bfloat16(x);
	}
}

static int fill(trial *t, beton_error *err)
{
	const dtrain_device_api *api = t->job->engine.api;
	const dtrain_operand *operand = &t->desc.inputs[0];
	void *numbers = malloc(operand->bytes);
	int status = numbers ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for a matrix");
	if (status == BETON_OK)
		make_random(numbers, dtrain_shape_count(&operand->shape), operand->dtype);
	for (int i = 0; i < 2 && status == BETON_OK; i++)
		status = api->copy(t->job->engine.stream, t->operands[i], numbers, operand->bytes,
				   DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = api->stream_synchronize(t->job->engine.stream, err);
	free(numbers);
	return status;
}

/* The mean time of a run, over at least `ms`. */
static int run_for(trial *t, double ms, double *run_ms, beton_error *err)
{
	double all = 0;
	int runs = 0, status;
	do {
		double batch = 0;
		status = time_runs(t, BATCH, &batch, err);
		all += batch;
		runs += BATCH;
	} while (status == BETON_OK && all < ms);
	*run_ms = all / runs;
	return status;
}

int bench_measure_products(bench_job *job, int64_t side, double ms, double *out, beton_error *err)
{
	dtrain_operand matrix = {.dtype = job->engine.dtype, .shape = dtrain_shape_of(2, (int64_t[]){side, side})};
	matrix.bytes = (size_t)(side * side) * dtrain_dtype_size(matrix.dtype);
	const dtrain_op_desc desc = {.kind = DTRAIN_OP_MATMUL,
				     .attrs.matmul.alpha = 1,
				     .num_inputs = 2,
				     .num_outputs = 1,
				     .inputs = {matrix, matrix},
				     .outputs = {matrix},
				     .plain_output = {true}};
	trial t;
	double run_ms = 0;
	int status = open_trial(&t, job, &desc, err);
	if (status == BETON_OK)
		status = fill(&t, err);
	if (status == BETON_OK)
		status = run_for(&t, ms / 3, &run_ms, err);
	if (status == BETON_OK)
		status = run_for(&t, ms * 2 / 3, &run_ms, err);
	*out = run_ms > 0 ? dtrain__op_cost_of(&desc).flops / run_ms * 1e3 : 0;
	close_trial(&t);
	return status;
}
