/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks divide the vocabulary: losses and gradients equal one rank's, for any number of ranks, with label smoothing and
 * ignored labels. The logits of the whole vocabulary, which all ranks have, give the same losses and gradients.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/sync.h>
#include <dtrain/transformer.h>

#include "tests/train/support/ranks.h"

enum { TOKENS = 7 };

static beton_error err;

typedef struct example {
	const char *head; /* the last layer's weight */
	dtrain_transformer_type type;
	int64_t vocabulary;
	double smoothing;
	bool tied;
} example;

static const example examples[] = {
	{"transformer.wte.weight", DTRAIN_TRANSFORMER_GPT2, 50257, 0, true},
	{"transformer.wte.weight", DTRAIN_TRANSFORMER_GPT2, 50257, 0.1, true},
	{"lm_head.weight", DTRAIN_TRANSFORMER_LLAMA, 61, 0.3, false},
	{"bert.embeddings.word_embeddings.weight", DTRAIN_TRANSFORMER_BERT, 13, 0.1, true},
	{"bert.embeddings.word_embeddings.weight", DTRAIN_TRANSFORMER_BERT, 5, 0, true},
};

/* One model, of this rank alone or of all ranks. */
typedef struct network {
	dtrain_params *params;
	dtrain_sync *sync;
	dtrain_program *program;
	dtrain_tensor losses;
	float loss[TOKENS];
} network;

static dtrain_transformer model_of(const example *e)
{
	dtrain_transformer model;
	dtrain_transformer_init(&model);
	model.type = e->type;
	model.layers = 1;
	model.width = 8;
	model.heads = model.kv_heads = 4;
	model.head_size = 2;
	model.inner = 16;
	model.vocabulary = e->vocabulary;
	model.positions = TOKENS;
	model.token_types = 2;
	model.tied = e->tied;
	model.bias = e->type != DTRAIN_TRANSFORMER_LLAMA;
	model.deviation = 0.3;
	model.theta = 10000;
	model.activation = e->type == DTRAIN_TRANSFORMER_LLAMA ? DTRAIN_ACTIVATION_SILU : DTRAIN_ACTIVATION_GELU;
	return model;
}

/* From all parts of the vocabulary; every third label is ignored by BERT. */
static void fill(const example *e, int64_t *tokens, int64_t *label)
{
	for (int64_t i = 0; i < TOKENS; i++) {
		tokens[i] = i * (e->vocabulary - 1) / (TOKENS - 1);
		label[i] = e->type == DTRAIN_TRANSFORMER_BERT && i % 3 == 1 ? -100 : (tokens[i] + 2) % e->vocabulary;
	}
}

static dtrain_tensor losses_of(dtrain_graph *graph, const dtrain_transformer_outputs *outputs, dtrain_tensor label,
			       const dtrain_loss_options *options, bool of_logits)
{
	const dtrain_shape rows = dtrain_shape_of(1, (int64_t[]){TOKENS});
	if (!of_logits)
		return dtrain_transformer_losses(graph, outputs, label, options);
	return dtrain_softmax_cross_entropy_with(graph, dtrain_transformer_logits(graph, outputs, -1),
						 dtrain_reshape(graph, label, &rows), options);
}

/* mesh: NULL for this rank alone. of_logits: the losses are computed from all logits. */
static void run(const example *e, dtrain_device *device, dtrain_stream *stream, const dtrain_mesh *mesh, bool of_logits,
		network *n)
{
	const dtrain_transformer model = model_of(e);
	const dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){1, TOKENS});
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_loss_options options;
	dtrain_graph *graph = NULL;
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	dtrain_loss_options_init(&options);
	options.label_smoothing = e->smoothing;
	*n = (network){.params = NULL};
	MUST(dtrain_params_create(device, DTRAIN_F32, &n->params, &err));
	if (mesh)
		MUST(dtrain_sync_create(n->params, mesh, NULL, &n->sync, &err));
	MUST(dtrain_graph_create(n->params, true, &graph, &err));
	inputs.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &shape);
	dtrain_tensor tokens = inputs.tokens, label = dtrain_graph_input(graph, "label", DTRAIN_I64, &shape);
	dtrain_transformer_build(graph, &model, &inputs, &outputs);
	n->losses = losses_of(graph, &outputs, label, &options, of_logits);
	dtrain_graph_keep(graph, n->losses);
	dtrain_graph_backward(graph, dtrain_mean_loss(graph, n->losses));
	if (mesh)
		MUST(dtrain_sync_compile(n->sync, &graph, &n->program, &err));
	else
		MUST(dtrain_graph_compile(&graph, &n->program, &err));
	MUST(dtrain_params_initialize(n->params, 3, stream, &err));
	if (mesh)
		MUST(dtrain_sync_start(n->sync, &err));
	fill(e, dtrain_program_data(n->program, tokens), dtrain_program_data(n->program, label));
	MUST(dtrain_program_run(n->program, stream, 0, 1, &err));
	memcpy(n->loss, dtrain_program_data(n->program, n->losses), sizeof(n->loss));
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

/* The gradient of rows that this rank has. */
static void expect_rows(const network *got, const network *right, const char *name)
{
	const dtrain_param *part = find(got->params, name), *whole = find(right->params, name);
	const int64_t each = dtrain_shape_count(&whole->shape) / whole->shape.dim[0];
	const float *d_part = gradient_of(got, part), *d_whole = gradient_of(right, whole) + part->first * each;
	double most = 0;
	for (int64_t i = 0; i < whole->count; i++)
		most = fmax(most, fabs((double)gradient_of(right, whole)[i]));
	REQUIRE(most > 0);
	for (int64_t i = 0; i < part->count; i++)
		REQUIRE(fabs((double)d_part[i] - (double)d_whole[i]) <= 2e-6 * most);
}

/* The ranks have the bits of rank 0. */
static void expect_same_bits(dtrain_group *group, const float *loss)
{
	const int size = dtrain_group_size(group);
	float *all = calloc((size_t)size * TOKENS, sizeof(*all));
	dtrain_work *work = NULL;
	REQUIRE(all);
	MUST(dtrain_all_gather(group, all, loss, TOKENS, DTRAIN_F32, NULL, &work, &err));
	MUST(dtrain_work_wait(&work, &err));
	for (int i = 0; i < size; i++)
		REQUIRE(memcmp(all + (int64_t)i * TOKENS, loss, sizeof(float) * TOKENS) == 0);
	free(all);
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
	for (size_t i = 0; i < 2 * sizeof(examples) / sizeof(examples[0]); i++) {
		const example *e = &examples[i / 2];
		network got, right;
		run(e, device, stream, mesh, i % 2, &got);
		run(e, device, stream, NULL, false, &right);
		for (int k = 0; k < TOKENS; k++)
			REQUIRE(fabsf(got.loss[k] - right.loss[k]) <= 2e-6f * fmaxf(1, right.loss[k]));
		expect_same_bits(r->group, got.loss);
		expect_rows(&got, &right, e->head);
		if (e->type == DTRAIN_TRANSFORMER_BERT)
			expect_rows(&got, &right, "cls.predictions.bias");
		close_network(&got);
		close_network(&right);
	}
	dtrain_mesh_destroy(&mesh);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	return 0;
}

static void parts_have_the_losses_of_the_whole(void **state)
{
	(void)state;
	static const int sizes[] = {1, 2, 4};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		run_ranks("ref", sizes[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(parts_have_the_losses_of_the_whole)};
	int status;
	if (is_rank(argc, argv, rank_main, &status))
		return status;
	return cmocka_run_group_tests_name("vocabulary", tests, NULL, NULL);
}
