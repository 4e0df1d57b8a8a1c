/* SPDX-License-Identifier: Apache-2.0
 *
 * Frozen parameters: which are frozen, the parts that backward leaves out, and that the gradients of the others equal
 * the whole network's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/model.h>

enum { BATCH = 2, SIZE = 8, CLASSES = 3 };

typedef struct network {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_stream *stream;
	double flops;
} network;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%s", err->message);
}

static void close_network(network *n)
{
	dtrain_program_destroy(&n->program);
	dtrain_params_destroy(&n->params);
	if (n->stream)
		n->api->stream_destroy(n->stream);
	dtrain_device_close(&n->device);
}

/* Compiles resnet20 with these patterns; the status is that of the compilation. */
static int open_network(network *n, const char *const *patterns, beton_error *err)
{
	dtrain_graph *graph;
	dtrain_unit_policy policy;
	const dtrain_shape pictures = dtrain_shape_of(4, (int64_t[]){BATCH, 3, SIZE, SIZE});
	const dtrain_shape labels = dtrain_shape_of(1, (int64_t[]){BATCH});
	*n = (network){0};
	dtrain_unit_policy_init(&policy);
	policy.first_bytes = policy.bytes = 1 << 16;
	expect_ok(dtrain_device_open("ref", NULL, &n->device, err), err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, err), err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, err), err);
	expect_ok(dtrain_params_set_units(n->params, &policy, err), err);
	for (int i = 0; patterns[i]; i++)
		expect_ok(dtrain_params_freeze(n->params, patterns[i], err), err);
	expect_ok(dtrain_graph_create(n->params, true, &graph, err), err);
	dtrain_tensor image = dtrain_graph_input(graph, "image", DTRAIN_F32, &pictures);
	dtrain_tensor label = dtrain_graph_input(graph, "label", DTRAIN_I64, &labels);
	dtrain_tensor logits = dtrain_model_build(graph, "resnet20", image, CLASSES);
	dtrain_graph_backward(graph, dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, label, 0)));
	int status = dtrain_graph_compile(&graph, &n->program, err);
	dtrain_graph_destroy(&graph);
	if (status != BETON_OK)
		return status;
	dtrain_program_info facts = {.struct_size = sizeof(facts)};
	dtrain_program_get_info(n->program, &facts);
	n->flops = facts.flops;
	expect_ok(dtrain_params_initialize(n->params, 1, n->stream, err), err);
	float *pixels = dtrain_program_data(n->program, image);
	for (int i = 0; i < BATCH * 3 * SIZE * SIZE; i++)
		pixels[i] = (float)(i * 37 % 101) / 50 - 1;
	((int64_t *)dtrain_program_data(n->program, label))[0] = 2;
	expect_ok(dtrain_program_run(n->program, n->stream, 0, 1, err), err);
	expect_ok(n->api->stream_synchronize(n->stream, err), err);
	return BETON_OK;
}

static void gradients_of_the_others_are_the_same(void **state)
{
	static const char *const none[] = {NULL};
	static const char *const some[] = {"conv1.weight", "layer[12].*.weight", "layer3.1.bn2", NULL};
	network whole, part;
	beton_error err = {0};
	int frozen = 0;
	(void)state;
	/* The statistics of a layer in the middle cannot be frozen. */
	assert_int_equal(open_network(&part, some, &err), BETON_UNSUPPORTED);
	assert_non_null(strstr(err.message, "layer3.1.bn2.running_mean"));
	close_network(&part);
	static const char *const weights[] = {"conv1.weight", "layer[12].*.weight", "layer3.1.bn2.weight", NULL};
	expect_ok(open_network(&whole, none, &err), &err);
	expect_ok(open_network(&part, weights, &err), &err);
	assert_int_equal(dtrain_params_count(whole.params), dtrain_params_count(part.params));
	for (int i = 0; i < dtrain_params_count(part.params); i++) {
		const dtrain_param *a = dtrain_params_at(whole.params, i), *b = dtrain_params_at(part.params, i);
		const float *right = (float *)dtrain_params_grads(whole.params) + a->offset;
		const float *grad = (float *)dtrain_params_grads(part.params) + b->offset;
		assert_false(a->frozen);
		frozen += b->frozen;
		for (int64_t k = 0; k < a->count; k++)
			assert_true(grad[k] == (b->frozen ? 0 : right[k]));
	}
	/* layer2 has a shortcut with two weights. */
	assert_int_equal(frozen, 1 + 12 + 14 + 1);
	assert_null(dtrain_params_unused_pattern(part.params));
	/* Backward goes through the frozen layers, without the gradients of their weights. */
	assert_true(part.flops < whole.flops);
	close_network(&whole);
	close_network(&part);
}

static void backward_ends_at_the_first_trained_layer(void **state)
{
	static const char *const none[] = {NULL};
	static const char *const front[] = {"conv1", "bn1", "layer*", "layer9", NULL};
	network whole, part;
	beton_error err = {0};
	bool behind = false;
	(void)state;
	expect_ok(open_network(&whole, none, &err), &err);
	expect_ok(open_network(&part, front, &err), &err);
	/* Forward is a third of all products. */
	assert_true(part.flops < 0.36 * whole.flops);
	assert_string_equal(dtrain_params_unused_pattern(part.params), "layer9");
	/* The head has a unit of its own, before the frozen units. */
	assert_int_equal(dtrain_params_unit_at(part.params, 0)->frozen, false);
	for (int i = 0; i < dtrain_params_count(part.params); i++) {
		const dtrain_param *param = dtrain_params_at(part.params, i);
		assert_int_equal(param->frozen, strncmp(param->name, "fc.", 3) != 0);
		assert_int_equal(dtrain_params_unit_at(part.params, param->unit)->frozen, param->frozen);
	}
	for (int i = 0; i < dtrain_params_unit_count(part.params); i++) {
		assert_true(!behind || dtrain_params_unit_at(part.params, i)->frozen);
		behind = dtrain_params_unit_at(part.params, i)->frozen;
	}
	/* The statistics of frozen layers do not move. */
	for (int i = 0; i < dtrain_params_buffer_count(part.params); i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(part.params, i);
		bool is_mean = strstr(buffer->name, "running_mean") != NULL;
		assert_true(buffer->fixed && ((const float *)buffer->data)[0] == (is_mean ? 0 : 1));
	}
	assert_int_equal(dtrain_params_freeze(part.params, "fc", &err), BETON_STATE);
	close_network(&whole);
	close_network(&part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_of_the_others_are_the_same),
		cmocka_unit_test(backward_ends_at_the_first_trained_layer),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
