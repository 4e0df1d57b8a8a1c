/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that are not trained, batch norm with options, initial values of convolutions. What they compute is compared
 * with PyTorch in torch.c, and between devices in resnet.c, by way of the small network.
 */
#include "tests/train/support/net.h"

#include <stdio.h>

#include "core/program.h"

static int nodes_of(const dtrain_program *program, dtrain_op_kind kind)
{
	int count = 0;
	for (int32_t i = 0; i < program->graph->num_nodes; i++)
		count += program->graph->nodes[i].kind == kind;
	return count;
}

static const dtrain_buffer *buffer_of(const dtrain_params *params, const char *name)
{
	for (int i = 0; i < dtrain_params_buffer_count(params); i++)
		if (strcmp(dtrain_params_buffer_at(params, i)->name, name) == 0)
			return dtrain_params_buffer_at(params, i);
	fail_msg("no buffer '%s'", name);
	return NULL;
}

/* The first convolution has a gradient neither of its weight nor of the picture; the others have both. */
static void fixed_weights_are_buffers_that_stay(void **state)
{
	(void)state;
	static const char *const trained[] = {"first.bias",   "conv1.weight", "norm1.bias",
					      "conv2.weight", "norm2.bias",   "head.weight"};
	net n;
	beton_error err = {0};
	net_open(&n, "ref", DTRAIN_F64, SMALL_NET, 3, 9, 4);
	assert_int_equal(dtrain_params_count(n.params), 6);
	for (int i = 0; i < 6; i++)
		assert_string_equal(dtrain_params_at(n.params, i)->name, trained[i]);
	assert_int_equal(dtrain_params_buffer_count(n.params), 7);
	assert_int_equal(nodes_of(n.program, DTRAIN_OP_CONV2D), 3);
	assert_int_equal(nodes_of(n.program, DTRAIN_OP_CONV2D_BWD_WEIGHT), 2);
	assert_int_equal(nodes_of(n.program, DTRAIN_OP_CONV2D_BWD_DATA), 2);
	const dtrain_buffer *weight = buffer_of(n.params, "first.weight"), *ones = buffer_of(n.params, "norm2.weight");
	const dtrain_buffer *mean = buffer_of(n.params, "norm2.running_mean");
	assert_true(weight->fixed && ones->fixed && !mean->fixed);
	int64_t count = dtrain_shape_count(&weight->shape);
	assert_int_equal(count, 6 * 3 * 2 * 2);
	double *before = net_values(&n, weight->data, count), most = 0;
	for (int64_t i = 0; i < count; i++)
		most = fmax(most, fabs(before[i]));
	/* As PyTorch starts it: uniform in +-1 / sqrt(fan-in). */
	assert_true(most < 1 / sqrt(12) && most > 0.8 / sqrt(12));
	dtrain_optimizer *sgd;
	dtrain_optimizer_options options;
	dtrain_optimizer_options_init(&options);
	const dtrain_hyper_value decay = {"weight_decay", 0.1};
	options.hypers = &decay;
	options.num_hypers = 1;
	expect_ok(dtrain_optimizer_create(n.params, &options, &sgd, &err), &err);
	for (int i = 0; i < 3; i++) {
		net_run(&n);
		expect_ok(dtrain_optimizer_step(sgd, 0.1, n.stream, &err), &err);
	}
	assert_memory_equal(before, weight->data, (size_t)count * sizeof(double));
	for (int64_t i = 0; i < dtrain_shape_count(&ones->shape); i++)
		assert_true(((const double *)ones->data)[i] == 1);
	assert_true(((const double *)mean->data)[0] != 0);
	dtrain_optimizer_destroy(&sgd);
	free(before);
	net_close(&n);
}

/* ---- the picture's gradient through a fixed convolution, where it is asked for ---- */

static double loss_of(dtrain_program *program, dtrain_stream *stream, dtrain_tensor loss)
{
	beton_error err = {0};
	expect_ok(dtrain_program_run(program, stream, 0, 1, &err), &err);
	return *(double *)dtrain_program_data(program, loss);
}

static void gradients_pass_fixed_weights(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_device_get_api(device)->stream_create(device, &stream, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F64, &params, &err), &err);
	expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
	dtrain_tensor x = dtrain_graph_input(graph, "x", DTRAIN_F64, &(dtrain_shape){4, {2, 3, 5, 4}});
	dtrain_tensor label = dtrain_graph_input(graph, "y", DTRAIN_I64, &(dtrain_shape){1, {2}});
	dtrain_graph_require_grad(graph, x);
	dtrain_tensor y = dtrain_gelu(graph, dtrain_conv2d_fixed(graph, "fixed", x, 4, 3, 2, 1));
	y = dtrain_channel_bias(graph, "bias", y);
	dtrain_tensor loss =
		dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, dtrain_global_avg_pool(graph, y), label, 0));
	dtrain_graph_keep(graph, loss);
	dtrain_graph_backward(graph, loss);
	dtrain_tensor d_x = dtrain_graph_grad(graph, x);
	assert_true(d_x >= 0);
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	assert_int_equal(nodes_of(program, DTRAIN_OP_CONV2D_BWD_DATA), 1);
	assert_int_equal(nodes_of(program, DTRAIN_OP_CONV2D_BWD_WEIGHT), 0);
	expect_ok(dtrain_params_initialize(params, 3, stream, &err), &err);
	double *pixels = dtrain_program_data(program, x), right[120];
	for (int i = 0; i < 120; i++)
		pixels[i] = 3 * sin(i);
	loss_of(program, stream, loss);
	memcpy(right, dtrain_program_data(program, d_x), sizeof(right));
	for (int i = 0; i < 120; i++) {
		double keep = pixels[i];
		pixels[i] = keep + 1e-5;
		double above = loss_of(program, stream, loss);
		pixels[i] = keep - 1e-5;
		double slope = (above - loss_of(program, stream, loss)) / 2e-5;
		pixels[i] = keep;
		if (!(fabs(slope - right[i]) < 1e-9))
			fail_msg("pixel %d: %.9g, finite difference %.9g", i, right[i], slope);
	}
	dtrain_program_destroy(&program);
	dtrain_params_destroy(&params);
	dtrain_device_get_api(device)->stream_destroy(stream);
	dtrain_device_close(&device);
}

/* ---- initial values ---- */

/* The parameters of one program may not change the draws of another: the same names, one of each kind in a set. */
static void initialize(dtrain_device *device, const dtrain_shape *shape, dtrain_init init, float *out)
{
	beton_error err = {0};
	dtrain_params *params;
	dtrain_stream *stream;
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	expect_ok(dtrain_device_get_api(device)->stream_create(device, &stream, &err), &err);
	assert_true(dtrain_params_declare(params, "w", shape, init, 7, &err) >= 0);
	expect_ok(dtrain_params_allocate(params, &err), &err);
	expect_ok(dtrain_params_initialize(params, 1, stream, &err), &err);
	memcpy(out, dtrain_params_values(params), (size_t)dtrain_shape_count(shape) * sizeof(float));
	dtrain_params_destroy(&params);
	dtrain_device_get_api(device)->stream_destroy(stream);
}

static void dirac_copies_the_input(void **state)
{
	(void)state;
	static const dtrain_shape shapes[] = {
		{4, {5, 3, 3, 3}}, {4, {3, 5, 3, 3}}, {4, {4, 4, 1, 1}}, {4, {6, 2, 2, 4}}, {4, {3, 1, 5, 3}}};
	beton_error err = {0};
	dtrain_device *device;
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	for (int k = 0; k < 5; k++) {
		const int64_t *dim = shapes[k].dim;
		float dirac[512], uniform[512];
		assert_true(dtrain_shape_count(&shapes[k]) <= 512);
		initialize(device, &shapes[k], DTRAIN_INIT_DIRAC, dirac);
		initialize(device, &shapes[k], DTRAIN_INIT_LINEAR_UNIFORM, uniform);
		int at = 0;
		for (int64_t o = 0; o < dim[0]; o++)
			for (int64_t i = 0; i < dim[1]; i++)
				for (int64_t r = 0; r < dim[2]; r++)
					for (int64_t s = 0; s < dim[3]; s++, at++) {
						bool one = o == i && r == dim[2] / 2 && s == dim[3] / 2;
						float right = o >= dim[1] ? uniform[at] : one ? 1 : 0;
						assert_true(dirac[at] == right);
					}
	}
	dtrain_device_close(&device);
}

/* ---- errors ---- */

static void expect_error(void (*build)(dtrain_graph *graph, dtrain_tensor x), int code, const char *message)
{
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	expect_ok(dtrain_graph_create(params, true, &graph, &err), &err);
	build(graph, dtrain_graph_input(graph, "x", DTRAIN_F32, &(dtrain_shape){4, {2, 3, 8, 8}}));
	int status = dtrain_graph_compile(&graph, &program, &err);
	if (status != code || !strstr(err.message, message))
		fail_msg("%d '%s', not %d '%s'", status, err.message, code, message);
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

static void norm_with(dtrain_graph *graph, dtrain_tensor x, size_t struct_size, double epsilon, double momentum)
{
	dtrain_batch_norm_with(
		graph, "bn", x,
		&(dtrain_batch_norm_options){.struct_size = struct_size, .epsilon = epsilon, .momentum = momentum});
}

static void build_no_epsilon(dtrain_graph *graph, dtrain_tensor x)
{
	norm_with(graph, x, sizeof(dtrain_batch_norm_options), 0, 0.1);
}

static void build_infinite_epsilon(dtrain_graph *graph, dtrain_tensor x)
{
	norm_with(graph, x, sizeof(dtrain_batch_norm_options), INFINITY, 0.1);
}

static void build_large_momentum(dtrain_graph *graph, dtrain_tensor x)
{
	norm_with(graph, x, sizeof(dtrain_batch_norm_options), 1e-5, 1.5);
}

static void build_nan_momentum(dtrain_graph *graph, dtrain_tensor x)
{
	norm_with(graph, x, sizeof(dtrain_batch_norm_options), 1e-5, NAN);
}

static void build_short_options(dtrain_graph *graph, dtrain_tensor x)
{
	norm_with(graph, x, 0, 1e-5, 0.1);
}

static void build_both_kinds(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_conv2d(graph, "conv", x, 4, 3, 1, 1);
	dtrain_conv2d_fixed(graph, "conv", x, 4, 3, 1, 1);
}

static void build_both_kinds_fixed_first(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_conv2d_fixed(graph, "conv", x, 4, 3, 1, 1);
	dtrain_conv2d(graph, "conv", x, 4, 3, 1, 1);
}

static void build_fixed_twice(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_conv2d_fixed(graph, "conv", x, 4, 3, 1, 1);
	dtrain_conv2d_fixed(graph, "conv", x, 4, 3, 1, 1);
}

static void build_bias_of_rows(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_channel_bias(graph, "bias", dtrain_flatten(graph, x));
}

static void build_large_window(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_conv2d_fixed(graph, "conv", x, 4, 9, 1, 0);
}

static void wrong_layers_are_errors(void **state)
{
	(void)state;
	expect_error(build_no_epsilon, BETON_INVALID_ARGUMENT, "'bn': epsilon 0");
	expect_error(build_infinite_epsilon, BETON_INVALID_ARGUMENT, "'bn': epsilon inf");
	expect_error(build_large_momentum, BETON_INVALID_ARGUMENT, "momentum 1.5 is not in [0, 1]");
	expect_error(build_nan_momentum, BETON_INVALID_ARGUMENT, "momentum nan");
	expect_error(build_short_options, BETON_INVALID_ARGUMENT, "struct_size is 0");
	expect_error(build_both_kinds, BETON_MISMATCH, "'conv.weight' is declared as");
	expect_error(build_both_kinds_fixed_first, BETON_MISMATCH, "'conv.weight' is declared as");
	expect_error(build_fixed_twice, BETON_INVALID_ARGUMENT, "'conv.weight' is used by two layers");
	expect_error(build_bias_of_rows, BETON_INVALID_ARGUMENT, "'bias': 2 dimensions");
	expect_error(build_large_window, BETON_INVALID_ARGUMENT, "do not fit 8 x 8");
}

static void wrong_declarations_are_errors(void **state)
{
	(void)state;
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	const dtrain_shape matrix = {2, {4, 4}}, vector = {1, {4}};
	expect_ok(dtrain_device_open("ref", NULL, &device, &err), &err);
	expect_ok(dtrain_params_create(device, DTRAIN_F32, &params, &err), &err);
	assert_int_equal(dtrain_params_declare(params, "w", &matrix, DTRAIN_INIT_DIRAC, 4, &err),
			 BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "'w'"));
	assert_int_equal(dtrain_params_declare_fixed(params, "b", &vector, DTRAIN_INIT_ONE, &err), 0);
	assert_int_equal(dtrain_params_declare_fixed(params, "b", &vector, DTRAIN_INIT_ONE, &err), 0);
	assert_int_equal(dtrain_params_declare_buffer(params, "b", &vector, DTRAIN_INIT_ONE, &err), BETON_MISMATCH);
	assert_int_equal(dtrain_params_declare_fixed(params, "b", &matrix, DTRAIN_INIT_ONE, &err), BETON_MISMATCH);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fixed_weights_are_buffers_that_stay),
		cmocka_unit_test(gradients_pass_fixed_weights),
		cmocka_unit_test(dirac_copies_the_input),
		cmocka_unit_test(wrong_layers_are_errors),
		cmocka_unit_test(wrong_declarations_are_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
