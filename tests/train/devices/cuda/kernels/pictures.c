/* SPDX-License-Identifier: Apache-2.0
 *
 * Pictures of cells, and the convolutions that read them, on the device "emulated"; the ref device gives what is right.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/device.h>

#include "numbers.h"

enum { N = 2, FILTERS = 5 };
enum { MOST = 1 << 15 }; /* bytes of an operand or a workspace */

/* A convolution with stride 2, and the cells that it reads. */
typedef struct geometry {
	int64_t channels, side[2];
	int32_t kernel[2], padding[2];
	int64_t cells[2];
} geometry;

static const geometry geometries[] = {
	{3, {18, 15}, {7, 7}, {3, 3}, {12, 11}}, /* the stem of ResNets */
	{3, {9, 9}, {3, 3}, {1, 1}, {6, 6}},     {4, {8, 11}, {4, 2}, {0, 1}, {4, 6}},
	{1, {9, 6}, {2, 5}, {2, 4}, {6, 7}},     {2, {7, 7}, {6, 3}, {1, 0}, {4, 4}},
};
enum { GEOMETRIES = sizeof(geometries) / sizeof(geometries[0]) };

typedef struct shapes {
	dtrain_shape bytes, picture, filters, result;
} shapes;

static shapes shapes_of(const geometry *g)
{
	int64_t out[2];
	for (int i = 0; i < 2; i++)
		out[i] = (g->side[i] + 2 * g->padding[i] - g->kernel[i]) / 2 + 1;
	return (shapes){.bytes = {4, {N, g->side[0], g->side[1], g->channels}},
			.picture = {4, {N, g->channels, g->side[0], g->side[1]}},
			.filters = {4, {FILTERS, g->channels, g->kernel[0], g->kernel[1]}},
			.result = {4, {N, FILTERS, out[0], out[1]}}};
}

static dtrain_window_attrs window_of(const geometry *g)
{
	return (dtrain_window_attrs){
		.stride = {2, 2}, .padding = {g->padding[0], g->padding[1]}, .kernel = {g->kernel[0], g->kernel[1]}};
}

static dtrain_operand operand(dtrain_dtype dtype, const dtrain_shape *shape)
{
	return (dtrain_operand){
		.dtype = dtype, .shape = *shape, .bytes = (size_t)dtrain_shape_count(shape) * dtrain_dtype_size(dtype)};
}

/* desc is as the device finished it. */
static void run(dtrain_device *device, dtrain_op_desc *desc, void *const *operands)
{
	const dtrain_device_api *api = dtrain_device_get_api(device);
	dtrain_op *op = NULL;
	dtrain_stream *stream = NULL;
	beton_error err = {0};
	if (api->op_create(device, desc, &op, &err) != BETON_OK ||
	    api->stream_create(device, &stream, &err) != BETON_OK)
		fail_msg("%s", err.message);
	void *workspace = aligned_alloc(256, MOST);
	assert_non_null(workspace);
	assert_true(desc->workspace_bytes <= MOST);
	memset(workspace, 0x7f, MOST);
	if (api->op_run(op, stream, operands, workspace, &err) != BETON_OK)
		fail_msg("%s", err.message);
	free(workspace);
	api->stream_destroy(stream);
	api->op_destroy(op);
}

static dtrain_op_desc describe_normalize(dtrain_dtype dtype, const geometry *g)
{
	shapes s = shapes_of(g);
	return (dtrain_op_desc){.kind = DTRAIN_OP_NORMALIZE,
				.attrs.pixels = {.scale = {0.01f, 0.02f, 0.03f, 0.005f},
						 .shift = {-1, -2, -3, 1},
						 .convolution = window_of(g)},
				.num_inputs = 1,
				.num_outputs = 1,
				.inputs = {operand(DTRAIN_U8, &s.bytes)},
				.outputs = {operand(dtype, &s.picture)}};
}

static dtrain_op_desc describe_conv(dtrain_op_kind kind, const geometry *g, const dtrain_operand *x,
				    const dtrain_operand *second)
{
	shapes s = shapes_of(g);
	bool forward = kind == DTRAIN_OP_CONV2D;
	dtrain_op_desc desc = {.kind = kind,
			       .attrs.window = window_of(g),
			       .num_inputs = 2,
			       .num_outputs = 1,
			       .inputs = {*x, *second},
			       .outputs = {forward ? operand(x->dtype, &s.result) : operand(DTRAIN_F32, &s.filters)},
			       .plain_output = {true}};
	memset(desc.attrs.window.kernel, 0, sizeof(desc.attrs.window.kernel));
	return desc;
}

static void fill(void *memory, dtrain_dtype dtype, int64_t count, unsigned *seed)
{
	for (int64_t i = 0; i < count; i++) {
		*seed = *seed * 1664525 + 1013904223;
		double value = (*seed >> 8) / 16777216.0;
		number_set(dtype, memory, i, dtype == DTRAIN_U8 ? floor(value * 256) : 2 * value - 1);
	}
}

static void compare(const char *what, const dtrain_operand *o, const void *wanted, const void *got)
{
	for (int64_t i = 0; i < dtrain_shape_count(&o->shape); i++) {
		double a = number_get(o->dtype, wanted, i), b = number_get(o->dtype, got, i);
		if (!(fabs(a - b) <= 0.02 * (1 + fabs(a))))
			fail_msg("%s, element %lld: %.9g instead of %.9g", what, (long long)i, b, a);
	}
}

typedef struct memory {
	_Alignas(256) char bytes[MOST], x[2][MOST], w[MOST], copy[MOST], d_y[MOST], y[2][MOST], d_w[2][MOST];
} memory;

/* The weight as F32, as plain copy, or channels last. */
static void *weight_of(memory *m, dtrain_device *device, dtrain_dtype dtype, int form, dtrain_operand *out)
{
	const dtrain_shape filters = out->shape, flat = dtrain_shape_of(1, (int64_t[]){dtrain_shape_count(&filters)});
	dtrain_segment segment = {.shape = filters};
	dtrain_op_desc cast = {.kind = DTRAIN_OP_CAST,
			       .attrs.cast = {.segments = &segment, .num_segments = 1},
			       .num_inputs = 1,
			       .num_outputs = 1,
			       .inputs = {operand(DTRAIN_F32, &flat)},
			       .outputs = {operand(dtype, &flat)},
			       .plain_output = {form == 1}};
	*out = operand(form == 0 ? DTRAIN_F32 : dtype, &filters);
	if (form == 0)
		return m->w;
	run(device, &cast, (void *[]){m->w, m->copy});
	out->layout = segment.layout;
	assert_true((form == 2) == (segment.layout != NULL));
	return m->copy;
}

static void check_convolutions(memory *m, dtrain_device *const devices[2], const geometry *g, dtrain_dtype dtype,
			       int form, unsigned *seed)
{
	const shapes s = shapes_of(g);
	dtrain_operand pictures[2], weight = operand(DTRAIN_F32, &s.filters), d_y = operand(dtype, &s.result);
	fill(m->bytes, DTRAIN_U8, dtrain_shape_count(&s.picture), seed);
	fill(m->w, DTRAIN_F32, dtrain_shape_count(&s.filters), seed);
	fill(m->d_y, dtype, dtrain_shape_count(&s.result), seed);
	memset(m->d_w, 0x7f, sizeof(m->d_w));
	for (int k = 0; k < 2; k++) {
		dtrain_op_desc normalize = describe_normalize(dtype, g);
		run(devices[k], &normalize, (void *[]){m->bytes, m->x[k]});
		pictures[k] = normalize.outputs[0];
		void *w = k == 0 ? m->w : weight_of(m, devices[k], dtype, form, &weight);
		dtrain_op_desc conv = describe_conv(DTRAIN_OP_CONV2D, g, &pictures[k], &weight);
		run(devices[k], &conv, (void *[]){m->x[k], w, m->y[k]});
		dtrain_op_desc gradient = describe_conv(DTRAIN_OP_CONV2D_BWD_WEIGHT, g, &pictures[k], &d_y);
		run(devices[k], &gradient, (void *[]){m->x[k], m->d_y, m->d_w[k]});
	}
	assert_int_equal(pictures[0].bytes, dtrain_shape_count(&s.picture) * 2);
	assert_int_equal(pictures[1].bytes, N * g->cells[0] * g->cells[1] * 16 * 2);
	const dtrain_operand y = operand(dtype, &s.result), d_w = operand(DTRAIN_F32, &s.filters);
	compare("y", &y, m->y[0], m->y[1]);
	compare("d_w", &d_w, m->d_w[0], m->d_w[1]);
	/* The memory after the gradient is unchanged. */
	assert_int_equal(m->d_w[1][d_w.bytes], 0x7f);
}

static void convolutions_of_cells_are_ref_s(void **state)
{
	memory *m = aligned_alloc(256, sizeof(*m));
	assert_non_null(m);
	unsigned seed = 1;
	for (int i = 0; i < GEOMETRIES; i++)
		for (int form = 0; form < 3; form++) {
			check_convolutions(m, *state, &geometries[i], DTRAIN_F16, form, &seed);
			check_convolutions(m, *state, &geometries[i], DTRAIN_BF16, form, &seed);
		}
	free(m);
}

/* Only pictures of convolutions with stride 2 are stored so, and only in half precision; other ops do not take them. */
static void other_pictures_are_no_cells(void **state)
{
	dtrain_device *device = ((dtrain_device *const *)*state)[1];
	const dtrain_device_api *api = dtrain_device_get_api(device);
	const geometry *g = &geometries[0];
	dtrain_op_desc all[7];
	dtrain_op *op = NULL;
	beton_error err = {0};
	for (int i = 0; i < 7; i++)
		all[i] = describe_normalize(i == 1 ? DTRAIN_F32 : DTRAIN_F16, g);
	all[2].plain_output[0] = true;
	memset(&all[3].attrs.pixels.convolution, 0, sizeof(dtrain_window_attrs));
	all[4].attrs.pixels.convolution.stride[1] = 1;
	all[5].attrs.pixels.convolution.kernel[0] = 1;
	all[6].attrs.pixels.convolution.stride[0] = 4;
	for (int i = 0; i < 7; i++) {
		size_t plain = all[i].outputs[0].bytes, cells = (size_t)(N * g->cells[0] * g->cells[1]) * 16 * 2;
		assert_int_equal(api->op_create(device, &all[i], &op, &err), BETON_OK);
		api->op_destroy(op);
		assert_int_equal(all[i].outputs[0].bytes, i == 0 ? cells : plain);
	}
	dtrain_op_desc relu = {.kind = DTRAIN_OP_RELU,
			       .num_inputs = 1,
			       .num_outputs = 1,
			       .inputs = {all[0].outputs[0]},
			       .outputs = {operand(DTRAIN_F16, &all[0].outputs[0].shape)}};
	assert_int_equal(api->op_create(device, &relu, &op, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "layout of another device"));
}

int main(void)
{
	dtrain_device *devices[2] = {NULL};
	void *state = devices;
	beton_error err = {0};
	if (dtrain_device_open("ref", NULL, &devices[0], &err) != BETON_OK ||
	    dtrain_device_open("emulated", NULL, &devices[1], &err) != BETON_OK) {
		print_error("%s\n", err.message);
		return 1;
	}
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(convolutions_of_cells_are_ref_s, state),
		cmocka_unit_test_prestate(other_pictures_are_no_cells, state),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	dtrain_device_close(&devices[1]);
	dtrain_device_close(&devices[0]);
	return failed;
}
