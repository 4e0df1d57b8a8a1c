/* SPDX-License-Identifier: Apache-2.0
 *
 * Eight ranks, two along each of the axes pipeline, replicate and tensor, run a step of a GPT. Each axis sends the
 * bytes of its formula, counted in the histories of its groups: gradients P, tensor parallelism four sums of n h
 * numbers a layer and micro-batch, and the borders of stages n h numbers a micro-batch each way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/pipeline_run.h>
#include <dtrain/sync.h>
#include <dtrain/transformer.h>

#include "parallel/mesh.h"
#include "training.h"

enum { LAYERS = 6, WIDTH = 48, LENGTH = 16, MICRO_BATCHES = 3, AXIS = 2, FLOAT = 4 };

static beton_error err;

typedef struct model {
	dtrain_params *params;
	dtrain_sync *sync;
	dtrain_stage *stage;
	dtrain_program *program;
} model;

static dtrain_graph *build(dtrain_params *params, dtrain_tensor *loss)
{
	const dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){1, LENGTH});
	dtrain_transformer gpt;
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_loss_options options;
	dtrain_graph *graph;
	dtrain_transformer_init(&gpt);
	gpt.layers = LAYERS;
	gpt.width = WIDTH;
	gpt.heads = gpt.kv_heads = 4;
	gpt.head_size = WIDTH / 4;
	gpt.inner = 4 * WIDTH;
	gpt.vocabulary = 101;
	gpt.positions = LENGTH;
	gpt.tied = false;
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	dtrain_loss_options_init(&options);
	MUST(dtrain_graph_create(params, true, &graph, &err));
	inputs.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &shape);
	dtrain_tensor label = dtrain_graph_input(graph, "label", DTRAIN_I64, &shape);
	dtrain_transformer_build(graph, &gpt, &inputs, &outputs);
	*loss = dtrain_mean(graph, dtrain_transformer_losses(graph, &outputs, label, &options));
	return graph;
}

static void open_stage(model *m, const dtrain_mesh *mesh, int number, dtrain_device *device, dtrain_stream *stream)
{
	dtrain_params *outline;
	dtrain_tensor loss;
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.accumulates = true;
	MUST(dtrain_params_create(device, DTRAIN_F32, &m->params, &err));
	MUST(dtrain_sync_create(m->params, mesh, &options, &m->sync, &err));
	MUST(dtrain_params_create_outline(m->params, &outline, &err));
	dtrain_graph *whole = build(outline, &loss), *graph;
	/* A block for the table, one for each layer, and one for the head. */
	MUST(dtrain_stage_create(whole, (int32_t[]){0, LAYERS / 2 + 1}, AXIS, number, m->params, &m->stage, &err));
	dtrain_stage_backward(m->stage, loss);
	graph = dtrain_stage_take_graph(m->stage);
	dtrain_graph_destroy(&whole);
	dtrain_params_destroy(&outline);
	MUST(dtrain_sync_compile(m->sync, &graph, &m->program, &err));
	MUST(dtrain_params_initialize(m->params, 3, stream, &err));
	MUST(dtrain_sync_start(m->sync, &err));
}

static void close_stage(model *m)
{
	dtrain_sync_stop(m->sync);
	dtrain_program_destroy(&m->program);
	dtrain_stage_destroy(&m->stage);
	dtrain_sync_destroy(&m->sync);
	dtrain_params_destroy(&m->params);
}

/* ---- counting ---- */

static dtrain_record records[DTRAIN_HISTORY_LENGTH];

static uint64_t last_number(dtrain_group *group)
{
	const int count = dtrain_group_history(group, records, DTRAIN_HISTORY_LENGTH);
	return count ? records[count - 1].number : 0;
}

/* Bytes that this rank has sent since then, if each operation sends as few as possible. Step metrics are left out. */
static double sent_since(dtrain_group *group, uint64_t number)
{
	const double ranks = dtrain_group_size(group);
	const int count = dtrain_group_history(group, records, DTRAIN_HISTORY_LENGTH);
	double sent = 0;
	for (int i = 0; i < count; i++) {
		const double bytes = (double)records[i].bytes;
		if (records[i].number <= number || records[i].count == DTRAIN_STEP_METRICS)
			continue;
		if (strcmp(records[i].kind, "allreduce") == 0)
			sent += 2 * (ranks - 1) / ranks * bytes;
		else if (strcmp(records[i].kind, "all_gather") == 0)
			sent += (ranks - 1) * bytes;
		else if (strcmp(records[i].kind, "send") == 0)
			sent += bytes;
		else
			REQUIRE(strcmp(records[i].kind, "recv") == 0);
	}
	return sent;
}

/* Parameters have padding; the formula has none. */
static void expect_sent(const char *axis, double counted, double formula, double padding)
{
	printf("# %s: %.0f bytes, by formula %.0f\n", axis, counted, formula);
	REQUIRE(counted >= formula && counted <= formula + padding);
}

static void run_step(dtrain_pipeline *pipeline, dtrain_stream *stream, const dtrain_device_api *api)
{
	for (int m = 0; m < MICRO_BATCHES; m++)
		MUST(dtrain_pipeline_run(pipeline, stream, m, &err));
	MUST(api->stream_synchronize(stream, &err));
}

static double elements_of(const dtrain_params *params)
{
	double elements = 0;
	for (int i = 0; i < dtrain_params_count(params); i++)
		elements += (double)dtrain_params_at(params, i)->count;
	return elements;
}

static void count_step(const dtrain_mesh *mesh, const model *m, dtrain_pipeline *pipeline, dtrain_stream *stream,
		       const dtrain_device_api *api)
{
	dtrain_group *groups[] = {dtrain_mesh_group(mesh, "tensor"), dtrain_mesh_group(mesh, "replicate"),
				  dtrain__mesh_get_lane(mesh, DTRAIN__LANE_FORWARD),
				  dtrain__mesh_get_lane(mesh, DTRAIN__LANE_BACKWARD)};
	const int stage = dtrain_group_rank(dtrain_mesh_group(mesh, "pipeline"));
	uint64_t before[4];
	double sent[4];
	for (int i = 0; i < 4; i++)
		before[i] = last_number(groups[i]);
	run_step(pipeline, stream, api);
	for (int i = 0; i < 4; i++)
		sent[i] = sent_since(groups[i], before[i]);
	/* Stage 0 adds up the table's rows forward, stage 1 the gradient of the head's input, and gathers three numbers
	 * of each row. */
	const double array = FLOAT * LENGTH * WIDTH, sums = (4 * LAYERS / 2 + 1) * array;
	const double numbers = stage == 1 ? FLOAT * 3 * LENGTH : 0;
	const double share = 2 * (AXIS - 1.0) / AXIS;
	expect_sent("tensor", sent[0], MICRO_BATCHES * (share * sums + (AXIS - 1) * numbers), 0);
	const double padding = FLOAT * (double)DTRAIN_PARAM_ALIGN *
			       (dtrain_params_count(m->params) + dtrain_params_unit_count(m->params));
	expect_sent("replicate", sent[1], share * FLOAT * elements_of(m->params), share * padding);
	expect_sent("pipeline, activations", sent[2], stage == 0 ? MICRO_BATCHES * array : 0, 0);
	expect_sent("pipeline, gradients", sent[3], stage == 1 ? MICRO_BATCHES * array : 0, 0);
	/* The plan says the same. */
	dtrain_sync_info info = {.struct_size = sizeof(info)};
	dtrain_sync_get_info(m->sync, MICRO_BATCHES, &info);
	REQUIRE((double)info.exchanged == sent[0]);
	REQUIRE((double)info.added_up == sent[1] + share * FLOAT * DTRAIN_STEP_METRICS);
}

static int rank_main(struct rank *r)
{
	const dtrain_mesh_axis axes[] = {{"pipeline", AXIS}, {"replicate", AXIS}, {"tensor", AXIS}};
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_mesh *mesh;
	dtrain_pipeline_options options;
	dtrain_pipeline_schedule *schedule;
	dtrain_pipeline *pipeline;
	model m = {0};
	open_device(&device, &stream);
	MUST(dtrain_mesh_create(r->group, axes, 3, &mesh, &err));
	const int stage = dtrain_group_rank(dtrain_mesh_group(mesh, "pipeline"));
	open_stage(&m, mesh, stage, device, stream);
	dtrain_pipeline_options_init(&options);
	options.ranks = AXIS;
	options.micro_batches = MICRO_BATCHES;
	MUST(dtrain_pipeline_schedule_create(&options, &schedule, &err));
	MUST(dtrain_pipeline_schedule_lower(schedule, &err));
	MUST(dtrain_pipeline_create(mesh, schedule, &(dtrain_pipeline_stage){stage, m.stage, m.program}, 1, &pipeline,
				    &err));
	dtrain_pipeline_schedule_destroy(&schedule);
	run_step(pipeline, stream, dtrain_device_get_api(device));
	count_step(mesh, &m, pipeline, stream, dtrain_device_get_api(device));
	dtrain_pipeline_destroy(&pipeline);
	close_stage(&m);
	dtrain_mesh_destroy(&mesh);
	return 0;
}

static void each_axis_sends_what_its_formula_says(void **state)
{
	(void)state;
	run_ranks("axes", AXIS * AXIS * AXIS);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_axis_sends_what_its_formula_says)};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests_name("axis_traffic", tests, NULL, NULL);
}
