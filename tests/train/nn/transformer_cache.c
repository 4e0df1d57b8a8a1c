/* SPDX-License-Identifier: Apache-2.0
 *
 * A text that is computed in several runs, with its keys and values kept between them, has the logits of one run.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/transformer.h>

#include "tests/train/support/missing.h"

enum { POSITIONS = 24, LAYERS = 2, VOCABULARY = 31, WIDTH = 16 };

typedef struct fixture {
	dtrain_transformer description;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	void *cache[2 * LAYERS];
} fixture;

typedef struct network {
	dtrain_program *program;
	dtrain_tensor tokens, position, past, logits;
} network;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static dtrain_transformer description_of(dtrain_transformer_type type)
{
	dtrain_transformer t;
	dtrain_transformer_init(&t);
	t.type = type;
	t.width = WIDTH;
	t.layers = LAYERS;
	t.heads = 4;
	t.kv_heads = type == DTRAIN_TRANSFORMER_LLAMA ? 2 : 4;
	t.head_size = WIDTH / 4;
	t.inner = 2 * WIDTH;
	t.vocabulary = VOCABULARY;
	t.positions = POSITIONS;
	t.deviation = 0.2;
	if (type == DTRAIN_TRANSFORMER_LLAMA) {
		t.theta = 10000;
		t.bias = false;
		t.activation = DTRAIN_ACTIVATION_SILU;
	}
	return t;
}

static void open_fixture(fixture *f, const char *device, dtrain_transformer_type type)
{
	beton_error err = {0};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = 2};
	*f = (fixture){.description = description_of(type)};
	expect_ok(dtrain_device_open(device, &options, &f->device, &err), &err);
	f->api = dtrain_device_get_api(f->device);
	expect_ok(f->api->stream_create(f->device, &f->stream, &err), &err);
	expect_ok(dtrain_params_create(f->device, DTRAIN_F32, &f->params, &err), &err);
	for (int i = 0; i < 2 * LAYERS; i++)
		expect_ok(f->api->alloc(f->device, (size_t)POSITIONS * WIDTH * sizeof(float), &f->cache[i], &err),
			  &err);
}

static void close_fixture(fixture *f)
{
	dtrain_params_destroy(&f->params);
	for (int i = 0; i < 2 * LAYERS; i++)
		f->api->free(f->device, f->cache[i]);
	f->api->stream_destroy(f->stream);
	dtrain_device_close(&f->device);
}

static int make_network(const fixture *f, int64_t length, bool cached, network *out, beton_error *err)
{
	dtrain_graph *graph;
	dtrain_transformer_inputs inputs;
	dtrain_transformer_outputs outputs;
	dtrain_tensor cache[2 * LAYERS];
	dtrain_shape text = dtrain_shape_of(2, (int64_t[]){1, length}), one = dtrain_shape_of(1, (int64_t[]){1});
	dtrain_shape rows =
		dtrain_shape_of(3, (int64_t[]){1, POSITIONS, f->description.kv_heads * f->description.head_size});
	expect_ok(dtrain_graph_create(f->params, false, &graph, err), err);
	dtrain_transformer_inputs_init(&inputs);
	dtrain_transformer_outputs_init(&outputs);
	*out = (network){.tokens = dtrain_graph_input(graph, "tokens", DTRAIN_I64, &text), .position = -1, .past = -1};
	inputs.tokens = out->tokens;
	if (cached) {
		for (int i = 0; i < 2 * LAYERS; i++)
			cache[i] = dtrain_graph_memory(graph, DTRAIN_F32, &rows, f->cache[i]);
		inputs.keys = cache;
		inputs.values = cache + LAYERS;
		out->position = inputs.position = dtrain_graph_input(graph, "position", DTRAIN_I64, &text);
		out->past = inputs.past = dtrain_graph_input(graph, "past", DTRAIN_I64, &one);
	}
	dtrain_transformer_build(graph, &f->description, &inputs, &outputs);
	out->logits = dtrain_transformer_logits(graph, &outputs, -1);
	dtrain_graph_keep(graph, out->logits);
	int status = dtrain_graph_compile(&graph, &out->program, err);
	dtrain_graph_destroy(&graph);
	return status;
}

/* The devices of this test compute in memory of the host. */
static int run_network(const fixture *f, const network *n, int64_t past, beton_error *err)
{
	const dtrain_shape *shape = dtrain_program_shape(n->program, n->tokens);
	for (int64_t i = 0; i < shape->dim[1]; i++) {
		((int64_t *)dtrain_program_data(n->program, n->tokens))[i] = (past + i) * 7 % VOCABULARY;
		if (n->position >= 0)
			((int64_t *)dtrain_program_data(n->program, n->position))[i] =
				past + i < POSITIONS ? past + i : POSITIONS - 1;
	}
	if (n->past >= 0)
		*(int64_t *)dtrain_program_data(n->program, n->past) = past;
	int status = dtrain_program_run(n->program, f->stream, 0, 1, err);
	return status == BETON_OK ? f->api->stream_synchronize(f->stream, err) : status;
}

static void expect_rows(const fixture *f, const network *whole, int64_t first, int64_t count)
{
	beton_error err = {0};
	network part;
	expect_ok(make_network(f, count, true, &part, &err), &err);
	expect_ok(run_network(f, &part, first, &err), &err);
	const float *right = (const float *)dtrain_program_data(whole->program, whole->logits) + first * VOCABULARY;
	const float *got = dtrain_program_data(part.program, part.logits);
	for (int64_t i = 0; i < count * VOCABULARY; i++)
		if (!(fabsf(got[i] - right[i]) <= 1e-5f * (1 + fabsf(right[i]))))
			fail_msg("logit %d of token %d: %.9g, not %.9g", (int)(i % VOCABULARY),
				 (int)(first + i / VOCABULARY), (double)got[i], (double)right[i]);
	dtrain_program_destroy(&part.program);
}

static void check_model(const char *device, dtrain_transformer_type type)
{
	beton_error err = {0};
	fixture f;
	network whole, part;
	open_fixture(&f, device, type);
	expect_ok(make_network(&f, POSITIONS, false, &whole, &err), &err);
	expect_ok(dtrain_params_initialize(f.params, 5, f.stream, &err), &err);
	expect_ok(run_network(&f, &whole, 0, &err), &err);
	static const int64_t counts[] = {11, 1, 1, 3, 1, 7};
	for (int64_t first = 0, i = 0; first < POSITIONS; first += counts[i++])
		expect_rows(&f, &whole, first, counts[i]);
	/* Again from the middle: later rows are replaced. */
	expect_rows(&f, &whole, 5, 9);
	expect_rows(&f, &whole, 14, 1);
	expect_ok(make_network(&f, 2, true, &part, &err), &err);
	assert_int_equal(run_network(&f, &part, POSITIONS - 1, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "2 rows after row 23 do not fit into a cache of 24 rows"));
	assert_int_equal(run_network(&f, &part, -1, &err), BETON_INVALID_ARGUMENT);
	dtrain_program_destroy(&part.program);
	dtrain_program_destroy(&whole.program);
	close_fixture(&f);
}

static void several_runs_equal_one(void **state)
{
	check_model(*state, DTRAIN_TRANSFORMER_GPT2);
	check_model(*state, DTRAIN_TRANSFORMER_LLAMA);
}

static void models_that_see_the_rest_are_refused(void **state)
{
	beton_error err = {0};
	fixture f;
	network part;
	open_fixture(&f, *state, DTRAIN_TRANSFORMER_BERT);
	f.description.token_types = 2;
	assert_int_equal(make_network(&f, 2, true, &part, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "kept keys and values are for causal models"));
	close_fixture(&f);
}

int main(int argc, char **argv)
{
	void *device = argc > 1 ? argv[1] : "ref";
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(several_runs_equal_one, device),
		cmocka_unit_test_prestate(models_that_see_the_rest_are_refused, device),
	};
	return is_missing(device) ? 77 : cmocka_run_group_tests(tests, NULL, NULL);
}
