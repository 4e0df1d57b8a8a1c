/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks of a pipeline: messages of 8 bytes and of 64 MiB, more than any socket buffers, in both directions at once;
 * and a parameter of both stages, which keeps the same bits on both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/optimizer.h>
#include <dtrain/pipeline_run.h>
#include <dtrain/sync.h>

#include "training.h"

enum { MICRO_BATCHES = 3 };

static beton_error err;

/* rows x width elements cross the border. */
typedef struct example {
	const char *name;
	int64_t rows, width;
	bool tied; /* the embedding of stage 0 is the head of stage 1 */
	int steps;
} example;

static const example examples[] = {
	{"bytes", 1, 2, false, 3}, {"mebibytes", 4096, 4096, false, 1}, {"tied", 6, 8, true, 100}};
enum { EXAMPLES = sizeof(examples) / sizeof(examples[0]), TOKENS = 11 };

/* A rank's stage, or the whole model. */
typedef struct model {
	dtrain_params *params;
	dtrain_sync *sync;
	dtrain_stage *stage;
	dtrain_program *program;
	dtrain_tensor x, label; /* -1: of another stage */
} model;

static dtrain_tensor build_tied(dtrain_graph *graph, const example *e, dtrain_tensor x, dtrain_tensor label)
{
	const dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){TOKENS, e->width});
	dtrain_tensor w = dtrain_graph_parameter(graph, "w", &shape, DTRAIN_INIT_LINEAR_UNIFORM, e->width);
	dtrain_tensor y = dtrain_linear(graph, "a", dtrain_embedding(graph, w, x), e->width);
	dtrain_graph_next_block(graph);
	y = dtrain_linear(graph, "b", dtrain_relu(graph, y), e->width);
	return dtrain_softmax_cross_entropy(graph, dtrain_linear_of(graph, y, w, -1, false), label, 0);
}

static dtrain_tensor build_wide(dtrain_graph *graph, const example *e, dtrain_tensor x, dtrain_tensor label)
{
	dtrain_tensor y = dtrain_linear(graph, "a", x, e->width);
	dtrain_graph_next_block(graph);
	return dtrain_squared_error(graph, dtrain_linear(graph, "b", dtrain_relu(graph, y), 1), label);
}

static dtrain_graph *build(dtrain_params *params, const example *e, model *m, dtrain_tensor *loss)
{
	const dtrain_shape tokens = dtrain_shape_of(1, (int64_t[]){e->rows});
	const dtrain_shape numbers = dtrain_shape_of(2, (int64_t[]){e->rows, 1});
	const dtrain_shape *shape = e->tied ? &tokens : &numbers;
	const dtrain_dtype dtype = e->tied ? DTRAIN_I64 : DTRAIN_F32;
	dtrain_graph *graph;
	MUST(dtrain_graph_create(params, true, &graph, &err));
	m->x = dtrain_graph_input(graph, "x", dtype, shape);
	m->label = dtrain_graph_input(graph, "label", dtype, shape);
	*loss = dtrain_mean(graph, (e->tied ? build_tied : build_wide)(graph, e, m->x, m->label));
	return graph;
}

static void open_whole(model *m, const example *e, dtrain_device *device, dtrain_stream *stream)
{
	dtrain_tensor loss;
	*m = (model){0};
	MUST(dtrain_params_create(device, DTRAIN_F32, &m->params, &err));
	dtrain_graph *graph = build(m->params, e, m, &loss);
	dtrain_graph_backward(graph, loss);
	MUST(dtrain_graph_compile(&graph, &m->program, &err));
	MUST(dtrain_params_initialize(m->params, 3, stream, &err));
}

static void open_stage(model *m, const example *e, dtrain_mesh *mesh, int number, dtrain_device *device,
		       dtrain_stream *stream)
{
	dtrain_params *outline;
	dtrain_tensor loss;
	dtrain_sync_options options;
	*m = (model){0};
	dtrain_sync_options_init(&options);
	options.accumulates = true;
	MUST(dtrain_params_create(device, DTRAIN_F32, &m->params, &err));
	MUST(dtrain_sync_create(m->params, mesh, &options, &m->sync, &err));
	MUST(dtrain_params_create_outline(m->params, &outline, &err));
	dtrain_graph *whole = build(outline, e, m, &loss), *graph;
	MUST(dtrain_stage_create(whole, (int32_t[]){0, 1}, 2, number, m->params, &m->stage, &err));
	m->x = dtrain_stage_tensor(m->stage, m->x);
	m->label = dtrain_stage_tensor(m->stage, m->label);
	dtrain_stage_backward(m->stage, loss);
	graph = dtrain_stage_take_graph(m->stage);
	dtrain_graph_destroy(&whole);
	dtrain_params_destroy(&outline);
	MUST(dtrain_sync_compile(m->sync, &graph, &m->program, &err));
	MUST(dtrain_params_initialize(m->params, 3, stream, &err));
	MUST(dtrain_sync_start(m->sync, &err));
}

static void close_model(model *m)
{
	if (m->sync)
		dtrain_sync_stop(m->sync);
	dtrain_program_destroy(&m->program);
	dtrain_stage_destroy(&m->stage);
	dtrain_sync_destroy(&m->sync);
	dtrain_params_destroy(&m->params);
}

/* Fills the inputs of a stage's micro-batch; pipeline NULL: of the program. They are the same in all steps and
 * micro-batches, so that the gradients of a step are MICRO_BATCHES times one's. */
static void fill_inputs(const example *e, const model *m, const dtrain_pipeline *pipeline, int stage, int micro_batch)
{
	const dtrain_tensor tensors[] = {m->x, m->label};
	for (int k = 0; k < 2; k++)
		for (int64_t i = 0; i < e->rows && tensors[k] >= 0; i++) {
			void *to = pipeline ? dtrain_pipeline_input(pipeline, stage, micro_batch, tensors[k])
					    : dtrain_program_data(m->program, tensors[k]);
			if (e->tied)
				((int64_t *)to)[i] = (i * 3 + k) % TOKENS;
			else
				((float *)to)[i] = (float)((i + k) % 5) / 4;
		}
}

static const dtrain_param *find_param(const dtrain_params *params, const char *name)
{
	for (int i = 0; i < dtrain_params_count(params); i++)
		if (strcmp(dtrain_params_at(params, i)->name, name) == 0)
			return dtrain_params_at(params, i);
	return NULL;
}

/* Gradients of three equal micro-batches: rounding apart three times the whole model's. */
static void expect_gradients(const model *own, const model *whole)
{
	const float *got = dtrain_params_grads(own->params), *right = dtrain_params_grads(whole->params);
	for (int i = 0; i < dtrain_params_count(own->params); i++) {
		const dtrain_param *param = dtrain_params_at(own->params, i);
		const dtrain_param *same = find_param(whole->params, param->name);
		REQUIRE(same && same->count == param->count);
		for (int64_t k = 0; k < param->count; k++) {
			const float a = got[param->offset + k], b = MICRO_BATCHES * right[same->offset + k];
			const float size = b < 0 ? -b : b;
			REQUIRE(a - b <= 1e-5f * size + 1e-7f && b - a <= 1e-5f * size + 1e-7f);
		}
	}
}

static void expect_same_bits(struct rank *r, const model *own)
{
	const dtrain_param *w = find_param(own->params, "w");
	dtrain_work *work = NULL;
	float *both = calloc((size_t)w->count * 2, sizeof(*both));
	const float *mine = (const float *)dtrain_params_values(own->params) + w->offset;
	REQUIRE(both != NULL);
	MUST(dtrain_all_gather(r->group, both, mine, w->count, DTRAIN_F32, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	REQUIRE(memcmp(both, both + w->count, (size_t)w->count * sizeof(*both)) == 0);
	free(both);
}

static void open_optimizer(const model *own, dtrain_optimizer **out)
{
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.kind = "adamw";
	options.grad_divisor = MICRO_BATCHES;
	options.clip_norm = 0.1;
	options.add_model = dtrain_sync_add_model;
	options.add_context = own->sync;
	MUST(dtrain_optimizer_create(own->params, &options, out, &err));
}

static void run_steps(struct rank *r, const example *e, model *own, dtrain_pipeline *pipeline, dtrain_stream *stream)
{
	const dtrain_device_api *api = dtrain_device_get_api(dtrain_params_device(own->params));
	dtrain_optimizer *optimizer;
	open_optimizer(own, &optimizer);
	float *before = NULL;
	for (int step = 0; step < e->steps; step++) {
		for (int m = 0; m < MICRO_BATCHES; m++) {
			fill_inputs(e, own, pipeline, r->rank, m);
			MUST(dtrain_pipeline_run(pipeline, stream, m, &err));
		}
		MUST(api->stream_synchronize(stream, &err));
		if (e->tied && step == 0) {
			const dtrain_param *w = find_param(own->params, "w");
			before = malloc((size_t)w->count * sizeof(*before));
			REQUIRE(before != NULL);
			memcpy(before, (const float *)dtrain_params_values(own->params) + w->offset,
			       (size_t)w->count * sizeof(*before));
		}
		if (e->tied)
			MUST(dtrain_optimizer_step(optimizer, 0.01, stream, &err));
	}
	MUST(api->stream_synchronize(stream, &err));
	if (e->tied) {
		const dtrain_param *w = find_param(own->params, "w");
		const float *now = (const float *)dtrain_params_values(own->params) + w->offset;
		for (int64_t i = 0; i < w->count; i++)
			REQUIRE(now[i] != before[i]);
		expect_same_bits(r, own);
	}
	free(before);
	dtrain_optimizer_destroy(&optimizer);
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
	const example *e = examples;
	while (strcmp(e->name, r->mode) != 0)
		REQUIRE(++e < examples + EXAMPLES);
	open_device(&device, &stream);
	MUST(dtrain_mesh_create(r->group, (dtrain_mesh_axis[]){{"pipeline", 2}}, 1, &mesh, &err));
	open_stage(&own, e, mesh, r->rank, device, stream);
	dtrain_pipeline_options_init(&options);
	options.ranks = 2;
	options.micro_batches = MICRO_BATCHES;
	MUST(dtrain_pipeline_schedule_create(&options, &schedule, &err));
	MUST(dtrain_pipeline_schedule_lower(schedule, &err));
	MUST(dtrain_pipeline_create(mesh, schedule, &(dtrain_pipeline_stage){r->rank, own.stage, own.program}, 1,
				    &pipeline, &err));
	dtrain_pipeline_schedule_destroy(&schedule);
	run_steps(r, e, &own, pipeline, stream);
	dtrain_pipeline_destroy(&pipeline);
	if (!e->tied) {
		open_whole(&whole, e, device, stream);
		fill_inputs(e, &whole, NULL, 0, 0);
		MUST(dtrain_program_run(whole.program, stream, 0, 1, &err));
		expect_gradients(&own, &whole);
		close_model(&whole);
	}
	close_model(&own);
	dtrain_mesh_destroy(&mesh);
	return 0;
}

static void messages_of_any_size_arrive(void **state)
{
	(void)state;
	run_ranks("bytes", 2);
	run_ranks("mebibytes", 2);
}

static void a_parameter_of_two_stages_has_the_same_bits_after_100_steps(void **state)
{
	(void)state;
	run_ranks("tied", 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(messages_of_any_size_arrive),
		cmocka_unit_test(a_parameter_of_two_stages_has_the_same_bits_after_100_steps)};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests_name("pipeline_messages", tests, NULL, NULL);
}
