/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain_mesh with real processes: which ranks each group has, and training on a mesh with a model axis.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "sync_model.h"
#include "training.h"

static beton_error err;

static void expect_axis(const dtrain_mesh *mesh, const char *axis, int rank, int size)
{
	const dtrain_group *group = dtrain_mesh_group(mesh, axis);
	REQUIRE(group && dtrain_group_rank(group) == rank && dtrain_group_size(group) == size);
}

static int make_mesh(dtrain_group *world, int count, const dtrain_mesh_axis *axes)
{
	dtrain_mesh *mesh = NULL;
	int status = dtrain_mesh_create(world, axes, count, &mesh, &err);
	REQUIRE((status == BETON_OK) == (mesh != NULL));
	dtrain_mesh_destroy(&mesh);
	return status;
}

static void expect_placement(const dtrain_mesh *mesh, int rank)
{
	dtrain_placement placement = dtrain_mesh_placement(mesh, "tensor", 1);
	REQUIRE(strcmp(placement.axis, "tensor") == 0 && placement.dim == 1 && placement.parts == 3 &&
		placement.part == rank % 3);
	REQUIRE(dtrain_mesh_placement(mesh, "pipeline", 1).axis == NULL);
}

/* Ranks with copies of a parameter have the same part of it. */
static void expect_same_parts(const dtrain_mesh *mesh, dtrain_device *device, int rank)
{
	const dtrain_shape shape = {2, {6, 6}}, input = {2, {1, 2}};
	for (int different = 0; different < 2; different++) {
		dtrain_placement placement = dtrain_mesh_placement(mesh, "tensor", 1);
		dtrain_params *params = NULL;
		dtrain_sync *sync = NULL;
		dtrain_graph *graph = NULL;
		dtrain_program *program = NULL;
		if (different)
			placement.part = rank % 2;
		MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
		MUST(dtrain_sync_create(params, mesh, NULL, &sync, &err));
		MUST(dtrain_graph_create(params, true, &graph, &err));
		dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &input);
		dtrain_tensor w = dtrain_graph_placed_parameter(graph, "w", &shape, &placement, DTRAIN_INIT_ZERO, 6);
		dtrain_tensor y = dtrain_linear_of(graph, x, w, -1, false);
		dtrain_graph_backward_from(graph, 1, &y, &y);
		MUST(dtrain_sync_compile(sync, &graph, &program, &err));
		REQUIRE(dtrain_sync_start(sync, &err) == (different ? BETON_MISMATCH : BETON_OK));
		REQUIRE(!different || strstr(err.message, "placements"));
		dtrain_program_destroy(&program);
		dtrain_sync_destroy(&sync);
		dtrain_params_destroy(&params);
	}
}

static void expect_group(const dtrain_group *group, int rank, int size)
{
	REQUIRE(dtrain_group_rank(group) == rank && dtrain_group_size(group) == size);
}

/* Which groups each of six ranks gets from meshes of several axes. */
static void expect_groups(dtrain_group *world, int rank)
{
	static const struct {
		int count;
		dtrain_mesh_axis axes[3];
		int data, model, grads; /* sizes */
		int grad_ranks[6];      /* of each rank in the gradient group */
	} cases[] = {{2, {{"replicate", 3}, {"shard", 2}}, 6, 1, 6, {0, 1, 2, 3, 4, 5}},
		     {2, {{"tensor", 3}, {"replicate", 2}}, 2, 3, 2, {0, 1, 0, 1, 0, 1}},
		     {3, {{"replicate", 1}, {"tensor", 3}, {"context", 2}}, 1, 6, 2, {0, 1, 0, 1, 0, 1}},
		     {3, {{"shard", 1}, {"pipeline", 3}, {"replicate", 2}}, 2, 3, 2, {0, 1, 0, 1, 0, 1}},
		     {2, {{"replicate", 3}, {"context", 2}}, 3, 2, 6, {0, 1, 2, 3, 4, 5}},
		     {2, {{"context", 2}, {"tensor", 3}}, 1, 6, 2, {0, 0, 0, 1, 1, 1}},
		     {1, {{"tensor", 6}}, 1, 6, 1, {0, 0, 0, 0, 0, 0}}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		dtrain_mesh *mesh = NULL;
		MUST(dtrain_mesh_create(world, cases[i].axes, cases[i].count, &mesh, &err));
		bool outer = i == 1 || i == 3; /* the model axis is the slow one */
		int model = outer ? rank / 2 : rank % cases[i].model, data = outer ? rank % 2 : rank / cases[i].model;
		expect_group(dtrain_mesh_data_group(mesh), data, cases[i].data);
		expect_group(dtrain_mesh_model_group(mesh), model, cases[i].model);
		expect_group(dtrain_mesh_gradient_group(mesh), cases[i].grad_ranks[rank], cases[i].grads);
		dtrain_mesh_destroy(&mesh);
	}
}

/* Six ranks, two by three; gradients are added up along the data axis alone, and the ranks of one model agree on the
 * largest figure, so that they all hear a request to stop. */
static void rank_meshes(struct rank *r)
{
	dtrain_device *device;
	dtrain_stream *stream;
	const dtrain_mesh_axis axes[] = {{"replicate", 2}, {"context", 1}, {"tensor", 3}};
	dtrain_mesh *mesh = NULL;
	sync_model model;
	REQUIRE(make_mesh(r->group, 2, axes) == BETON_INVALID_ARGUMENT); /* two ranks */
	REQUIRE(make_mesh(r->group, 0, axes) == BETON_INVALID_ARGUMENT);
	REQUIRE(make_mesh(r->group, 2, (dtrain_mesh_axis[]){{"shard", 2}, {"shard", 3}}) == BETON_INVALID_ARGUMENT);
	REQUIRE(strstr(err.message, "two axes are called 'shard'"));
	REQUIRE(make_mesh(r->group, 2, (dtrain_mesh_axis[]){{"shard", 0}, {"tensor", 6}}) == BETON_INVALID_ARGUMENT);
	REQUIRE(make_mesh(r->group, 2, (dtrain_mesh_axis[]){{"", 1}, {"tensor", 6}}) == BETON_INVALID_ARGUMENT);
	expect_groups(r->group, r->rank);
	MUST(dtrain_mesh_create(r->group, axes, 3, &mesh, &err));
	expect_axis(mesh, "replicate", r->rank / 3, 2);
	expect_axis(mesh, "context", 0, 1);
	expect_axis(mesh, "tensor", r->rank % 3, 3);
	REQUIRE(dtrain_mesh_group(mesh, "pipeline") == NULL);
	expect_placement(mesh, r->rank);
	open_device(&device, &stream);
	sync_model_open(&model, device, stream, mesh, NULL, 32, 2);
	expect_same_parts(mesh, model.device, r->rank);
	MUST(dtrain_sync_start(model.sync, &err));
	sync_model_fill(&model, r->rank / 3 * 3, 1);
	MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
	sync_model_check(&model, 6, 3, 1, 1);
	/* No op writes this figure, and one rank of the six asks. */
	float *asks = (float *)dtrain_params_step_metrics(model.params) + 1;
	*asks = r->rank == 4;
	MUST(dtrain_program_run(model.program, model.stream, 0, 1, &err));
	REQUIRE(*asks == 1);
	sync_model_close(&model);
}

/* Ranks of a model axis that divides no parameter train as the data ranks alone do, to the bit. */
static void rank_has_copies(struct rank *r)
{
	static const char *const strategies[] = {"ddp", "zero1", "zero2", "zero3"};
	static result right, got;
	dtrain_group *half = NULL;
	dtrain_device *device;
	dtrain_stream *stream;
	open_device(&device, &stream);
	MUST(dtrain_group_split(r->group, r->rank % 2, r->rank, NULL, &half, &err));
	for (int i = 0; i < 4; i++)
		for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
			setup of = with(standard_setup(), strategies[i]);
			of.network = TWICE;
			of.micro_batches = micro_batches;
			of.late = true;
			of.within = half;
			train(r, &of, &right);
			of.within = NULL;
			of.tensor = 2;
			train(r, &of, &got);
			expect_close(&got, &right, 0);
		}
	dtrain_group_destroy(&half);
}

/* Ranks along "context" add up gradients, step metrics and norms as copies along "replicate" do, to the bit. */
static void rank_adds_up(struct rank *r)
{
	static const struct {
		const char *strategy;
		int shard;
	} cases[] = {{"ddp", 0}, {"zero1", 2}, {"zero2", 2}, {"zero3", 2}, {"zero3", 1}};
	static result right, got;
	for (int i = 0; i < 5; i++)
		for (int micro_batches = 1; micro_batches <= 2; micro_batches++) {
			setup of = with(standard_setup(), cases[i].strategy);
			of.network = TWICE;
			of.shard = cases[i].shard;
			of.micro_batches = micro_batches;
			of.clip = 0.01;
			of.late = true;
			train(r, &of, &right);
			of.context = true;
			train(r, &of, &got);
			expect_close(&got, &right, 0);
			REQUIRE(got.norm == right.norm);
		}
}

static int rank_main(struct rank *r)
{
	if (strcmp(r->mode, "meshes") == 0)
		rank_meshes(r);
	else if (strcmp(r->mode, "sums") == 0)
		rank_adds_up(r);
	else
		rank_has_copies(r);
	return 0;
}

static void each_axis_has_a_group(void **state)
{
	(void)state;
	run_ranks("meshes", 6);
}

static void ranks_of_one_model_change_no_bit(void **state)
{
	(void)state;
	run_ranks("copies", 4);
}

static void context_adds_up_as_copies_do(void **state)
{
	(void)state;
	run_ranks("sums", 4);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_axis_has_a_group),
					   cmocka_unit_test(ranks_of_one_model_change_no_bit),
					   cmocka_unit_test(context_adds_up_as_copies_do)};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests_name("mesh", tests, NULL, NULL);
}
