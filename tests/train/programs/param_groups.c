/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of parameters, and the options that make them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/model.h>
#include <dtrain/transformer.h>

#include "programs/ffcv/param_groups.h"

/* Convolutions, batch norm, a linear layer with a bias. */
static dtrain_params *make_params(dtrain_device *device, const char *model)
{
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){2, 3, 16, 16});
	assert_int_equal(dtrain_params_create(device, DTRAIN_F32, &params, NULL), BETON_OK);
	assert_int_equal(dtrain_graph_create(params, true, &graph, NULL), BETON_OK);
	assert_true(dtrain_model_build(graph, model, dtrain_graph_input(graph, "image", DTRAIN_F32, &image), 10) >= 0);
	dtrain_graph_destroy(&graph);
	assert_int_equal(dtrain_params_allocate(params, NULL), BETON_OK);
	return params;
}

static bool has(const char *name, const char *part)
{
	return strstr(name, part) != NULL;
}

static void biases_are_those_of_one_dimension(void **state)
{
	(void)state;
	dtrain_device *device;
	run_groups groups;
	run_options options = {.model = "resnet20", .weight_decay = 0.5, .bias_lr_scale = 1, .layer_decay = 1};
	int biases = 0;
	assert_int_equal(dtrain_device_open("ref", NULL, &device, NULL), BETON_OK);
	dtrain_params *params = make_params(device, "resnet20");
	assert_int_equal(run_groups_make(&options, params, params, &groups, NULL), BETON_OK);
	for (int i = 0; i < dtrain_params_count(params); i++) {
		const char *name = dtrain_params_at(params, i)->name;
		bool bias = has(name, ".bias") || has(name, "bn") || has(name, "downsample.1");
		assert_int_equal(groups.of[i], bias ? RUN_GROUP_BIASES : RUN_GROUP_WEIGHTS);
		biases += bias;
	}
	assert_true(biases > 20 && biases < dtrain_params_count(params));
	run_groups_free(&groups);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

/* As the peer has it: the first layer's bias goes with the weights, and stops; batch norm's weights are not trained. */
static void the_first_bias_goes_with_the_weights(void **state)
{
	(void)state;
	dtrain_device *device;
	run_groups groups;
	run_options options = {.model = "airbench94", .weight_decay = 0.5, .bias_lr_scale = 64, .layer_decay = 1};
	assert_int_equal(dtrain_device_open("ref", NULL, &device, NULL), BETON_OK);
	dtrain_params *params = make_params(device, "airbench94");
	assert_int_equal(run_groups_make(&options, params, params, &groups, NULL), BETON_OK);
	for (int i = 0; i < dtrain_params_count(params); i++) {
		const char *name = dtrain_params_at(params, i)->name;
		assert_int_equal(groups.of[i], strcmp(name, "0.bias") == 0 ? RUN_GROUP_EARLY
					       : has(name, ".bias")        ? RUN_GROUP_BIASES
									   : RUN_GROUP_WEIGHTS);
	}
	assert_true(groups.groups[RUN_GROUP_EARLY].lr_scale == 1);
	assert_true(groups.groups[RUN_GROUP_EARLY].weight_decay == 0.5);
	run_groups_free(&groups);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

static void options_tell_rate_and_decay(void **state)
{
	(void)state;
	static const struct {
		double scale;
		bool no_decay;
		run_group biases;
	} cases[] = {
		{1, false, {1, 0.5}}, {1, true, {1, 0}},        {64, false, {64, 0.5 / 64}},
		{64, true, {64, 0}},  {0.25, false, {0.25, 2}},
	};
	dtrain_device *device;
	assert_int_equal(dtrain_device_open("ref", NULL, &device, NULL), BETON_OK);
	dtrain_params *params = make_params(device, "resnet20");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run_options options = {.model = "resnet20",
				       .weight_decay = 0.5,
				       .bias_lr_scale = cases[i].scale,
				       .no_bias_decay = cases[i].no_decay,
				       .layer_decay = 1};
		run_groups groups;
		assert_int_equal(run_groups_make(&options, params, params, &groups, NULL), BETON_OK);
		const run_group *weights = &groups.groups[RUN_GROUP_WEIGHTS];
		const run_group *biases = &groups.groups[RUN_GROUP_BIASES];
		assert_true(weights->lr_scale == 1 && weights->weight_decay == 0.5);
		assert_true(biases->lr_scale == cases[i].biases.lr_scale);
		assert_true(biases->weight_decay == cases[i].biases.weight_decay);
		run_groups_free(&groups);
	}
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

static run_group group_of(const dtrain_params *params, const run_groups *groups, const char *name)
{
	for (int i = 0; i < dtrain_params_count(params); i++)
		if (strcmp(dtrain_params_at(params, i)->name, name) == 0)
			return groups->groups[groups->of[i]];
	fail_msg("no parameter %s", name);
	return (run_group){0};
}

static void expect_group(const dtrain_params *params, const run_groups *groups, const char *name, double lr_scale,
			 double decay)
{
	run_group group = group_of(params, groups, name);
	if (group.lr_scale != lr_scale || group.weight_decay != decay)
		fail_msg("%s: rate %g and decay %g, not %g and %g", name, group.lr_scale, group.weight_decay, lr_scale,
			 decay);
}

static void patterns_make_groups(void **state)
{
	(void)state;
	dtrain_device *device;
	run_groups groups;
	run_options options = {.model = "resnet20",
			       .weight_decay = 0.5,
			       .bias_lr_scale = 1,
			       .layer_decay = 1,
			       .no_decay = "fc,layer1.0",
			       .param_groups = "fc=8,*.bias=2:0.25,layer1=0.5"};
	beton_error err = {0};
	assert_int_equal(dtrain_device_open("ref", NULL, &device, NULL), BETON_OK);
	dtrain_params *params = make_params(device, "resnet20");
	assert_int_equal(run_groups_make(&options, params, params, &groups, &err), BETON_OK);
	expect_group(params, &groups, "conv1.weight", 1, 0.5);
	expect_group(params, &groups, "bn1.bias", 2, 0.25);
	expect_group(params, &groups, "fc.weight", 8, 0);
	expect_group(params, &groups, "fc.bias", 8, 0);
	expect_group(params, &groups, "layer1.0.conv1.weight", 0.5, 0);
	expect_group(params, &groups, "layer1.0.bn1.bias", 2, 0.25);
	expect_group(params, &groups, "layer1.1.conv1.weight", 0.5, 0.5);
	expect_group(params, &groups, "layer2.1.conv1.weight", 1, 0.5);
	run_groups_free(&groups);
	static const struct {
		const char *no_decay, *param_groups, *message;
	} bad[] = {{"fd", NULL, "--no-decay: 'fd' matches no parameter"},
		   {"fc", "layer9=2", "--param-groups: 'layer9' matches no parameter"},
		   {"fc,,conv1", NULL, "--no-decay: there is nothing before the comma in ',conv1'"},
		   {"fc,", NULL, "--no-decay: there is nothing after the last comma"},
		   {NULL, "fc=1,", "--param-groups: there is nothing after the last comma"},
		   {NULL, "fc", "--param-groups: 'fc' is not PATTERN=X[:DECAY]"},
		   {NULL, "=1", "--param-groups: '=1' is not PATTERN=X[:DECAY]"},
		   {NULL, "fc=x", "--param-groups: 'x'"},
		   {NULL, "fc=1:-1", "--param-groups: '-1'"}};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		options.no_decay = bad[i].no_decay;
		options.param_groups = bad[i].param_groups;
		assert_int_equal(run_groups_make(&options, params, params, &groups, &err), BETON_INVALID_ARGUMENT);
		if (!strstr(err.message, bad[i].message))
			fail_msg("'%s' does not say '%s'", err.message, bad[i].message);
	}
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

/* timm's default; a pattern has the last word. */
static void class_token_and_positions_do_not_decay(void **state)
{
	(void)state;
	dtrain_device *device;
	run_groups groups;
	run_options options = {.model = "vit-s16", .weight_decay = 0.5, .bias_lr_scale = 1, .layer_decay = 1};
	beton_error err;
	assert_int_equal(dtrain_device_open("ref", NULL, &device, NULL), BETON_OK);
	dtrain_params *params = make_params(device, "vit-s16");
	assert_int_equal(run_groups_make(&options, params, params, &groups, &err), BETON_OK);
	expect_group(params, &groups, "cls_token", 1, 0);
	expect_group(params, &groups, "pos_embed", 1, 0);
	expect_group(params, &groups, "patch_embed.proj.weight", 1, 0.5);
	expect_group(params, &groups, "head.weight", 1, 0.5);
	run_groups_free(&groups);
	options.param_groups = "pos_embed=1:0.25";
	assert_int_equal(run_groups_make(&options, params, params, &groups, &err), BETON_OK);
	expect_group(params, &groups, "cls_token", 1, 0);
	expect_group(params, &groups, "pos_embed", 1, 0.25);
	run_groups_free(&groups);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

/* Nine residual blocks, with the stem before them and the last layer after them. */
static void layers_in_front_are_slower(void **state)
{
	(void)state;
	dtrain_device *device;
	run_groups groups;
	run_options options = {.model = "resnet20", .weight_decay = 0.5, .bias_lr_scale = 2, .layer_decay = 0.5};
	assert_int_equal(dtrain_device_open("ref", NULL, &device, NULL), BETON_OK);
	dtrain_params *params = make_params(device, "resnet20");
	assert_int_equal(run_groups_make(&options, params, params, &groups, NULL), BETON_OK);
	expect_group(params, &groups, "fc.weight", 1, 0.5);
	expect_group(params, &groups, "fc.bias", 2, 0.25);
	expect_group(params, &groups, "layer3.2.conv2.weight", 0.5, 0.5);
	expect_group(params, &groups, "layer3.1.conv1.weight", 0.25, 0.5);
	expect_group(params, &groups, "layer3.1.bn1.weight", 0.5, 0.25);
	expect_group(params, &groups, "conv1.weight", 0x1p-10, 0.5);
	run_groups_free(&groups);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

/* GPT-2 (124M): what has two dimensions decays, 50 of 148 parameters; and what nanoGPT estimates a token to need. */
static void weights_of_a_language_model_decay(void **state)
{
	(void)state;
	run_groups groups;
	dtrain_graph *graph;
	dtrain_transformer model;
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	run_options options = {.task = RUN_TASK_LM,
			       .model = "gpt2",
			       .weight_decay = 0.1,
			       .bias_lr_scale = 1,
			       .layer_decay = 1,
			       .no_bias_decay = true,
			       .lm = {.context_length = 1024}};
	dtrain_shape text = dtrain_shape_of(2, (int64_t[]){1, 1024});
	engine_rank engine = {.job = run_options_job(&options)};
	int64_t elements[2] = {0}, counts[2] = {0}, matrices = 0;
	beton_error err;
	assert_int_equal(dtrain_device_open("ref", NULL, &engine.device, NULL), BETON_OK);
	assert_int_equal(dtrain_params_create(engine.device, DTRAIN_F32, &engine.params, NULL), BETON_OK);
	assert_int_equal(dtrain_graph_create(engine.params, true, &graph, NULL), BETON_OK);
	assert_int_equal(dtrain_transformer_find("gpt2", &model, &err), BETON_OK);
	engine.job.transformer = &model;
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	inputs.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &text);
	assert_true(dtrain_transformer_build(graph, &model, &inputs, &outputs) >= 0);
	dtrain_graph_destroy(&graph);
	assert_int_equal(run_groups_make(&options, engine.params, engine.params, &groups, NULL), BETON_OK);
	for (int i = 0; i < dtrain_params_count(engine.params); i++) {
		bool decays = groups.groups[groups.of[i]].weight_decay > 0;
		counts[decays]++;
		elements[decays] += dtrain_params_at(engine.params, i)->count;
		matrices += !groups.outer[i] && decays;
	}
	assert_int_equal(counts[true], 50);
	assert_int_equal(counts[false], 98);
	/* All but the embeddings of tokens and positions. */
	assert_int_equal(matrices, 48);
	assert_int_equal(elements[true], 124318464);
	assert_int_equal(elements[false], 121344);
	assert_true(engine.job.task->flops(&engine) == 6.0 * (124439808 - 1024 * 768) + 12.0 * 12 * 768 * 1024);
	run_groups_free(&groups);
	dtrain_params_destroy(&engine.params);
	dtrain_device_close(&engine.device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(biases_are_those_of_one_dimension),
		cmocka_unit_test(the_first_bias_goes_with_the_weights),
		cmocka_unit_test(options_tell_rate_and_decay),
		cmocka_unit_test(patterns_make_groups),
		cmocka_unit_test(class_token_and_positions_do_not_decay),
		cmocka_unit_test(layers_in_front_are_slower),
		cmocka_unit_test(weights_of_a_language_model_decay),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
