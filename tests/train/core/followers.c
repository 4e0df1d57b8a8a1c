/* SPDX-License-Identifier: Apache-2.0
 *
 * Fusion: facts that convolutions and pictures get about the ops that read them.
 */
#include "tests/train/support/net.h"

#include "core/program.h"

static dtrain_device *device;

/* Builds a graph, and gives the program, whose graph has the hints. */
static dtrain_program *compile(dtrain_params **params, bool training, void (*build)(dtrain_graph *graph))
{
	dtrain_graph *graph;
	dtrain_program *program;
	beton_error err = {0};
	expect_ok(dtrain_params_create(device, DTRAIN_F32, params, &err), &err);
	expect_ok(dtrain_graph_create(*params, training, &graph, &err), &err);
	build(graph);
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	return program;
}

static void release(dtrain_program **program, dtrain_params **params)
{
	dtrain_program_destroy(program);
	dtrain_params_destroy(params);
}

static void build_norms(dtrain_graph *graph)
{
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F32, &(dtrain_shape){4, {2, 4, 3, 3}});
	dtrain_tensor y = dtrain_batch_norm(graph, "bn1", dtrain_conv2d(graph, "c1", x, 4, 3, 1, 1), true);
	y = dtrain_batch_norm(graph, "bn2", dtrain_conv2d(graph, "c2", y, 4, 3, 1, 1), false);
	y = dtrain_batch_norm_add(graph, "bn3", dtrain_conv2d(graph, "c3", y, 4, 3, 1, 1), x);
	y = dtrain_relu(graph, dtrain_conv2d(graph, "c4", y, 4, 3, 1, 1));
	dtrain_graph_keep(graph, dtrain_batch_norm(graph, "bn4", y, true));
}

static void convolutions_know_the_batch_norm_behind(void **state)
{
	(void)state;
	static const dtrain_fusion wanted[] = {DTRAIN_FUSION_NORM_RELU, DTRAIN_FUSION_NORM, DTRAIN_FUSION_NORM_ADD_RELU,
					       DTRAIN_FUSION_NONE};
	for (int training = 0; training < 2; training++) {
		dtrain_params *params;
		dtrain_program *program = compile(&params, training, build_norms);
		int seen = 0;
		for (int32_t i = 0; i < program->graph->num_nodes; i++) {
			const dtrain__node *node = &program->graph->nodes[i];
			if (node->kind == DTRAIN_OP_CONV2D)
				assert_int_equal(node->attrs.window.fusion,
						 training ? wanted[seen] : DTRAIN_FUSION_NONE);
			seen += node->kind == DTRAIN_OP_CONV2D;
		}
		assert_int_equal(seen, 4);
		release(&program, &params);
	}
}

static dtrain_tensor normalize(dtrain_graph *graph)
{
	static const float mean[] = {1, 2, 3}, deviation[] = {1, 2, 3};
	return dtrain_normalize(graph, dtrain_graph_input(graph, "x", DTRAIN_U8, &(dtrain_shape){4, {2, 4, 4, 3}}),
				mean, deviation);
}

/* Their gradients read the picture, too. */
static void build_two(dtrain_graph *graph, int kernel)
{
	dtrain_tensor x = normalize(graph);
	dtrain_tensor y = dtrain_add(graph, dtrain_conv2d(graph, "c1", x, 4, 3, 2, 1),
				     dtrain_conv2d(graph, "c2", x, 4, kernel, 2, kernel / 2), true);
	dtrain_tensor label = dtrain_graph_input(graph, "y", DTRAIN_I64, &(dtrain_shape){1, {2}});
	dtrain_tensor logits = dtrain_linear(graph, "fc", dtrain_global_avg_pool(graph, y), 3);
	dtrain_tensor loss = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, label, 0));
	dtrain_graph_keep(graph, loss);
	if (dtrain_graph_training(graph))
		dtrain_graph_backward(graph, loss);
}

static void build_convolved(dtrain_graph *graph)
{
	build_two(graph, 3);
}

static void build_different(dtrain_graph *graph)
{
	build_two(graph, 1);
}

static void build_pooled(dtrain_graph *graph)
{
	dtrain_tensor x = normalize(graph);
	dtrain_graph_keep(graph, dtrain_conv2d(graph, "c1", x, 4, 3, 1, 1));
	dtrain_graph_keep(graph, dtrain_global_avg_pool(graph, x));
}

static void build_flat(dtrain_graph *graph)
{
	dtrain_tensor x = normalize(graph);
	dtrain_graph_keep(graph, dtrain_conv2d(graph, "c1", x, 4, 3, 1, 1));
	dtrain_graph_keep(graph, dtrain_linear(graph, "fc", dtrain_flatten(graph, x), 3));
}

static void pictures_know_the_convolutions_that_alone_read_them(void **state)
{
	(void)state;
	static const struct {
		void (*build)(dtrain_graph *graph);
		bool training, convolved;
	} cases[] = {{build_convolved, true, true},
		     {build_convolved, false, true},
		     {build_different, true, false},
		     {build_pooled, false, false},
		     {build_flat, false, false}};
	for (int i = 0; i < 5; i++) {
		dtrain_params *params;
		dtrain_program *program = compile(&params, cases[i].training, cases[i].build);
		const dtrain__node *first = &program->graph->nodes[0];
		assert_int_equal(first->kind, DTRAIN_OP_NORMALIZE);
		dtrain_window_attrs wanted = {.stride = {2, 2}, .padding = {1, 1}, .kernel = {3, 3}};
		if (!cases[i].convolved)
			wanted = (dtrain_window_attrs){.kernel = {0}};
		assert_memory_equal(&first->attrs.pixels.convolution, &wanted, sizeof(wanted));
		release(&program, &params);
	}
}

int main(void)
{
	beton_error err = {0};
	if (dtrain_device_open("ref", NULL, &device, &err) != BETON_OK) {
		print_error("%s\n", err.message);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(convolutions_know_the_batch_norm_behind),
		cmocka_unit_test(pictures_know_the_convolutions_that_alone_read_them),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	dtrain_device_close(&device);
	return failed;
}
