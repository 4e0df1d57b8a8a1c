/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes that no tensor may have, at every function that takes one: refused, with the shape in the message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <dtrain/graph.h>

#include "common/system.h"

static dtrain_device *device;

static int open_device(void **state)
{
	(void)state;
	return dtrain_device_open("ref", NULL, &device, NULL);
}

static int close_device(void **state)
{
	(void)state;
	dtrain_device_close(&device);
	return 0;
}

/* On the heap, in its exact size, so that a sanitizer sees what reads beyond the dimensions. */
static dtrain_shape *make_shape(int32_t ndim, int64_t dim)
{
	dtrain_shape *shape = malloc(sizeof(*shape));
	assert_non_null(shape);
	shape->ndim = ndim;
	for (int i = 0; i < DTRAIN_MAX_DIMS; i++)
		shape->dim[i] = dim;
	return shape;
}

static int try_input(const dtrain_shape *shape, beton_error *err)
{
	dtrain_params *params = NULL;
	dtrain_graph *graph = NULL;
	dtrain_program *program = NULL;
	assert_int_equal(dtrain_params_create(device, DTRAIN_F32, &params, err), BETON_OK);
	assert_int_equal(dtrain_graph_create(params, false, &graph, err), BETON_OK);
	assert_int_equal(dtrain_graph_input(graph, "x", DTRAIN_F32, shape), -1);
	int result = dtrain_graph_compile(&graph, &program, err);
	dtrain_graph_destroy(&graph);
	dtrain_params_destroy(&params);
	return result;
}

/* New, and under the name of something that is there. */
static int try_declarations(const dtrain_shape *shape, beton_error *err)
{
	const dtrain_shape good = dtrain_shape_of(1, (int64_t[]){3});
	dtrain_params *params = NULL;
	assert_int_equal(dtrain_params_create(device, DTRAIN_F32, &params, err), BETON_OK);
	assert_int_equal(dtrain_params_declare(params, "p", &good, DTRAIN_INIT_ZERO, 3, err), 0);
	assert_int_equal(dtrain_params_declare_buffer(params, "b", &good, DTRAIN_INIT_ZERO, err), 0);
	assert_int_equal(dtrain_params_declare(params, "p", shape, DTRAIN_INIT_ZERO, 3, err), BETON_MISMATCH);
	assert_int_equal(dtrain_params_declare_buffer(params, "b", shape, DTRAIN_INIT_ZERO, err), BETON_MISMATCH);
	assert_int_equal(dtrain_params_declare_fixed(params, "f", shape, DTRAIN_INIT_DIRAC, err),
			 BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain_params_declare_buffer(params, "c", shape, DTRAIN_INIT_ZERO, err),
			 BETON_INVALID_ARGUMENT);
	int result = dtrain_params_declare(params, "q", shape, DTRAIN_INIT_ZERO, 3, err);
	assert_int_equal(dtrain_params_count(params), 1);
	assert_int_equal(dtrain_params_buffer_count(params), 1);
	dtrain_params_destroy(&params);
	return result;
}

static int try_op(const dtrain_shape *shape, beton_error *err)
{
	dtrain_op_desc desc = {.kind = DTRAIN_OP_RELU, .num_inputs = 1, .num_outputs = 1};
	dtrain_op *op = NULL;
	desc.inputs[0] = desc.outputs[0] = (dtrain_operand){.dtype = DTRAIN_F32, .shape = *shape};
	int result = dtrain_device_get_api(device)->op_create(device, &desc, &op, err);
	assert_null(op);
	return result;
}

static void refused(const dtrain_shape *shape, const char *text)
{
	static int (*const entries[])(const dtrain_shape *, beton_error *) = {try_input, try_declarations, try_op};
	for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
		beton_error err = {0};
		assert_int_equal(entries[i](shape, &err), BETON_INVALID_ARGUMENT);
		if (!strstr(err.message, text))
			fail_msg("'%s' does not say '%s'", err.message, text);
	}
}

static void numbers_of_dimensions(void **state)
{
	static const int32_t counts[] = {DTRAIN_MAX_DIMS + 1, 64, 1000, INT32_MAX, -1, INT32_MIN};
	(void)state;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		char text[64];
		dtrain_shape *shape = make_shape(counts[i], 1000000007);
		snprintf(text, sizeof(text), "[%d dimensions; 0 to %d are possible]", counts[i], DTRAIN_MAX_DIMS);
		refused(shape, text);
		assert_int_equal(dtrain_shape_count(shape), 0);
		free(shape);
	}
}

static void sizes_of_dimensions(void **state)
{
	(void)state;
	dtrain_shape *longest = make_shape(DTRAIN_MAX_DIMS, INT64_MIN);
	refused(longest, "-9223372036854775808, -9223372036854775808]");
	assert_int_equal(dtrain_shape_count(longest), 0);
	free(longest);
	dtrain_shape *largest = make_shape(DTRAIN_MAX_DIMS, INT64_MAX);
	refused(largest, "9223372036854775807, 9223372036854775807]");
	assert_int_equal(dtrain_shape_count(largest), 0);
	free(largest);
}

/* The shape keeps the requested dimensions, so that a refusal can name them. */
static void made_from_too_many(void **state)
{
	static const int64_t dims[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
	(void)state;
	dtrain_shape shape = dtrain_shape_of(9, dims);
	refused(&shape, "[9 dimensions; ");
	shape = dtrain_shape_of(-3, dims);
	refused(&shape, "[-3 dimensions; ");
}

static void texts_end_with_their_room(void **state)
{
	(void)state;
	for (size_t size = 1; size < 20; size++) {
		char *text = malloc(size);
		assert_non_null(text);
		*text = 0;
		for (int i = 0; i < 5; i++)
			bt_append(text, size, "%s%d", i ? ", " : "", 10 + i);
		assert_memory_equal(text, "10, 11, 12, 13, 14", size - 1);
		assert_int_equal(text[size - 1], 0);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_of_dimensions),
		cmocka_unit_test(sizes_of_dimensions),
		cmocka_unit_test(made_from_too_many),
		cmocka_unit_test(texts_end_with_their_room),
	};
	return cmocka_run_group_tests(tests, open_device, close_device);
}
