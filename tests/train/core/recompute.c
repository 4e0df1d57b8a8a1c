/* SPDX-License-Identifier: Apache-2.0
 *
 * recompute DEVICE...: models whose activations are computed again in backward train like models that keep them, bit by
 * bit, with dropout, and with statistics that change once; the memory for activations shrinks. On the device "far"
 * activations that wait in host memory do the same.
 */
#include <dtrain/transformer.h>

#include "core/program.h"
#include "tests/train/support/net.h"

enum { BATCH = 3, T = 12, SIDE = 8, VOCABULARY = 16, STEPS = 2 };

static char **devices; /* names, NULL after the last */

/* Models of tokens by their config.json, and of pictures by that or their name. */
#define SIZES "\"num_hidden_layers\": 3, \"hidden_size\": 24, \"num_attention_heads\": 4, \"intermediate_size\": 40, "
#define TOKENS "\"vocab_size\": 16, \"max_position_embeddings\": 12, "

static const char *const models[] = {
	"{\"model_type\": \"gpt2\", \"n_embd\": 24, \"n_layer\": 3, \"n_head\": 2, \"vocab_size\": 16, "
	"\"n_positions\": 12, \"embd_pdrop\": 0.1, \"resid_pdrop\": 0.2}",
	"{\"model_type\": \"llama\", " SIZES TOKENS "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5}",
	"{\"model_type\": \"bert\", " SIZES TOKENS "\"type_vocab_size\": 2, \"hidden_dropout_prob\": 0.1}",
	"{\"model_type\": \"vit\", " SIZES "\"image_size\": 8, \"patch_size\": 4}",
	"resnet20",
	SMALL_NET,
};

typedef struct job {
	net n;
	dtrain_optimizer *optimizer;
	dtrain_transformer description;
	dtrain_tensor random; /* -1: none */
	bool of_tokens;
} job;

/* Handling of activations between forward and backward. */
typedef struct way {
	dtrain_recompute what;
	int64_t blocks;
	bool leave; /* they do, for the host */
} way;

/* The results of training. */
typedef struct result {
	double losses[STEPS];
	char *memory; /* values, gradients, buffers */
	size_t bytes;
	dtrain_program_info facts;
} result;

/* ---- a model that is trained ---- */

static dtrain_tensor build_tokens(job *j, dtrain_graph *graph)
{
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_loss_options options;
	dtrain_shape tokens = dtrain_shape_of(2, (int64_t[]){BATCH, T});
	dtrain_shape randoms = dtrain_shape_of(1, (int64_t[]){DTRAIN_RANDOMS});
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	dtrain_loss_options_init(&options);
	inputs.tokens = j->n.image = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &tokens);
	j->n.label = dtrain_graph_input(graph, "label", DTRAIN_I64, &tokens);
	inputs.random = j->random = dtrain_graph_input(graph, "random", DTRAIN_I64, &randoms);
	dtrain_transformer_build(graph, &j->description, &inputs, &outputs);
	return dtrain_transformer_losses(graph, &outputs, j->n.label, &options);
}

static dtrain_tensor build_pictures(job *j, const char *model, dtrain_graph *graph)
{
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){BATCH, 3, SIDE, SIDE});
	dtrain_shape label = dtrain_shape_of(1, (int64_t[]){BATCH});
	j->n.image = dtrain_graph_input(graph, "image", j->n.activations, &image);
	j->n.label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	dtrain_tensor logits = j->description.layers
				       ? dtrain_vit_build(graph, &j->description, j->n.image, -1, VOCABULARY)
				       : build_net(graph, model, j->n.image, VOCABULARY);
	return dtrain_softmax_cross_entropy(graph, logits, j->n.label, 0.1);
}

static void build(job *j, const char *model, way how)
{
	beton_error err = {0};
	dtrain_graph *graph;
	expect_ok(dtrain_graph_create(j->n.params, true, &graph, &err), &err);
	dtrain_graph_set_dtype(graph, j->n.activations);
	j->n.loss = dtrain_mean(graph, j->of_tokens ? build_tokens(j, graph) : build_pictures(j, model, graph));
	dtrain_graph_keep(graph, j->n.loss);
	dtrain_graph_backward(graph, j->n.loss);
	dtrain_graph_recompute(graph, how.what, how.blocks);
	if (how.leave)
		dtrain_graph_offload(graph);
	expect_ok(dtrain_graph_compile(&graph, &j->n.program, &err), &err);
}

static void open_job(job *j, const char *model, const char *device, dtrain_dtype activations, way how)
{
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	dtrain_optimizer_options sgd;
	beton_error err = {0};
	*j = (job){.n = {.batch = BATCH,
			 .classes = VOCABULARY,
			 .pixels = 3 * SIDE * SIDE,
			 .dtype = DTRAIN_F32,
			 .activations = activations},
		   .random = -1};
	if (model[0] == '{') {
		dtrain_transformer_init(&j->description);
		expect_ok(dtrain_transformer_parse(model, "model", &j->description, &err), &err);
		j->of_tokens = j->description.type != DTRAIN_TRANSFORMER_VIT;
	}
	expect_ok(dtrain_device_open(device, &options, &j->n.device, &err), &err);
	j->n.api = dtrain_device_get_api(j->n.device);
	expect_ok(j->n.api->stream_create(j->n.device, &j->n.stream, &err), &err);
	expect_ok(dtrain_params_create(j->n.device, DTRAIN_F32, &j->n.params, &err), &err);
	build(j, model, how);
	expect_ok(dtrain_params_initialize(j->n.params, 7, j->n.stream, &err), &err);
	dtrain_optimizer_options_init(&sgd);
	expect_ok(dtrain_optimizer_create(j->n.params, &sgd, &j->optimizer, &err), &err);
}

static void feed(job *j, int64_t step)
{
	int64_t numbers[BATCH * T], random[DTRAIN_RANDOMS] = {5, step, 0, 1};
	if (!j->of_tokens) {
		net_fill(&j->n);
		return;
	}
	for (int64_t i = 0; i < BATCH * T; i++)
		numbers[i] = (i * i + step) % VOCABULARY;
	net_copy(&j->n, dtrain_program_data(j->n.program, j->n.image), numbers, sizeof(numbers), DTRAIN_HOST_TO_DEVICE);
	for (int64_t i = 0; i < BATCH * T; i++)
		numbers[i] = (3 * i + step) % VOCABULARY;
	net_copy(&j->n, dtrain_program_data(j->n.program, j->n.label), numbers, sizeof(numbers), DTRAIN_HOST_TO_DEVICE);
	net_copy(&j->n, dtrain_program_data(j->n.program, j->random), random, sizeof(random), DTRAIN_HOST_TO_DEVICE);
}

static void take(const job *j, result *out, const void *from, size_t bytes)
{
	out->memory = realloc(out->memory, out->bytes + bytes + 1);
	assert_non_null(out->memory);
	net_copy(&j->n, out->memory + out->bytes, from, bytes, DTRAIN_DEVICE_TO_HOST);
	out->bytes += bytes;
}

static void train(const char *model, const char *device, dtrain_dtype activations, way how, result *out)
{
	job j;
	beton_error err = {0};
	*out = (result){.facts.struct_size = sizeof(out->facts)};
	open_job(&j, model, device, activations, how);
	dtrain_program_get_info(j.n.program, &out->facts);
	for (int64_t step = 0; step < STEPS; step++) {
		feed(&j, step);
		out->losses[step] = net_run(&j.n);
		expect_ok(dtrain_optimizer_set_rate(j.optimizer, 0.05, j.n.stream, &err), &err);
		expect_ok(dtrain_optimizer_apply(j.optimizer, j.n.stream, &err), &err);
	}
	size_t flat = (size_t)dtrain_params_flat_count(j.n.params) * sizeof(float);
	take(&j, out, dtrain_params_values(j.n.params), flat);
	take(&j, out, dtrain_params_grads(j.n.params), flat);
	for (int i = 0; i < dtrain_params_buffer_count(j.n.params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(j.n.params, i);
		take(&j, out, buffer->data, (size_t)dtrain_shape_count(&buffer->shape) * sizeof(float));
	}
	dtrain_optimizer_destroy(&j.optimizer);
	net_close(&j.n);
}

/* ---- the same in less memory ---- */

static void expect_same(const char *model, const char *device, dtrain_dtype dtype, const char *how, const result *kept,
			const result *again)
{
	for (int i = 0; i < STEPS; i++)
		if (again->losses[i] != kept->losses[i])
			fail_msg("%s, %s, %s, %s, step %d: loss %.17g, not %.17g", model, device,
				 dtrain_dtype_name(dtype), how, i + 1, again->losses[i], kept->losses[i]);
	assert_int_equal(again->bytes, kept->bytes);
	for (size_t i = 0; i < kept->bytes; i++)
		if (again->memory[i] != kept->memory[i])
			fail_msg("%s, %s, %s, %s: byte %zu of %zu differs", model, device, dtrain_dtype_name(dtype),
				 how, i, kept->bytes);
	assert_true(again->facts.flops == kept->facts.flops);
	assert_int_equal(again->facts.nodes, kept->facts.nodes + again->facts.repeated);
}

/* Alone, and for kept activations while others are computed again. */
static void check_leaving(const char *model, dtrain_dtype dtype, const result *none, const result *full)
{
	result leaving, both;
	train(model, "far", dtype, (way){DTRAIN_RECOMPUTE_NONE, 0, true}, &leaving);
	train(model, "far", dtype, (way){DTRAIN_RECOMPUTE_FULL, INT64_MAX, true}, &both);
	expect_same(model, "far", dtype, "leaving", none, &leaving);
	expect_same(model, "far", dtype, "leaving and full", none, &both);
	assert_true(none->facts.host_bytes == 0 && leaving.facts.host_bytes > 0);
	assert_true(leaving.facts.arena_bytes < none->facts.arena_bytes);
	assert_true(both.facts.host_bytes < leaving.facts.host_bytes);
	assert_true(both.facts.arena_bytes <= full->facts.arena_bytes);
	free(leaving.memory);
	free(both.memory);
}

static void check_model(const char *model, const char *device, dtrain_dtype dtype)
{
	result none, selective, one, full;
	train(model, device, dtype, (way){DTRAIN_RECOMPUTE_NONE, 0, false}, &none);
	train(model, device, dtype, (way){DTRAIN_RECOMPUTE_SELECTIVE, 0, false}, &selective);
	train(model, device, dtype, (way){DTRAIN_RECOMPUTE_FULL, 1, false}, &one);
	train(model, device, dtype, (way){DTRAIN_RECOMPUTE_FULL, INT64_MAX, false}, &full);
	expect_same(model, device, dtype, "selective", &none, &selective);
	expect_same(model, device, dtype, "one block", &none, &one);
	expect_same(model, device, dtype, "full", &none, &full);
	assert_int_equal(none.facts.repeated, 0);
	assert_true(none.losses[STEPS - 1] == none.losses[STEPS - 1]); /* no NaN */
	assert_true(selective.facts.repeated > 0 && selective.facts.repeated_flops == 0);
	assert_true(full.facts.repeated_flops > 0 && full.facts.repeated_flops < full.facts.flops / 2);
	assert_true(one.facts.repeated <= full.facts.repeated);
	assert_true(selective.facts.arena_bytes < none.facts.arena_bytes);
	assert_true(full.facts.arena_bytes < none.facts.arena_bytes);
	if (strcmp(device, "far") == 0)
		check_leaving(model, dtype, &none, &full);
	free(none.memory);
	free(selective.memory);
	free(one.memory);
	free(full.memory);
}

static void training_gives_the_same_bits(void **state)
{
	(void)state;
	const dtrain_dtype halves[] = {DTRAIN_BF16, DTRAIN_F16};
	for (char **device = devices; *device; device++)
		for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
			check_model(models[i], *device, DTRAIN_F32);
			for (int k = 0; k < 2; k++)
				if (strcmp(*device, "far") != 0 && has_type(*device, halves[k]))
					check_model(models[i], *device, halves[k]);
		}
}

static bool names_device(const char *name)
{
	for (char **device = devices; *device; device++)
		if (strcmp(*device, name) == 0)
			return true;
	return false;
}

/* Elsewhere there is only one memory, and without backward activations are not read again. */
static void refusals_are_told(void **state)
{
	(void)state;
	static const char *const names[] = {"ref", "far"};
	for (int i = 0; i < 2; i++) {
		net n = {.batch = BATCH, .activations = DTRAIN_F32};
		beton_error err = {0};
		dtrain_graph *graph;
		if (!names_device(names[i]))
			continue;
		expect_ok(dtrain_device_open(names[i], NULL, &n.device, &err), &err);
		expect_ok(dtrain_params_create(n.device, DTRAIN_F32, &n.params, &err), &err);
		expect_ok(dtrain_graph_create(n.params, true, &graph, &err), &err);
		dtrain_shape image = dtrain_shape_of(4, (int64_t[]){BATCH, 3, SIDE, SIDE});
		dtrain_graph_keep(graph, build_net(graph, SMALL_NET,
						   dtrain_graph_input(graph, "image", DTRAIN_F32, &image), VOCABULARY));
		dtrain_graph_offload(graph);
		assert_int_equal(dtrain_graph_compile(&graph, &n.program, &err),
				 i == 0 ? BETON_UNSUPPORTED : BETON_STATE);
		assert_non_null(strstr(err.message, i == 0 ? "'ref' is in host memory" : "no backward"));
		dtrain_graph_destroy(&graph);
		dtrain_params_destroy(&n.params);
		dtrain_device_close(&n.device);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(training_gives_the_same_bits),
					   cmocka_unit_test(refusals_are_told)};
	devices = argv + 1;
	return argc < 2 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
