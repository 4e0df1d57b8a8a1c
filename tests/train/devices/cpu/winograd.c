/* SPDX-License-Identifier: Apache-2.0
 *
 * The errors of the device cpu's convolutions: convolutions that may have TF32's errors, for which oneDNN 2 has a
 * faster algorithm than the direct one, and convolutions by the device's own loops for AVX2.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/device.h>

#include "devices/cpu/cpu.h"

typedef struct shape {
	int64_t batch, in, out, height, width;
	int32_t kernel, padding;
} shape;

static dtrain_operand operand(dtrain_dtype dtype, int64_t n, int64_t c, int64_t h, int64_t w)
{
	dtrain_shape of = dtrain_shape_of(4, (int64_t[]){n, c, h, w});
	return (dtrain_operand){
		.dtype = dtype, .shape = of, .bytes = (size_t)dtrain_shape_count(&of) * dtrain_dtype_size(dtype)};
}

static void *numbers(const dtrain_operand *o, uint32_t state)
{
	int64_t count = dtrain_shape_count(&o->shape);
	float *values = malloc(o->bytes);
	assert_non_null(values);
	double *wide = (double *)(void *)values;
	for (int64_t i = 0; i < count; i++) {
		state = state * 1664525u + 1013904223u;
		float value = (float)(state >> 8) * 0x1p-23f - 1;
		if (o->dtype == DTRAIN_F64)
			wide[i] = (double)value;
		else
			values[i] = value;
	}
	return values;
}

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

static dtrain_op_desc description(dtrain_op_kind kind, dtrain_dtype dtype, const shape *s)
{
	int64_t more = 2 * s->padding - s->kernel + 1;
	dtrain_operand x = operand(dtype, s->batch, s->in, s->height, s->width);
	dtrain_operand w = operand(dtype, s->out, s->in, s->kernel, s->kernel);
	dtrain_operand y = operand(dtype, s->batch, s->out, s->height + more, s->width + more);
	bool data = kind == DTRAIN_OP_CONV2D_BWD_DATA, weight = kind == DTRAIN_OP_CONV2D_BWD_WEIGHT;
	return (dtrain_op_desc){.kind = kind,
				.attrs.window = {.stride = {1, 1}, .padding = {s->padding, s->padding}},
				.inputs = {data ? y : x, weight ? y : w},
				.outputs = {data     ? x
					    : weight ? w
						     : y},
				.num_inputs = 2,
				.num_outputs = 1,
				.plain_output = {true}};
}

/* The op's output, which the caller frees; its elements. */
static void *run(const char *name, dtrain_op_desc desc, bool tf32, int threads, int64_t *count)
{
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = threads, .tf32 = tf32};
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_op *op;
	beton_error err = {0};
	expect_ok(dtrain_device_open(name, &options, &device, &err), &err);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	expect_ok(api->stream_create(device, &stream, &err), &err);
	expect_ok(api->op_create(device, &desc, &op, &err), &err);
	void *workspace = NULL, *output = NULL;
	expect_ok(api->alloc(device, desc.workspace_bytes + 1, &workspace, &err), &err);
	expect_ok(api->alloc(device, desc.outputs[0].bytes, &output, &err), &err);
	/* The op must not read old contents. */
	memset(workspace, 0xff, desc.workspace_bytes);
	memset(output, 0xff, desc.outputs[0].bytes);
	void *inputs[] = {numbers(&desc.inputs[0], 1), numbers(&desc.inputs[1], 2)};
	void *operands[] = {inputs[0], inputs[1], output};
	expect_ok(api->op_run(op, stream, operands, workspace, &err), &err);
	expect_ok(api->stream_synchronize(stream, &err), &err);
	*count = dtrain_shape_count(&desc.outputs[0].shape);
	void *result = malloc(desc.outputs[0].bytes);
	assert_non_null(result);
	memcpy(result, output, desc.outputs[0].bytes);
	api->free(device, output);
	api->free(device, workspace);
	api->op_destroy(op);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	free(inputs[0]);
	free(inputs[1]);
	return result;
}

static float *run_cpu(dtrain_op_kind kind, const shape *s, bool tf32, int threads, int64_t *count)
{
	return run("cpu", description(kind, DTRAIN_F32, s), tf32, threads, count);
}

static double error_of(const float *got, const double *right, int64_t count)
{
	double difference = 0, length = 0;
	for (int64_t i = 0; i < count; i++) {
		difference += pow((double)got[i] - right[i], 2);
		length += pow(right[i], 2);
	}
	return sqrt(difference / length);
}

static const dtrain_op_kind kinds[] = {DTRAIN_OP_CONV2D, DTRAIN_OP_CONV2D_BWD_DATA, DTRAIN_OP_CONV2D_BWD_WEIGHT};

/* Sizes and threads that divide pictures and channels in all ways: rests of tiles, of blocks of tiles, of groups of
 * channels. */
static void errors_are_small(void **state)
{
	static const struct {
		shape shape;
		int threads;
	} cases[] = {
		{{16, 64, 64, 32, 32, 3, 1}, 2}, {{96, 16, 32, 1, 1, 3, 1}, 1},    {{12, 96, 80, 7, 5, 3, 1}, 3},
		{{5, 64, 64, 9, 12, 3, 0}, 2},   {{17, 112, 64, 3, 4, 3, 2}, 2},   {{11, 64, 272, 5, 6, 3, 1}, 5},
		{{33, 16, 16, 13, 3, 3, 0}, 3},  {{25, 208, 192, 4, 4, 3, 1}, 40}, {{11, 24, 40, 6, 6, 3, 1}, 2},
		{{2, 16, 16, 8, 8, 3, 1}, 2},    {{9, 16, 16, 8, 8, 2, 0}, 2},
	};
	(void)state;
	for (size_t i = 0; i < 3 * sizeof(cases) / sizeof(cases[0]); i++) {
		const shape *s = &cases[i / 3].shape;
		int64_t count;
		double *right = run("ref", description(kinds[i % 3], DTRAIN_F64, s), false, 1, &count);
		float *got = run_cpu(kinds[i % 3], s, false, cases[i / 3].threads, &count);
		float *fast = run_cpu(kinds[i % 3], s, true, cases[i / 3].threads, &count);
		double error = error_of(got, right, count), of_fast = error_of(fast, right, count);
		print_message("case %zu, op %d: %.2g, with tf32 %.2g\n", i / 3, kinds[i % 3], error, of_fast);
		assert_true(error < 3e-6);
		assert_true(of_fast < 1e-5);
		free(right);
		free(got);
		free(fast);
	}
}

/* oneDNN divides sums among threads; the device's own loops do not. */
static void threads_change_nothing(void **state)
{
	static const shape s = {17, 64, 96, 11, 10, 3, 1};
	(void)state;
	if (!cpu_winograd_find()) {
		print_message("skipped: the device has no loops of its own here\n");
		skip();
	}
	for (int i = 0; i < 3; i++) {
		int64_t count;
		float *one = run_cpu(kinds[i], &s, false, 1, &count);
		for (int threads = 2; threads < 9; threads++) {
			float *more = run_cpu(kinds[i], &s, false, threads, &count);
			assert_memory_equal(one, more, (size_t)count * sizeof(*one));
			free(more);
		}
		free(one);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_small),
					   cmocka_unit_test(threads_change_nothing)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
