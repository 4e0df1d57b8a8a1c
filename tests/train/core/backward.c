/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward from losses that are not the mean of one loss alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph.h"
#include "tests/train/support/net.h"

typedef struct setting {
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_params *params;
} setting;

static setting open_setting(void)
{
	setting in;
	beton_error err = {0};
	expect_ok(dtrain_device_open("ref", NULL, &in.device, &err), &err);
	expect_ok(dtrain_device_get_api(in.device)->stream_create(in.device, &in.stream, &err), &err);
	expect_ok(dtrain_params_create(in.device, DTRAIN_F64, &in.params, &err), &err);
	return in;
}

static void close_setting(setting *in)
{
	dtrain_params_destroy(&in->params);
	dtrain_device_get_api(in->device)->stream_destroy(in->stream);
	dtrain_device_close(&in->device);
}

typedef struct loss_tensors {
	dtrain_tensor x, y, label, target, losses, errors;
} loss_tensors;

static dtrain_tensor half_of_mean(dtrain_graph *graph, const loss_tensors *t)
{
	return dtrain_scale(graph, dtrain_mean_loss(graph, t->losses), 0.5);
}

static dtrain_tensor sum_of_means(dtrain_graph *graph, const loss_tensors *t)
{
	dtrain_tensor entropy = dtrain_mean(graph, t->losses), error = dtrain_mean(graph, t->errors);
	return dtrain_add(graph, dtrain_scale(graph, dtrain_add(graph, entropy, error, false), -3), entropy, false);
}

static dtrain_tensor mean_of_sum(dtrain_graph *graph, const loss_tensors *t)
{
	return dtrain_mean(graph, dtrain_add(graph, t->losses, dtrain_scale(graph, t->errors, 0.25), false));
}

static dtrain_tensor mean_of_op(dtrain_graph *graph, const loss_tensors *t)
{
	dtrain_shape six = dtrain_shape_of(1, (int64_t[]){6});
	return dtrain_mean(graph, dtrain_reshape(graph, t->y, &six));
}

static dtrain_tensor mean_of_input(dtrain_graph *graph, const loss_tensors *t)
{
	dtrain_shape six = dtrain_shape_of(1, (int64_t[]){6});
	dtrain_tensor mean = dtrain_mean(graph, dtrain_reshape(graph, t->x, &six));
	return dtrain_add(graph, mean, dtrain_scale(graph, half_of_mean(graph, t), 4), false);
}

static dtrain_tensor bent_sum(dtrain_graph *graph, const loss_tensors *t)
{
	return dtrain_add(graph, mean_of_op(graph, t), dtrain_mean(graph, t->errors), true);
}

static dtrain_tensor one_element(dtrain_graph *graph, const loss_tensors *t)
{
	return dtrain_scale(graph, dtrain_slice(graph, dtrain_slice(graph, t->y, 0, 1, 1), 1, 1, 1), 7);
}

/* As in a transformer: what a norm reads is also added to what comes after it. */
static dtrain_tensor residual_norms(dtrain_graph *graph, const loss_tensors *t)
{
	dtrain_shape row = dtrain_shape_of(2, (int64_t[]){1, 6}), matrix = dtrain_shape_of(2, (int64_t[]){3, 2});
	dtrain_tensor x = dtrain_reshape(graph, t->x, &row);
	x = dtrain_add(graph, x, dtrain_layer_norm(graph, "layer", x, 1e-5), false);
	x = dtrain_add(graph, x, dtrain_rms_norm(graph, "rms", x, 1e-5), false);
	return dtrain_mean(graph, dtrain_squared_error(graph, dtrain_reshape(graph, x, &matrix), t->target));
}

static dtrain_tensor rows_of_losses(dtrain_graph *graph, const loss_tensors *t)
{
	(void)graph;
	return t->losses;
}

static dtrain_tensor bent_losses(dtrain_graph *graph, const loss_tensors *t)
{
	return dtrain_mean(graph, dtrain_gelu(graph, t->losses));
}

static dtrain_tensor mean_of_hits(dtrain_graph *graph, const loss_tensors *t)
{
	return dtrain_mean(graph, dtrain_label_hits(graph, t->losses));
}

typedef dtrain_tensor loss_builder(dtrain_graph *graph, const loss_tensors *tensors);

static loss_tensors begin_loss(dtrain_graph *graph)
{
	const dtrain_shape matrix = dtrain_shape_of(2, (int64_t[]){3, 2}), rows = dtrain_shape_of(1, (int64_t[]){3});
	loss_tensors t = {.x = dtrain_graph_input(graph, "x", DTRAIN_F64, &matrix),
			  .label = dtrain_graph_input(graph, "label", DTRAIN_I64, &rows),
			  .target = dtrain_graph_input(graph, "target", DTRAIN_F64, &matrix)};
	dtrain_graph_require_grad(graph, t.x);
	t.y = dtrain_gelu(graph, t.x);
	t.losses = dtrain_softmax_cross_entropy(graph, t.y, t.label, 0);
	t.errors = dtrain_squared_error(graph, t.y, t.target);
	return t;
}

/* The gradient is that of finite differences, times the scale. */
static void expect_gradient(const setting *in, loss_builder *builder, float *scaler)
{
	const double step = 1e-5;
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_graph_create(in->params, true, &graph, &err), &err);
	dtrain_graph_set_scaler(graph, scaler);
	const loss_tensors t = begin_loss(graph);
	dtrain_tensor loss = builder(graph, &t);
	dtrain_graph_keep(graph, loss);
	dtrain_graph_backward(graph, loss);
	dtrain_tensor d_x = dtrain_graph_grad(graph, t.x);
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	expect_ok(dtrain_params_initialize(in->params, 1, in->stream, &err), &err);
	double *x = dtrain_program_data(program, t.x);
	for (int i = 0; i < 6; i++) {
		x[i] = sin(i + 1);
		((double *)dtrain_program_data(program, t.target))[i] = cos(i);
	}
	((int64_t *)dtrain_program_data(program, t.label))[2] = 1;
	for (int i = 0; i < 6; i++) {
		double values[2];
		for (int side = 0; side < 2; side++) {
			x[i] = sin(i + 1) + (side ? step : -step);
			expect_ok(dtrain_program_run(program, in->stream, 0, 1, &err), &err);
			values[side] = *(const double *)dtrain_program_data(program, loss);
		}
		x[i] = sin(i + 1);
		expect_ok(dtrain_program_run(program, in->stream, 0, 1, &err), &err);
		double got = ((const double *)dtrain_program_data(program, d_x))[i];
		double right = (values[1] - values[0]) / (2 * step) * (scaler ? (double)scaler[0] : 1);
		if (!(fabs(got - right) < 1e-6))
			fail_msg("element %d: a gradient of %g instead of %g", i, got, right);
	}
	dtrain_program_destroy(&program);
}

static void losses_are_sums_of_means(void **state)
{
	static loss_builder *const builders[] = {half_of_mean, sum_of_means,  mean_of_sum,
						 mean_of_op,   mean_of_input, one_element};
	static const struct {
		loss_builder *builder;
		int status;
		const char *words;
	} faults[] = {{rows_of_losses, BETON_INVALID_ARGUMENT, "backward: a loss of the shape [3]; needs a scalar"},
		      {bent_sum, BETON_UNSUPPORTED, "what op mean computes, which has no gradient"},
		      {bent_losses, BETON_UNSUPPORTED, "what op softmax_xent computes, which has no gradient"},
		      {mean_of_hits, BETON_UNSUPPORTED, "what op softmax_xent computes, which has no gradient"}};
	float scaler[DTRAIN_SCALERS] = {[DTRAIN_SCALER_SCALE] = 4};
	beton_error err = {0};
	(void)state;
	setting in = open_setting();
	for (size_t i = 0; i < sizeof(builders) / sizeof(builders[0]); i++)
		for (int scaled = 0; scaled < 2; scaled++)
			expect_gradient(&in, builders[i], scaled ? scaler : NULL);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		dtrain_graph *graph;
		dtrain_program *program;
		expect_ok(dtrain_graph_create(in.params, true, &graph, &err), &err);
		const loss_tensors t = begin_loss(graph);
		dtrain_graph_backward(graph, faults[i].builder(graph, &t));
		assert_int_equal(dtrain_graph_compile(&graph, &program, &err), faults[i].status);
		if (!strstr(err.message, faults[i].words))
			fail_msg("'%s' does not say '%s'", err.message, faults[i].words);
		dtrain_graph_destroy(&graph);
	}
	close_setting(&in);
}

static int nodes_of(const dtrain_graph *graph, dtrain_op_kind kind)
{
	int count = 0;
	for (int32_t i = 0; i < graph->num_nodes; i++)
		count += graph->nodes[i].kind == kind;
	return count;
}

/* The backward ops add the gradients of residual connections, so the only additions are the forward ones. */
static void norms_add_gradients_of_residuals(void **state)
{
	beton_error err = {0};
	dtrain_graph *graph;
	(void)state;
	setting in = open_setting();
	expect_gradient(&in, residual_norms, NULL);
	expect_ok(dtrain_graph_create(in.params, true, &graph, &err), &err);
	const loss_tensors t = begin_loss(graph);
	dtrain_graph_backward(graph, residual_norms(graph, &t));
	assert_int_equal(nodes_of(graph, DTRAIN_OP_LAYER_NORM_BWD), 1);
	assert_int_equal(nodes_of(graph, DTRAIN_OP_RMS_NORM_BWD), 1);
	assert_int_equal(nodes_of(graph, DTRAIN_OP_ADD), 2);
	dtrain_graph_destroy(&graph);
	close_setting(&in);
}

/* ---- an activation between two linear layers ---- */

typedef enum arrangement {
	SEPARATE, /* ops of their own */
	TOGETHER,
	OF_ROWS, /* the same, with reshaped operands in between */
	WANTED,  /* the gradient of the activation is asked for */
	READ_TWICE,
	WAYS,
} arrangement;

enum { ROWS = 6, IN = 4, HIDDEN = 5 };

static dtrain_tensor weight(dtrain_graph *graph, const char *name, int64_t out, int64_t in)
{
	return dtrain__graph_param(graph, name, "weight", &(dtrain_shape){2, {out, in}}, DTRAIN_INIT_NORMAL, 1);
}

static dtrain_tensor layers(dtrain_graph *graph, arrangement way, dtrain_tensor x, dtrain_tensor *y)
{
	dtrain_linear_options options;
	dtrain_linear_options_init(&options);
	options.activation = DTRAIN_ACTIVATION_GELU_TANH;
	dtrain_tensor first = weight(graph, "first", HIDDEN, IN), second = weight(graph, "second", 3, HIDDEN);
	*y = way == SEPARATE ? dtrain_gelu_tanh(graph, dtrain_linear_of(graph, x, first, -1, false))
			     : dtrain_linear_with(graph, x, first, -1, &options);
	if (way == WANTED)
		dtrain_graph_require_grad(graph, *y);
	dtrain_tensor z = dtrain_linear_of(graph, *y, second, -1, false);
	if (way == READ_TWICE)
		z = dtrain_scale(graph, dtrain_add(graph, z, dtrain_linear_of(graph, *y, second, -1, false), false),
				 0.5);
	return z;
}

/* The gradient of x, and the number of ops that compute nothing but the activation's gradient. */
static int run_layers(const setting *in, arrangement way, double d_x[ROWS * IN])
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_program *program;
	expect_ok(dtrain_graph_create(in->params, true, &graph, &err), &err);
	dtrain_shape shape = way == OF_ROWS ? (dtrain_shape){3, {2, ROWS / 2, IN}} : (dtrain_shape){2, {ROWS, IN}};
	dtrain_tensor y, x = dtrain_graph_input(graph, "x", DTRAIN_F64, &shape);
	dtrain_graph_require_grad(graph, x);
	dtrain_tensor z = layers(graph, way, x, &y);
	dtrain_tensor target = dtrain_graph_input(graph, "target", DTRAIN_F64, &(dtrain_shape){2, {ROWS, 3}});
	z = dtrain_reshape(graph, z, &(dtrain_shape){2, {ROWS, 3}});
	dtrain_graph_backward(graph, dtrain_mean(graph, dtrain_squared_error(graph, z, target)));
	if (way == WANTED)
		assert_true(dtrain_graph_grad(graph, y) >= 0);
	dtrain_tensor gradient = dtrain_graph_grad(graph, x);
	int count = nodes_of(graph, DTRAIN_OP_GELU_BWD);
	expect_ok(dtrain_graph_compile(&graph, &program, &err), &err);
	if (way == SEPARATE)
		expect_ok(dtrain_params_initialize(in->params, 3, in->stream, &err), &err);
	for (int i = 0; i < ROWS * IN; i++)
		((double *)dtrain_program_data(program, x))[i] = 2 * sin(i + 1);
	for (int i = 0; i < ROWS * 3; i++)
		((double *)dtrain_program_data(program, target))[i] = cos(i);
	expect_ok(dtrain_program_run(program, in->stream, 0, 1, &err), &err);
	memcpy(d_x, dtrain_program_data(program, gradient), ROWS * IN * sizeof(*d_x));
	dtrain_program_destroy(&program);
	return count;
}

/* The product before it computes an activation's gradient, unless someone needs what comes in between. */
static void an_activation_is_part_of_a_product(void **state)
{
	static const int separate[WAYS] = {[SEPARATE] = 1, [WANTED] = 1, [READ_TWICE] = 1};
	(void)state;
	setting in = open_setting();
	double right[ROWS * IN], got[ROWS * IN];
	for (arrangement way = SEPARATE; way < WAYS; way++) {
		assert_int_equal(run_layers(&in, way, way == SEPARATE ? right : got), separate[way]);
		for (int i = 0; i < ROWS * IN && way != SEPARATE; i++)
			if (!(fabs(got[i] - right[i]) < 1e-12) || right[i] == 0)
				fail_msg("way %d, element %d: %g instead of %g", (int)way, i, got[i], right[i]);
	}
	close_setting(&in);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_sums_of_means),
					   cmocka_unit_test(norms_add_gradients_of_residuals),
					   cmocka_unit_test(an_activation_is_part_of_a_product)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
