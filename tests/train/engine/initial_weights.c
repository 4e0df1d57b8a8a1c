/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights under the names of other programs, models whose last layer is not a head, and positions of vision
 * transformers. initial_weights POSITIONS: positions resized by PyTorch (tests/golden/positions.txt). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/transformer.h>

#include "common/tensor_names.h"
#include "engine/pretrained/fit.h"
#include "engine/pretrained/pretrained.h"
#include "tests/support/numbers.h"

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static void names_of_other_programs(void **state)
{
	static const char *const cases[][2] = {
		{"patch_embed.proj.weight", "conv_proj.weight"},
		{"cls_token", "class_token"},
		{"pos_embed", "encoder.pos_embedding"},
		{"blocks.11.norm1.bias", "encoder.layers.encoder_layer_11.ln_1.bias"},
		{"blocks.0.attn.qkv.weight", "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"},
		{"blocks.3.attn.proj.bias", "encoder.layers.encoder_layer_3.self_attention.out_proj.bias"},
		{"blocks.3.mlp.fc2.weight", "encoder.layers.encoder_layer_3.mlp.3.weight"},
		{"head.weight", "heads.head.weight"},
		{"conv1.weight", "resnet.embedder.embedder.convolution.weight"},
		{"bn1.running_var", "resnet.embedder.embedder.normalization.running_var"},
		{"layer1.0.conv1.weight", "resnet.encoder.stages.0.layers.0.layer.0.convolution.weight"},
		{"layer4.22.bn3.bias", "resnet.encoder.stages.3.layers.22.layer.2.normalization.bias"},
		{"layer2.0.downsample.0.weight", "resnet.encoder.stages.1.layers.0.shortcut.convolution.weight"},
		{"layer2.0.downsample.1.running_mean",
		 "resnet.encoder.stages.1.layers.0.shortcut.normalization.running_mean"},
		{"fc.weight", "classifier.1.weight"},
		{"transformer.h.0.ln_1.weight", "h.0.ln_1.weight"},
		{"model.embed_tokens.weight", "embed_tokens.weight"},
		{"bert.pooler.dense.bias", "pooler.dense.bias"},
	};
	char out[BT_TENSOR_NAME_SIZE];
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_true(bt_tensor_alias(cases[i][0], 0, out));
		assert_string_equal(out, cases[i][1]);
	}
	assert_true(bt_tensor_alias("blocks.3.mlp.fc1.weight", 1, out));
	assert_string_equal(out, "encoder.layers.encoder_layer_3.mlp.linear_1.weight");
	assert_true(bt_tensor_alias("blocks.3.mlp.fc1.weight", 2, out));
	assert_string_equal(out, "vit.encoder.layer.3.intermediate.dense.weight");
	assert_true(bt_tensor_alias("blocks.3.mlp.fc1.weight", 3, out));
	assert_string_equal(out, "encoder.layer.3.intermediate.dense.weight");
	assert_false(bt_tensor_alias("blocks.3.mlp.fc1.weight", 4, out));
	assert_false(bt_tensor_alias("blocks.x.norm1.bias", 0, out));
	assert_true(bt_tensor_alias("layer3.5.conv2.weight", 1, out));
	assert_string_equal(out, "encoder.stages.2.layers.5.layer.1.convolution.weight");
	assert_false(bt_tensor_alias("layer3.5.conv2.weight", 2, out));
	assert_false(bt_tensor_alias("layer3.1234567890123.conv2.weight", 0, out));
	assert_false(bt_tensor_alias("fc1.weight", 0, out));
	assert_false(bt_tensor_alias("transformer.", 0, out));
}

/* ---- a small GPT-2 ---- */

typedef struct model {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	run_source source;
} model;

static void open_model(model *m)
{
	enum { T = 4 };
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_transformer description;
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_shape tokens = dtrain_shape_of(2, (int64_t[]){1, T});
	dtrain_transformer_init(&description);
	description.layers = 1;
	description.heads = description.kv_heads = 2;
	description.head_size = 4;
	description.width = 8;
	description.inner = 32;
	description.vocabulary = 11;
	description.positions = T;
	expect_ok(dtrain_device_open("ref", NULL, &m->device, &err), &err);
	m->api = dtrain_device_get_api(m->device);
	expect_ok(m->api->stream_create(m->device, &m->stream, &err), &err);
	expect_ok(dtrain_params_create(m->device, DTRAIN_F32, &m->params, &err), &err);
	expect_ok(dtrain_graph_create(m->params, false, &graph, &err), &err);
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	inputs.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &tokens);
	assert_true(dtrain_transformer_build(graph, &description, &inputs, &outputs) >= 0);
	dtrain_graph_destroy(&graph);
	expect_ok(dtrain_params_allocate(m->params, &err), &err);
}

static void add_tensor(model *m, const char *name, const dtrain_shape *shape)
{
	run_source_tensor *tensor = &m->source.tensors[m->source.count++];
	int64_t count = dtrain_shape_count(shape);
	*tensor = (run_source_tensor){.name = strdup(name), .shape = *shape, .values = malloc((size_t)count * 4)};
	assert_true(tensor->name && tensor->values);
	for (int64_t i = 0; i < count; i++)
		tensor->values[i] = (float)(m->source.count * 1000) + (float)i;
}

/* All tensors, without the first letters of their names, and what Hugging Face's GPT-2 has besides. */
static void fill_source(model *m, size_t letters)
{
	dtrain_shape mask = dtrain_shape_of(4, (int64_t[]){1, 1, 4, 4});
	int count = dtrain_params_count(m->params);
	m->source = (run_source){.path = strdup("gpt2.safetensors"), .info = json_object()};
	m->source.tensors = calloc((size_t)count + 2, sizeof(*m->source.tensors));
	assert_true(m->source.path && m->source.tensors);
	for (int i = 0; i < count; i++)
		add_tensor(m, dtrain_params_at(m->params, i)->name + letters, &dtrain_params_at(m->params, i)->shape);
	add_tensor(m, "h.0.attn.bias", &mask);
	add_tensor(m, "lm_head.weight", &mask);
}

static void close_model(model *m)
{
	run_source_close(&m->source);
	dtrain_params_destroy(&m->params);
	m->api->stream_destroy(m->stream);
	dtrain_device_close(&m->device);
}

static void check_weights_of(size_t letters)
{
	model m;
	run_init init;
	beton_error err = {0};
	open_model(&m);
	fill_source(&m, letters);
	int count = dtrain_params_count(m.params);
	expect_ok(run_init_apply(&m.source, m.params, m.params, m.stream, false, &init, &err), &err);
	assert_int_equal(init.taken, count);
	assert_int_equal(json_array_size(init.fresh), 0);
	assert_int_equal(json_array_size(init.unused), 1);
	assert_string_equal(json_string_value(json_array_get(init.unused, 0)), "lm_head.weight");
	for (int i = 0; i < count; i++) {
		const dtrain_param *param = dtrain_params_at(m.params, i);
		assert_memory_equal((float *)dtrain_params_values(m.params) + param->offset, m.source.tensors[i].values,
				    (size_t)param->count * sizeof(float));
	}
	run_init_free(&init);
	close_model(&m);
}

static void names_of_hugging_face(void **state)
{
	(void)state;
	check_weights_of(0);
	check_weights_of(strlen("transformer."));
}

/* It is declared last, but a language model without it would begin with another norm, not with another head. */
static void the_last_norm_is_no_head(void **state)
{
	model m;
	run_init init;
	beton_error err = {0};
	(void)state;
	open_model(&m);
	fill_source(&m, 0);
	for (size_t i = 0; i < m.source.count; i++)
		if (strcmp(m.source.tensors[i].name, "transformer.ln_f.weight") == 0)
			memcpy(m.source.tensors[i].name, "x", 2);
	assert_int_equal(run_init_apply(&m.source, m.params, m.params, m.stream, false, &init, &err), BETON_MISMATCH);
	assert_non_null(strstr(err.message, "has no tensor 'transformer.ln_f.weight'"));
	close_model(&m);
}

/* ---- vision transformers ---- */

static const char *positions_path;

/* With the row FROM_TO of the file. tokens: 1 if there is a class token, else 0. */
static void check_resized(int64_t from, int64_t to, int64_t tokens)
{
	enum { COLUMNS = 2 };
	char name[32];
	size_t found;
	snprintf(name, sizeof(name), "%d_%d", (int)from, (int)to);
	double *right = numbers_read(positions_path, name, &found);
	assert_int_equal(found, (to * to + 1) * COLUMNS);
	beton_error err = {0};
	run_source_tensor old = {.name = "pos_embed"}, out;
	dtrain_shape shape = dtrain_shape_of(3, (int64_t[]){1, to * to + tokens, COLUMNS});
	old.shape = dtrain_shape_of(3, (int64_t[]){1, from * from + tokens, COLUMNS});
	int64_t count = dtrain_shape_count(&old.shape);
	old.values = malloc((size_t)count * sizeof(float));
	const int64_t left_out = (1 - tokens) * COLUMNS;
	for (int64_t i = 0; i < count; i++)
		old.values[i] = (float)((i + left_out) * (i + left_out) % 31 - 15);
	assert_true(run_fit_is_resized("pos_embed", &old.shape, &shape));
	expect_ok(run_fit_resize(&old, &shape, &out, &err), &err);
	for (int64_t i = 0; i < dtrain_shape_count(&shape); i++)
		if (!(fabs((double)out.values[i] - right[left_out + i]) <= 4e-6))
			fail_msg("position %lld: %g, PyTorch has %g", (long long)i, (double)out.values[i],
				 right[left_out + i]);
	free(right);
	free(old.values);
	free(out.values);
}

static void positions_are_resized_as_by_timm(void **state)
{
	dtrain_shape five = dtrain_shape_of(3, (int64_t[]){1, 5, 2}), six = dtrain_shape_of(3, (int64_t[]){1, 6, 2});
	(void)state;
	for (int64_t tokens = 0; tokens <= 1; tokens++) {
		check_resized(2, 3, tokens);
		check_resized(4, 3, tokens);
	}
	assert_false(run_fit_is_resized("pos_embed", &five, &five));
	assert_false(run_fit_is_resized("pos_embed", &five, &six));
	assert_false(run_fit_is_resized("pos_embed", &five, &(dtrain_shape){3, {1, 9, 2}}));
	assert_false(run_fit_is_resized("cls_token", &five, &(dtrain_shape){3, {1, 10, 2}}));
}

static void open_vit(model *m)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_transformer description;
	dtrain_shape pictures = dtrain_shape_of(4, (int64_t[]){1, 3, 8, 8});
	expect_ok(dtrain_transformer_find("vit-mini4", &description, &err), &err);
	description.layers = 1;
	expect_ok(dtrain_device_open("ref", NULL, &m->device, &err), &err);
	m->api = dtrain_device_get_api(m->device);
	expect_ok(m->api->stream_create(m->device, &m->stream, &err), &err);
	expect_ok(dtrain_params_create(m->device, DTRAIN_F32, &m->params, &err), &err);
	expect_ok(dtrain_graph_create(m->params, false, &graph, &err), &err);
	dtrain_tensor image = dtrain_graph_input(graph, "image", DTRAIN_F32, &pictures);
	assert_true(dtrain_vit_build(graph, &description, image, -1, 5) >= 0);
	dtrain_graph_destroy(&graph);
	expect_ok(dtrain_params_allocate(m->params, &err), &err);
}

/* Names of ViTForImageClassification, in the order of the parameters. Three tensors are one here. */
static void queries_keys_and_values_are_joined(void **state)
{
#define LAYER "vit.encoder.layer.0."
	static const struct {
		const char *ours, *theirs;
	} names[] = {{"patch_embed.proj.weight", "vit.embeddings.patch_embeddings.projection.weight"},
		     {"patch_embed.proj.bias", "vit.embeddings.patch_embeddings.projection.bias"},
		     {"cls_token", "vit.embeddings.cls_token"},
		     {"pos_embed", "vit.embeddings.position_embeddings"},
		     {"blocks.0.norm1.weight", LAYER "layernorm_before.weight"},
		     {"blocks.0.norm1.bias", LAYER "layernorm_before.bias"},
		     {"blocks.0.attn.qkv.weight", LAYER "attention.attention.%s.weight"},
		     {"blocks.0.attn.qkv.bias", LAYER "attention.attention.%s.bias"},
		     {"blocks.0.attn.proj.weight", LAYER "attention.output.dense.weight"},
		     {"blocks.0.attn.proj.bias", LAYER "attention.output.dense.bias"},
		     {"blocks.0.norm2.weight", LAYER "layernorm_after.weight"},
		     {"blocks.0.norm2.bias", LAYER "layernorm_after.bias"},
		     {"blocks.0.mlp.fc1.weight", LAYER "intermediate.dense.weight"},
		     {"blocks.0.mlp.fc1.bias", LAYER "intermediate.dense.bias"},
		     {"blocks.0.mlp.fc2.weight", LAYER "output.dense.weight"},
		     {"blocks.0.mlp.fc2.bias", LAYER "output.dense.bias"},
		     {"norm.weight", "vit.layernorm.weight"},
		     {"norm.bias", "vit.layernorm.bias"},
		     {"head.weight", "classifier.weight"},
		     {"head.bias", "classifier.bias"}};
	static const char *const parts[] = {"query", "key", "value"};
	enum { COUNT = sizeof(names) / sizeof(names[0]) };
	model m;
	run_init init;
	beton_error err = {0};
	(void)state;
	open_vit(&m);
	assert_int_equal(dtrain_params_count(m.params), COUNT);
	m.source = (run_source){.path = strdup("vit.safetensors"), .info = json_object()};
	m.source.tensors = calloc(COUNT + 4, sizeof(*m.source.tensors));
	for (int i = 0; i < COUNT; i++) {
		dtrain_shape shape = dtrain_params_at(m.params, i)->shape;
		bool split = strchr(names[i].theirs, '%') != NULL;
		assert_string_equal(dtrain_params_at(m.params, i)->name, names[i].ours);
		shape.dim[0] /= split ? 3 : 1;
		for (int k = 0; k < (split ? 3 : 1); k++) {
			const char *cut = strchr(names[i].theirs, '%');
			char name[128];
			snprintf(name, sizeof(name), "%.*s%s%s", split ? (int)(cut - names[i].theirs) : 0,
				 names[i].theirs, split ? parts[k] : "", split ? cut + 2 : names[i].theirs);
			add_tensor(&m, name, &shape);
		}
	}
	expect_ok(run_init_apply(&m.source, m.params, m.params, m.stream, false, &init, &err), &err);
	assert_int_equal(init.taken, COUNT);
	assert_int_equal(json_array_size(init.fresh) + json_array_size(init.unused) + json_array_size(init.resized), 0);
	size_t at = 0;
	for (int i = 0; i < COUNT; i++) {
		const dtrain_param *param = dtrain_params_at(m.params, i);
		const float *values = (float *)dtrain_params_values(m.params) + param->offset;
		for (int64_t done = 0; done < param->count; at++) {
			int64_t count = dtrain_shape_count(&m.source.tensors[at].shape);
			assert_memory_equal(values + done, m.source.tensors[at].values, (size_t)count * sizeof(float));
			done += count;
		}
	}
	run_init_free(&init);
	/* A part that is missing. */
	memcpy(m.source.tensors[7].name, "x", 2);
	assert_int_equal(run_init_apply(&m.source, m.params, m.params, m.stream, false, &init, &err), BETON_MISMATCH);
	assert_non_null(strstr(err.message, "has no tensor 'blocks.0.attn.qkv.weight'"));
	close_model(&m);
}

int main(int argc, char **argv)
{
	positions_path = argc > 1 ? argv[1] : NULL;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_of_other_programs),
		cmocka_unit_test(names_of_hugging_face),
		cmocka_unit_test(the_last_norm_is_no_head),
		cmocka_unit_test(positions_are_resized_as_by_timm),
		cmocka_unit_test(queries_keys_and_values_are_joined),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
