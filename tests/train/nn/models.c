/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameters of transformers, which are declared without memory for them, and files that describe models.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/model.h>
#include <dtrain/transformer.h>

#include "tests/support/temporary.h"
#include "core/graph.h"

enum { T = 16 };

/* Parameters of a model, and how many of them weight decay is for: those with two dimensions. */
typedef struct parameters {
	dtrain_device *device;
	dtrain_params *params;
	dtrain_graph *graph;
	int decayed, others;
	int64_t decayed_count, other_count;
} parameters;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static void begin(parameters *p)
{
	beton_error err = {0};
	*p = (parameters){.decayed = 0};
	expect_ok(dtrain_device_open("ref", NULL, &p->device, &err), &err);
	expect_ok(dtrain_params_create(p->device, DTRAIN_F32, &p->params, &err), &err);
	expect_ok(dtrain_graph_create(p->params, true, &p->graph, &err), &err);
}

static void count(parameters *p)
{
	for (int i = 0; i < dtrain_params_count(p->params); i++) {
		const dtrain_param *param = dtrain_params_at(p->params, i);
		bool decays = param->shape.ndim >= 2;
		*(decays ? &p->decayed : &p->others) += 1;
		*(decays ? &p->decayed_count : &p->other_count) += param->count;
	}
}

static void end(parameters *p)
{
	dtrain_graph_destroy(&p->graph);
	dtrain_params_destroy(&p->params);
	dtrain_device_close(&p->device);
}

static void declare(parameters *p, const dtrain_transformer *description)
{
	dtrain_shape tokens = dtrain_shape_of(2, (int64_t[]){1, T}), randoms = dtrain_shape_of(1, (int64_t[]){4});
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	begin(p);
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	inputs.tokens = dtrain_graph_input(p->graph, "tokens", DTRAIN_I64, &tokens);
	inputs.random = dtrain_graph_input(p->graph, "random", DTRAIN_I64, &randoms);
	assert_true(dtrain_transformer_build(p->graph, description, &inputs, &outputs) >= 0);
	count(p);
}

static void declare_vit(parameters *p, const char *model, int64_t side, int64_t classes)
{
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){1, 3, side, side});
	begin(p);
	assert_true(dtrain_model_build(p->graph, model, dtrain_graph_input(p->graph, "image", DTRAIN_F32, &image),
				       classes) >= 0);
	count(p);
}

static void counts_are_those_of_hugging_face(void **state)
{
	static const struct {
		const char *name;
		int64_t count;
	} cases[] = {{"gpt2", 124439808},
		     {"gpt2-medium", 354823168},
		     {"gpt2-large", 774030080},
		     {"gpt2-xl", 1557611200},
		     {"gpt2-baby", 10745088},
		     {"gpt3-175b", 96 * (12 * 12288ll * 12288 + 13 * 12288) + (50257 + 2048 + 2) * 12288ll},
		     {"llama-7b", 6738415616},
		     {"llama-13b", 13015864320},
		     {"llama-70b", 68976648192},
		     {"bert-tiny", 4416698},
		     {"bert-base", 109514298},
		     {"bert-large", 335174458}};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		dtrain_transformer description;
		beton_error err = {0};
		parameters p;
		expect_ok(dtrain_transformer_find(cases[i].name, &description, &err), &err);
		assert_string_equal(dtrain_transformer_name((int)i), cases[i].name);
		declare(&p, &description);
		assert_int_equal(p.decayed_count + p.other_count, cases[i].count);
		if (i == 0) {
			assert_int_equal(p.decayed, 50);
			assert_int_equal(p.decayed_count, 124318464);
			assert_int_equal(p.others, 98);
			assert_int_equal(p.other_count, 121344);
		}
		end(&p);
	}
	assert_null(dtrain_transformer_name(sizeof(cases) / sizeof(cases[0])));
}

static void names_are_those_of_hugging_face(void **state)
{
	static const char *const names[] = {"transformer.wte.weight",
					    "transformer.wpe.weight",
					    "transformer.h.0.ln_1.weight",
					    "transformer.h.0.ln_1.bias",
					    "transformer.h.0.attn.c_attn.weight",
					    "transformer.h.0.attn.c_attn.bias",
					    "transformer.h.0.attn.c_proj.weight",
					    "transformer.h.0.attn.c_proj.bias",
					    "transformer.h.0.ln_2.weight",
					    "transformer.h.0.ln_2.bias",
					    "transformer.h.0.mlp.c_fc.weight",
					    "transformer.h.0.mlp.c_fc.bias",
					    "transformer.h.0.mlp.c_proj.weight",
					    "transformer.h.0.mlp.c_proj.bias",
					    "transformer.h.1.ln_1.weight"};
	dtrain_transformer description;
	parameters p;
	(void)state;
	dtrain_transformer_init(&description);
	declare(&p, &description);
	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++)
		assert_string_equal(dtrain_params_at(p.params, i)->name, names[i]);
	const dtrain_param *attention = dtrain_params_at(p.params, 4), *projection = dtrain_params_at(p.params, 6);
	assert_int_equal(attention->shape.dim[0], 768);
	assert_int_equal(attention->shape.dim[1], 3 * 768);
	assert_int_equal(attention->fan_in, 2500);       /* 0.02 */
	assert_int_equal(projection->fan_in, 2500 * 24); /* 0.02 / sqrt(2 * 12) */
	const dtrain_param *last = dtrain_params_at(p.params, dtrain_params_count(p.params) - 1);
	assert_string_equal(last->name, "transformer.ln_f.bias");
	assert_int_equal(last->block, 13);
	end(&p);
}

/* ---- initial values ---- */

/* The standard deviation of a parameter around 0. */
static double deviation_of(const dtrain_params *params, const char *name)
{
	const float *values = dtrain_params_values((dtrain_params *)params);
	for (int i = 0; i < dtrain_params_count(params); i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		double sum = 0;
		for (int64_t k = 0; k < param->count; k++)
			sum += (double)values[param->offset + k] * (double)values[param->offset + k];
		if (strcmp(param->name, name) == 0)
			return sqrt(sum / (double)param->count);
	}
	fail_msg("no parameter %s", name);
	return 0;
}

static void expect_deviation(const dtrain_params *params, const char *name, double expected)
{
	double got = deviation_of(params, name);
	if (!(fabs(got - expected) <= 0.05 * expected))
		fail_msg("%s: a deviation of %g instead of %g", name, got, expected);
}

static void initialize(parameters *p)
{
	beton_error err = {0};
	dtrain_stream *stream;
	const dtrain_device_api *api = dtrain_device_get_api(p->device);
	expect_ok(api->stream_create(p->device, &stream, &err), &err);
	expect_ok(dtrain_params_allocate(p->params, &err), &err);
	expect_ok(dtrain_params_initialize(p->params, 1, stream, &err), &err);
	expect_ok(api->stream_synchronize(stream, &err), &err);
	api->stream_destroy(stream);
}

static void initial_values_of_gpt2(void **state)
{
	static const double deviations[] = {0.02, 1e-6, 0.3, 0.9, 40};
	dtrain_transformer description;
	parameters p;
	(void)state;
	dtrain_transformer_init(&description);
	description.width = 96;
	description.head_size = 8;
	description.inner = 384;
	description.vocabulary = 100;
	description.layers = 8;
	for (size_t i = 0; i < sizeof(deviations) / sizeof(deviations[0]); i++) {
		double deviation = description.deviation = deviations[i];
		declare(&p, &description);
		initialize(&p);
		expect_deviation(p.params, "transformer.wte.weight", deviation);
		expect_deviation(p.params, "transformer.wpe.weight", deviation);
		expect_deviation(p.params, "transformer.h.1.attn.c_attn.weight", deviation);
		expect_deviation(p.params, "transformer.h.1.attn.c_proj.weight", deviation / 4);
		expect_deviation(p.params, "transformer.h.7.mlp.c_fc.weight", deviation);
		expect_deviation(p.params, "transformer.h.7.mlp.c_proj.weight", deviation / 4);
		assert_true(deviation_of(p.params, "transformer.h.7.mlp.c_fc.bias") == 0);
		assert_true(deviation_of(p.params, "transformer.h.7.ln_2.weight") == 1);
		end(&p);
	}
}

/* A ViT, from pictures with 3 channels in patches of 4 x 4, and a plain one. */
static void initial_values_of_vits(void **state)
{
	parameters p;
	(void)state;
	declare_vit(&p, "vit-mini4", 32, 100);
	initialize(&p);
	expect_deviation(p.params, "patch_embed.proj.weight", 1 / sqrt(3.0 * 48));
	expect_deviation(p.params, "pos_embed", 0.02);
	expect_deviation(p.params, "blocks.0.attn.qkv.weight", 0.02);
	expect_deviation(p.params, "head.weight", 0.02);
	assert_true(deviation_of(p.params, "cls_token") < 2e-6);
	end(&p);
	declare_vit(&p, "vit-mini4-plain", 32, 100);
	initialize(&p);
	expect_deviation(p.params, "patch_embed.proj.weight", 1 / sqrt(48.0));
	expect_deviation(p.params, "blocks.0.attn.qkv.weight", sqrt(2.0 / (2 * 96)));
	expect_deviation(p.params, "blocks.0.mlp.fc2.weight", sqrt(2.0 / (5 * 96)));
	assert_true(deviation_of(p.params, "head.weight") == 0);
	end(&p);
}

/* ---- dropout ---- */

/* After the embeddings, each attention and each MLP; each place draws other numbers. */
static void dropout_has_hugging_face_s_places(void **state)
{
	static const dtrain_transformer_type types[] = {DTRAIN_TRANSFORMER_GPT2, DTRAIN_TRANSFORMER_BERT};
	(void)state;
	for (int k = 0; k < 2; k++) {
		dtrain_transformer description;
		parameters p;
		dtrain_transformer_init(&description);
		description.type = types[k];
		description.token_types = 2;
		description.layers = 3;
		description.embedding_dropout = 0.25;
		description.dropout = 0.5;
		declare(&p, &description);
		int found = 0;
		for (int i = 0; i < p.graph->num_nodes; i++) {
			const dtrain__node *node = &p.graph->nodes[i];
			if (node->kind != DTRAIN_OP_DROPOUT)
				continue;
			assert_int_equal(node->attrs.dropout.layer, found);
			assert_true(node->attrs.dropout.p == (found ? 0.5 : 0.25));
			found++;
		}
		assert_int_equal(found, 1 + 2 * 3);
		end(&p);
	}
}

/* A ViT has the same places, followed by stochastic depth, except in layer 0. */
static void stochastic_depth_grows_with_the_layer(void **state)
{
	dtrain_transformer description;
	parameters p;
	beton_error err = {0};
	dtrain_shape pictures = dtrain_shape_of(4, (int64_t[]){2, 3, 32, 32});
	dtrain_shape randoms = dtrain_shape_of(1, (int64_t[]){DTRAIN_RANDOMS});
	(void)state;
	expect_ok(dtrain_transformer_find("vit-mini4", &description, &err), &err);
	description.layers = 3;
	description.embedding_dropout = 0.25;
	description.dropout = 0.5;
	description.drop_path = 0.4;
	begin(&p);
	dtrain_tensor image = dtrain_graph_input(p.graph, "image", DTRAIN_F32, &pictures);
	dtrain_tensor random = dtrain_graph_input(p.graph, "random", DTRAIN_I64, &randoms);
	assert_true(dtrain_vit_build(p.graph, &description, image, random, 10) >= 0);
	int elements = 0, paths = 0;
	bool seen[64] = {false};
	for (int i = 0; i < p.graph->num_nodes; i++) {
		const dtrain__node *node = &p.graph->nodes[i];
		if (node->kind != DTRAIN_OP_DROPOUT)
			continue;
		assert_false(seen[node->attrs.dropout.layer]);
		seen[node->attrs.dropout.layer] = true;
		if (node->attrs.dropout.per_row)
			assert_true(node->attrs.dropout.p == 0.4 * (paths++ / 2 ? 1 : 0.5));
		else
			assert_true(node->attrs.dropout.p == (elements++ ? 0.5 : 0.25));
	}
	assert_int_equal(elements, 1 + 2 * 3);
	assert_int_equal(paths, 2 * 2);
	assert_int_equal(dtrain_vit_build(p.graph, &description, image, -1, 10), -1);
	end(&p);
}

static void expect_build_fault(const dtrain_transformer *description, bool training, int64_t length, const char *words)
{
	dtrain_shape tokens = dtrain_shape_of(2, (int64_t[]){1, length});
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_program *program;
	beton_error err = {0};
	parameters p;
	begin(&p);
	dtrain_graph_destroy(&p.graph);
	expect_ok(dtrain_graph_create(p.params, training, &p.graph, &err), &err);
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	inputs.tokens = dtrain_graph_input(p.graph, "tokens", DTRAIN_I64, &tokens);
	dtrain_tensor hidden = dtrain_transformer_build(p.graph, description, &inputs, &outputs);
	if (words) {
		assert_int_equal(hidden, -1);
		assert_int_equal(dtrain_transformer_logits(p.graph, &outputs, -1), -1);
		assert_int_equal(dtrain_transformer_losses(p.graph, &outputs, inputs.tokens, NULL), -1);
		assert_int_equal(dtrain_graph_compile(&p.graph, &program, &err), BETON_INVALID_ARGUMENT);
		if (!strstr(err.message, words))
			fail_msg("'%s' does not say '%s'", err.message, words);
	} else {
		assert_true(hidden >= 0);
	}
	end(&p);
}

static void faults_of_builds(void **state)
{
	dtrain_transformer description;
	(void)state;
	dtrain_transformer_init(&description);
	description.layers = 1;
	expect_build_fault(&description, true, 1024, NULL);
	expect_build_fault(&description, true, 1025, "tokens [1, 1025]; needs [b, t] with t at most 1024");
	description.dropout = 0.1;
	expect_build_fault(&description, false, T, NULL);
	expect_build_fault(&description, true, T, "dropout needs the input of random numbers");
	description.heads = 5;
	expect_build_fault(&description, false, T, "\"n_embd\" 768 is not divisible by \"n_head\" 5");
	description.heads = 0;
	expect_build_fault(&description, false, T, "\"n_head\" is 0, not positive");
	beton_error err = {0};
	expect_ok(dtrain_transformer_find("vit-s16", &description, &err), &err);
	expect_build_fault(&description, false, T, "no model of tokens");
}

/* ---- pictures ---- */

/* The plain ones have no class token, and their positions are not parameters. */
static void counts_are_those_of_timm(void **state)
{
	static const struct {
		const char *name;
		int64_t side, classes, count;
	} cases[] = {{"vit-s16", 224, 1000, 22050664},
		     {"vit-b16", 224, 1000, 86567656},
		     {"vit-l16", 224, 1000, 304326632},
		     {"vit-h14", 224, 1000, 632045800},
		     {"vit-s16-plain", 224, 1000, 22050664 - 198 * 384},
		     {"vit-b16-plain", 224, 1000, 86567656 - 198 * 768},
		     {"vit-ti4", 32, 10, 5362762},
		     {"vit-mini4", 32, 10, 683242}};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		parameters p;
		declare_vit(&p, cases[i].name, cases[i].side, cases[i].classes);
		assert_int_equal(p.decayed_count + p.other_count, cases[i].count);
		assert_int_equal(dtrain_params_buffer_count(p.params), strstr(cases[i].name, "plain") ? 1 : 0);
		end(&p);
	}
}

static void names_are_those_of_timm(void **state)
{
	static const char *const names[] = {"patch_embed.proj.weight",
					    "patch_embed.proj.bias",
					    "cls_token",
					    "pos_embed",
					    "blocks.0.norm1.weight",
					    "blocks.0.norm1.bias",
					    "blocks.0.attn.qkv.weight",
					    "blocks.0.attn.qkv.bias",
					    "blocks.0.attn.proj.weight",
					    "blocks.0.attn.proj.bias",
					    "blocks.0.norm2.weight",
					    "blocks.0.norm2.bias",
					    "blocks.0.mlp.fc1.weight",
					    "blocks.0.mlp.fc1.bias",
					    "blocks.0.mlp.fc2.weight",
					    "blocks.0.mlp.fc2.bias",
					    "blocks.1.norm1.weight"};
	static const char *const last[] = {"norm.weight", "norm.bias", "head.weight", "head.bias"};
	parameters p;
	(void)state;
	declare_vit(&p, "vit-mini4", 16, 10);
	int total = dtrain_params_count(p.params);
	for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++)
		assert_string_equal(dtrain_params_at(p.params, i)->name, names[i]);
	for (int i = 0; i < 4; i++)
		assert_string_equal(dtrain_params_at(p.params, total - 4 + i)->name, last[i]);
	assert_int_equal(dtrain_params_at(p.params, 3)->shape.dim[1], 17);
	end(&p);
}

static void expect_vit_fault(const char *model, int64_t height, int64_t width, const char *words)
{
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){1, 3, height, width});
	dtrain_program *program;
	beton_error err = {0};
	parameters p;
	begin(&p);
	dtrain_tensor x = dtrain_graph_input(p.graph, "image", DTRAIN_F32, &image);
	assert_int_equal(dtrain_model_build(p.graph, model, x, 10), -1);
	assert_true(dtrain_graph_compile(&p.graph, &program, &err) != BETON_OK);
	if (!strstr(err.message, words))
		fail_msg("'%s' does not say '%s'", err.message, words);
	end(&p);
}

static void pictures_must_fit_patches(void **state)
{
	(void)state;
	expect_vit_fault("vit-mini4", 16, 18, "16 x 18 pixels is not divisible into patches of 4");
	expect_vit_fault("vit-mini4-plain", 16, 12, "16 x 12 pixels is not divisible into a square of patches of 4");
	expect_vit_fault("gpt2", 16, 16, "no model 'gpt2' of pictures; there are: mlp");
	expect_vit_fault("none/config.json", 16, 16, "none/config.json");
}

/* ---- files ---- */

#define GPT2_FILE "\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 2, \"n_head\": 2, \"vocab_size\": 11"

static int read_text(const char *text, dtrain_transformer *out, beton_error *err)
{
	static const char path[] = "config.json";
	FILE *file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	int status = dtrain_transformer_read(path, out, err);
	if (status != BETON_OK)
		assert_non_null(strstr(err->message, path));
	remove(path);
	return status;
}

static void files_are_read(void **state)
{
	dtrain_transformer t;
	beton_error err = {0};
	(void)state;
	expect_ok(read_text("{" GPT2_FILE ", \"n_positions\": 16, \"n_inner\": null, \"resid_pdrop\": 0, "
			    "\"tie_word_embeddings\": false, \"bias\": false, \"layer_norm_epsilon\": 1e-6, "
			    "\"activation_function\": \"gelu\", \"architectures\": [\"GPT2LMHeadModel\"]}",
			    &t, &err),
		  &err);
	assert_int_equal(t.type, DTRAIN_TRANSFORMER_GPT2);
	assert_true(t.dropout == 0 && t.embedding_dropout == 0.1 && t.attention_dropout == 0.1);
	assert_int_equal(t.inner, 32);
	assert_int_equal(t.head_size, 4);
	assert_int_equal(t.activation, DTRAIN_ACTIVATION_GELU);
	assert_true(!t.tied && !t.bias && t.epsilon == 1e-6 && t.dropout == 0 && t.embedding_dropout == 0.1);
}

#define LLAMA_FILE                                                                            \
	"\"model_type\": \"llama\", \"hidden_size\": 4096, \"num_hidden_layers\": 32, "       \
	"\"num_attention_heads\": 32, \"intermediate_size\": 14336, \"vocab_size\": 128256, " \
	"\"max_position_embeddings\": 8192, \"num_key_value_heads\": 8"
#define VIT_FILE                                                                                              \
	"\"model_type\": \"vit\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, " \
	"\"intermediate_size\": 16, \"image_size\": 8, \"patch_size\": 4"
#define BERT_FILE                                                                           \
	"\"model_type\": \"bert\", \"hidden_size\": 768, \"num_hidden_layers\": 12, "       \
	"\"num_attention_heads\": 12, \"intermediate_size\": 3072, \"vocab_size\": 30522, " \
	"\"max_position_embeddings\": 512"

/* Llama 3 8B and BERT base. */
static void counts_of_files_are_those_of_hugging_face(void **state)
{
	static const struct {
		const char *text;
		int64_t count;
	} cases[] = {
		{"{" LLAMA_FILE ", \"rope_theta\": 500000.0, \"rms_norm_eps\": 1e-05}", 8030261248},
		{"{" BERT_FILE "}", 109514298},
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		dtrain_transformer t;
		beton_error err = {0};
		parameters p;
		expect_ok(read_text(cases[i].text, &t, &err), &err);
		declare(&p, &t);
		assert_int_equal(p.decayed_count + p.other_count, cases[i].count);
		end(&p);
	}
}

static const struct {
	const char *text;
	int status;
	const char *words;
} faults[] = {
	{"{", BETON_FORMAT, "line 1"},
	{"[]", BETON_FORMAT, "not a JSON object"},
	{"{}", BETON_FORMAT, "no \"model_type\""},
	{"{\"model_type\": 1}", BETON_FORMAT, "\"model_type\" is not a string"},
	{"{\"model_type\": \"t5\"}", BETON_UNSUPPORTED, "\"model_type\" is \"t5\""},
	{"{" GPT2_FILE "}", BETON_FORMAT, "no \"n_positions\""},
	{"{" GPT2_FILE ", \"n_positions\": null}", BETON_FORMAT, "no \"n_positions\""},
	{"{" GPT2_FILE ", \"n_positions\": \"16\"}", BETON_FORMAT, "\"n_positions\" is not a whole number"},
	{"{" GPT2_FILE ", \"n_positions\": 16.5}", BETON_FORMAT, "\"n_positions\" is not a whole number"},
	{"{" GPT2_FILE ", \"n_positions\": 0}", BETON_FORMAT, "\"n_positions\" is 0"},
	{"{" GPT2_FILE ", \"n_positions\": 3000000000}", BETON_FORMAT, "\"n_positions\" is 3000000000"},
	{"{" GPT2_FILE ", \"n_positions\": 9, \"n_positions\": 8}", BETON_FORMAT, "duplicate"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"bias\": 1}", BETON_FORMAT, "\"bias\" is not true or false"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"resid_pdrop\": 1}", BETON_FORMAT, "\"resid_pdrop\" is 1"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"layer_norm_epsilon\": 0}", BETON_FORMAT, "is 0, not 1e-30 .. 1"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"layer_norm_epsilon\": 1e300}", BETON_FORMAT,
	 "is 1e+300, not 1e-30 .. 1"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"layer_norm_epsilon\": true}", BETON_FORMAT, "not a number"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"initializer_range\": 1e-10}", BETON_FORMAT,
	 "\"initializer_range\" is 1e-10, not 1e-07 .. 1e+06"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"activation_function\": \"relu\"}", BETON_UNSUPPORTED,
	 "\"activation_function\" is \"relu\""},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"activation_function\": 3}", BETON_FORMAT, "not a string"},
	{"{" GPT2_FILE ", \"n_positions\": 16, \"scale_attn_weights\": false}", BETON_UNSUPPORTED,
	 "\"scale_attn_weights\" is supported only as true"},
	{"{\"model_type\": \"gpt2\", \"n_embd\": 9, \"n_layer\": 2, \"n_head\": 2, \"vocab_size\": 11, "
	 "\"n_positions\": 3}",
	 BETON_FORMAT, "\"n_embd\" 9 is not divisible by \"n_head\" 2"},
	{"{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 70000, \"n_head\": 2, \"vocab_size\": 11, "
	 "\"n_positions\": 3}",
	 BETON_FORMAT, "\"n_layer\" is 70000"},
	{"{" LLAMA_FILE ", \"rope_scaling\": {\"factor\": 8.0}}", BETON_UNSUPPORTED, "\"rope_scaling\""},
	{"{" LLAMA_FILE ", \"rope_parameters\": {\"rope_type\": \"llama3\"}}", BETON_UNSUPPORTED,
	 "\"rope_parameters.rope_type\""},
	{"{" LLAMA_FILE ", \"rope_parameters\": {\"rope_theta\": \"1\"}}", BETON_FORMAT,
	 "\"rope_parameters.rope_theta\" is not a number"},
	{"{" LLAMA_FILE ", \"rope_theta\": 1e-300}", BETON_FORMAT, "\"rope_theta\" is 1e-300, not 1 .. 1e+12"},
	{"{" LLAMA_FILE ", \"rope_parameters\": {\"rope_theta\": 0.5}}", BETON_FORMAT,
	 "\"rope_parameters.rope_theta\" is 0.5, not 1 .. 1e+12"},
	{"{" LLAMA_FILE ", \"rope_parameters\": 1}", BETON_FORMAT, "\"rope_parameters\" is not an object"},
	{"{" LLAMA_FILE ", \"head_dim\": 5}", BETON_FORMAT, "\"head_dim\" 5 is odd"},
	{"{" LLAMA_FILE ", \"hidden_act\": \"gelu\"}", BETON_UNSUPPORTED, "\"hidden_act\""},
	{"{" LLAMA_FILE ", \"attention_bias\": true}", BETON_UNSUPPORTED, "\"attention_bias\""},
	{"{\"model_type\": \"llama\", \"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": "
	 "4, "
	 "\"intermediate_size\": 8, \"vocab_size\": 8, \"max_position_embeddings\": 8, "
	 "\"num_key_value_heads\": 3}",
	 BETON_FORMAT, "\"num_attention_heads\" 4 is not divisible by \"num_key_value_heads\" 3"},
	{"{" VIT_FILE ", \"pool\": \"max\"}", BETON_FORMAT, "\"pool\" is not \"class\" or \"mean\""},
	{"{" VIT_FILE ", \"pool\": true}", BETON_FORMAT, "\"pool\" is not \"class\" or \"mean\""},
	{"{" VIT_FILE ", \"class_token\": 0}", BETON_FORMAT, "\"class_token\" is not true or false"},
	{"{" VIT_FILE ", \"class_token\": false}", BETON_FORMAT,
	 "without a \"class_token\", \"pool\" has to be \"mean\""},
	{"{" VIT_FILE ", \"pool\": \"mean\", \"plain\": true}", BETON_FORMAT, "cannot be combined with \"plain\""},
	{"{" BERT_FILE ", \"position_embedding_type\": \"relative_key\"}", BETON_UNSUPPORTED,
	 "\"position_embedding_type\" is supported only as \"absolute\""},
};

static void faults_name_file_and_key(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		dtrain_transformer t;
		beton_error err = {0};
		assert_int_equal(read_text(faults[i].text, &t, &err), faults[i].status);
		if (!strstr(err.message, faults[i].words))
			fail_msg("'%s' does not say '%s'", err.message, faults[i].words);
	}
}

static void unknown_names_are_faults(void **state)
{
	dtrain_transformer t;
	beton_error err = {0};
	(void)state;
	assert_int_equal(dtrain_transformer_find("gpt3", &t, &err), BETON_NOT_FOUND);
	assert_non_null(strstr(err.message, "gpt2-medium"));
	assert_int_equal(dtrain_transformer_find("none.json", &t, &err), BETON_NOT_FOUND);
	assert_non_null(strstr(err.message, "none.json"));
	assert_int_equal(dtrain_transformer_find("/", &t, &err), BETON_INVALID_ARGUMENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dropout_has_hugging_face_s_places),
		cmocka_unit_test(stochastic_depth_grows_with_the_layer),
		cmocka_unit_test(faults_of_builds),
		cmocka_unit_test(initial_values_of_gpt2),
		cmocka_unit_test(initial_values_of_vits),
		cmocka_unit_test(counts_are_those_of_timm),
		cmocka_unit_test(names_are_those_of_timm),
		cmocka_unit_test(pictures_must_fit_patches),
		cmocka_unit_test(counts_are_those_of_hugging_face),
		cmocka_unit_test(names_are_those_of_hugging_face),
		cmocka_unit_test(files_are_read),
		cmocka_unit_test(faults_name_file_and_key),
		cmocka_unit_test(unknown_names_are_faults),
		cmocka_unit_test(counts_of_files_are_those_of_hugging_face),
	};
	char folder[256];
	assert_int_equal(temporary_enter(folder), 0);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
