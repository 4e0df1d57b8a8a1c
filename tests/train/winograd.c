/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions of the device cpu that may have the errors of TF32: oneDNN 2 has a faster algorithm for them, whose
 * errors are far smaller.
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

enum { BATCH = 16, CHANNELS = 64, SIDE = 32, KERNEL = 3 };

static dtrain_operand operand(dtrain_shape shape)
{
	return (dtrain_operand){
		.dtype = DTRAIN_F32, .shape = shape, .bytes = (size_t)dtrain_shape_count(&shape) * sizeof(float)};
}

static float *numbers(const dtrain_operand *o, uint32_t state)
{
	int64_t count = dtrain_shape_count(&o->shape);
	float *values = malloc(o->bytes);
	assert_non_null(values);
	for (int64_t i = 0; i < count; i++) {
		state = state * 1664525u + 1013904223u;
		values[i] = (float)(state >> 8) * 0x1p-23f - 1;
	}
	return values;
}

static void expect_ok(int status, const beton_error *err)
{
	if (status != BETON_OK)
		fail_msg("%d: %s", status, err->message);
}

/* The op's output, which the caller frees; its elements. */
static float *run(dtrain_op_kind kind, bool tf32, int64_t *count)
{
	dtrain_operand x = operand(dtrain_shape_of(4, (int64_t[]){BATCH, CHANNELS, SIDE, SIDE}));
	dtrain_operand w = operand(dtrain_shape_of(4, (int64_t[]){CHANNELS, CHANNELS, KERNEL, KERNEL}));
	bool of_weight = kind == DTRAIN_OP_CONV2D_BWD_WEIGHT;
	dtrain_op_desc desc = {.kind = kind,
			       .attrs.window = {.kernel = {KERNEL, KERNEL}, .stride = {1, 1}, .padding = {1, 1}},
			       .inputs = {x, of_weight ? x : w},
			       .outputs = {of_weight ? w : x},
			       .num_inputs = 2,
			       .num_outputs = 1,
			       .plain_output = {true}};
	dtrain_device_options options = {.struct_size = sizeof(options), .threads = 2, .tf32 = tf32};
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_op *op;
	beton_error err = {0};
	expect_ok(dtrain_device_open("cpu", &options, &device, &err), &err);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	expect_ok(api->stream_create(device, &stream, &err), &err);
	expect_ok(api->op_create(device, &desc, &op, &err), &err);
	void *workspace = NULL, *output = NULL;
	expect_ok(api->alloc(device, desc.workspace_bytes + 1, &workspace, &err), &err);
	expect_ok(api->alloc(device, desc.outputs[0].bytes, &output, &err), &err);
	float *inputs[] = {numbers(&desc.inputs[0], 1), numbers(&desc.inputs[1], 2)};
	void *operands[] = {inputs[0], inputs[1], output};
	expect_ok(api->op_run(op, stream, operands, workspace, &err), &err);
	expect_ok(api->stream_synchronize(stream, &err), &err);
	*count = dtrain_shape_count(&desc.outputs[0].shape);
	float *result = malloc((size_t)*count * sizeof(*result));
	assert_non_null(result);
	memcpy(result, output, (size_t)*count * sizeof(*result));
	api->free(device, output);
	api->free(device, workspace);
	api->op_destroy(op);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
	free(inputs[0]);
	free(inputs[1]);
	return result;
}

static double error_of(const float *got, const float *right, int64_t count)
{
	double difference = 0, length = 0;
	for (int64_t i = 0; i < count; i++) {
		difference += pow((double)got[i] - (double)right[i], 2);
		length += pow((double)right[i], 2);
	}
	return sqrt(difference / length);
}

static void errors_are_small(void **state)
{
	static const dtrain_op_kind kinds[] = {DTRAIN_OP_CONV2D, DTRAIN_OP_CONV2D_BWD_DATA,
					       DTRAIN_OP_CONV2D_BWD_WEIGHT};
	(void)state;
	for (int i = 0; i < 3; i++) {
		int64_t count;
		float *direct = run(kinds[i], false, &count), *fast = run(kinds[i], true, &count);
		double error = error_of(fast, direct, count);
		print_message("op %d: with tf32 %.2g\n", kinds[i], error);
		assert_true(error < 1e-5);
		free(direct);
		free(fast);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(errors_are_small)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
