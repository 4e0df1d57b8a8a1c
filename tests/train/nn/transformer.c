/* SPDX-License-Identifier: Apache-2.0
 *
 * A small language model from the layers of transformers: the fused loss and the loss of all logits have the same value
 * and gradients, rows without a label count nowhere, and the result has the same bits for any number of threads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/graph.h>

#include "tests/train/support/missing.h"

enum { BATCH = 3, T = 37, VOCABULARY = 101, WIDTH = 24, HEADS = 4, IGNORED = -100 };

typedef struct model {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_tensor token, label, random, loss, hits;
} model;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static dtrain_tensor weight(dtrain_graph *graph, const char *name, int64_t out, int64_t in)
{
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){out, in});
	return dtrain_graph_parameter(graph, name, &shape, DTRAIN_INIT_LINEAR_UNIFORM, in);
}

static dtrain_tensor vector(dtrain_graph *graph, const char *name, int64_t count)
{
	dtrain_shape shape = dtrain_shape_of(1, &count);
	return dtrain_graph_parameter(graph, name, &shape, DTRAIN_INIT_LINEAR_UNIFORM, count);
}

/* GPT-2's block, with weights [in, out]. */
static dtrain_tensor block(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor random)
{
	dtrain_linear_options product;
	dtrain_attention_options attention;
	dtrain_linear_options_init(&product);
	dtrain_attention_options_init(&attention);
	product.weight_in_out = true;
	attention.heads = HEADS;
	attention.causal = true;
	dtrain_tensor y = dtrain_layer_norm(graph, "ln_1", x, 1e-5);
	y = dtrain_linear_with(graph, y, weight(graph, "c_attn", WIDTH, 3 * WIDTH), vector(graph, "b", 3 * WIDTH),
			       &product);
	y = dtrain_attention_packed(graph, y, -1, &attention);
	y = dtrain_linear_with(graph, y, weight(graph, "c_proj", WIDTH, WIDTH), -1, &product);
	x = dtrain_add(graph, x, dtrain_dropout(graph, y, random, 0.1, 1, false), false);
	y = dtrain_layer_norm_without_bias(graph, "ln_2", x, 1e-5);
	product.activation = DTRAIN_ACTIVATION_GELU_TANH;
	y = dtrain_linear_with(graph, y, weight(graph, "c_fc", WIDTH, 4 * WIDTH), -1, &product);
	product.activation = DTRAIN_ACTIVATION_NONE;
	y = dtrain_linear_with(graph, y, weight(graph, "mlp_proj", 4 * WIDTH, WIDTH), -1, &product);
	return dtrain_add(graph, x, dtrain_dropout(graph, y, random, 0.1, 2, false), false);
}

/* A block of Llama's kind, with two heads of keys. */
static dtrain_tensor llama_block(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_attention_options attention;
	dtrain_attention_options_init(&attention);
	attention.heads = HEADS;
	attention.kv_heads = HEADS / 2;
	attention.causal = true;
	dtrain_tensor y = dtrain_rms_norm(graph, "norm", x, 1e-6);
	dtrain_tensor q = dtrain_linear_of(graph, y, weight(graph, "q", WIDTH, WIDTH), -1, false);
	dtrain_tensor k = dtrain_linear_of(graph, y, weight(graph, "k", WIDTH / 2, WIDTH), -1, false);
	dtrain_tensor v = dtrain_linear_of(graph, y, weight(graph, "v", WIDTH / 2, WIDTH), -1, false);
	q = dtrain_rotary(graph, q, -1, WIDTH / HEADS, 10000, false);
	k = dtrain_rotary(graph, k, -1, WIDTH / HEADS, 10000, false);
	x = dtrain_add(graph, x, dtrain_attention(graph, q, k, v, -1, &attention), false);
	dtrain_tensor gate = dtrain_linear_of(graph, x, weight(graph, "gate", WIDTH, WIDTH), -1, false);
	dtrain_tensor up = dtrain_linear_of(graph, x, weight(graph, "up", WIDTH, WIDTH), -1, false);
	return dtrain_add(graph, x, dtrain_swiglu(graph, gate, up), false);
}

/* fused: without all logits. biased: the head has a bias. */
static void build(model *m, bool fused, bool biased)
{
	dtrain_graph *graph;
	beton_error err = {0};
	dtrain_shape tokens = dtrain_shape_of(2, (int64_t[]){BATCH, T}), four = dtrain_shape_of(1, (int64_t[]){4});
	dtrain_shape rows = dtrain_shape_of(1, (int64_t[]){BATCH * T});
	dtrain_shape matrix = dtrain_shape_of(2, (int64_t[]){BATCH * T, WIDTH});
	expect_ok(dtrain_graph_create(m->params, true, &graph, &err), &err);
	m->token = dtrain_graph_input(graph, "token", DTRAIN_I32, &tokens);
	m->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &tokens);
	m->random = dtrain_graph_input(graph, "random", DTRAIN_I64, &four);
	dtrain_tensor table = weight(graph, "wte", VOCABULARY, WIDTH);
	dtrain_tensor x = dtrain_embedding(graph, table, m->token);
	x = llama_block(graph, block(graph, x, m->random));
	dtrain_tensor bias = biased ? vector(graph, "head_bias", VOCABULARY) : -1;
	dtrain_loss_options options;
	dtrain_loss_options_init(&options);
	options.chunk = 16;
	options.label_smoothing = 0.1;
	dtrain_tensor losses;
	if (fused) {
		losses = dtrain_linear_cross_entropy(graph, x, table, bias, m->label, &options);
	} else {
		x = dtrain_linear_of(graph, dtrain_reshape(graph, x, &matrix), table, bias, false);
		losses = dtrain_softmax_cross_entropy_with(graph, x, dtrain_reshape(graph, m->label, &rows), &options);
	}
	m->hits = dtrain_label_hits(graph, losses);
	m->loss = dtrain_mean_loss(graph, losses);
	dtrain_graph_keep(graph, m->loss);
	dtrain_graph_keep(graph, m->hits);
	dtrain_graph_backward(graph, m->loss);
	expect_ok(dtrain_graph_compile(&graph, &m->program, &err), &err);
}

static void open_model(model *m, const char *device, int threads, bool fused, bool biased)
{
	beton_error err = {0};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = threads};
	*m = (model){.device = NULL};
	expect_ok(dtrain_device_open(device, &options, &m->device, &err), &err);
	m->api = dtrain_device_get_api(m->device);
	expect_ok(m->api->stream_create(m->device, &m->stream, &err), &err);
	expect_ok(dtrain_params_create(m->device, DTRAIN_F32, &m->params, &err), &err);
	build(m, fused, biased);
	expect_ok(dtrain_params_initialize(m->params, 7, m->stream, &err), &err);
	int32_t *token = dtrain_program_data(m->program, m->token);
	int64_t *label = dtrain_program_data(m->program, m->label);
	memcpy(dtrain_program_data(m->program, m->random), (int64_t[]){1, 2, 0, 1}, 4 * sizeof(int64_t));
	for (int i = 0; i < BATCH * T; i++) {
		token[i] = i * 17 % VOCABULARY;
		label[i] = i % 5 == 0 ? IGNORED : i * 29 % VOCABULARY;
	}
}

static int run(model *m, beton_error *err)
{
	int status = dtrain_program_run(m->program, m->stream, 0, 1, err);
	return status == BETON_OK ? m->api->stream_synchronize(m->stream, err) : status;
}

static void close_model(model *m)
{
	dtrain_program_destroy(&m->program);
	dtrain_params_destroy(&m->params);
	m->api->stream_destroy(m->stream);
	dtrain_device_close(&m->device);
}

static const float *gradients(const model *m, int64_t *count)
{
	*count = dtrain_params_flat_count(m->params);
	return dtrain_params_grads(m->params);
}

static void expect_near(const float *a, const float *b, int64_t count, double bound)
{
	double difference = 0, length = 0;
	for (int64_t i = 0; i < count; i++) {
		difference += pow((double)a[i] - (double)b[i], 2);
		length += pow((double)b[i], 2);
	}
	assert_true(length > 0);
	if (!(sqrt(difference / length) <= bound))
		fail_msg("normalised error %.3g, allowed %.3g", sqrt(difference / length), bound);
}

static void expect_equal_models(model *a, model *b, double bound)
{
	beton_error err = {0};
	int64_t count, other;
	expect_ok(run(a, &err), &err);
	expect_ok(run(b, &err), &err);
	const float *left = gradients(a, &count), *right = gradients(b, &other);
	assert_int_equal(count, other);
	if (bound == 0)
		assert_memory_equal(left, right, (size_t)count * sizeof(float));
	else
		expect_near(left, right, count, bound);
	expect_near(dtrain_program_data(a->program, a->loss), dtrain_program_data(b->program, b->loss), 1,
		    bound ? bound : 1e-30);
	assert_memory_equal(dtrain_program_data(a->program, a->hits), dtrain_program_data(b->program, b->hits),
			    BATCH * T * sizeof(float));
}

static void fused_loss_equals_that_of_logits(void **state)
{
	model fused, whole;
	for (int biased = 0; biased < 2; biased++) {
		open_model(&fused, *state, 2, true, biased);
		open_model(&whole, *state, 2, false, biased);
		expect_equal_models(&fused, &whole, 1e-5);
		close_model(&fused);
		close_model(&whole);
	}
}

static void equals_ref(void **state)
{
	model ref, other;
	for (int biased = 0; biased < 2; biased++) {
		open_model(&ref, "ref", 1, true, biased);
		open_model(&other, *state, 2, true, biased);
		expect_equal_models(&other, &ref, 1e-5);
		close_model(&ref);
		close_model(&other);
	}
}

static void threads_change_no_bit(void **state)
{
	model one, two;
	for (int biased = 0; biased < 2; biased++) {
		open_model(&one, *state, 1, true, biased);
		open_model(&two, *state, 2, true, biased);
		expect_equal_models(&one, &two, 0);
		close_model(&one);
		close_model(&two);
	}
}

static void bad_tokens_are_errors(void **state)
{
	model m;
	beton_error err = {0};
	open_model(&m, *state, 2, true, false);
	int32_t *token = dtrain_program_data(m.program, m.token);
	int64_t *label = dtrain_program_data(m.program, m.label);
	int32_t keep = token[50];
	token[50] = VOCABULARY;
	assert_int_equal(run(&m, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "index 101 at position 50 is outside 0..100"));
	token[50] = -1;
	assert_int_equal(run(&m, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "index -1 at position 50"));
	token[50] = keep;
	expect_ok(run(&m, &err), &err);
	label[71] = -99;
	assert_int_equal(run(&m, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "label -99 of row 71 is outside 0..100"));
	label[71] = 0;
	expect_ok(run(&m, &err), &err);
	close_model(&m);
}

/* A batch without labels has no loss and no gradient. */
static void nothing_to_learn_is_zero(void **state)
{
	model m;
	beton_error err = {0};
	int64_t count;
	open_model(&m, *state, 2, true, true);
	int64_t *label = dtrain_program_data(m.program, m.label);
	for (int i = 0; i < BATCH * T; i++)
		label[i] = IGNORED;
	expect_ok(run(&m, &err), &err);
	assert_true(*(const float *)dtrain_program_data(m.program, m.loss) == 0);
	const float *gradient = gradients(&m, &count);
	for (int64_t i = 0; i < count; i++)
		assert_true(gradient[i] == 0);
	close_model(&m);
}

int main(int argc, char **argv)
{
	void *device = argc > 1 ? argv[1] : "ref";
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(fused_loss_equals_that_of_logits, device),
		cmocka_unit_test_prestate(equals_ref, device),
		cmocka_unit_test_prestate(threads_change_no_bit, device),
		cmocka_unit_test_prestate(bad_tokens_are_errors, device),
		cmocka_unit_test_prestate(nothing_to_learn_is_zero, device),
	};
	return is_missing(device) ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
