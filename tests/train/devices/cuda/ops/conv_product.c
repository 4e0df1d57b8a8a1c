/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions as matrix products, on a cuBLASLt of the test's: compared with ref's convolutions.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "devices/cuda/cuda.h"
#include "fake_cublaslt.h"
#include "tests/train/devices/cuda/kernels/support.h"

const char cuda_nhwc[] = "NHWC", cuda_nhwc_sums[] = "NHWC with sums", cuda_cells_layout[] = "cells",
	   cuda_dnn_private[] = "cuDNN's own";

enum { N = 3, SIDE = 5, CHANNELS = 6, FILTERS = 10 };

static const dtrain_shape wide = {4, {N, FILTERS, SIDE, SIDE}}, narrow = {4, {N, CHANNELS, SIDE, SIDE}},
			  weight = {4, {FILTERS, CHANNELS, 1, 1}};

static int copies;

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	(void)stream;
	assert_int_equal(kind, cudaMemcpyDeviceToDevice);
	memcpy(to, from, bytes);
	copies++;
	return cudaSuccess;
}

static dtrain_operand operand(dtrain_dtype dtype, const dtrain_shape *shape, const char *layout)
{
	return (dtrain_operand){.dtype = dtype,
				.shape = *shape,
				.layout = layout,
				.bytes = (size_t)dtrain_shape_count(shape) * dtrain_dtype_size(dtype)};
}

/* rounded: the type of an input that is a weight. */
static dtrain_op_desc describe(dtrain_op_kind kind, dtrain_dtype dtype, dtrain_dtype rounded, bool adds)
{
	dtrain_operand x = operand(dtype, &narrow, cuda_nhwc), y = operand(dtype, &wide, cuda_nhwc);
	dtrain_operand w = operand(rounded, &weight, rounded == DTRAIN_F32 ? NULL : cuda_nhwc);
	dtrain_op_desc desc = {.kind = kind,
			       .attrs.window.stride = {1, 1},
			       .num_inputs = adds ? 3 : 2,
			       .num_outputs = 1,
			       .inputs = {x, w, x},
			       .outputs = {y}};
	if (kind == DTRAIN_OP_CONV2D_BWD_DATA) {
		desc.inputs[0] = y;
		desc.outputs[0] = x;
	} else if (kind == DTRAIN_OP_CONV2D_BWD_WEIGHT) {
		desc.inputs[1] = y;
		desc.outputs[0] = operand(DTRAIN_F32, &weight, NULL);
	}
	return desc;
}

static const dtrain_operand *operand_of(const dtrain_op_desc *desc, int index)
{
	return index < desc->num_inputs ? &desc->inputs[index] : &desc->outputs[index - desc->num_inputs];
}

/* In channels-last order, which a weight has, too; or back. */
static array turned(const array *from, const dtrain_shape *shape, bool back)
{
	int64_t channels = shape->dim[1], area = shape->dim[2] * shape->dim[3];
	return array_turned(from, shape->dim[0], back ? area : channels, back ? channels : area);
}

static void check(const dtrain_op_desc *given, bool in_place)
{
	dtrain_device device = {.index = 0};
	dtrain_op op = {.device = &device};
	beton_error err = {0};
	dtrain_op_desc desc = *given;
	array plain[4], right[4], given_to[4], *places[4];
	dtrain_shape shapes[4];
	int count = desc.num_inputs + 1;
	for (int i = 0; i < count; i++) {
		const dtrain_operand *o = operand_of(&desc, i);
		shapes[i] = o->shape;
		plain[i] = array_random("operand", DTRAIN_F64, dtrain_shape_count(&o->shape), i, -2, 2);
		/* cuBLASLt reads a weight in the type of x. */
		array rounded = array_as(&plain[i], desc.inputs[0].dtype);
		right[i] = array_as(&rounded, DTRAIN_F64);
		array_free(&rounded);
		array as_given = array_as(&right[i], o->dtype);
		given_to[i] = turned(&as_given, &o->shape, false);
		array_free(&as_given);
		places[i] = &right[i];
	}
	ref_run(desc.kind, &desc.attrs, desc.num_inputs, 1, shapes, places);
	fake = (fake_blas){.no_epilogues = false};
	assert_true(cuda_conv_is_product(&desc));
	if (cuda_build_conv_product(&op, &desc, &err) != BETON_OK)
		fail_msg("%s", err.message);
	void *workspace = malloc(desc.workspace_bytes + 1), *memory[4];
	assert_non_null(workspace);
	for (int i = 0; i < count; i++)
		memory[i] = given_to[i].memory;
	if (in_place)
		memory[3] = memory[2];
	copies = 0;
	assert_int_equal(op.run(&op, NULL, memory, workspace, &err), BETON_OK);
	assert_int_equal(copies, desc.num_inputs > 2 && !in_place);
	assert_int_equal(fake.products, 1);
	array back = turned(&given_to[in_place ? 2 : count - 1], &shapes[count - 1], true);
	array_compare(&back, &right[count - 1], 1e-5);
	array_free(&back);
	free(workspace);
	op.destroy(op.state);
	assert_int_equal(fake.live, 0);
	for (int i = 0; i < count; i++) {
		array_free(&plain[i]);
		array_free(&right[i]);
		array_free(&given_to[i]);
	}
}

static void products_are_convolutions(void **state)
{
	(void)state;
	for (int half = 0; half < 2; half++)
		for (int rounded = 0; rounded <= half; rounded++) {
			dtrain_dtype dtype = half ? DTRAIN_BF16 : DTRAIN_F32, w = rounded ? dtype : DTRAIN_F32;
			for (int kind = DTRAIN_OP_CONV2D; kind <= DTRAIN_OP_CONV2D_BWD_WEIGHT; kind++) {
				dtrain_op_desc desc = describe((dtrain_op_kind)kind, dtype, w, false);
				check(&desc, false);
			}
			for (int in_place = 0; in_place < 2; in_place++) {
				dtrain_op_desc desc = describe(DTRAIN_OP_CONV2D_BWD_DATA, dtype, w, true);
				check(&desc, in_place);
			}
		}
}

static void other_convolutions_are_no_products(void **state)
{
	(void)state;
	for (int kind = DTRAIN_OP_CONV2D; kind <= DTRAIN_OP_CONV2D_BWD_WEIGHT; kind++) {
		dtrain_op_desc desc[5];
		for (int i = 0; i < 5; i++)
			desc[i] = describe((dtrain_op_kind)kind, DTRAIN_BF16, DTRAIN_BF16, false);
		dtrain_shape *w =
			kind == DTRAIN_OP_CONV2D_BWD_WEIGHT ? &desc[0].outputs[0].shape : &desc[0].inputs[1].shape;
		w->dim[3] = 3;
		desc[1].attrs.window.stride[0] = 2;
		desc[2].attrs.window.padding[1] = 1;
		desc[3].inputs[0].layout = NULL;
		desc[4].inputs[0].layout = cuda_cells_layout;
		for (int i = 0; i < 5; i++)
			assert_false(cuda_conv_is_product(&desc[i]));
	}
}

static void every_failure_leaves_nothing(void **state)
{
	(void)state;
	int status = BETON_DEVICE;
	for (int at = 1; status != BETON_OK && at < 100; at++) {
		dtrain_device device = {.index = 0};
		dtrain_op op = {.device = &device};
		beton_error err = {0};
		dtrain_op_desc desc = describe(DTRAIN_OP_CONV2D, DTRAIN_BF16, DTRAIN_F32, false);
		fake = (fake_blas){.fail_at = at};
		status = cuda_build_conv_product(&op, &desc, &err);
		if (status == BETON_OK)
			op.destroy(op.state);
		else
			assert_null(op.destroy);
		assert_int_equal(fake.live, 0);
	}
	assert_int_equal(status, BETON_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(products_are_convolutions),
		cmocka_unit_test(other_convolutions_are_no_products),
		cmocka_unit_test(every_failure_leaves_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
