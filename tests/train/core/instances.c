/* SPDX-License-Identifier: Apache-2.0
 *
 * Several instances of one program: activations of several batches at the same time, inputs in memory of the caller's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/graph.h>

#include "tests/train/support/threads.h"

enum { BATCH = 3, SIDE = 6, PIXELS = BATCH * 3 * SIDE * SIDE, CLASSES = 5 };

typedef struct net {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_tensor x, label, hidden, d_hidden, logits;
} net;

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static void copy(const net *n, void *to, const void *from, size_t bytes, dtrain_copy kind)
{
	beton_error err = {0};
	expect_ok(n->api->copy(n->stream, to, from, bytes, kind, &err), &err);
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
}

/* Memory that each instance of the program has for itself. */
typedef enum ownership { ALL, NO_SCRATCH, NO_INPUTS } ownership;

static void open_net(net *n, const char *device, ownership own)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	dtrain_shape image = dtrain_shape_of(4, (int64_t[]){BATCH, 3, SIDE, SIDE}),
		     label = dtrain_shape_of(1, image.dim);
	expect_ok(dtrain_device_open(device, &options, &n->device, &err), &err);
	n->api = dtrain_device_get_api(n->device);
	expect_ok(n->api->stream_create(n->device, &n->stream, &err), &err);
	expect_ok(dtrain_params_create(n->device, DTRAIN_F32, &n->params, &err), &err);
	expect_ok(dtrain_graph_create(n->params, true, &graph, &err), &err);
	n->x = dtrain_graph_input(graph, "x", DTRAIN_F32, &image);
	n->label = dtrain_graph_input(graph, "label", DTRAIN_I64, &label);
	n->hidden = dtrain_gelu(graph, dtrain_conv2d(graph, "conv", n->x, 8, 3, 1, 1));
	dtrain_graph_require_grad(graph, n->hidden);
	n->logits = dtrain_linear(graph, "fc", dtrain_global_avg_pool(graph, n->hidden), CLASSES);
	dtrain_graph_keep(graph, n->logits);
	dtrain_graph_keep(graph, n->hidden);
	dtrain_graph_backward(graph, dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, n->logits, n->label, 0)));
	n->d_hidden = dtrain_graph_grad(graph, n->hidden);
	if (own == NO_SCRATCH)
		dtrain_graph_share_scratch(graph);
	if (own == NO_INPUTS)
		dtrain_graph_bind_inputs(graph);
	expect_ok(dtrain_graph_compile(&graph, &n->program, &err), &err);
	expect_ok(dtrain_params_initialize(n->params, 3, n->stream, &err), &err);
}

static void close_net(net *n)
{
	dtrain_program_destroy(&n->program);
	dtrain_params_destroy(&n->params);
	n->api->stream_destroy(n->stream);
	dtrain_device_close(&n->device);
}

static void make_batch(int seed, float *pixels, int64_t *labels)
{
	for (int i = 0; i < PIXELS; i++)
		pixels[i] = sinf((float)(i * 7 + seed * 31));
	for (int i = 0; i < BATCH; i++)
		labels[i] = (seed + i) % CLASSES;
}

static void fill(const net *n, dtrain_instance *instance, int seed)
{
	float pixels[PIXELS];
	int64_t labels[BATCH];
	make_batch(seed, pixels, labels);
	copy(n, dtrain_instance_data(instance, n->x), pixels, sizeof(pixels), DTRAIN_HOST_TO_DEVICE);
	copy(n, dtrain_instance_data(instance, n->label), labels, sizeof(labels), DTRAIN_HOST_TO_DEVICE);
}

static void run(const net *n, dtrain_instance *instance)
{
	beton_error err = {0};
	expect_ok(dtrain_instance_run(instance, n->stream, DTRAIN_ALL_PHASES, 0, 1, &err), &err);
	expect_ok(n->api->stream_synchronize(n->stream, &err), &err);
}

/* Two activations and the gradients. */
typedef struct results {
	float logits[BATCH * CLASSES], d_hidden[BATCH * 8 * SIDE * SIDE], grad[8 * 27];
} results;

static void read_results(const net *n, const dtrain_instance *instance, results *out)
{
	copy(n, out->logits, dtrain_instance_data(instance, n->logits), sizeof(out->logits), DTRAIN_DEVICE_TO_HOST);
	copy(n, out->d_hidden, dtrain_instance_data(instance, n->d_hidden), sizeof(out->d_hidden),
	     DTRAIN_DEVICE_TO_HOST);
	int64_t offset = dtrain_params_at(n->params, 0)->offset;
	copy(n, out->grad, (float *)dtrain_params_grads(n->params) + offset, sizeof(out->grad), DTRAIN_DEVICE_TO_HOST);
}

static void compare_instances(const char *device, ownership own)
{
	beton_error err = {0};
	net n;
	dtrain_instance *instances[3];
	results alone[3], together;
	open_net(&n, device, own);
	dtrain_program_info info = {.struct_size = sizeof(info)};
	dtrain_program_get_info(n.program, &info);
	assert_int_equal(info.shared_bytes > 0, own == NO_SCRATCH);
	assert_true(info.shared_bytes < info.arena_bytes);
	for (int i = 0; i < 3; i++) {
		expect_ok(dtrain_instance_create(n.program, &instances[i], &err), &err);
		fill(&n, instances[0], i);
		run(&n, instances[0]);
		read_results(&n, instances[0], &alone[i]);
	}
	for (int i = 0; i < 3; i++) {
		assert_null(dtrain_instance_data(instances[i], n.hidden + 100));
		fill(&n, instances[i], i);
	}
	for (int i = 0; i < 3; i++)
		run(&n, instances[i]);
	/* Activations of all three are there; the gradients are the last one's. */
	for (int i = 0; i < 3; i++) {
		read_results(&n, instances[i], &together);
		assert_memory_equal(together.logits, alone[i].logits, sizeof(together.logits));
		assert_memory_equal(together.d_hidden, alone[i].d_hidden, sizeof(together.d_hidden));
		assert_memory_equal(together.grad, alone[2].grad, sizeof(together.grad));
	}
	/* The order of phases is another one. */
	for (int i = 0; i < 3; i++)
		expect_ok(dtrain_instance_run(instances[i], n.stream, DTRAIN_FORWARD, 0, 1, &err), &err);
	for (int i = 0; i < 3; i++)
		expect_ok(dtrain_instance_run(instances[i], n.stream, DTRAIN_BACKWARD | DTRAIN_WEIGHTS, 0, 1, &err),
			  &err);
	for (int i = 0; i < 3; i++) {
		read_results(&n, instances[i], &together);
		assert_memory_equal(&together.logits, &alone[i].logits, sizeof(together.logits));
		assert_memory_equal(&together.d_hidden, &alone[i].d_hidden, sizeof(together.d_hidden));
	}
	for (int i = 0; i < 3; i++)
		dtrain_instance_destroy(&instances[i]);
	dtrain_instance_destroy(&instances[0]);
	close_net(&n);
}

static void compare_own(const char *device)
{
	compare_instances(device, ALL);
}

static void compare_shared(const char *device)
{
	compare_instances(device, NO_SCRATCH);
}

static void check_bound_input(const char *device)
{
	beton_error err = {0};
	net n;
	dtrain_instance *instance;
	results own, bound;
	void *memory;
	open_net(&n, device, ALL);
	expect_ok(dtrain_instance_create(n.program, &instance, &err), &err);
	expect_ok(n.api->alloc(n.device, PIXELS * sizeof(float), &memory, &err), &err);
	fill(&n, instance, 4);
	run(&n, instance);
	read_results(&n, instance, &own);
	copy(&n, memory, dtrain_instance_data(instance, n.x), PIXELS * sizeof(float), DTRAIN_DEVICE_TO_DEVICE);
	fill(&n, instance, 5);
	int64_t labels[BATCH];
	float pixels[PIXELS];
	make_batch(4, pixels, labels);
	copy(&n, dtrain_instance_data(instance, n.label), labels, sizeof(labels), DTRAIN_HOST_TO_DEVICE);
	expect_ok(dtrain_instance_bind(instance, n.x, memory, &err), &err);
	assert_ptr_equal(dtrain_instance_data(instance, n.x), memory);
	run(&n, instance);
	read_results(&n, instance, &bound);
	assert_memory_equal(&own, &bound, sizeof(own));
	assert_int_equal(dtrain_instance_bind(instance, n.logits, memory, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "is not an input"));
	assert_int_equal(dtrain_instance_bind(instance, n.x, (char *)memory + 4, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "is not a multiple of"));
	expect_ok(dtrain_instance_bind(instance, n.x, NULL, &err), &err);
	assert_ptr_not_equal(dtrain_instance_data(instance, n.x), memory);
	n.api->free(n.device, memory);
	dtrain_instance_destroy(&instance);
	close_net(&n);
}

static void check_unbound_inputs(const char *device)
{
	beton_error err = {0};
	net n;
	float pixels[PIXELS];
	int64_t labels[BATCH];
	void *memory[2];
	results own, bound;
	open_net(&n, device, ALL);
	dtrain_instance *instance;
	expect_ok(dtrain_instance_create(n.program, &instance, &err), &err);
	fill(&n, instance, 2);
	run(&n, instance);
	read_results(&n, instance, &own);
	dtrain_instance_destroy(&instance);
	close_net(&n);

	open_net(&n, device, NO_INPUTS);
	make_batch(2, pixels, labels);
	expect_ok(dtrain_instance_create(n.program, &instance, &err), &err);
	expect_ok(n.api->alloc(n.device, sizeof(pixels), &memory[0], &err), &err);
	expect_ok(n.api->alloc(n.device, sizeof(labels), &memory[1], &err), &err);
	copy(&n, memory[0], pixels, sizeof(pixels), DTRAIN_HOST_TO_DEVICE);
	copy(&n, memory[1], labels, sizeof(labels), DTRAIN_HOST_TO_DEVICE);
	expect_ok(dtrain_instance_bind(instance, n.x, memory[0], &err), &err);
	assert_int_equal(dtrain_instance_run(instance, n.stream, DTRAIN_ALL_PHASES, 0, 1, &err), BETON_STATE);
	assert_non_null(strstr(err.message, "input 1 of the graph is bound to no memory"));
	expect_ok(dtrain_instance_bind(instance, n.label, memory[1], &err), &err);
	run(&n, instance);
	read_results(&n, instance, &bound);
	assert_memory_equal(&own, &bound, sizeof(own));
	dtrain_instance_destroy(&instance);
	n.api->free(n.device, memory[0]);
	n.api->free(n.device, memory[1]);
	close_net(&n);
}

static void on_each_device(void (*check)(const char *device))
{
	check("ref");
	check("far");
	if (dtrain_device_find("cpu"))
		check("cpu");
}

static void instances_have_activations_of_their_own(void **state)
{
	(void)state;
	on_each_device(compare_own);
}

static void instances_share_scratch_memory(void **state)
{
	(void)state;
	on_each_device(compare_shared);
}

static void inputs_may_need_memory(void **state)
{
	(void)state;
	on_each_device(check_unbound_inputs);
}

static void inputs_may_be_elsewhere(void **state)
{
	(void)state;
	on_each_device(check_bound_input);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instances_have_activations_of_their_own),
		cmocka_unit_test(instances_share_scratch_memory),
		cmocka_unit_test(inputs_may_be_elsewhere),
		cmocka_unit_test(inputs_may_need_memory),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
