/* SPDX-License-Identifier: Apache-2.0
 *
 * Every op of every device: ref's gradients against finite differences, ref in float and cpu against ref in double.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "op_case.h"
#include "threads.h"

#define GUARD 64
#define GUARD_BYTE 0xa5
#define MAX_TENSORS 16
#define MAX_OPS 4

/* A tensor of a case: its values in double, and its memory on the device that runs the case now. */
typedef struct tensor {
	const char *name;
	dtrain_dtype dtype; /* DTRAIN_F64: whatever the device computes in */
	dtrain_shape shape;
	double *values;
	bool result;     /* compared between devices; the others are inputs, or what only the device can read */
	int gradient_of; /* index of the input whose gradient it is; -1 */
	const void *layout;
	size_t bytes;
	unsigned char *block, *memory;
} tensor;

typedef struct setting {
	const op_case *c;
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_dtype dtype;
	dtrain_stream *stream;
	tensor tensors[MAX_TENSORS];
	int count;
	dtrain_op *ops[MAX_OPS];
	int num_ops;
} setting;

/* ---- tensors ---- */

static double uniform(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	/* A float, so that every device starts from the same number. */
	return (float)((double)((z ^ z >> 31) >> 11) * 0x1p-52 - 1.0);
}

static int add_tensor(setting *s, const char *name, dtrain_dtype dtype, dtrain_shape shape, bool result,
		      int gradient_of)
{
	assert_true(s->count < MAX_TENSORS);
	s->tensors[s->count] =
		(tensor){.name = name, .dtype = dtype, .shape = shape, .result = result, .gradient_of = gradient_of};
	tensor *t = &s->tensors[s->count];
	t->values = calloc((size_t)dtrain_shape_count(&shape), sizeof(double));
	assert_non_null(t->values);
	return s->count++;
}

static int input(setting *s, const char *name, dtrain_shape shape, double least, double most)
{
	int index = add_tensor(s, name, DTRAIN_F64, shape, false, -1);
	uint64_t state = (uint64_t)(index + 1) * 1000003u + (uint64_t)dtrain_shape_count(&shape);
	for (int64_t i = 0; i < dtrain_shape_count(&shape); i++)
		s->tensors[index].values[i] = (float)(least + (uniform(&state) + 1) / 2 * (most - least));
	return index;
}

static int result(setting *s, const char *name, dtrain_shape shape, int gradient_of)
{
	return add_tensor(s, name, DTRAIN_F64, shape, true, gradient_of);
}

static dtrain_dtype type_of(const setting *s, const tensor *t)
{
	return t->dtype == DTRAIN_F64 ? s->dtype : t->dtype;
}

static void allocate(tensor *t, size_t bytes)
{
	t->bytes = bytes;
	size_t rounded = (bytes + 63) / 64 * 64;
	t->block = aligned_alloc(64, rounded + 2 * GUARD);
	assert_non_null(t->block);
	memset(t->block, GUARD_BYTE, rounded + 2 * GUARD);
	t->memory = t->block + GUARD;
}

static void to_device(const setting *s, tensor *t)
{
	int64_t count = dtrain_shape_count(&t->shape);
	dtrain_dtype dtype = type_of(s, t);
	if (!t->block)
		allocate(t, (size_t)count * dtrain_dtype_size(dtype));
	for (int64_t i = 0; i < count; i++)
		if (dtype == DTRAIN_F64)
			((double *)t->memory)[i] = t->values[i];
		else if (dtype == DTRAIN_F32)
			((float *)t->memory)[i] = (float)t->values[i];
		else
			((int64_t *)t->memory)[i] = (int64_t)t->values[i];
}

static void from_device(const setting *s, tensor *t)
{
	for (int64_t i = 0; i < dtrain_shape_count(&t->shape); i++)
		t->values[i] = type_of(s, t) == DTRAIN_F64 ? ((double *)t->memory)[i] : (double)((float *)t->memory)[i];
}

static void check_guards(const setting *s, const tensor *t)
{
	for (int i = 0; i < GUARD; i++)
		if (t->block[i] != GUARD_BYTE || t->memory[t->bytes + (size_t)i] != GUARD_BYTE)
			fail_msg("case %d on %s: '%s' was written outside of its memory", (int)(s->c - op_cases),
				 s->api->name, t->name);
}

/* ---- running one op ---- */

static void run_op(setting *s, dtrain_op_kind kind, const dtrain_op_attrs *attrs, const int *inputs, const int *outputs)
{
	beton_error err = {0};
	dtrain_op_desc desc = {.kind = kind, .attrs = *attrs};
	void *operands[2 * DTRAIN_OP_MAX_OPERANDS];
	for (; inputs[desc.num_inputs] >= 0; desc.num_inputs++) {
		tensor *t = &s->tensors[inputs[desc.num_inputs]];
		if (!t->block)
			to_device(s, t);
		desc.inputs[desc.num_inputs] = (dtrain_operand){type_of(s, t), t->shape, t->layout, t->bytes};
	}
	for (; outputs[desc.num_outputs] >= 0; desc.num_outputs++) {
		tensor *t = &s->tensors[outputs[desc.num_outputs]];
		desc.outputs[desc.num_outputs] = (dtrain_operand){.dtype = type_of(s, t), .shape = t->shape};
		desc.plain_output[desc.num_outputs] = t->result;
	}
	dtrain_op *op = NULL;
	if (s->api->op_create(s->device, &desc, &op, &err) != BETON_OK)
		fail_msg("case %d on %s: %s", (int)(s->c - op_cases), s->api->name, err.message);
	s->ops[s->num_ops++] = op;
	for (int i = 0; i < desc.num_outputs; i++) {
		tensor *t = &s->tensors[outputs[i]];
		t->layout = desc.outputs[i].layout;
		assert_true(!t->result || !t->layout);
		if (!t->block)
			allocate(t, desc.outputs[i].bytes);
	}
	tensor workspace = {.name = "workspace"};
	allocate(&workspace, desc.workspace_bytes);
	for (int i = 0; i < desc.num_inputs; i++)
		operands[i] = s->tensors[inputs[i]].memory;
	for (int i = 0; i < desc.num_outputs; i++)
		operands[desc.num_inputs + i] = s->tensors[outputs[i]].memory;
	if (s->api->op_run(op, s->stream, operands, workspace.memory, &err) != BETON_OK)
		fail_msg("case %d on %s: %s", (int)(s->c - op_cases), s->api->name, err.message);
	check_guards(s, &workspace);
	free(workspace.block);
}

#define LIST(...)               \
	(const int[])           \
	{                       \
		__VA_ARGS__, -1 \
	}

/* ---- the families: tensors are declared once, then run on a device ---- */

static dtrain_shape shape4(const int64_t *x)
{
	return dtrain_shape_of(x[2] ? 4 : 2, x);
}

static dtrain_op_attrs attrs_of(const op_case *c)
{
	return (dtrain_op_attrs){.stride = {c->stride[0], c->stride[1]},
				 .padding = {c->padding[0], c->padding[1]},
				 .kernel = {c->kernel[0], c->kernel[1]},
				 .relu = c->relu,
				 .epsilon = 1e-5,
				 .momentum = c->family == SGD ? 0.9 : 0.1,
				 .label_smoothing = c->smoothing,
				 .nesterov = c->nesterov};
}

static dtrain_shape window_shape(const op_case *c, int64_t channels)
{
	int64_t out[2];
	for (int i = 0; i < 2; i++)
		out[i] = (c->x[2 + i] + 2 * c->padding[i] - c->kernel[i]) / c->stride[i] + 1;
	return dtrain_shape_of(4, (int64_t[]){c->x[0], channels, out[0], out[1]});
}

static void run_conv(setting *s, const dtrain_op_attrs *a)
{
	const op_case *c = s->c;
	dtrain_shape w = dtrain_shape_of(4, (int64_t[]){c->out, c->x[1], c->kernel[0], c->kernel[1]});
	if (!s->count) {
		input(s, "x", shape4(c->x), -1, 1);
		input(s, "w", w, -1, 1);
		input(s, "d_y", window_shape(c, c->out), -1, 1);
		result(s, "y", window_shape(c, c->out), -1);
		result(s, "d_x", shape4(c->x), 0);
		result(s, "d_w", w, 1);
	}
	run_op(s, DTRAIN_OP_CONV2D, a, LIST(0, 1), LIST(3));
	run_op(s, DTRAIN_OP_CONV2D_BWD_DATA, a, LIST(2, 1), LIST(4));
	run_op(s, DTRAIN_OP_CONV2D_BWD_WEIGHT, a, LIST(0, 2), LIST(5));
}

static void run_linear(setting *s, const dtrain_op_attrs *a)
{
	const op_case *c = s->c;
	dtrain_shape x = dtrain_shape_of(2, c->x), w = dtrain_shape_of(2, (int64_t[]){c->out, c->x[1]});
	dtrain_shape b = dtrain_shape_of(1, &c->out), y = dtrain_shape_of(2, (int64_t[]){c->x[0], c->out});
	if (!s->count) {
		input(s, "x", x, -1, 1);
		input(s, "w", w, -1, 1);
		input(s, "d_y", y, -1, 1);
		result(s, "y", y, -1);
		input(s, "b", b, -1, 1);
		result(s, "d_x", x, 0);
		result(s, "d_w", w, 1);
		result(s, "d_b", b, 4);
	}
	run_op(s, DTRAIN_OP_LINEAR, a, LIST(0, 1, 4), LIST(3));
	run_op(s, DTRAIN_OP_LINEAR_BWD_DATA, a, LIST(2, 1), LIST(5));
	run_op(s, DTRAIN_OP_LINEAR_BWD_WEIGHT, a, LIST(0, 2), LIST(6, 7));
}

static void run_batch_norm(setting *s, const dtrain_op_attrs *a)
{
	const op_case *c = s->c;
	dtrain_shape x = shape4(c->x), channel = dtrain_shape_of(1, &c->x[1]);
	if (!s->count) {
		input(s, "x", x, -2, 3);
		input(s, "gamma", channel, 0.5, 1.5);
		input(s, "d_y", x, -1, 1);
		result(s, "y", x, -1);
		input(s, "beta", channel, -1, 1);
		/* Written in place: inputs, and compared as results. */
		input(s, "running_mean", channel, -1, 1);
		input(s, "running_var", channel, 0.5, 2);
		s->tensors[5].result = s->tensors[6].result = true;
		result(s, "mean", channel, -1);
		result(s, "var", channel, -1);
		result(s, "d_x", x, 0);
		result(s, "d_gamma", channel, 1);
		result(s, "d_beta", channel, 4);
		add_tensor(s, "mask", DTRAIN_U8, x, false, -1);
	}
	if (c->relu) {
		run_op(s, DTRAIN_OP_BATCH_NORM_TRAIN, a, LIST(0, 1, 4, 5, 6), LIST(3, 7, 8, 12));
		run_op(s, DTRAIN_OP_BATCH_NORM_BWD, a, LIST(0, 2, 1, 7, 8, 12), LIST(9, 10, 11));
	} else {
		run_op(s, DTRAIN_OP_BATCH_NORM_TRAIN, a, LIST(0, 1, 4, 5, 6), LIST(3, 7, 8));
		run_op(s, DTRAIN_OP_BATCH_NORM_BWD, a, LIST(0, 2, 1, 7, 8), LIST(9, 10, 11));
	}
}

static void run_batch_norm_eval(setting *s, const dtrain_op_attrs *a)
{
	dtrain_shape x = shape4(s->c->x), channel = dtrain_shape_of(1, &s->c->x[1]);
	if (!s->count) {
		input(s, "x", x, -2, 3);
		input(s, "gamma", channel, 0.5, 1.5);
		input(s, "beta", channel, -1, 1);
		result(s, "y", x, -1);
		input(s, "running_mean", channel, -1, 1);
		input(s, "running_var", channel, 0.5, 2);
	}
	run_op(s, DTRAIN_OP_BATCH_NORM_EVAL, a, LIST(0, 1, 2, 4, 5), LIST(3));
}

static void run_relu(setting *s, const dtrain_op_attrs *a)
{
	if (!s->count) {
		input(s, "x", shape4(s->c->x), -1, 1);
		s->tensors[0].values[0] = 0; /* the kink belongs to the flat side */
		add_tensor(s, "unused", DTRAIN_U8, shape4(s->c->x), false, -1);
		input(s, "d_y", shape4(s->c->x), -1, 1);
		result(s, "y", shape4(s->c->x), -1);
		result(s, "d_x", shape4(s->c->x), 0);
	}
	run_op(s, DTRAIN_OP_RELU, a, LIST(0), LIST(3));
	run_op(s, DTRAIN_OP_RELU_BWD, a, LIST(3, 2), LIST(4));
}

static void run_add(setting *s, const dtrain_op_attrs *a)
{
	if (!s->count) {
		input(s, "a", shape4(s->c->x), -1, 1);
		input(s, "b", shape4(s->c->x), -1, 1);
		input(s, "d_y", shape4(s->c->x), -1, 1);
		result(s, "y", shape4(s->c->x), -1);
		result(s, "d_a", shape4(s->c->x), s->c->relu ? 0 : -1);
	}
	run_op(s, DTRAIN_OP_ADD, a, LIST(0, 1), LIST(3));
	run_op(s, DTRAIN_OP_RELU_BWD, a, LIST(3, 2), LIST(4));
}

static void run_max_pool(setting *s, const dtrain_op_attrs *a)
{
	dtrain_shape y = window_shape(s->c, s->c->x[1]);
	if (!s->count) {
		input(s, "x", shape4(s->c->x), -1, 1);
		add_tensor(s, "index", DTRAIN_U8, y, false, -1);
		input(s, "d_y", y, -1, 1);
		result(s, "y", y, -1);
		result(s, "d_x", shape4(s->c->x), 0);
	}
	run_op(s, DTRAIN_OP_MAX_POOL, a, LIST(0), LIST(3, 1));
	run_op(s, DTRAIN_OP_MAX_POOL_BWD, a, LIST(2, 1), LIST(4));
}

static void run_rows(setting *s, const dtrain_op_attrs *a)
{
	const int64_t *x = s->c->x;
	bool flatten = s->c->family == FLATTEN;
	dtrain_shape y = dtrain_shape_of(2, (int64_t[]){x[0], flatten ? x[1] * x[2] * x[3] : x[1]});
	if (!s->count) {
		input(s, "x", shape4(x), -1, 1);
		add_tensor(s, "unused", DTRAIN_U8, y, false, -1);
		input(s, "d_y", y, -1, 1);
		result(s, "y", y, -1);
		result(s, "d_x", shape4(x), 0);
	}
	run_op(s, flatten ? DTRAIN_OP_FLATTEN : DTRAIN_OP_GLOBAL_AVG_POOL, a, LIST(0), LIST(3));
	run_op(s, flatten ? DTRAIN_OP_FLATTEN_BWD : DTRAIN_OP_GLOBAL_AVG_POOL_BWD, a, LIST(2), LIST(4));
}

/* d_y is the 1 / n of the mean that the loss op's gradient is of. */
static void run_loss(setting *s, const dtrain_op_attrs *a)
{
	const int64_t *x = s->c->x;
	dtrain_shape rows = dtrain_shape_of(1, x), logits = dtrain_shape_of(2, x);
	if (!s->count) {
		input(s, "logits", logits, -5, 5);
		int label = add_tensor(s, "label", DTRAIN_I64, rows, false, -1);
		for (int64_t i = 0; i < x[0]; i++)
			s->tensors[label].values[i] = (double)((i * 7 + 3) % x[1]);
		input(s, "d_y", rows, 0, 0);
		for (int64_t i = 0; i < x[0]; i++)
			s->tensors[2].values[i] = 1.0 / (double)x[0];
		result(s, "loss", rows, -1);
		result(s, "d_logits", logits, 0);
		result(s, "mean", dtrain_shape_of(0, NULL), -1);
	}
	run_op(s, DTRAIN_OP_SOFTMAX_XENT, a, LIST(0, 1), LIST(3, 4));
	run_op(s, DTRAIN_OP_MEAN, a, LIST(3), LIST(5));
}

static void run_sgd(setting *s, const dtrain_op_attrs *a)
{
	dtrain_shape flat = dtrain_shape_of(1, s->c->x), two = dtrain_shape_of(1, (int64_t[]){2});
	if (!s->count) {
		input(s, "w", flat, -1, 1);
		input(s, "g", flat, -1, 1);
		input(s, "m", flat, -1, 1);
		s->tensors[0].result = s->tensors[2].result = true;
		add_tensor(s, "scalars", DTRAIN_F32, two, false, -1);
		s->tensors[3].values[0] = 0.1f;
		s->tensors[3].values[1] = 5e-4f;
	}
	run_op(s, DTRAIN_OP_SGD, a, LIST(0, 1, 2, 3), LIST(0, 2));
}

static void (*const families[])(setting *s, const dtrain_op_attrs *attrs) = {
	[CONV] = run_conv,
	[LINEAR] = run_linear,
	[BATCH_NORM] = run_batch_norm,
	[RELU] = run_relu,
	[ADD] = run_add,
	[BATCH_NORM_EVAL] = run_batch_norm_eval,
	[MAX_POOL] = run_max_pool,
	[GLOBAL_AVG_POOL] = run_rows,
	[FLATTEN] = run_rows,
	[LOSS] = run_loss,
	[SGD] = run_sgd,
};

/* ---- settings ---- */

static void open_setting(setting *s, const op_case *c, const char *device, dtrain_dtype dtype)
{
	beton_error err = {0};
	*s = (setting){.c = c, .dtype = dtype};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = TEST_THREADS};
	if (dtrain_device_open(device, &options, &s->device, &err) != BETON_OK)
		fail_msg("%s", err.message);
	s->api = dtrain_device_get_api(s->device);
	assert_int_equal(s->api->stream_create(s->device, &s->stream, &err), BETON_OK);
}

static void free_blocks(setting *s)
{
	for (int i = 0; i < s->num_ops; i++)
		s->api->op_destroy(s->ops[i]);
	s->num_ops = 0;
	for (int i = 0; i < s->count; i++) {
		free(s->tensors[i].block);
		s->tensors[i].block = NULL;
		s->tensors[i].layout = NULL;
	}
}

/* Runs the case from the input values; result values are then those of this run. */
static void run_case(setting *s)
{
	dtrain_op_attrs attrs = attrs_of(s->c);
	families[s->c->family](s, &attrs);
	for (int i = 0; i < s->count; i++) {
		if (s->tensors[i].block)
			check_guards(s, &s->tensors[i]);
		if (s->tensors[i].result)
			from_device(s, &s->tensors[i]);
	}
	free_blocks(s);
}

static void close_setting(setting *s)
{
	for (int i = 0; i < s->count; i++)
		free(s->tensors[i].values);
	s->api->stream_destroy(s->stream);
	dtrain_device_close(&s->device);
}

/* Euclidean distance over the length of what is right. */
static double normalised_error(const double *values, const double *right, int64_t count)
{
	double difference = 0, length = 0;
	for (int64_t i = 0; i < count; i++) {
		difference += (values[i] - right[i]) * (values[i] - right[i]);
		length += right[i] * right[i];
	}
	return difference == 0 ? 0 : sqrt(difference) / (sqrt(length) + 1e-30);
}

/* Gradients that are zero in exact arithmetic (a class alone, a channel alone) are compared to this size. */
static void compare(const setting *got, const setting *right)
{
	for (int i = 0; i < got->count; i++) {
		const tensor *a = &got->tensors[i], *b = &right->tensors[i];
		if (!a->result)
			continue;
		double error = normalised_error(a->values, b->values, dtrain_shape_count(&a->shape));
		if (!(error <= got->c->bound))
			fail_msg("case %d, '%s' on %s: normalised error %.3g, allowed %.3g", (int)(got->c - op_cases),
				 a->name, got->api->name, error, got->c->bound);
	}
}

static void against_double(const char *device)
{
	for (int i = 0; i < OP_CASES; i++) {
		setting right, got;
		open_setting(&right, &op_cases[i], "ref", DTRAIN_F64);
		open_setting(&got, &op_cases[i], device, DTRAIN_F32);
		run_case(&right);
		run_case(&got);
		compare(&got, &right);
		close_setting(&right);
		close_setting(&got);
	}
}

static void ref_float_equals_double(void **state)
{
	(void)state;
	against_double("ref");
}

static void cpu_equals_ref(void **state)
{
	(void)state;
	if (!dtrain_device_find("cpu")) {
		fprintf(stderr, "no cpu device in this build\n");
		skip();
	}
	against_double("cpu");
}

/* ---- finite differences ---- */

/* The sum of y weighted with d_y: tensors 3 and 2 of each differentiable family. */
static double projection(const setting *s)
{
	double sum = 0;
	for (int64_t i = 0; i < dtrain_shape_count(&s->tensors[3].shape); i++)
		sum += s->tensors[3].values[i] * s->tensors[2].values[i];
	return sum;
}

static double slope(setting *s, double *value)
{
	const double step = 1e-5;
	double keep = *value;
	*value = keep + step;
	run_case(s);
	double above = projection(s);
	*value = keep - step;
	run_case(s);
	double below = projection(s);
	*value = keep;
	return (above - below) / (2 * step);
}

static void check_gradient(setting *s, int index)
{
	tensor *gradient = &s->tensors[index], *of = &s->tensors[gradient->gradient_of];
	int64_t count = dtrain_shape_count(&gradient->shape), step = count / 24 + 1;
	double *analytic = malloc((size_t)count * sizeof(double));
	assert_non_null(analytic);
	memcpy(analytic, gradient->values, (size_t)count * sizeof(double));
	double most = 0;
	for (int64_t i = 0; i < count; i++)
		most = fabs(analytic[i]) > most ? fabs(analytic[i]) : most;
	/* The first element of a relu's input sits on the kink on purpose. */
	for (int64_t i = s->c->family == RELU ? 1 : 0; i < count; i += step) {
		double numeric = slope(s, &of->values[i]);
		double error = fabs(numeric - analytic[i]) / (most + 1e-3);
		if (!(error < 1e-6))
			fail_msg("case %d, '%s'[%lld]: %.9g, finite difference %.9g", (int)(s->c - op_cases),
				 gradient->name, (long long)i, analytic[i], numeric);
	}
	free(analytic);
}

static void ref_gradients_equal_differences(void **state)
{
	(void)state;
	int checked = 0;
	for (int i = 0; i < OP_CASES; i++) {
		setting s;
		open_setting(&s, &op_cases[i], "ref", DTRAIN_F64);
		run_case(&s);
		for (int k = 0; k < s.count; k++)
			if (s.tensors[k].gradient_of >= 0) {
				run_case(&s);
				check_gradient(&s, k);
				checked++;
			}
		close_setting(&s);
	}
	assert_true(checked > 60);
}

/* ---- errors ---- */

static void labels_out_of_range_are_errors(void **state)
{
	(void)state;
	for (int index = 0; dtrain_device_at(index); index++)
		for (int64_t label = -1; label <= 5; label += 6) {
			setting s;
			const op_case c = {LOSS, {1, 5}};
			open_setting(&s, &c, dtrain_device_at(index)->name, DTRAIN_F32);
			dtrain_operand logits = {DTRAIN_F32, dtrain_shape_of(2, c.x), NULL, 20};
			dtrain_operand rows = {DTRAIN_F32, dtrain_shape_of(1, c.x), NULL, 4};
			dtrain_operand labels = {DTRAIN_I64, dtrain_shape_of(1, c.x), NULL, 8};
			dtrain_op_desc desc = {.kind = DTRAIN_OP_SOFTMAX_XENT,
					       .num_inputs = 2,
					       .num_outputs = 2,
					       .inputs = {logits, labels},
					       .outputs = {rows, logits}};
			dtrain_op *op;
			beton_error err = {0};
			assert_int_equal(s.api->op_create(s.device, &desc, &op, &err), BETON_OK);
			float x[5] = {0}, loss, d[5];
			int status = s.api->op_run(op, s.stream, (void *[]){x, &label, &loss, d}, NULL, &err);
			if (status == BETON_OK)
				status = s.api->stream_synchronize(s.stream, &err);
			assert_int_equal(status, BETON_INVALID_ARGUMENT);
			assert_non_null(strstr(err.message, label < 0 ? "label -1" : "label 5"));
			s.api->op_destroy(op);
			close_setting(&s);
		}
}

static void wrong_shapes_are_errors(void **state)
{
	(void)state;
	dtrain_shape a = dtrain_shape_of(4, (int64_t[]){1, 2, 4, 4}), b = dtrain_shape_of(4, (int64_t[]){1, 2, 4, 5});
	for (int index = 0; dtrain_device_at(index); index++) {
		setting s;
		open_setting(&s, &op_cases[0], dtrain_device_at(index)->name, DTRAIN_F32);
		dtrain_op_desc desc = {.kind = DTRAIN_OP_ADD,
				       .num_inputs = 2,
				       .num_outputs = 1,
				       .inputs = {{.shape = a}, {.shape = b}},
				       .outputs = {{.shape = a}}};
		dtrain_op *op;
		beton_error err = {0};
		assert_int_equal(s.api->op_create(s.device, &desc, &op, &err), BETON_INVALID_ARGUMENT);
		assert_non_null(strstr(err.message, "op add"));
		desc.num_inputs = 1;
		assert_int_equal(s.api->op_create(s.device, &desc, &op, &err), BETON_INVALID_ARGUMENT);
		desc.kind = DTRAIN_OP_KIND_COUNT;
		assert_int_equal(s.api->op_create(s.device, &desc, &op, &err), BETON_UNSUPPORTED);
		close_setting(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ref_gradients_equal_differences),
		cmocka_unit_test(ref_float_equals_double),
		cmocka_unit_test(cpu_equals_ref),
		cmocka_unit_test(labels_out_of_range_are_errors),
		cmocka_unit_test(wrong_shapes_are_errors),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
