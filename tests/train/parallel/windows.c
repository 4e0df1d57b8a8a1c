/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows of what sharding strategies exchange, on the device "far": gathers and reduce-scatters find all of their
 * memory in windows of their group, whatever was started, stopped, compiled and destroyed before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/train/support/far_place.h"
#include "sync_model.h"

enum { WIDTH = 60, LAYERS = 5, SEED = 3, EVALUATIONS = 4 };

static beton_error err;

/* A model with a second program, which has no backward. */
typedef struct trained {
	sync_model model;
	dtrain_program *evaluation;
	dtrain_tensor x, y;
} trained;

static void compile_evaluation(trained *t, int64_t rows)
{
	const dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){rows, WIDTH});
	dtrain_graph *graph = NULL;
	MUST(dtrain_graph_create(t->model.params, false, &graph, &err));
	t->x = dtrain_graph_input(graph, "x", DTRAIN_F32, &shape);
	t->y = dtrain_linear(graph, "layer1", t->x, WIDTH);
	dtrain_graph_keep(graph, t->y);
	MUST(dtrain_sync_compile(t->model.sync, &graph, &t->evaluation, &err));
}

static void open_trained(struct rank *r, const struct place *place, const char *strategy, int shard, trained *t)
{
	const dtrain_mesh_axis axes[] = {{"replicate", r->size / shard}, {"shard", shard}};
	dtrain_sync_options options;
	dtrain_mesh *mesh = NULL;
	dtrain_sync_options_init(&options);
	options.strategy = strategy;
	options.first_unit_bytes = options.unit_bytes = 20000;
	if (shard == 1)
		options.registration = DTRAIN_REGISTER_NEVER;
	MUST(dtrain_mesh_create(r->group, axes, shard > 1 ? 2 : 1, &mesh, &err));
	sync_model_open(&t->model, place->device, place->stream, mesh, &options, WIDTH, LAYERS);
	MUST(dtrain_params_initialize(t->model.params, SEED, place->stream, &err));
}

static void train(trained *t, const struct rank *r, int step, bool captured)
{
	const sync_model *model = &t->model;
	void *capture = NULL;
	sync_model_fill(&t->model, r->rank, step);
	if (captured)
		MUST(model->api->capture_begin(model->stream, &err));
	MUST(dtrain_program_run(model->program, model->stream, 0, 1, &err));
	if (captured) {
		MUST(model->api->capture_end(model->stream, &capture, &err));
		MUST(model->api->capture_launch(capture, model->stream, &err));
	}
	sync_model_check(model, r->size, 1, step, step);
	if (captured)
		model->api->capture_destroy(capture);
}

static void evaluate(const trained *t, float y[WIDTH])
{
	float x[WIDTH];
	for (int i = 0; i < WIDTH; i++)
		x[i] = (float)(i % 7);
	MUST(dtrain_sync_gather(t->model.sync, t->model.stream, &err));
	sync_model_upload(&t->model, dtrain_program_data(t->evaluation, t->x), x, sizeof(x));
	MUST(dtrain_program_run(t->evaluation, t->model.stream, 0, 1, &err));
	sync_model_download(&t->model, y, dtrain_program_data(t->evaluation, t->y), WIDTH * sizeof(*y));
}

/* Three starts. The second evaluation is compiled after the second, so that it has windows from the third on. */
static void use(trained *t, const struct rank *r, int64_t rows, float y[EVALUATIONS][WIDTH])
{
	compile_evaluation(t, rows);
	MUST(dtrain_sync_start(t->model.sync, &err));
	train(t, r, 0, false);
	train(t, r, 1, true);
	evaluate(t, y[0]);
	dtrain_sync_stop(t->model.sync);
	MUST(dtrain_sync_start(t->model.sync, &err));
	evaluate(t, y[1]);
	train(t, r, 2, true);
	dtrain_program_destroy(&t->evaluation);
	compile_evaluation(t, rows);
	evaluate(t, y[2]);
	dtrain_sync_stop(t->model.sync);
	MUST(dtrain_sync_start(t->model.sync, &err));
	train(t, r, 3, false);
	evaluate(t, y[3]);
}

/* groups_first: as when a session ends after a failure. */
static void close_trained(struct rank *r, trained *t, bool groups_first)
{
	if (groups_first) {
		dtrain_sync_stop(t->model.sync);
		dtrain_mesh_destroy(&t->model.mesh);
		dtrain_group_destroy(&r->group);
	}
	dtrain_program_destroy(&t->evaluation);
	sync_model_close(&t->model);
}

/* An evaluation's result without shards and windows. */
static void evaluate_alone(struct rank *r, const struct place *place, float y[WIDTH])
{
	trained t;
	open_trained(r, place, "ddp", 1, &t);
	compile_evaluation(&t, 1);
	MUST(dtrain_sync_start(t.model.sync, &err));
	evaluate(&t, y);
	close_trained(r, &t, false);
}

/* mode: strategy[-how] */
static int rank_main(struct rank *r)
{
	const char *mode = r->mode + strlen("no-group-"), *how = strchr(mode, '-');
	float y[EVALUATIONS][WIDTH], right[WIDTH];
	char strategy[16];
	struct place place;
	trained t;
	how = how ? how + 1 : "";
	snprintf(strategy, sizeof(strategy), "%.*s", (int)strcspn(mode, "-"), mode);
	if (strcmp(how, "other") == 0 && r->rank == 1)
		setenv("DTRAIN_FAR_OTHER_MEMORY", "1", 1);
	open_place(r, &place);
	evaluate_alone(r, &place, right);
	open_trained(r, &place, strategy, strcmp(how, "replicas") == 0 ? 2 : r->size, &t);
	/* With another batch the arena is another one, and so is the place of what is exchanged. */
	use(&t, r, strcmp(how, "uneven") == 0 ? r->rank + 1 : 1, y);
	for (int i = 0; i < EVALUATIONS; i++)
		REQUIRE(memcmp(y[i], right, sizeof(right)) == 0);
	close_trained(r, &t, strcmp(how, "late") == 0);
	close_place(r, &place);
	return 0;
}

/* Expectations for each rank. windows: of the part whose reduce-scatters use the memory, and of the part for gathers.
 */
typedef struct expected {
	const char *mode;
	int ranks, windows[2], freed; /* of all */
	int gathers, scatters;        /* that are without windows */
} expected;

static void check(const expected *of)
{
	char mode[64];
	int calls[CALLS];
	snprintf(mode, sizeof(mode), "no-group-%s", of->mode);
	count_calls(mode, of->ranks, calls);
	assert_int_equal(calls['w'], of->ranks * of->windows[0]);
	assert_int_equal(calls['W'], of->ranks * of->windows[1]);
	assert_int_equal(calls['u'], calls['w'] + calls['W']);
	assert_int_equal(calls['f'], of->freed);
	assert_int_equal(calls['c'], 3 * of->ranks);
	assert_int_equal(calls['G'], of->ranks * of->gathers);
	assert_int_equal(calls['S'], of->ranks * of->scatters);
	assert_int_equal(calls['g'] > 0, !of->scatters);
	assert_int_equal(calls['s'] > 0, !of->scatters);
}

/* Values have a window in each start, gradients one in all. So has an arena with leases, and one of each start. */
static void what_is_exchanged_is_in_windows(void **state)
{
	static const expected strategies[] = {
		{"zero1", 2, {1, 3}, 2 * 2},
		{"zero2", 2, {2, 6}, 2 * 3},
		/* One evaluation ran before it had windows. */
		{"zero3", 2, {4, 9}, 2 * 5, .gathers = 1},
		{"zero3", 3, {4, 9}, 3 * 5, .gathers = 1},
		{"zero3-late", 2, {4, 9}, 2 * 5, .gathers = 1},
		{"hsdp-replicas", 4, {4, 9}, 4 * 5, .gathers = 1},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(strategies) / sizeof(strategies[0]); i++)
		check(&strategies[i]);
}

static void ranks_agree_on_windows(void **state)
{
	/* Arenas differ, so they have none; or a rank has no such memory at all. */
	static const expected uneven = {"zero3-uneven", 2, {1, 3}, 2 * 5, .gathers = 16, .scatters = 12};
	static const expected other = {"zero3-other", 2, {0, 0}, 5, .gathers = 16, .scatters = 12};
	(void)state;
	check(&uneven);
	check(&other);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_exchanged_is_in_windows),
		cmocka_unit_test(ranks_agree_on_windows),
	};
	int status;
	return is_rank(argc, argv, rank_main, &status) ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
