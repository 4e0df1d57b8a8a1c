/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline of ops with given times: the real loop, messages and programs, on a device whose products sleep. So a few
 * cores are enough for any number of ranks, and the costs of the formulas are exact.
 */
#include "bench_pipeline.h"

#include <dtrain/pipeline_run.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "common/error.h"
#include "common/system.h"

/* Products of WIDTH x WIDTH parameters sleep, and nothing else; a stage has one of them for each of F, I and W. */
enum { ROWS = 2, INPUTS = 3, WIDTH = 8 };

/* ---- the device ---- */

static const dtrain_device_api *ref;
static uint64_t product_ns;

typedef struct slow_op {
	dtrain_op *op;
	bool sleeps;
} slow_op;

static bool is_square(const dtrain_operand *operand)
{
	return operand->shape.ndim == 2 && operand->shape.dim[0] == WIDTH && operand->shape.dim[1] == WIDTH;
}

static bool is_slow(const dtrain_op_desc *desc)
{
	switch (desc->kind) {
	case DTRAIN_OP_LINEAR:
	case DTRAIN_OP_LINEAR_BWD_DATA:
		return is_square(&desc->inputs[1]);
	case DTRAIN_OP_LINEAR_BWD_WEIGHT:
		return is_square(&desc->outputs[0]);
	default:
		return false;
	}
}

static int slow_op_create(dtrain_device *device, dtrain_op_desc *desc, dtrain_op **out, beton_error *err)
{
	slow_op *self = calloc(1, sizeof(*self));
	if (!self)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	self->sleeps = is_slow(desc);
	int status = ref->op_create(device, desc, &self->op, err);
	if (status != BETON_OK) {
		free(self);
		return status;
	}
	*out = (dtrain_op *)self;
	return BETON_OK;
}

static void slow_op_destroy(dtrain_op *op)
{
	slow_op *self = (slow_op *)op;
	if (self)
		ref->op_destroy(self->op);
	free(self);
}

static int slow_op_run(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace, beton_error *err)
{
	slow_op *self = (slow_op *)op;
	const uint64_t until = bt_now_ns() + product_ns;
	int status = ref->op_run(self->op, stream, operands, workspace, err);
	const struct timespec at = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
	while (self->sleeps && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0)
		;
	return status;
}

static int open_slow_device(dtrain_device **out, beton_error *err)
{
	static dtrain_device_api slow;
	int status = dtrain_device_open("ref", NULL, out, err);
	if (status != BETON_OK)
		return status;
	ref = dtrain_device_get_api(*out);
	slow = *ref;
	slow.op_create = slow_op_create;
	slow.op_destroy = slow_op_destroy;
	slow.op_run = slow_op_run;
	*(const dtrain_device_api **)*out = &slow;
	prctl(PR_SET_TIMERSLACK, 1ul);
	return BETON_OK;
}

/* ---- a rank ---- */

/* A rank of the pipeline; its stages are called chunks. */
typedef struct pipeline_rank {
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_mesh *mesh;
	dtrain_params *params;
	dtrain_pipeline_schedule *schedule;
	dtrain_pipeline_stage *chunks; /* [count] */
	dtrain_stage **stages;         /* [count]: owned */
	int32_t count;
	dtrain_pipeline *pipeline;
	dtrain_pipeline_time *times;
} pipeline_rank;

static int build_whole(dtrain_params *outline, int32_t stages, dtrain_graph **out, dtrain_tensor *loss,
		       beton_error *err)
{
	const dtrain_shape inputs = dtrain_shape_of(2, (int64_t[]){ROWS, INPUTS});
	const dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){ROWS, WIDTH});
	int status = dtrain_graph_create(outline, true, out, err);
	if (status != BETON_OK)
		return status;
	dtrain_tensor x = dtrain_graph_input(*out, "x", DTRAIN_F32, &inputs);
	dtrain_tensor y = dtrain_linear(*out, "in", x, WIDTH);
	for (int32_t i = 0; i < stages; i++) {
		char name[16];
		snprintf(name, sizeof(name), "stage%d", i);
		if (i > 0)
			dtrain_graph_next_block(*out);
		y = dtrain_linear(*out, name, dtrain_relu(*out, y), WIDTH);
	}
	dtrain_tensor target = dtrain_graph_input(*out, "target", DTRAIN_F32, &rows);
	*loss = dtrain_mean(*out, dtrain_squared_error(*out, y, target));
	return BETON_OK;
}

static bool divides_weights(const dtrain_pipeline_schedule *schedule)
{
	for (int32_t i = 0; i < schedule->lists[0].count; i++)
		if (schedule->lists[0].actions[i].kind == DTRAIN_ACTION_WEIGHT_GRADIENT)
			return true;
	return false;
}

static int cut(pipeline_rank *r, const int32_t *first, int32_t number, dtrain_graph **out, beton_error *err)
{
	dtrain_params *outline = NULL;
	dtrain_graph *whole = NULL;
	dtrain_tensor loss = -1;
	int status = dtrain_params_create_outline(r->params, &outline, err);
	if (status == BETON_OK)
		status = build_whole(outline, r->schedule->stages, &whole, &loss, err);
	if (status == BETON_OK)
		status = dtrain_stage_create(whole, first, r->schedule->stages, number, r->params, &r->stages[r->count],
					     err);
	if (status == BETON_OK) {
		dtrain_stage_backward(r->stages[r->count], loss);
		*out = dtrain_stage_take_graph(r->stages[r->count]);
		if (dtrain_pipeline_schedule_live(r->schedule, number) > 1)
			dtrain_graph_share_scratch(*out);
		if (divides_weights(r->schedule))
			dtrain_graph_defer_weights(*out);
		r->chunks[r->count] = (dtrain_pipeline_stage){.number = number, .stage = r->stages[r->count]};
		r->count++;
	}
	dtrain_graph_destroy(&whole);
	dtrain_params_destroy(&outline);
	return status;
}

/* The outline has the real parameters' declarations, so all stages are cut before the first one is compiled. */
static int make_programs(pipeline_rank *r, int32_t rank, beton_error *err)
{
	const int32_t stages = r->schedule->stages;
	int32_t *first = calloc((size_t)stages, sizeof(*first));
	dtrain_graph **graphs = calloc((size_t)stages, sizeof(dtrain_graph *));
	r->chunks = calloc((size_t)stages, sizeof(*r->chunks));
	r->stages = calloc((size_t)stages, sizeof(*r->stages));
	int status = first && graphs && r->chunks && r->stages
			     ? BETON_OK
			     : bt_fail(err, BETON_NO_MEMORY, "out of memory for %d stages", stages);
	for (int32_t i = 0; i < stages && status == BETON_OK; i++)
		first[i] = i;
	for (int32_t i = 0; i < stages && status == BETON_OK; i++)
		if (r->schedule->rank_of_stage[i] == rank)
			status = cut(r, first, i, &graphs[r->count], err);
	for (int32_t i = 0; i < r->count && status == BETON_OK; i++)
		status = dtrain_graph_compile(&graphs[i], &r->chunks[i].program, err);
	for (int32_t i = 0; graphs && i < stages; i++)
		dtrain_graph_destroy(&graphs[i]);
	free(first);
	free(graphs);
	return status == BETON_OK ? dtrain_params_initialize(r->params, 1, r->stream, err) : status;
}

static int open_rank(pipeline_rank *r, dtrain_group *ranks, const dtrain_pipeline_options *options, beton_error *err)
{
	const dtrain_mesh_axis axis = {.name = "pipeline", .size = dtrain_group_size(ranks)};
	int status = open_slow_device(&r->device, err);
	if (status == BETON_OK)
		status = dtrain_device_get_api(r->device)->stream_create(r->device, &r->stream, err);
	if (status == BETON_OK)
		status = dtrain_mesh_create(ranks, &axis, 1, &r->mesh, err);
	if (status == BETON_OK)
		status = dtrain_params_create(r->device, DTRAIN_F32, &r->params, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_schedule_create(options, &r->schedule, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_schedule_lower(r->schedule, err);
	if (status == BETON_OK)
		status = make_programs(r, dtrain_group_rank(ranks), err);
	if (status == BETON_OK)
		status = dtrain_pipeline_create(r->mesh, r->schedule, r->chunks, r->count, &r->pipeline, err);
	if (status == BETON_OK)
		status = dtrain_pipeline_record_times(r->pipeline, err);
	if (status != BETON_OK)
		return status;
	r->times = calloc((size_t)dtrain_pipeline_actions(r->pipeline), sizeof(*r->times));
	return r->times ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory for the times of a step");
}

static void close_rank(pipeline_rank *r)
{
	dtrain_pipeline_destroy(&r->pipeline);
	for (int32_t i = 0; i < r->count; i++) {
		dtrain_program_destroy(&r->chunks[i].program);
		dtrain_stage_destroy(&r->stages[i]);
	}
	dtrain_pipeline_schedule_destroy(&r->schedule);
	dtrain_params_destroy(&r->params);
	dtrain_mesh_destroy(&r->mesh);
	if (r->stream)
		dtrain_device_get_api(r->device)->stream_destroy(r->stream);
	dtrain_device_close(&r->device);
	free(r->chunks);
	free(r->stages);
	free(r->times);
}

/* ---- steps ---- */

/* Each rank's part of a step; all ranks have the same clock. */
typedef struct rank_report {
	double first_ns, last_ns, busy_ns, live, kept;
} rank_report;

enum { NUMBERS = sizeof(rank_report) / sizeof(double) };

static bool computes(dtrain_action_kind kind)
{
	return kind <= DTRAIN_ACTION_WEIGHT_GRADIENT;
}

static int report(const pipeline_rank *r, rank_report *out, beton_error *err)
{
	uint64_t began;
	double live = 0;
	int status = dtrain_pipeline_get_times(r->pipeline, r->times, &began, err);
	*out = (rank_report){.kept = dtrain_pipeline_live(r->pipeline)};
	for (int32_t i = 0; i < dtrain_pipeline_actions(r->pipeline) && status == BETON_OK; i++) {
		const dtrain_pipeline_time *time = &r->times[i];
		if (!computes(time->action.kind))
			continue;
		const dtrain_action_kind kind = time->action.kind;
		live += kind == DTRAIN_ACTION_FORWARD;
		out->live = live > out->live ? live : out->live;
		live -= kind == DTRAIN_ACTION_BACKWARD || kind == DTRAIN_ACTION_WEIGHT_GRADIENT;
		if (out->last_ns == 0)
			out->first_ns = (double)began + 1e6 * time->ready_ms;
		out->last_ns = (double)began + 1e6 * time->end_ms;
		out->busy_ns += 1e6 * (time->end_ms - time->ready_ms);
	}
	return status;
}

static int run_step(pipeline_rank *r, dtrain_group *ranks, rank_report *all, beton_error *err)
{
	rank_report mine;
	dtrain_work *work = NULL;
	int status = dtrain_barrier(ranks, &work, err);
	if (status == BETON_OK)
		status = dtrain_work_wait(&work, err);
	for (int32_t m = 0; m < r->schedule->micro_batches && status == BETON_OK; m++)
		status = dtrain_pipeline_run(r->pipeline, r->stream, m, err);
	if (status == BETON_OK)
		status = dtrain_device_get_api(r->device)->stream_synchronize(r->stream, err);
	if (status == BETON_OK)
		status = report(r, &mine, err);
	if (status == BETON_OK)
		status = dtrain_all_gather(ranks, all, &mine, NUMBERS, DTRAIN_F64, NULL, &work, err);
	return status == BETON_OK ? dtrain_work_wait(&work, err) : status;
}

/* The makespan in nanoseconds; *idle: of it, over all ranks. */
static double span_of(const rank_report *all, int ranks, double *idle)
{
	double first = all[0].first_ns, last = all[0].last_ns, busy = 0;
	for (int i = 0; i < ranks; i++) {
		first = all[i].first_ns < first ? all[i].first_ns : first;
		last = all[i].last_ns > last ? all[i].last_ns : last;
		busy += all[i].busy_ns;
	}
	*idle = 1 - busy / ranks / (last - first);
	return last - first;
}

typedef struct step_figure {
	double span, idle;
} step_figure;

static int by_span(const void *a, const void *b)
{
	double x = ((const step_figure *)a)->span, y = ((const step_figure *)b)->span;
	return (x > y) - (x < y);
}

static int run_steps(pipeline_rank *r, dtrain_group *ranks, int steps, rank_report *all, step_figure *found,
		     beton_error *err)
{
	int status = run_step(r, ranks, all, err);
	for (int i = 0; i < steps && status == BETON_OK; i++) {
		status = run_step(r, ranks, all, err);
		if (status == BETON_OK)
			found[i].span = span_of(all, dtrain_group_size(ranks), &found[i].idle);
	}
	return status;
}

static int compare_live(const dtrain_pipeline_options *schedule, const rank_report *all, pipeline_figure *out,
			beton_error *err)
{
	double makespan;
	int32_t *expected = calloc((size_t)schedule->ranks, sizeof(*expected));
	int status = expected ? dtrain_pipeline_predict(schedule, &makespan, expected, err)
			      : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	for (int32_t i = 0; i < schedule->ranks && status == BETON_OK; i++)
		if (i == 0 || (out->live == out->expected && (int32_t)all[i].live != expected[i])) {
			out->live = (int32_t)all[i].live;
			out->expected = expected[i];
		}
	out->kept = (int32_t)all[0].kept;
	free(expected);
	return status;
}

int pipeline_measure(dtrain_group *ranks, const dtrain_pipeline_options *schedule, double ms, int steps,
		     pipeline_figure *out, beton_error *err)
{
	pipeline_rank r = {0};
	rank_report *all = calloc((size_t)schedule->ranks, sizeof(*all));
	step_figure *found = calloc((size_t)steps, sizeof(*found));
	*out = (pipeline_figure){0};
	int status = all && found ? open_rank(&r, ranks, schedule, err)
				  : bt_fail(err, BETON_NO_MEMORY, "out of memory for %d steps", steps);
	if (status == BETON_OK) {
		product_ns = (uint64_t)(1e6 * ms * schedule->ranks / r.schedule->stages);
		status = run_steps(&r, ranks, steps, all, found, err);
	}
	if (status == BETON_OK) {
		qsort(found, (size_t)steps, sizeof(*found), by_span);
		out->makespan = found[steps / 2].span / (1e6 * ms);
		out->idle = found[steps / 2].idle;
	}
	if (status == BETON_OK)
		status = compare_live(schedule, all, out, err);
	close_rank(&r);
	free(all);
	free(found);
	return status;
}
