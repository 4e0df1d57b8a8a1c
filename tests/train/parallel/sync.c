/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain_sync with real processes: units, the handshake, the broadcast, and gradients that are the sum
 * over the ranks and the runs of a step.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <dtrain/model.h>
#include <dtrain/sync.h>

#include "common/half.h"
#include "core/params.h"

#include "tests/train/support/ranks.h"
#include "sync_model.h"

#define LAYERS 6
#define BATCH 4
#define WIDTH 100

static beton_error err;

static void open_model(sync_model *model, dtrain_mesh *mesh, const dtrain_sync_options *options, int64_t width,
		       int layers)
{
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	MUST(dtrain_device_get_api(device)->stream_create(device, &stream, &err));
	sync_model_open(model, device, stream, mesh, options, width, layers);
}

static void close_model(sync_model *model)
{
	sync_model_close(model);
	model->api->stream_destroy(model->stream);
	dtrain_device_close(&model->device);
}

static dtrain_sync_options small_units(void)
{
	dtrain_sync_options options;
	dtrain_sync_options_init(&options);
	options.first_unit_bytes = 1000;
	options.unit_bytes = 60000;
	return options;
}

static void rank_adds_up(struct rank *r)
{
	const dtrain_sync_options options = small_units();
	dtrain_sync_step step = {0};
	sync_model model;
	open_model(&model, sync_model_mesh(r->group), &options, 100, LAYERS);
	REQUIRE(dtrain_params_unit_count(model.params) > 3);
	MUST(dtrain_sync_start(model.sync, &err));
	for (int i = 0; i < 5; i++) {
		sync_model_fill(&model, r->rank, i);
		MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
		step = sync_model_times(&model, model.trace);
		sync_model_check(&model, r->size, 1, i, i);
		REQUIRE((step.comm_ms > 0) == (r->size > 1) && (step.backward_ms > 0) == (r->size > 1));
		REQUIRE((step.exposed_ms > 0) == (r->size > 1));
		REQUIRE(dtrain_sync_unit_exposed_ms(model.trace, -1) == 0);
		REQUIRE(dtrain_sync_unit_exposed_ms(model.trace, 1000) == 0);
	}
	close_model(&model);
}

/* Runs that others follow send nothing, and the last one sends as much as a step of one run. */
static void rank_accumulates(struct rank *r)
{
	dtrain_sync_options options = small_units();
	dtrain_sync_step step = {0};
	sync_model model;
	options.accumulates = true;
	open_model(&model, sync_model_mesh(r->group), &options, 100, LAYERS);
	MUST(dtrain_sync_start(model.sync, &err));
	uint64_t bytes = r->size > 1 ? 4 * ((uint64_t)dtrain_params_flat_count(model.params) + DTRAIN_STEP_METRICS) : 0;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 3; i++) {
			sync_model_fill(&model, r->rank, i);
			MUST(dtrain_program_run(model.program, model.stream, i, 4, &err));
			/* The step before is still the last one that ended. */
			MUST(dtrain_sync_get_step(model.trace, &step, &err));
			REQUIRE(step.bytes == (round ? bytes : 0) && (step.exposed_ms > 0) == (step.bytes > 0));
		}
		sync_model_fill(&model, r->rank, 3);
		MUST(dtrain_program_run(model.program, model.stream, 3, 4, &err));
		sync_model_check(&model, r->size, 1, 0, 3);
		REQUIRE(sync_model_times(&model, model.trace).bytes == bytes);
		/* It leaves no trace. */
		sync_model_fill(&model, r->rank, 4);
		MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
		sync_model_check(&model, r->size, 1, 4, 4);
		REQUIRE(sync_model_times(&model, model.trace).bytes == bytes);
	}
	close_model(&model);
}

static void rank_gets_values(struct rank *r)
{
	sync_model model;
	open_model(&model, sync_model_mesh(r->group), NULL, 64, 2);
	float *values = dtrain_params_values(model.params);
	float *fixed = dtrain_params_buffer_at(model.params, 0)->data;
	float *buffer = dtrain_params_buffer_at(model.params, 1)->data;
	int64_t count = dtrain_params_flat_count(model.params);
	for (int64_t i = 0; i < count; i++)
		values[i] = (float)(i % 500 + r->rank * 1000);
	for (int i = 0; i < 64; i++) {
		fixed[i] = (float)(7 * i + r->rank * 1000);
		buffer[i] = (float)(i + r->rank * 1000);
	}
	MUST(dtrain_sync_start(model.sync, &err));
	for (int64_t i = 0; i < count; i++)
		REQUIRE(values[i] == (float)(i % 500));
	for (int i = 0; i < 64; i++)
		REQUIRE(buffer[i] == (float)i && fixed[i] == (float)(7 * i));
	/* Fixed buffers are not read any more. */
	for (int i = 0; i < 64; i++)
		fixed[i] = buffer[i] = (float)(i + r->rank);
	MUST(dtrain_sync_buffers(model.sync, model.stream, &err));
	for (int i = 0; i < 64; i++)
		REQUIRE(fabsf(buffer[i] - (float)i - (float)(r->size - 1) / 2) < 1e-4f &&
			fixed[i] == (float)(i + r->rank));
	close_model(&model);
}

/* The compute copies are of the values that came from rank 0. */
static void rank_gets_copies(struct rank *r)
{
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	dtrain_graph *graph = NULL;
	dtrain_program *program = NULL;
	dtrain_mesh *mesh = sync_model_mesh(r->group);
	dtrain_shape row = dtrain_shape_of(2, (int64_t[]){1, 8});
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	MUST(dtrain_device_get_api(device)->stream_create(device, &stream, &err));
	MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	MUST(dtrain_sync_create(params, mesh, NULL, &sync, &err));
	MUST(dtrain_graph_create(params, true, &graph, &err));
	dtrain_graph_set_dtype(graph, DTRAIN_BF16);
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_BF16, &row), y = dtrain_linear(graph, "fc", x, 8);
	dtrain_graph_backward_from(graph, 1, &y, &x);
	MUST(dtrain_sync_compile(sync, &graph, &program, &err));
	MUST(dtrain_params_initialize(params, (uint64_t)r->rank, stream, &err));
	MUST(dtrain_sync_start(sync, &err));
	REQUIRE(params->copies.memory);
	for (int64_t i = 0; i < params->flat_count; i++)
		REQUIRE(((uint16_t *)params->copies.memory)[i] == bt_bfloat16(((float *)params->values)[i]));
	dtrain_program_destroy(&program);
	dtrain_sync_destroy(&sync);
	dtrain_mesh_destroy(&mesh);
	dtrain_params_destroy(&params);
	dtrain_device_get_api(device)->stream_destroy(stream);
	dtrain_device_close(&device);
}

/* A unit is issued after its last gradient, before that of the next layer. */
static void check_order(const sync_model *model)
{
	char *plan = NULL, wanted[32];
	MUST(dtrain_program_plan(model->program, &plan, &err));
	const char *at = strstr(plan, "metrics");
	for (int i = 0; i < dtrain_params_unit_count(model->params); i++) {
		REQUIRE(at && (at = strstr(at, "linear_bwd_weight")));
		snprintf(wanted, sizeof(wanted), ", bucket %d of %d", i + 1, LAYERS);
		const char *next = strstr(at + 1, "linear_bwd_weight");
		at = strstr(at, wanted);
		REQUIRE(at && (!next || at < next));
	}
	REQUIRE(strstr(at, "wait for metrics") && strstr(at, "wait for bucket 6 of 6"));
	free(plan);
}

static void rank_plans(struct rank *r)
{
	dtrain_sync_options options;
	sync_model model;
	(void)r;
	dtrain_sync_options_init(&options);
	REQUIRE(options.first_unit_bytes == 0 && options.unit_bytes == 0);
	open_model(&model, NULL, NULL, 300, LAYERS);          /* 360,000 bytes a matrix; PyTorch's buckets */
	REQUIRE(dtrain_params_unit_count(model.params) == 2); /* three matrices fill 1 MiB; the rest is below 25 MiB */
	close_model(&model);
	options.first_unit_bytes = options.unit_bytes = 300 * 300 * 4;
	open_model(&model, NULL, &options, 300, LAYERS);
	REQUIRE(dtrain_params_unit_count(model.params) == LAYERS);
	check_order(&model);
	close_model(&model);
}

static int create_with(const char *strategy, bool allocated, int parts)
{
	dtrain_device *device = NULL;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	dtrain_sync_options options;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	if (allocated)
		MUST(dtrain_params_allocate(params, &err));
	dtrain_sync_options_init(&options);
	options.strategy = strategy;
	options.deterministic_shards = parts;
	int status = dtrain_sync_create(params, NULL, &options, &sync, &err);
	REQUIRE((status == BETON_OK) == (sync != NULL));
	dtrain_sync_destroy(&sync);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
	return status;
}

/* Misuse is an error that says what it is; what was there before works on. */
static void rank_misuses(struct rank *r)
{
	sync_model model, other;
	dtrain_graph *graph = NULL;
	dtrain_program *program = NULL;
	dtrain_sync *sync = NULL;
	dtrain_mesh *mesh = NULL;
	REQUIRE(create_with("ddp", false, 0) == BETON_OK && create_with("ddp", true, 0) == BETON_STATE);
	REQUIRE(create_with("none", false, 0) == BETON_INVALID_ARGUMENT &&
		strstr(err.message, "unknown strategy 'none'"));
	REQUIRE(create_with("ddp", false, 4) == BETON_OK && create_with("ddp", false, 6) == BETON_INVALID_ARGUMENT);
	REQUIRE(strstr(err.message, "6 deterministic shards are not a power of two"));
	open_model(&model, sync_model_mesh(r->group), NULL, 32, 2);
	REQUIRE(dtrain_sync_create(model.params, NULL, NULL, &sync, &err) == BETON_STATE);
	sync_model_fill(&model, r->rank, 0);
	MUST(dtrain_graph_create(model.params, true, &graph, &err));
	dtrain_graph_keep(graph,
			  dtrain_linear(graph, "layer0",
					dtrain_graph_input(graph, "x", DTRAIN_F32, &(dtrain_shape){2, {1, 32}}), 32));
	MUST(dtrain_sync_compile(model.sync, &graph, &program, &err));
	dtrain_program_destroy(&program);
	MUST(dtrain_graph_create(model.params, true, &graph, &err));
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &(dtrain_shape){2, {1, 32}});
	dtrain_tensor y = dtrain_linear(graph, "layer0", x, 32);
	dtrain_graph_backward_from(graph, 1, &y, &x);
	REQUIRE(dtrain_sync_compile(model.sync, &graph, &program, &err) == BETON_UNSUPPORTED);
	REQUIRE(strstr(err.message, "same parameters"));
	dtrain_graph_destroy(&graph);
	REQUIRE(dtrain_mesh_create(r->group, &(dtrain_mesh_axis){"other", r->size}, 1, &mesh, &err) ==
		BETON_INVALID_ARGUMENT);
	REQUIRE(!mesh && strstr(err.message, "axis 0 is 'other'; the axes are pipeline, replicate"));
	sync_model_fill(&model, r->rank, 1);
	if (r->size > 1) {
		REQUIRE(dtrain_program_run(model.program, model.stream, 0, 1, &err) == BETON_STATE);
		REQUIRE(strstr(err.message, "before the sync is started"));
	}
	MUST(dtrain_sync_start(model.sync, &err));
	REQUIRE(dtrain_sync_start(model.sync, &err) == BETON_STATE);
	REQUIRE(dtrain_program_run(model.program, model.stream, 0, 2, &err) == BETON_STATE);
	REQUIRE(strstr(err.message, "accumulates"));
	sync_model_fill(&model, r->rank, 1);
	MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
	sync_model_check(&model, r->size, 1, 1, 1);
	open_model(&other, NULL, NULL, 32, 2);
	REQUIRE(dtrain_sync_start(other.sync, &err) == BETON_STATE && strstr(err.message, "without a mesh"));
	MUST(dtrain_graph_create(other.params, true, &graph, &err));
	REQUIRE(dtrain_sync_compile(model.sync, &graph, &program, &err) == BETON_STATE); /* empty */
	dtrain_graph_destroy(&graph);
	close_model(&other);
	close_model(&model);
}

static int rank_differs(struct rank *r)
{
	sync_model model;
	beton_error again;
	open_model(&model, sync_model_mesh(r->group), NULL, 32, r->rank == 2 ? 3 : 2);
	int status = dtrain_sync_start(model.sync, &err);
	fprintf(stderr, "%s\n", err.message);
	/* It is not started, and may be tried again. */
	REQUIRE(dtrain_sync_start(model.sync, &again) == status);
	MUST(dtrain_sync_buffers(model.sync, model.stream, &again));
	close_model(&model);
	return -status;
}

/* A device whose op of that number fails once, or comes late. */
static dtrain_device_api failing;
static const dtrain_device_api *inner;
static int fails_in = -1, late_in = -1;
static long late_us;

static int run_or_fail(dtrain_op *op, dtrain_stream *stream, void *const *operands, void *workspace,
		       beton_error *failure)
{
	if (fails_in >= 0 && fails_in-- == 0) {
		*failure = (beton_error){.code = BETON_DEVICE, .message = "made to fail"};
		return BETON_DEVICE;
	}
	if (late_in >= 0 && late_in-- == 0)
		usleep((useconds_t)late_us);
	return inner->op_run(op, stream, operands, workspace, failure);
}

static void open_failing_device(dtrain_device **device, dtrain_stream **stream)
{
	MUST(dtrain_device_open("ref", NULL, device, &err));
	inner = dtrain_device_get_api(*device);
	failing = *inner;
	failing.op_run = run_or_fail;
	/* Every device begins with its table. */
	memcpy(*device, &(const dtrain_device_api *){&failing}, sizeof(inner));
	MUST(failing.stream_create(*device, stream, &err));
}

static void open_failing_model(sync_model *model, dtrain_mesh *mesh, const dtrain_sync_options *options)
{
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	open_failing_device(&device, &stream);
	sync_model_open(model, device, stream, mesh, options, 100, LAYERS);
}

/* A micro-batch that fails at any op, and a step that ends early, leave no sums to the next step, and no reduction that
 * still writes. */
static void rank_fails(struct rank *r)
{
	dtrain_sync_options options = small_units();
	sync_model model;
	options.accumulates = true;
	open_failing_model(&model, sync_model_mesh(r->group), &options);
	MUST(dtrain_sync_start(model.sync, &err));
	REQUIRE(dtrain_program_run_collectives(model.program, model.stream, &err) == BETON_STATE);
	for (int at = 0; at < 20; at += 3) {
		sync_model_fill(&model, r->rank, 1);
		MUST(dtrain_program_run(model.program, model.stream, 0, 2 + at % 2, &err));
		fails_in = at;
		int status = dtrain_program_run(model.program, model.stream, 1, 2 + at % 2, &err);
		REQUIRE((status == BETON_DEVICE) == (fails_in < 0));
		fails_in = -1;
		sync_model_fill(&model, r->rank, 2);
		MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
		sync_model_check(&model, r->size, 1, 2, 2);
	}
	/* The same for a step that was begun before a stop. */
	MUST(dtrain_program_run(model.program, model.stream, 0, 2, &err));
	dtrain_sync_stop(model.sync);
	MUST(dtrain_sync_buffers(model.sync, model.stream, &err));
	MUST(dtrain_sync_start(model.sync, &err));
	sync_model_fill(&model, r->rank, 3);
	MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
	sync_model_check(&model, r->size, 1, 3, 3);
	close_model(&model);
}

/* Layers one after the other, without backward, whose parameters are gathered. */
static dtrain_tensor compile_gathering(dtrain_params *params, dtrain_sync *sync, dtrain_program **program)
{
	const dtrain_shape row = dtrain_shape_of(2, (int64_t[]){1, WIDTH});
	char name[32];
	dtrain_graph *graph = NULL;
	MUST(dtrain_graph_create(params, false, &graph, &err));
	dtrain_tensor y = dtrain_graph_input(graph, "x", DTRAIN_F32, &row);
	for (int i = 0; i < LAYERS; i++) {
		snprintf(name, sizeof(name), "layer%d", i);
		y = dtrain_linear(graph, name, y, WIDTH);
	}
	dtrain_graph_keep(graph, y);
	MUST(dtrain_sync_compile(sync, &graph, program, &err));
	return y;
}

/* One rank's op fails, whichever: its collectives go on, so that the others end their run, and so does the next run. */
static void rank_gathers_on(struct rank *r)
{
	const dtrain_mesh_axis axis = {.name = "shard", .size = r->size};
	dtrain_sync_options options = small_units();
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	dtrain_mesh *mesh = NULL;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	dtrain_program *program = NULL;
	float right[WIDTH];
	options.strategy = "zero3";
	open_failing_device(&device, &stream);
	MUST(dtrain_mesh_create(r->group, &axis, 1, &mesh, &err));
	MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	MUST(dtrain_sync_create(params, mesh, &options, &sync, &err));
	dtrain_tensor y = compile_gathering(params, sync, &program);
	MUST(dtrain_params_initialize(params, 1, stream, &err));
	MUST(dtrain_sync_start(sync, &err));
	MUST(dtrain_program_run(program, stream, 0, 1, &err));
	memcpy(right, dtrain_program_data(program, y), sizeof(right));
	for (int at = 0; at <= LAYERS; at++) {
		for (int lost = 0; lost < r->size; lost++) {
			bool fails = r->rank == lost;
			fails_in = fails && at < LAYERS ? at : -1;
			int status =
				fails && at == LAYERS ? BETON_DEVICE : dtrain_program_run(program, stream, 0, 1, &err);
			REQUIRE(status == (fails ? BETON_DEVICE : BETON_OK));
			if (fails)
				MUST(dtrain_program_run_collectives(program, stream, &err));
			MUST(dtrain_program_run(program, stream, 0, 1, &err));
			REQUIRE(memcmp(right, dtrain_program_data(program, y), sizeof(right)) == 0);
		}
	}
	dtrain_program_destroy(&program);
	dtrain_sync_destroy(&sync);
	dtrain_mesh_destroy(&mesh);
	dtrain_params_destroy(&params);
	failing.stream_destroy(stream);
	dtrain_device_close(&device);
}

/* The unit that another rank completes late has most of the step's time, as soon as that is late enough. */
static void rank_waits_for_late_unit(struct rank *r)
{
	const dtrain_sync_options options = small_units();
	sync_model model;
	int round = 0;
	open_failing_model(&model, sync_model_mesh(r->group), &options);
	MUST(dtrain_sync_start(model.sync, &err));
	sync_model_fill(&model, r->rank, 0);
	late_in = 1000;
	MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
	int ops = 1000 - late_in, units = dtrain_params_unit_count(model.params);
	for (int last = 0; last < 2; last++) {
		bool has_most = false;
		for (late_us = 10000; !has_most; late_us *= 2) {
			REQUIRE(late_us < 10000000);
			/* Backward has an op for each layer. */
			late_in = r->rank == 1 ? ops - (last ? 1 : LAYERS) : -1;
			MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
			has_most = sync_model_unit_has_most(&model, r, last ? units - 1 : 0, round++);
		}
	}
	late_in = -1;
	close_model(&model);
}

/* A parameter that is added to an activation has the activation's gradient, which backward goes on to read while the
 * parameter's is reduced. */
static void check_shared(struct rank *r, int positions)
{
	dtrain_sync_options options;
	dtrain_device *device = NULL;
	const dtrain_device_api *api;
	dtrain_stream *stream = NULL;
	dtrain_params *params = NULL;
	dtrain_sync *sync = NULL;
	dtrain_mesh *mesh = sync_model_mesh(r->group);
	dtrain_graph *graph = NULL;
	dtrain_program *program = NULL;
	dtrain_shape row = dtrain_shape_of(2, (int64_t[]){1, 4});
	dtrain_sync_options_init(&options);
	options.first_unit_bytes = options.unit_bytes = 1;
	options.accumulates = true;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	api = dtrain_device_get_api(device);
	MUST(api->stream_create(device, &stream, &err));
	MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
	MUST(dtrain_sync_create(params, mesh, &options, &sync, &err));
	MUST(dtrain_graph_create(params, true, &graph, &err));
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &row);
	dtrain_tensor y = dtrain_linear(graph, "a", x, 4);
	for (int i = 0; i < positions; i++)
		y = dtrain_add(graph, y,
			       dtrain_graph_parameter(graph, i ? "more" : "position", &row, DTRAIN_INIT_ZERO, 0),
			       false);
	y = dtrain_linear(graph, "b", y, 4);
	dtrain_tensor d_y = dtrain_graph_input(graph, "d_y", DTRAIN_F32, &row);
	dtrain_graph_backward_from(graph, 1, &y, &d_y);
	MUST(dtrain_sync_compile(sync, &graph, &program, &err));
	for (int64_t i = 0; i < dtrain_params_flat_count(params); i++)
		((float *)dtrain_params_values(params))[i] = 1;
	MUST(dtrain_sync_start(sync, &err));
	for (int i = 0; i < 4; i++)
		((float *)dtrain_program_data(program, x))[i] = ((float *)dtrain_program_data(program, d_y))[i] = 1;
	MUST(dtrain_program_run(program, stream, 0, 2, &err));
	MUST(dtrain_program_run(program, stream, 1, 2, &err));
	for (int i = 0; i < dtrain_params_count(params); i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		/* b's input is 5 and the positions; what is before b gets 4 ways from its output. */
		float once = 4;
		if (param->name[0] == 'b')
			once = strcmp(param->name, "b.weight") == 0 ? 5 + (float)positions : 1;
		for (int64_t k = 0; k < param->count; k++)
			REQUIRE(((float *)dtrain_params_grads(params))[param->offset + k] == 2 * (float)r->size * once);
	}
	dtrain_program_destroy(&program);
	dtrain_sync_destroy(&sync);
	dtrain_mesh_destroy(&mesh);
	dtrain_params_destroy(&params);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
}

/* Two layers, batches of BATCH samples a rank or of all of them: the ranks' gradients, added up and divided by their
 * number, equal the whole batch's. */
static void rank_trains(struct rank *r)
{
	enum { IN = 12, CLASSES = 5 };
	static float whole[8192];
	dtrain_device *device = NULL;
	const dtrain_device_api *api;
	dtrain_stream *stream = NULL;

	MUST(dtrain_device_open("ref", NULL, &device, &err));
	api = dtrain_device_get_api(device);
	MUST(api->stream_create(device, &stream, &err));
	for (int run = 0; run < 2; run++) {
		int64_t samples = run ? BATCH : (int64_t)BATCH * r->size;
		int64_t first = run ? (int64_t)BATCH * r->rank : 0;
		dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){samples, IN}),
			     labels = dtrain_shape_of(1, &samples);
		dtrain_params *params = NULL;
		dtrain_graph *graph = NULL;
		dtrain_program *program = NULL;
		dtrain_sync *sync = NULL;
		dtrain_mesh *mesh = NULL;
		dtrain_tensor x, label, y;
		const float *grads;

		MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
		if (run) {
			mesh = sync_model_mesh(r->group);
			MUST(dtrain_sync_create(params, mesh, NULL, &sync, &err));
		}
		MUST(dtrain_graph_create(params, true, &graph, &err));
		x = dtrain_graph_input(graph, "image", DTRAIN_F32, &shape);
		label = dtrain_graph_input(graph, "label", DTRAIN_I64, &labels);
		y = dtrain_relu(graph, dtrain_linear(graph, "fc1", x, 20));
		y = dtrain_linear(graph, "fc2", y, CLASSES);
		y = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, y, label, 0.1));
		dtrain_graph_step_metric(graph, y, 0);
		dtrain_graph_backward(graph, y);
		MUST(run ? dtrain_sync_compile(sync, &graph, &program, &err)
			 : dtrain_graph_compile(&graph, &program, &err));
		MUST(dtrain_params_initialize(params, 7, stream, &err));
		if (run)
			MUST(dtrain_sync_start(sync, &err));
		for (int64_t i = 0; i < samples * IN; i++)
			((float *)dtrain_program_data(program, x))[i] = (float)((first * IN + i) * 37 % 101) / 50 - 1;
		for (int64_t i = 0; i < samples; i++)
			((int64_t *)dtrain_program_data(program, label))[i] = (first + i) % CLASSES;
		MUST(dtrain_program_run(program, stream, 0, 1, &err));
		grads = dtrain_params_grads(params);
		REQUIRE(dtrain_params_flat_count(params) + 1 <= 8192);
		for (int64_t i = -1; i < dtrain_params_flat_count(params); i++) {
			/* The loss is figure 0. */
			float got = i < 0 ? *(float *)dtrain_params_step_metrics(params) : grads[i];
			if (run)
				REQUIRE(fabsf(got / (float)r->size - whole[i + 1]) <=
					1e-6f + 1e-5f * fabsf(whole[i + 1]));
			else
				whole[i + 1] = got;
		}
		REQUIRE(whole[0] > 0.1f);
		dtrain_program_destroy(&program);
		dtrain_sync_destroy(&sync);
		if (run)
			dtrain_mesh_destroy(&mesh);
		dtrain_params_destroy(&params);
	}
	api->stream_destroy(stream);
	dtrain_device_close(&device);
}

static int rank_main(struct rank *r)
{
	if (strcmp(r->mode, "sums") == 0)
		rank_adds_up(r);
	else if (strcmp(r->mode, "accumulates") == 0)
		rank_accumulates(r);
	else if (strcmp(r->mode, "values") == 0)
		rank_gets_values(r);
	else if (strcmp(r->mode, "copies") == 0)
		rank_gets_copies(r);
	else if (strcmp(r->mode, "plans") == 0)
		rank_plans(r);
	else if (strcmp(r->mode, "misuses") == 0)
		rank_misuses(r);
	else if (strcmp(r->mode, "trains") == 0)
		rank_trains(r);
	else if (strcmp(r->mode, "fails") == 0)
		rank_fails(r);
	else if (strcmp(r->mode, "gathers-on") == 0)
		rank_gathers_on(r);
	else if (strcmp(r->mode, "late-unit") == 0)
		rank_waits_for_late_unit(r);
	else if (strcmp(r->mode, "shares") == 0)
		check_shared(r, 1);
	else if (strcmp(r->mode, "shares-two") == 0)
		check_shared(r, 2);
	else if (strcmp(r->mode, "differs") == 0)
		return rank_differs(r);
	else
		return 9;
	return 0;
}

static void gradients_become_the_sum(void **state)
{
	(void)state;
	run_ranks("sums", 1);
	run_ranks("sums", 3);
	run_ranks("sums", 8);
}

static void runs_of_a_step_add_up(void **state)
{
	(void)state;
	run_ranks("accumulates", 1);
	run_ranks("accumulates", 3);
}

static void values_come_from_rank_0(void **state)
{
	(void)state;
	run_ranks("values", 1);
	run_ranks("values", 3);
}

static void copies_are_of_what_came(void **state)
{
	(void)state;
	run_ranks("copies", 2);
}

static void units_are_issued_when_they_are_complete(void **state)
{
	(void)state;
	run_ranks("plans", 1);
}

static void misuse_is_named(void **state)
{
	(void)state;
	run_ranks("misuses", 2);
}

static void ranks_have_the_gradients_of_the_whole_batch(void **state)
{
	(void)state;
	run_ranks("trains", 2);
	run_ranks("trains", 8);
}

static void failed_runs_leave_nothing_behind(void **state)
{
	(void)state;
	run_ranks("fails", 1);
	run_ranks("fails", 3);
}

static void failed_rank_gathers_on(void **state)
{
	(void)state;
	run_ranks("gathers-on", 2);
	run_ranks("gathers-on", 3);
}

static void late_unit_has_the_time(void **state)
{
	(void)state;
	run_ranks("late-unit", 2);
}

static void shared_gradients_are_reduced_once(void **state)
{
	(void)state;
	run_ranks("shares", 1);
	run_ranks("shares", 3);
	run_ranks("shares-two", 3);
}

static void other_model_is_named(void **state)
{
	struct ranks ranks;

	(void)state;
	start_ranks(&ranks, "differs", 0, 3, 20000);
	for (int rank = 0; rank < 3; rank++) {
		assert_int_equal(end_rank(&ranks, rank), -BETON_MISMATCH);
		assert_non_null(strstr(ranks.err[rank], "rank 2 has another model than rank 0: number of parameters (6 "
							"instead of 4)"));
	}
	end_store(&ranks);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(units_are_issued_when_they_are_complete),
		cmocka_unit_test(gradients_become_the_sum),
		cmocka_unit_test(runs_of_a_step_add_up),
		cmocka_unit_test(values_come_from_rank_0),
		cmocka_unit_test(copies_are_of_what_came),
		cmocka_unit_test(misuse_is_named),
		cmocka_unit_test(ranks_have_the_gradients_of_the_whole_batch),
		cmocka_unit_test(failed_runs_leave_nothing_behind),
		cmocka_unit_test(failed_rank_gathers_on),
		cmocka_unit_test(late_unit_has_the_time),
		cmocka_unit_test(shared_gradients_are_reduced_once),
		cmocka_unit_test(other_model_is_named),
	};
	int status;

	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
