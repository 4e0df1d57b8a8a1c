/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks run a pipeline of two stages through its public functions: gradients are a whole model's, step after step,
 * and a micro-batch out of its order is refused without harm to the step. The times of the actions are in the order of
 * the schedule, and no stage is ready before the other one has made its messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/pipeline_run.h>

#include "training.h"

enum { ROWS = 3, WIDTH = 5, MICRO_BATCHES = 3 };

static beton_error err;

/* The rank's stage, or the whole model. */
typedef struct model {
	dtrain_params *params;
	dtrain_stage *stage; /* NULL: the whole */
	dtrain_program *program;
	dtrain_tensor x; /* -1: of another stage */
} model;

static dtrain_graph *build(dtrain_params *params, dtrain_tensor *x, dtrain_tensor *loss)
{
	const dtrain_shape rows = dtrain_shape_of(2, (int64_t[]){ROWS, WIDTH});
	dtrain_graph *graph;
	MUST(dtrain_graph_create(params, true, &graph, &err));
	*x = dtrain_graph_input(graph, "x", DTRAIN_F32, &rows);
	dtrain_tensor y = dtrain_relu(graph, dtrain_linear(graph, "a", *x, WIDTH));
	dtrain_graph_next_block(graph);
	*loss = dtrain_mean(graph, dtrain_squared_error(graph, dtrain_linear(graph, "b", y, WIDTH), y));
	dtrain_graph_keep(graph, *loss);
	return graph;
}

static void open_whole(model *m, dtrain_device *device, dtrain_stream *stream)
{
	dtrain_tensor loss;
	MUST(dtrain_params_create(device, DTRAIN_F32, &m->params, &err));
	dtrain_graph *graph = build(m->params, &m->x, &loss);
	m->stage = NULL;
	dtrain_graph_backward(graph, loss);
	MUST(dtrain_graph_compile(&graph, &m->program, &err));
	MUST(dtrain_params_initialize(m->params, 3, stream, &err));
}

static void open_stage(model *m, int number, dtrain_device *device, dtrain_stream *stream)
{
	dtrain_params *outline;
	dtrain_tensor x, loss;
	MUST(dtrain_params_create(device, DTRAIN_F32, &m->params, &err));
	MUST(dtrain_params_create_outline(m->params, &outline, &err));
	dtrain_graph *whole = build(outline, &x, &loss), *graph;
	MUST(dtrain_stage_create(whole, (int32_t[]){0, 1}, 2, number, m->params, &m->stage, &err));
	m->x = dtrain_stage_tensor(m->stage, x);
	dtrain_stage_backward(m->stage, loss);
	graph = dtrain_stage_take_graph(m->stage);
	dtrain_graph_bind_inputs(graph);
	dtrain_graph_share_scratch(graph);
	dtrain_graph_destroy(&whole);
	dtrain_params_destroy(&outline);
	MUST(dtrain_graph_compile(&graph, &m->program, &err));
	MUST(dtrain_params_initialize(m->params, 3, stream, &err));
}

static void close_model(model *m)
{
	dtrain_program_destroy(&m->program);
	dtrain_stage_destroy(&m->stage);
	dtrain_params_destroy(&m->params);
}

static void fill_rows(float *x, int step, int micro_batch)
{
	for (int i = 0; i < ROWS * WIDTH; i++)
		x[i] = (float)((i * 7 + step * 5 + micro_batch * 3) % 11) / 4 - 1;
}

/* Without dtrain_sync the gradients are the last micro-batch's. */
static void expect_gradients(const model *own, const model *whole)
{
	const float *got = dtrain_params_grads(own->params), *right = dtrain_params_grads(whole->params);
	for (int i = 0; i < dtrain_params_count(own->params); i++) {
		const dtrain_param *param = dtrain_params_at(own->params, i), *same = NULL;
		for (int k = 0; k < dtrain_params_count(whole->params) && !same; k++)
			if (strcmp(dtrain_params_at(whole->params, k)->name, param->name) == 0)
				same = dtrain_params_at(whole->params, k);
		REQUIRE(same && same->count == param->count);
		REQUIRE(memcmp(got + param->offset, right + same->offset, (size_t)param->count * sizeof(float)) == 0);
	}
}

static void run_step(dtrain_pipeline *pipeline, const model *own, int number, int step, dtrain_stream *stream)
{
	for (int m = 0; m < MICRO_BATCHES; m++) {
		for (int wrong = -1; wrong <= MICRO_BATCHES; wrong++)
			if (wrong != m) {
				REQUIRE(dtrain_pipeline_run(pipeline, stream, wrong, &err) == BETON_STATE);
				REQUIRE(strstr(err.message, "is not the next one"));
			}
		if (own->x >= 0)
			fill_rows(dtrain_pipeline_input(pipeline, number, m, own->x), step, m);
		MUST(dtrain_pipeline_run(pipeline, stream, m, &err));
	}
}

/* ---- times ---- */

/* Nanoseconds of the host's clock, which both ranks have. */
typedef struct action_times {
	dtrain_action action;
	double ready, end;
} action_times;

enum { MOST_ACTIONS = 32 };

static int read_times(const dtrain_pipeline *pipeline, action_times *out)
{
	dtrain_pipeline_time times[MOST_ACTIONS];
	uint64_t began;
	int32_t count = dtrain_pipeline_actions(pipeline);
	REQUIRE(count <= MOST_ACTIONS);
	MUST(dtrain_pipeline_get_times(pipeline, times, &began, &err));
	for (int32_t i = 0; i < count; i++) {
		REQUIRE(times[i].begin_ms <= times[i].ready_ms && times[i].ready_ms <= times[i].end_ms);
		REQUIRE(times[i].begin_ms >= (i ? times[i - 1].end_ms : 0));
		out[i] = (action_times){.action = times[i].action,
					.ready = (double)began + 1e6 * times[i].ready_ms,
					.end = (double)began + 1e6 * times[i].end_ms};
	}
	return count;
}

static const action_times *find_action(const action_times *times, dtrain_action action)
{
	int i = 0;
	while (times[i].action.kind != action.kind || times[i].action.stage != action.stage ||
	       times[i].action.micro_batch != action.micro_batch)
		REQUIRE(++i < 2 * MOST_ACTIONS);
	return &times[i];
}

static void expect_order_of_times(struct rank *r, const dtrain_pipeline *pipeline)
{
	action_times mine[MOST_ACTIONS] = {0}, all[2 * MOST_ACTIONS];
	dtrain_work *work = NULL;
	REQUIRE(read_times(pipeline, mine) > 0);
	MUST(dtrain_all_gather(r->group, all, mine, (int64_t)sizeof(mine), DTRAIN_U8, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	for (int32_t m = 0; m < MICRO_BATCHES; m++) {
		REQUIRE(find_action(all, (dtrain_action){DTRAIN_ACTION_FORWARD, 0, m})->end <=
			find_action(all, (dtrain_action){DTRAIN_ACTION_FORWARD, 1, m})->ready);
		REQUIRE(find_action(all, (dtrain_action){DTRAIN_ACTION_BACKWARD, 1, m})->end <=
			find_action(all, (dtrain_action){DTRAIN_ACTION_BACKWARD, 0, m})->ready);
	}
}

static int rank_main(struct rank *r)
{
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_mesh *mesh;
	dtrain_pipeline_options options;
	dtrain_pipeline_schedule *schedule;
	dtrain_pipeline *pipeline;
	model whole, own;
	open_device(&device, &stream);
	MUST(dtrain_mesh_create(r->group, (dtrain_mesh_axis[]){{"pipeline", 2}}, 1, &mesh, &err));
	open_whole(&whole, device, stream);
	open_stage(&own, r->rank, device, stream);
	dtrain_pipeline_options_init(&options);
	options.schedule = r->mode;
	options.ranks = 2;
	options.micro_batches = MICRO_BATCHES;
	MUST(dtrain_pipeline_schedule_create(&options, &schedule, &err));
	MUST(dtrain_pipeline_schedule_lower(schedule, &err));
	MUST(dtrain_pipeline_create(mesh, schedule, &(dtrain_pipeline_stage){r->rank, own.stage, own.program}, 1,
				    &pipeline, &err));
	dtrain_pipeline_schedule_destroy(&schedule);
	MUST(dtrain_pipeline_record_times(pipeline, &err));
	REQUIRE(dtrain_pipeline_get_times(pipeline, &(dtrain_pipeline_time){0}, &(uint64_t){0}, &err) == BETON_STATE);
	/* Steps go on op by op. */
	REQUIRE(dtrain_pipeline_capture(pipeline, &err) == BETON_UNSUPPORTED);
	REQUIRE(strstr(err.message, "has no captures"));
	for (int step = 0; step < 2; step++) {
		run_step(pipeline, &own, r->rank, step, stream);
		fill_rows(dtrain_program_data(whole.program, whole.x), step, MICRO_BATCHES - 1);
		MUST(dtrain_program_run(whole.program, stream, 0, 1, &err));
		MUST(dtrain_device_get_api(device)->stream_synchronize(stream, &err));
		expect_gradients(&own, &whole);
		expect_order_of_times(r, pipeline);
	}
	dtrain_pipeline_destroy(&pipeline);
	close_model(&own);
	close_model(&whole);
	dtrain_mesh_destroy(&mesh);
	return 0;
}

static void wrong_micro_batches_do_no_harm(void **state)
{
	(void)state;
	run_ranks("gpipe", 2);
	run_ranks("1f1b", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(wrong_micro_batches_do_no_harm)};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests_name("pipeline_run", tests, NULL, NULL);
}
