/* SPDX-License-Identifier: Apache-2.0
 *
 * Views, parts, weights with several uses, gradients that are given: each graph's gradients against finite differences,
 * and its results on other devices against the plain device's.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph.h"
#include "core/params.h"
#include "core/program.h"
#include "tests/train/support/threads.h"

enum { MOST_OUTPUTS = 2, MOST_ELEMENTS = 2048 };

/* x [4, 6, 2] -> outputs; their number. */
typedef int builder(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y);

static dtrain_tensor reshaped(dtrain_graph *graph, dtrain_tensor x, int ndim, const int64_t *dims)
{
	dtrain_shape shape = dtrain_shape_of(ndim, dims);
	return dtrain_reshape(graph, x, &shape);
}

#define RESHAPED(graph, x, ...) reshaped(graph, x, sizeof((int64_t[]){__VA_ARGS__}) / 8, (int64_t[]){__VA_ARGS__})

static dtrain_tensor weight(dtrain_graph *graph, const char *name, int64_t out, int64_t in)
{
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){out, in});
	return dtrain_graph_parameter(graph, name, &shape, DTRAIN_INIT_LINEAR_UNIFORM, in);
}

/* The second part has no gradient. */
static int build_split(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	dtrain_tensor parts[3];
	x = dtrain_linear(graph, "fc", RESHAPED(graph, x, 4, 12), 9);
	dtrain_split(graph, x, 1, 3, parts);
	y[0] = dtrain_add(graph, dtrain_gelu(graph, parts[0]), parts[2], false);
	return 1;
}

/* One part begins where a device's memory may, the other does not; they overlap. */
static int build_rows(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	x = dtrain_gelu(graph, RESHAPED(graph, x, 12, 4));
	dtrain_tensor a = dtrain_slice(graph, x, 0, 4, 8), b = dtrain_slice(graph, x, 0, 1, 8);
	y[0] = dtrain_add(graph, dtrain_scale(graph, a, 3), b, false);
	return 1;
}

/* Views of views, of an input and of an activation, and a view that is an output. */
static int build_shapes(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	dtrain_tensor rows = RESHAPED(graph, x, 8, 6), back = RESHAPED(graph, rows, 4, 6, 2);
	dtrain_tensor sum = dtrain_add(graph, dtrain_gelu(graph, back), x, false);
	dtrain_tensor flat = RESHAPED(graph, sum, 48), pairs = RESHAPED(graph, flat, 2, 24);
	y[0] = dtrain_linear(graph, "fc", pairs, 3);
	y[1] = dtrain_slice(graph, RESHAPED(graph, sum, 3, 16), 0, 1, 2);
	return 2;
}

static int build_permutations(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	dtrain_tensor moved = dtrain_permute(graph, x, (const int[]){2, 0, 1});
	dtrain_tensor other = dtrain_permute(graph, dtrain_gelu(graph, moved), (const int[]){0, 2, 1});
	y[0] = dtrain_linear(graph, "fc", RESHAPED(graph, other, 4, 12), 5);
	return 1;
}

static int build_many_dimensions(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	x = dtrain_linear_relu(graph, "wide", RESHAPED(graph, x, 2, 2, 1, 2, 3, 2), 5);
	y[0] = dtrain_linear(graph, "narrow", dtrain_add(graph, x, x, false), 3);
	return 1;
}

/* One weight three times, one bias twice, with other layers between them. */
static int build_tied(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	dtrain_shape side = dtrain_shape_of(1, (int64_t[]){6});
	dtrain_tensor w = weight(graph, "tied.weight", 6, 6);
	dtrain_tensor b = dtrain_graph_parameter(graph, "tied.bias", &side, DTRAIN_INIT_LINEAR_UNIFORM, 6);
	x = dtrain_linear_of(graph, RESHAPED(graph, x, 8, 6), w, b, false);
	x = dtrain_linear_of(graph, dtrain_gelu(graph, x), w, -1, false);
	x = dtrain_linear(graph, "between", x, 6);
	y[0] = dtrain_linear_of(graph, x, w, b, false);
	return 1;
}

/* Two weights that are parts of one parameter, whose third part is not used. */
static int build_fused(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	dtrain_tensor parts[3], whole = weight(graph, "fused.weight", 24, 6);
	dtrain_split(graph, whole, 0, 3, parts);
	x = RESHAPED(graph, x, 8, 6);
	y[0] = dtrain_linear_of(graph, x, parts[0], -1, false);
	y[1] = dtrain_gelu(graph, dtrain_linear_of(graph, x, parts[2], -1, false));
	return 2;
}

/* Parameters whose gradients are one tensor: two of them, and the caller's own. */
static int build_sums(dtrain_graph *graph, dtrain_tensor x, dtrain_tensor *y)
{
	dtrain_tensor a = weight(graph, "a", 8, 6), b = weight(graph, "b", 4, 12), c = weight(graph, "c", 8, 6);
	dtrain_tensor sum = dtrain_add(graph, a, RESHAPED(graph, b, 8, 6), false);
	y[0] = dtrain_add(graph, dtrain_gelu(graph, sum), RESHAPED(graph, x, 8, 6), false);
	y[1] = dtrain_add(graph, c, RESHAPED(graph, x, 8, 6), false);
	return 2;
}

static const struct {
	const char *name;
	builder *build;
} graphs[] = {
	{"split", build_split},
	{"rows", build_rows},
	{"shapes", build_shapes},
	{"permutations", build_permutations},
	{"many dimensions", build_many_dimensions},
	{"tied", build_tied},
	{"fused", build_fused},
	{"sums", build_sums},
};

typedef struct run {
	const char *name;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	dtrain_params *params;
	dtrain_program *program;
	dtrain_dtype dtype;
	dtrain_tensor x, d_x, y[MOST_OUTPUTS], d_y[MOST_OUTPUTS];
	int outputs;
} run;

static void expect(const run *r, int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%s: %s", r->name, err->message);
}

static double number(int64_t i, int64_t seed)
{
	return (double)(float)sin((double)(i * 37 + seed * 11 + 5));
}

static void copy(run *r, void *to, const void *from, size_t count, dtrain_copy kind)
{
	beton_error err = {0};
	expect(r, r->api->copy(r->stream, to, from, count * dtrain_dtype_size(r->dtype), kind, &err), &err);
	expect(r, r->api->stream_synchronize(r->stream, &err), &err);
}

static void put(run *r, void *to, const double *values, int64_t count)
{
	union {
		double wide[MOST_ELEMENTS];
		float narrow[MOST_ELEMENTS];
	} room;
	for (int64_t i = 0; i < count; i++)
		if (r->dtype == DTRAIN_F64)
			room.wide[i] = values[i];
		else
			room.narrow[i] = (float)values[i];
	copy(r, to, &room, (size_t)count, DTRAIN_HOST_TO_DEVICE);
}

static void get(run *r, double *values, const void *from, int64_t count)
{
	union {
		double wide[MOST_ELEMENTS];
		float narrow[MOST_ELEMENTS];
	} room;
	assert_true(count <= MOST_ELEMENTS);
	copy(r, &room, from, (size_t)count, DTRAIN_DEVICE_TO_HOST);
	for (int64_t i = 0; i < count; i++)
		values[i] = r->dtype == DTRAIN_F64 ? room.wide[i] : (double)room.narrow[i];
}

static void fill(run *r, dtrain_tensor tensor, int64_t seed)
{
	double values[MOST_ELEMENTS];
	int64_t count = dtrain_shape_count(dtrain_program_shape(r->program, tensor));
	for (int64_t i = 0; i < count; i++)
		values[i] = number(i, seed);
	put(r, dtrain_program_data(r->program, tensor), values, count);
}

static void open_run(run *r, int index, const char *device, dtrain_dtype dtype)
{
	beton_error err = {0};
	dtrain_graph *graph;
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	dtrain_shape shape = dtrain_shape_of(3, (int64_t[]){4, 6, 2});
	*r = (run){.name = graphs[index].name, .dtype = dtype};
	expect(r, dtrain_device_open(device, &options, &r->device, &err), &err);
	r->api = dtrain_device_get_api(r->device);
	expect(r, r->api->stream_create(r->device, &r->stream, &err), &err);
	expect(r, dtrain_params_create(r->device, dtype, &r->params, &err), &err);
	expect(r, dtrain_graph_create(r->params, true, &graph, &err), &err);
	r->x = dtrain_graph_input(graph, "x", dtype, &shape);
	dtrain_graph_require_grad(graph, r->x);
	r->outputs = graphs[index].build(graph, r->x, r->y);
	for (int i = 0; i < r->outputs; i++) {
		dtrain_graph_keep(graph, r->y[i]);
		assert_false(dtrain__graph_failed(graph));
		shape = *dtrain_graph_shape(graph, r->y[i]);
		r->d_y[i] = dtrain_graph_input(graph, "d_y", dtype, &shape);
	}
	dtrain_graph_backward_from(graph, r->outputs, r->y, r->d_y);
	r->d_x = dtrain_graph_grad(graph, r->x);
	expect(r, dtrain_graph_compile(&graph, &r->program, &err), &err);
	expect(r, dtrain_params_initialize(r->params, 7, r->stream, &err), &err);
	fill(r, r->x, 1);
	for (int i = 0; i < r->outputs; i++)
		fill(r, r->d_y[i], 2 + i);
}

static void run_program(run *r)
{
	beton_error err = {0};
	expect(r, dtrain_program_run(r->program, r->stream, 0, 1, &err), &err);
	expect(r, r->api->stream_synchronize(r->stream, &err), &err);
}

static void close_run(run *r)
{
	dtrain_program_destroy(&r->program);
	dtrain_params_destroy(&r->params);
	r->api->stream_destroy(r->stream);
	dtrain_device_close(&r->device);
}

static double projection(run *r)
{
	double y[MOST_ELEMENTS], d_y[MOST_ELEMENTS], sum = 0;
	run_program(r);
	for (int k = 0; k < r->outputs; k++) {
		int64_t count = dtrain_shape_count(dtrain_program_shape(r->program, r->y[k]));
		get(r, y, dtrain_program_data(r->program, r->y[k]), count);
		get(r, d_y, dtrain_program_data(r->program, r->d_y[k]), count);
		for (int64_t i = 0; i < count; i++)
			sum += y[i] * d_y[i];
	}
	return sum;
}

/* Checks the elements at `place`, whose gradient is at `gradient`. */
static void check_slopes(run *r, const char *what, void *place, const void *gradient, int64_t count)
{
	double values[MOST_ELEMENTS], right[MOST_ELEMENTS];
	const double step = 1e-5;
	run_program(r);
	get(r, right, gradient, count);
	get(r, values, place, count);
	for (int64_t i = 0; i < count; i++) {
		double keep = values[i], slope;
		values[i] = keep + step;
		put(r, place, values, count);
		slope = projection(r);
		values[i] = keep - step;
		put(r, place, values, count);
		slope = (slope - projection(r)) / (2 * step);
		values[i] = keep;
		if (!(fabs(slope - right[i]) < 1e-6))
			fail_msg("%s: gradient %lld of %s is %.9g, by differences %.9g", r->name, (long long)i, what,
				 right[i], slope);
	}
	put(r, place, values, count);
}

static void *address(const run *r, void *array, int param)
{
	return (char *)array + (size_t)dtrain_params_at(r->params, param)->offset * dtrain_dtype_size(r->dtype);
}

static void gradients_equal_differences(void **state)
{
	(void)state;
	for (size_t g = 0; g < sizeof(graphs) / sizeof(graphs[0]); g++) {
		run r;
		open_run(&r, (int)g, "ref", DTRAIN_F64);
		check_slopes(&r, "x", dtrain_program_data(r.program, r.x), dtrain_program_data(r.program, r.d_x), 48);
		for (int p = 0; p < dtrain_params_count(r.params); p++)
			check_slopes(&r, dtrain_params_at(r.params, p)->name,
				     address(&r, dtrain_params_values(r.params), p),
				     address(&r, dtrain_params_grads(r.params), p),
				     dtrain_shape_count(&dtrain_params_at(r.params, p)->shape));
		close_run(&r);
	}
}

static void expect_near(const run *r, const char *device, const char *what, const double *a, const double *b,
			int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		if (!(fabs(a[i] - b[i]) < 1e-5))
			fail_msg("%s on %s: element %lld of %s is %.9g, not %.9g", r->name, device, (long long)i, what,
				 a[i], b[i]);
}

static void compare_devices(const char *device)
{
	double a[MOST_ELEMENTS], b[MOST_ELEMENTS];
	for (size_t g = 0; g < sizeof(graphs) / sizeof(graphs[0]); g++) {
		run got, right;
		open_run(&got, (int)g, device, DTRAIN_F32);
		open_run(&right, (int)g, "ref", DTRAIN_F64);
		int64_t count = dtrain_params_flat_count(got.params);
		get(&got, a, dtrain_params_values(got.params), count);
		put(&right, dtrain_params_values(right.params), a, count);
		run_program(&got);
		run_program(&right);
		for (int k = 0; k < got.outputs; k++) {
			int64_t elements = dtrain_shape_count(dtrain_program_shape(got.program, got.y[k]));
			get(&got, a, dtrain_program_data(got.program, got.y[k]), elements);
			get(&right, b, dtrain_program_data(right.program, right.y[k]), elements);
			expect_near(&got, device, "y", a, b, elements);
		}
		get(&got, a, dtrain_params_grads(got.params), count);
		get(&right, b, dtrain_params_grads(right.params), count);
		expect_near(&got, device, "gradients", a, b, count);
		close_run(&got);
		close_run(&right);
	}
}

static void other_devices_give_the_same(void **state)
{
	(void)state;
	compare_devices("ref");
	compare_devices("far");
	if (dtrain_device_find("cpu"))
		compare_devices("cpu");
}

/* A piece of a tensor's memory takes no op and no memory. */
static void views_are_not_copied(void **state)
{
	(void)state;
	run r;
	open_run(&r, 2, "ref", DTRAIN_F32);
	for (int32_t i = 0; i < r.program->graph->num_nodes; i++) {
		dtrain_op_kind kind = r.program->graph->nodes[i].kind;
		assert_true(kind != DTRAIN_OP_SLICE && kind != DTRAIN_OP_PERMUTE && kind != DTRAIN_OP_FLATTEN);
	}
	close_run(&r);
}

/* Trains on rows in a batch of sequences, or one below the other. */
static void train_rows(bool sequences, float *grad, float *loss)
{
	beton_error err = {0};
	run r = {.name = "loss", .dtype = DTRAIN_F32};
	dtrain_graph *graph;
	static const int64_t labels[6] = {0, 4, 2, 1, 3, 3};
	dtrain_shape shape =
		sequences ? dtrain_shape_of(3, (int64_t[]){2, 3, 4}) : dtrain_shape_of(2, (int64_t[]){6, 4});
	dtrain_shape rows = dtrain_shape_of(1, (int64_t[]){6});
	expect(&r, dtrain_device_open("ref", NULL, &r.device, &err), &err);
	r.api = dtrain_device_get_api(r.device);
	expect(&r, r.api->stream_create(r.device, &r.stream, &err), &err);
	expect(&r, dtrain_params_create(r.device, DTRAIN_F32, &r.params, &err), &err);
	expect(&r, dtrain_graph_create(r.params, true, &graph, &err), &err);
	r.x = dtrain_graph_input(graph, "x", DTRAIN_F32, &shape);
	dtrain_tensor label = dtrain_graph_input(graph, "label", DTRAIN_I64, &rows);
	dtrain_tensor x = dtrain_layer_norm(graph, "norm", dtrain_linear(graph, "in", r.x, 8), 1e-5);
	dtrain_tensor logits = RESHAPED(graph, dtrain_linear(graph, "out", x, 5), 6, 5);
	r.y[0] = dtrain_mean(graph, dtrain_softmax_cross_entropy(graph, logits, label, 0.1));
	dtrain_graph_keep(graph, r.y[0]);
	dtrain_graph_backward(graph, r.y[0]);
	expect(&r, dtrain_graph_compile(&graph, &r.program, &err), &err);
	expect(&r, dtrain_params_initialize(r.params, 7, r.stream, &err), &err);
	fill(&r, r.x, 5);
	memcpy(dtrain_program_data(r.program, label), labels, sizeof(labels));
	run_program(&r);
	copy(&r, loss, dtrain_program_data(r.program, r.y[0]), 1, DTRAIN_DEVICE_TO_HOST);
	copy(&r, grad, dtrain_params_grads(r.params), 64, DTRAIN_DEVICE_TO_HOST);
	close_run(&r);
}

static void a_loss_may_be_of_views(void **state)
{
	(void)state;
	float grad[2][64], loss[2], zero[64] = {0};
	train_rows(true, grad[0], &loss[0]);
	train_rows(false, grad[1], &loss[1]);
	assert_memory_equal(grad[0], grad[1], sizeof(grad[0]));
	assert_memory_not_equal(grad[0], zero, sizeof(zero));
	assert_memory_equal(&loss[0], &loss[1], sizeof(loss[0]));
}

/* ---- errors ---- */

static void expect_error(void (*build)(dtrain_graph *graph, dtrain_tensor x), const char *message)
{
	beton_error err = {0};
	dtrain_device *device;
	dtrain_params *params;
	dtrain_graph *graph;
	dtrain_program *program;
	dtrain_shape shape = dtrain_shape_of(2, (int64_t[]){4, 6});
	assert_int_equal(dtrain_device_open("ref", NULL, &device, &err), BETON_OK);
	assert_int_equal(dtrain_params_create(device, DTRAIN_F32, &params, &err), BETON_OK);
	assert_int_equal(dtrain_graph_create(params, true, &graph, &err), BETON_OK);
	build(graph, dtrain_gelu(graph, dtrain_graph_input(graph, "x", DTRAIN_F32, &shape)));
	assert_int_equal(dtrain_graph_compile(&graph, &program, &err), BETON_INVALID_ARGUMENT);
	if (!strstr(err.message, message))
		fail_msg("'%s' does not have '%s'", err.message, message);
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&params);
	dtrain_device_close(&device);
}

static void reshape_to_more(dtrain_graph *graph, dtrain_tensor x)
{
	RESHAPED(graph, x, 5, 5);
}

static void slice_beyond(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_slice(graph, x, 1, 4, 3);
}

static void slice_no_dimension(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_slice(graph, x, 2, 0, 1);
}

static void split_unevenly(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_tensor parts[4];
	dtrain_split(graph, x, 1, 4, parts);
	assert_int_equal(parts[3], -1);
}

static void permute_twice(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_permute(graph, x, (const int[]){1, 1});
}

static void linear_of_wrong_weight(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_linear_of(graph, x, weight(graph, "w", 3, 5), -1, false);
}

static void gradient_of_other_shape(dtrain_graph *graph, dtrain_tensor x)
{
	dtrain_tensor d_x = RESHAPED(graph, x, 6, 4);
	dtrain_graph_backward_from(graph, 1, &x, &d_x);
}

static void mistakes_are_named(void **state)
{
	(void)state;
	expect_error(reshape_to_more, "reshape: [5, 5] has other elements than [4, 6]");
	expect_error(slice_beyond, "slice: 1 x 3 from 4 of dimension 1 of [4, 6]");
	expect_error(slice_no_dimension, "dimension 2 of [4, 6]");
	expect_error(split_unevenly, "split: dimension 1 into 4 equal parts");
	expect_error(permute_twice, "permute: dimension 1 at place 1 of 2");
	expect_error(linear_of_wrong_weight, "linear: [4, 6] with a weight of [3, 5]");
	expect_error(gradient_of_other_shape, "backward: a gradient [6, 4] in f32 for a tensor [4, 6] in f32");
}

/* ---- computing a node again ---- */

/* Batch norm's statistics, and with `again` the result of a second node that leaves them alone. */
static void run_norm(const char *device, bool again, float *y, float *second, float *statistics)
{
	beton_error err = {0};
	run r = {.name = "batch norm", .dtype = DTRAIN_F32};
	dtrain_graph *graph;
	dtrain_shape shape = dtrain_shape_of(4, (int64_t[]){2, 8, 3, 3});
	expect(&r, dtrain_device_open(device, NULL, &r.device, &err), &err);
	r.api = dtrain_device_get_api(r.device);
	expect(&r, r.api->stream_create(r.device, &r.stream, &err), &err);
	expect(&r, dtrain_params_create(r.device, DTRAIN_F32, &r.params, &err), &err);
	expect(&r, dtrain_graph_create(r.params, true, &graph, &err), &err);
	r.x = dtrain_graph_input(graph, "x", DTRAIN_F32, &shape);
	r.y[0] = dtrain_batch_norm(graph, "bn", r.x, true);
	dtrain_graph_keep(graph, r.y[0]);
	if (again) {
		dtrain__node node = graph->nodes[0];
		node.attrs.norm.momentum = 0;
		for (int i = 0; i < node.num_outputs; i++) {
			dtrain__tensor first = graph->tensors[node.outputs[i]];
			node.outputs[i] = dtrain__graph_activation(graph, first.dtype, &first.shape);
		}
		r.y[1] = dtrain__graph_node(graph, &node);
		dtrain_graph_keep(graph, r.y[1]);
	}
	expect(&r, dtrain_graph_compile(&graph, &r.program, &err), &err);
	expect(&r, dtrain_params_initialize(r.params, 7, r.stream, &err), &err);
	fill(&r, r.x, 3);
	run_program(&r);
	copy(&r, y, dtrain_program_data(r.program, r.y[0]), 144, DTRAIN_DEVICE_TO_HOST);
	if (again)
		copy(&r, second, dtrain_program_data(r.program, r.y[1]), 144, DTRAIN_DEVICE_TO_HOST);
	for (int i = 0; i < 2; i++)
		copy(&r, statistics + 8 * i, dtrain_params_buffer_at(r.params, i)->data, 8, DTRAIN_DEVICE_TO_HOST);
	close_run(&r);
}

static void batch_norm_can_be_repeated(void **state)
{
	(void)state;
	const char *devices[] = {"ref", "far", dtrain_device_find("cpu") ? "cpu" : "ref"};
	for (int i = 0; i < 3; i++) {
		float y[3][144], statistics[2][16];
		run_norm(devices[i], false, y[0], NULL, statistics[0]);
		run_norm(devices[i], true, y[1], y[2], statistics[1]);
		assert_memory_equal(y[0], y[1], sizeof(y[0]));
		assert_memory_equal(y[0], y[2], sizeof(y[0]));
		assert_memory_equal(statistics[0], statistics[1], sizeof(statistics[0]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(gradients_equal_differences), cmocka_unit_test(other_devices_give_the_same),
		cmocka_unit_test(views_are_not_copied),        cmocka_unit_test(mistakes_are_named),
		cmocka_unit_test(batch_norm_can_be_repeated),  cmocka_unit_test(a_loss_may_be_of_views),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
