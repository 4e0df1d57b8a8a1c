/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequence parallelism: ranks that divide the layers of a transformer divide the rows between them, too. Losses and
 * gradients equal one rank's, and tensor parallelism's alone, with dropout, whether a rank's part has whole samples, a
 * part of one, or neither.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/stage.h>
#include <dtrain/sync.h>
#include <dtrain/transformer.h>

#include "tests/train/support/ranks.h"

enum { MAX_SAMPLES = 4, POSITIONS = 4, IMAGE = 8, CLASSES = 3, MAX_LOSSES = MAX_SAMPLES * POSITIONS };

static beton_error err;

typedef struct example {
	dtrain_transformer_type type;
	int64_t samples;
	bool positions; /* an input */
	dtrain_recompute recompute;
	int32_t parts; /* ranks exchange rows in so many parts; 0: 1 */
} example;

/* 1 sample of 4 positions on 4 ranks: a position each. 3 on 2 ranks: one and a half samples. */
static const example examples[] = {
	{DTRAIN_TRANSFORMER_GPT2, 1, false, DTRAIN_RECOMPUTE_NONE},
	{DTRAIN_TRANSFORMER_GPT2, 3, false, DTRAIN_RECOMPUTE_NONE},
	{DTRAIN_TRANSFORMER_GPT2, 4, true, DTRAIN_RECOMPUTE_FULL},
	{DTRAIN_TRANSFORMER_LLAMA, 2, false, DTRAIN_RECOMPUTE_SELECTIVE},
	{DTRAIN_TRANSFORMER_LLAMA, 3, true, DTRAIN_RECOMPUTE_NONE},
	{DTRAIN_TRANSFORMER_BERT, 1, false, DTRAIN_RECOMPUTE_FULL},
	{DTRAIN_TRANSFORMER_BERT, 3, true, DTRAIN_RECOMPUTE_SELECTIVE},
	{DTRAIN_TRANSFORMER_VIT, 4, false, DTRAIN_RECOMPUTE_NONE},
	{DTRAIN_TRANSFORMER_VIT, 4, false, DTRAIN_RECOMPUTE_FULL},
	{DTRAIN_TRANSFORMER_GPT2, 4, false, DTRAIN_RECOMPUTE_NONE, 4},
	{DTRAIN_TRANSFORMER_LLAMA, 2, false, DTRAIN_RECOMPUTE_NONE, 2},
	{DTRAIN_TRANSFORMER_BERT, 4, true, DTRAIN_RECOMPUTE_FULL, 2},
	{DTRAIN_TRANSFORMER_VIT, 4, false, DTRAIN_RECOMPUTE_SELECTIVE, 5},
};

/* One model: of this rank alone, of ranks that have all rows, or of ranks that divide them. */
typedef struct network {
	dtrain_params *params;
	dtrain_sync *sync;
	dtrain_program *program;
	float loss[MAX_LOSSES];
	int64_t num_losses;
} network;

static dtrain_transformer model_of(const example *e)
{
	dtrain_transformer model;
	dtrain_transformer_init(&model);
	model.type = e->type;
	model.layers = 2;
	model.width = 8;
	model.heads = model.kv_heads = 4;
	model.head_size = 2;
	model.inner = 16;
	model.vocabulary = 61;
	model.positions = POSITIONS + 1;
	model.token_types = 2;
	model.image_size = IMAGE;
	model.patch_size = 4;
	model.tied = e->type != DTRAIN_TRANSFORMER_LLAMA;
	model.bias = e->type != DTRAIN_TRANSFORMER_LLAMA;
	model.deviation = 0.3;
	model.theta = 10000;
	model.dropout = model.embedding_dropout = model.attention_dropout = 0.2;
	model.drop_path = e->type == DTRAIN_TRANSFORMER_VIT ? 0.3 : 0;
	model.activation = e->type == DTRAIN_TRANSFORMER_LLAMA ? DTRAIN_ACTIVATION_SILU : DTRAIN_ACTIVATION_GELU;
	return model;
}

typedef struct built {
	dtrain_tensor inputs[5], random, losses;
	int count;
} built;

static dtrain_tensor add_input(built *b, dtrain_graph *graph, const char *name, const dtrain_shape *shape)
{
	return b->inputs[b->count++] = dtrain_graph_input(graph, name, DTRAIN_I64, shape);
}

static void build_tokens(built *b, dtrain_graph *graph, const example *e, const dtrain_transformer *model)
{
	const dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){e->samples, POSITIONS});
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_loss_options options;
	dtrain_loss_options_init(&options);
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	inputs.tokens = add_input(b, graph, "tokens", &shape);
	dtrain_tensor label = add_input(b, graph, "label", &shape);
	if (e->positions)
		inputs.position = add_input(b, graph, "position", &shape);
	if (e->positions && e->type == DTRAIN_TRANSFORMER_BERT)
		inputs.token_types = add_input(b, graph, "token types", &shape);
	inputs.random = b->random;
	dtrain_transformer_build(graph, model, &inputs, &outputs);
	b->losses = dtrain_transformer_losses(graph, &outputs, label, &options);
}

static void build_pictures(built *b, dtrain_graph *graph, const example *e, const dtrain_transformer *model)
{
	const dtrain_shape pictures = dtrain_shape_of(4, (int64_t[]){e->samples, 3, IMAGE, IMAGE});
	const dtrain_shape labels = dtrain_shape_of(1, &e->samples);
	dtrain_tensor image = b->inputs[b->count++] = dtrain_graph_input(graph, "image", DTRAIN_F32, &pictures);
	dtrain_tensor label = add_input(b, graph, "label", &labels);
	dtrain_tensor logits = dtrain_vit_build(graph, model, image, b->random, CLASSES);
	b->losses = dtrain_softmax_cross_entropy(graph, logits, label, 0.1);
}

/* Numbers below `least`, which is below the number of classes, positions and token types. */
static void fill(const dtrain_program *program, const built *b, bool pictures)
{
	for (int i = 0; i < b->count; i++) {
		int64_t count = dtrain_shape_count(dtrain_program_shape(program, b->inputs[i]));
		void *data = dtrain_program_data(program, b->inputs[i]);
		for (int64_t k = 0; k < count; k++) {
			if (pictures && i == 0)
				((float *)data)[k] = (float)sin((double)(k * k));
			else
				((int64_t *)data)[k] = (k * k + i) % (pictures ? CLASSES : i < 2 ? 61 : i < 3 ? 4 : 2);
		}
	}
	int64_t *random = dtrain_program_data(program, b->random);
	random[DTRAIN_RANDOM_SEED] = 7;
	random[DTRAIN_RANDOM_STEP] = 3;
	random[DTRAIN_RANDOM_FIRST_ROW] = 1;
	random[DTRAIN_RANDOM_ROW_STRIDE] = 3;
}

static void run(const example *e, dtrain_device *device, dtrain_stream *stream, const dtrain_mesh *mesh, bool divides,
		network *n)
{
	const dtrain_transformer model = model_of(e);
	const dtrain_shape randoms = dtrain_shape_of(1, (int64_t[]){DTRAIN_RANDOMS});
	bool pictures = e->type == DTRAIN_TRANSFORMER_VIT;
	dtrain_sync_options options;
	dtrain_graph *graph = NULL;
	dtrain_sync_options_init(&options);
	options.sequence_parallel = divides;
	options.tensor_overlap = e->parts ? e->parts : 1;
	*n = (network){.num_losses = e->samples * (pictures ? 1 : POSITIONS)};
	MUST(dtrain_params_create(device, DTRAIN_F32, &n->params, &err));
	MUST(dtrain_sync_create(n->params, mesh, &options, &n->sync, &err));
	MUST(dtrain_graph_create(n->params, true, &graph, &err));
	built b = {.random = dtrain_graph_input(graph, "random", DTRAIN_I64, &randoms)};
	(pictures ? build_pictures : build_tokens)(&b, graph, e, &model);
	dtrain_graph_keep(graph, b.losses);
	dtrain_graph_backward(graph, dtrain_mean_loss(graph, b.losses));
	dtrain_graph_recompute(graph, e->recompute, INT64_MAX);
	if (mesh)
		MUST(dtrain_sync_compile(n->sync, &graph, &n->program, &err));
	else
		MUST(dtrain_graph_compile(&graph, &n->program, &err));
	MUST(dtrain_params_initialize(n->params, 3, stream, &err));
	if (mesh)
		MUST(dtrain_sync_start(n->sync, &err));
	fill(n->program, &b, pictures);
	MUST(dtrain_program_run(n->program, stream, 0, 1, &err));
	memcpy(n->loss, dtrain_program_data(n->program, b.losses), sizeof(float) * (size_t)n->num_losses);
}

static void close_network(network *n)
{
	dtrain_program_destroy(&n->program);
	dtrain_sync_destroy(&n->sync);
	dtrain_params_destroy(&n->params);
}

static const dtrain_param *find(const dtrain_params *params, const char *name)
{
	int i = 0;
	while (strcmp(dtrain_params_at(params, i)->name, name) != 0)
		i++;
	return dtrain_params_at(params, i);
}

static const float *gradient_of(const network *n, const dtrain_param *param)
{
	int i = 0;
	while (param->offset >=
	       dtrain_params_range_at(n->params, i)->offset + dtrain_params_range_at(n->params, i)->count)
		i++;
	const dtrain_range *range = dtrain_params_range_at(n->params, i);
	return (const float *)range->grads + (param->offset - range->offset);
}

/* Compares the gradients of parameters whose elements both have. Returns the number of these parameters. */
static int expect_gradients(const network *got, const network *right)
{
	int compared = 0;
	for (int i = 0; i < dtrain_params_count(got->params); i++) {
		const dtrain_param *a = dtrain_params_at(got->params, i), *b = find(right->params, a->name);
		const float *x = gradient_of(got, a), *y = gradient_of(right, b);
		double most = 0, error = 0;
		if (a->count != b->count)
			continue;
		for (int64_t k = 0; k < a->count; k++) {
			most = fmax(most, fabs((double)y[k]));
			error = fmax(error, fabs((double)x[k] - (double)y[k]));
		}
		/* Keys' biases have none but rounding errors. */
		if (!(error <= 1e-5 * fmax(most, 1e-3)))
			fprintf(stderr, "%s: %g of %g\n", a->name, error, most);
		REQUIRE(error <= 1e-5 * fmax(most, 1e-3));
		compared++;
	}
	return compared;
}

static void expect_losses(const network *got, const network *right)
{
	for (int64_t i = 0; i < right->num_losses; i++)
		REQUIRE(fabsf(got->loss[i] - right->loss[i]) <= 4e-6f * fmaxf(1, right->loss[i]));
}

/* A unit has parameters of one kind. */
static void expect_units(const network *n, bool divides)
{
	int partial = 0, placed = 0;
	for (int i = 0; i < dtrain_params_count(n->params); i++) {
		const dtrain_param *param = dtrain_params_at(n->params, i);
		REQUIRE(dtrain_params_unit_at(n->params, param->unit)->partial_axes == param->partial_axes);
		REQUIRE(!param->partial_axes || !param->placement.axis);
		partial += param->partial_axes == 1u << DTRAIN_AXIS_TENSOR;
		placed += param->placement.axis != NULL;
	}
	REQUIRE(partial == (divides ? dtrain_params_count(n->params) - placed : 0));
}

static int rank_main(struct rank *r)
{
	const dtrain_mesh_axis axis = {.name = "tensor", .size = dtrain_group_size(r->group)};
	dtrain_device *device = NULL;
	dtrain_stream *stream = NULL;
	dtrain_mesh *mesh = NULL;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	const dtrain_device_api *api = dtrain_device_get_api(device);
	MUST(api->stream_create(device, &stream, &err));
	MUST(dtrain_mesh_create(r->group, &axis, 1, &mesh, &err));
	for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
		const example *e = &examples[i];
		network got, alike, right;
		run(e, device, stream, mesh, true, &got);
		run(e, device, stream, mesh, false, &alike);
		run(e, device, stream, NULL, false, &right);
		expect_units(&got, axis.size > 1);
		expect_units(&alike, false);
		expect_losses(&got, &right);
		REQUIRE(expect_gradients(&got, &alike) == dtrain_params_count(got.params));
		/* Norms, positions, biases of row layers: of Llama two norms a layer and the last one. */
		REQUIRE(expect_gradients(&got, &right) >= 5);
		close_network(&got);
		close_network(&alike);
		close_network(&right);
	}
	dtrain_mesh_destroy(&mesh);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	return 0;
}

static void parts_have_the_losses_and_gradients_of_the_whole(void **state)
{
	(void)state;
	static const int sizes[] = {1, 2, 4};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		run_ranks("ref", sizes[i]);
}

static void what_cannot_be_divided_is_refused(void **state)
{
	(void)state;
	static const struct {
		example e;
		int ranks;
		const char *message;
	} cases[] = {
		{{DTRAIN_TRANSFORMER_GPT2, 3, false, 0},
		 8,
		 "transformer: the mesh's axis \"tensor\": the rows of 3 samples of 4 positions cannot be divided by 8 "
		 "ranks; 2, 4, ... samples can"},
		{{DTRAIN_TRANSFORMER_VIT, 6, false, 0},
		 4,
		 "vit: the mesh's axis \"tensor\": the rows of 6 samples of 5 positions cannot be divided by 4 ranks; "
		 "4, 8, ... samples can"},
	};
	dtrain_device *device = NULL;
	assert_int_equal(dtrain_device_open("ref", NULL, &device, &err), BETON_OK);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int trains = 0; trains < 2; trains++) {
			dtrain_transformer model = model_of(&cases[i].e);
			dtrain_sync_options options;
			dtrain_params *params = NULL;
			dtrain_sync *sync = NULL;
			dtrain_graph *graph = NULL;
			dtrain_program_info info = {.struct_size = sizeof(info)};
			bool pictures = cases[i].e.type == DTRAIN_TRANSFORMER_VIT;
			dtrain_sync_options_init(&options);
			options.plan_ranks = 1;
			options.plan_tensor = cases[i].ranks;
			options.sequence_parallel = true;
			model.heads = model.kv_heads = 8;
			model.head_size = 1;
			MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
			MUST(dtrain_sync_create(params, NULL, &options, &sync, &err));
			MUST(dtrain_graph_create(params, trains, &graph, &err));
			built b = {.random = -1};
			model.dropout = model.embedding_dropout = model.attention_dropout = model.drop_path = 0;
			(pictures ? build_pictures : build_tokens)(&b, graph, &cases[i].e, &model);
			/* Evaluations are not divided. */
			int status = dtrain_sync_measure(sync, &graph, &info, &err);
			assert_int_equal(status, trains ? BETON_INVALID_ARGUMENT : BETON_OK);
			if (trains)
				assert_string_equal(err.message, cases[i].message);
			dtrain_sync_destroy(&sync);
			dtrain_params_destroy(&params);
		}
	dtrain_device_close(&device);
}

/* Stages of a pipeline send this rank's rows. */
static void borders_carry_the_rows_of_a_rank(void **state)
{
	(void)state;
	static const int32_t first[] = {0, 2};
	const example e = {DTRAIN_TRANSFORMER_GPT2, 1, false, 0};
	dtrain_device *device = NULL;
	MUST(dtrain_device_open("ref", NULL, &device, &err));
	for (int ranks = 1; ranks <= 4; ranks *= 2) {
		dtrain_transformer model = model_of(&e);
		dtrain_sync_options options;
		dtrain_params *params = NULL, *outline = NULL;
		dtrain_sync *sync = NULL;
		dtrain_graph *whole = NULL;
		dtrain_stage *stage = NULL;
		dtrain_sync_options_init(&options);
		options.plan_ranks = 1;
		options.plan_tensor = ranks;
		options.sequence_parallel = true;
		model.dropout = model.embedding_dropout = model.attention_dropout = 0;
		MUST(dtrain_params_create(device, DTRAIN_F32, &params, &err));
		MUST(dtrain_sync_create(params, NULL, &options, &sync, &err));
		MUST(dtrain_params_create_outline(params, &outline, &err));
		MUST(dtrain_graph_create(outline, true, &whole, &err));
		built b = {.random = -1};
		build_tokens(&b, whole, &e, &model);
		MUST(dtrain_stage_create(whole, first, 2, 0, params, &stage, &err));
		const dtrain_crossing *sent = dtrain_stage_sent(stage, 0);
		assert_non_null(sent);
		assert_null(dtrain_stage_sent(stage, 1));
		const dtrain_shape *shape = dtrain_graph_shape(dtrain_stage_graph(stage), sent->value);
		assert_int_equal(dtrain_shape_count(shape), POSITIONS * model.width / ranks);
		dtrain_stage_destroy(&stage);
		dtrain_graph_destroy(&whole);
		dtrain_params_destroy(&outline);
		dtrain_sync_destroy(&sync);
		dtrain_params_destroy(&params);
	}
	dtrain_device_close(&device);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(parts_have_the_losses_and_gradients_of_the_whole),
					   cmocka_unit_test(borders_carry_the_rows_of_a_rank),
					   cmocka_unit_test(what_cannot_be_divided_is_refused)};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests_name("divided_rows", tests, NULL, NULL);
}
