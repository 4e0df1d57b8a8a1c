/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters in parts on several ranks: their initial values, the graph's view of them, and checkpoints that any number
 * of parts can load.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/graph.h>

#include "tests/support/temporary.h"
#include "common/error.h"
#include "core/params.h"
#include "train/programs/ffcv/weights.h"
#include "world.h"

enum { SEED = 5, PARTS_MOST = 4, COPIES = 2 };

static const struct declaration {
	const char *name;
	dtrain_shape shape;
	int dim; /* that is divided; -1: none */
	dtrain_init init;
	int64_t fan_in;
} declarations[] = {
	{"rows.weight", {2, {7, 5}}, 0, DTRAIN_INIT_LINEAR_UNIFORM, 5},
	{"columns.weight", {2, {6, 9}}, 1, DTRAIN_INIT_LINEAR_UNIFORM, 9},
	{"conv.weight", {4, {8, 4, 3, 3}}, 1, DTRAIN_INIT_KAIMING_NORMAL_FAN_OUT, 36},
	{"dirac.weight", {4, {6, 4, 3, 3}}, 0, DTRAIN_INIT_DIRAC, 36},
	{"whole.bias", {1, {5}}, -1, DTRAIN_INIT_LINEAR_UNIFORM, 5},
};
enum { DECLARATIONS = sizeof(declarations) / sizeof(declarations[0]) };

/* A rank of a job where each of `parts` ranks has a part. */
struct model {
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_optimizer *optimizer; /* with momentum */
};

static int open_model(struct model *model, int part, int parts, beton_error *err)
{
	*model = (struct model){0};
	int status = dtrain_device_open("ref", NULL, &model->device, err);
	if (status == BETON_OK)
		status = dtrain_device_get_api(model->device)->stream_create(model->device, &model->stream, err);
	if (status == BETON_OK)
		status = dtrain_params_create(model->device, DTRAIN_F32, &model->params, err);
	for (int i = 0; i < DECLARATIONS && status >= 0; i++) {
		const struct declaration *d = &declarations[i];
		const dtrain_placement placement = {
			.axis = d->dim < 0 ? NULL : "tensor", .dim = d->dim, .parts = parts, .part = part};
		status = dtrain_params_declare_placed(model->params, d->name, &d->shape, &placement, d->init, d->fan_in,
						      err);
	}
	if (status >= 0)
		status = dtrain_params_allocate(model->params, err);
	if (status == BETON_OK)
		status = dtrain_params_initialize(model->params, SEED, model->stream, err);
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.hypers = &(dtrain_hyper_value){"momentum", 0.9};
	options.num_hypers = 1;
	return status == BETON_OK ? dtrain_optimizer_create(model->params, &options, &model->optimizer, err) : status;
}

static void close_model(struct model *model)
{
	dtrain_optimizer_destroy(&model->optimizer);
	dtrain_params_destroy(&model->params);
	dtrain_device_get_api(model->device)->stream_destroy(model->stream);
	dtrain_device_close(&model->device);
}

static float *values_of(const struct model *model, int index)
{
	return (float *)dtrain_params_values(model->params) + dtrain_params_at(model->params, index)->offset;
}

static float *momentum_of(const struct model *model, int index)
{
	return (float *)dtrain_optimizer_state_find(model->optimizer, "momentum")->memory +
	       dtrain_params_at(model->params, index)->offset;
}

/* Whether part has the elements of whole that its parameter's placement says. */
static bool is_part(const dtrain_param *param, const float *part, const float *whole)
{
	for (int64_t i = 0; i < param->count; i++) {
		int64_t rest = i, at = 0, stride = 1;
		for (int d = param->shape.ndim - 1; d >= 0; d--) {
			int64_t index = rest % param->shape.dim[d];
			rest /= param->shape.dim[d];
			if (param->placement.axis && d == param->placement.dim)
				index += param->first;
			at += index * stride;
			stride *= param->global_shape.dim[d];
		}
		if (part[i] != whole[at])
			return false;
	}
	return true;
}

static int check_values(const struct model *model, float *(*of)(const struct model *, int), beton_error *err)
{
	struct model whole;
	int status = open_model(&whole, 0, 1, err);
	for (int i = 0; i < DECLARATIONS && status == BETON_OK; i++)
		if (!is_part(dtrain_params_at(model->params, i), of(model, i), values_of(&whole, i)))
			status = bt_fail(err, BETON_MISMATCH, "%s is not a part of the whole", declarations[i].name);
	close_model(&whole);
	return status;
}

static void initial_values_are_those_of_the_whole(void **state)
{
	(void)state;
	beton_error err;
	for (int parts = 1; parts <= PARTS_MOST; parts++)
		for (int part = 0; part < parts; part++) {
			struct model model;
			assert_int_equal(open_model(&model, part, parts, &err), BETON_OK);
			assert_int_equal(check_values(&model, values_of, &err), BETON_OK);
			close_model(&model);
		}
}

static int save(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	const int *parts = context;
	struct model model;
	int status = open_model(&model, ranks->rank % *parts, *parts, err);
	for (int i = 0; i < DECLARATIONS && status == BETON_OK; i++)
		memcpy(momentum_of(&model, i), values_of(&model, i),
		       sizeof(float) * (size_t)dtrain_params_at(model.params, i)->count);
	const run_weights weights = {.params = model.params, .optimizer = model.optimizer, .stream = model.stream};
	const run_position position = {.step = *parts, .model = "parts"};
	if (status == BETON_OK)
		status = run_weights_save(&weights, "placed", 0, &position, NULL, ranks, err);
	close_model(&model);
	return status;
}

/* Loads what `from` parts saved. */
static void load(int from, int part, int parts)
{
	struct model model;
	beton_error err;
	char path[64];
	snprintf(path, sizeof(path), "placed/step-%012d", from);
	assert_int_equal(open_model(&model, part, parts, &err), BETON_OK);
	memset(dtrain_params_values(model.params), 0, sizeof(float) * (size_t)dtrain_params_flat_count(model.params));
	const run_weights weights = {.params = model.params, .optimizer = model.optimizer, .stream = model.stream};
	if (run_weights_load(&weights, path, NULL, &err) != BETON_OK ||
	    check_values(&model, values_of, &err) != BETON_OK || check_values(&model, momentum_of, &err) != BETON_OK)
		fail_msg("part %d of %d from %d: %s", part, parts, from, err.message);
	close_model(&model);
}

/* COPIES ranks have each part: data and tensor parallelism at once. */
static void any_number_of_parts_loads_a_checkpoint(void **state)
{
	(void)state;
	temporary_remove("placed");
	for (int from = 1; from <= PARTS_MOST; from++) {
		world_must(from * COPIES, save, &from);
		for (int parts = 1; parts <= PARTS_MOST; parts++)
			for (int part = 0; part < parts; part++)
				load(from, part, parts);
	}
	temporary_remove("placed");
}

/* A linear layer divided by its outputs computes that part of the outputs. */
static void graphs_see_the_part(void **state)
{
	(void)state;
	enum { ROWS = 3, IN = 4, OUT = 5, PARTS = 2 };
	const dtrain_shape shape = {2, {OUT, IN}}, input = {2, {ROWS, IN}};
	float x[ROWS * IN], y[PARTS + 1][ROWS * OUT];
	dtrain_device *device;
	dtrain_stream *stream;
	beton_error err;
	for (int i = 0; i < ROWS * IN; i++)
		x[i] = (float)i - 5;
	assert_int_equal(dtrain_device_open("ref", NULL, &device, &err), BETON_OK);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	assert_int_equal(api->stream_create(device, &stream, &err), BETON_OK);
	for (int part = 0; part <= PARTS; part++) { /* the last one: the whole */
		const dtrain_placement placement = {
			.axis = part < PARTS ? "tensor" : NULL, .dim = 0, .parts = PARTS, .part = part};
		dtrain_params *params;
		dtrain_graph *graph;
		dtrain_program *program;
		assert_int_equal(dtrain_params_create(device, DTRAIN_F32, &params, &err), BETON_OK);
		assert_int_equal(dtrain_graph_create(params, false, &graph, &err), BETON_OK);
		dtrain_tensor in = dtrain_graph_input(graph, "x", DTRAIN_F32, &input);
		dtrain_tensor w = dtrain_graph_placed_parameter(graph, "fc.weight", &shape, &placement,
								DTRAIN_INIT_LINEAR_UNIFORM, IN);
		dtrain_tensor out = dtrain_linear_of(graph, in, w, -1, false);
		dtrain_graph_keep(graph, out);
		assert_int_equal(dtrain_graph_compile(&graph, &program, &err), BETON_OK);
		assert_int_equal(dtrain_params_initialize(params, SEED, stream, &err), BETON_OK);
		memcpy(dtrain_program_data(program, in), x, sizeof(x));
		assert_int_equal(dtrain_program_run(program, stream, 0, 1, &err), BETON_OK);
		const dtrain_shape *result = dtrain_program_shape(program, out);
		memcpy(y[part], dtrain_program_data(program, out), sizeof(float) * (size_t)dtrain_shape_count(result));
		dtrain_program_destroy(&program);
		dtrain_params_destroy(&params);
	}
	for (int row = 0; row < ROWS; row++) {
		assert_memory_equal(&y[0][row * 2], &y[PARTS][row * OUT], 2 * sizeof(float));
		assert_memory_equal(&y[1][row * 3], &y[PARTS][row * OUT + 2], 3 * sizeof(float));
	}
	api->stream_destroy(stream);
	dtrain_device_close(&device);
}

static void refuse(dtrain_params *params, const dtrain_placement *placement, const char *why)
{
	const dtrain_shape shape = {2, {3, 2}};
	beton_error err;
	assert_int_equal(dtrain_params_declare_placed(params, "w", &shape, placement, DTRAIN_INIT_ZERO, 2, &err),
			 strstr(why, "another") ? BETON_MISMATCH : BETON_INVALID_ARGUMENT);
	assert_string_equal(err.message, why);
}

static void bad_placements_are_refused(void **state)
{
	(void)state;
	const dtrain_shape shape = {2, {3, 2}};
	dtrain_placement good = {"tensor", 0, 3, 2};
	struct model model;
	dtrain_params *params;
	beton_error err;
	assert_int_equal(open_model(&model, 1, 2, &err), BETON_OK);
	assert_int_equal(dtrain_params_create(model.device, DTRAIN_F32, &params, &err), BETON_OK);
	refuse(params, &(dtrain_placement){"tensor", 2, 2, 0},
	       "parameter 'w': axis 'tensor' divides dimension 2, and it has 2 dimensions");
	refuse(params, &(dtrain_placement){"", 0, 2, 0},
	       "parameter 'w': axis '' divides dimension 0, and it has 2 dimensions");
	refuse(params, &(dtrain_placement){"tensor", 0, 4, 0},
	       "parameter 'w': 4 ranks of the mesh's axis \"tensor\" cannot divide dimension 0, which has 3 indices; "
	       "at most 3 can");
	refuse(params, &(dtrain_placement){"tensor", 0, 3, 3}, "parameter 'w': part 3 of 3 along dimension 0");
	refuse(params, &(dtrain_placement){"tensor", 0, 0, 0}, "parameter 'w': part 0 of 0 along dimension 0");
	refuse(params, &(dtrain_placement){"tensor", 0, 1, 0, 2},
	       "parameter 'w': 2 blocks along dimension 0, which has 3 indices");
	refuse(params, &(dtrain_placement){"tensor", 1, 2, 0, 2},
	       "parameter 'w': 2 ranks of the mesh's axis \"tensor\" cannot divide dimension 1, which has 1 indices a "
	       "block; at most 1 can");
	assert_int_equal(dtrain_params_declare_placed(params, "w", &shape, &good, DTRAIN_INIT_ZERO, 2, &err), 0);
	assert_int_equal(dtrain_params_declare_placed(params, "w", &shape, &good, DTRAIN_INIT_ZERO, 2, &err), 0);
	good.part = 1;
	refuse(params, &good, "parameter 'w' is declared again with another placement");
	refuse(params, NULL, "parameter 'w' is declared again with another placement");
	dtrain_params_destroy(&params);
	/* The norm would be that of this rank's part. */
	dtrain_optimizer *optimizer;
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	options.clip_norm = 1;
	assert_int_equal(dtrain_optimizer_create(model.params, &options, &optimizer, &err), BETON_UNSUPPORTED);
	close_model(&model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(initial_values_are_those_of_the_whole),
		cmocka_unit_test(any_number_of_parts_loads_a_checkpoint),
		cmocka_unit_test(graphs_see_the_part),
		cmocka_unit_test(bad_placements_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
