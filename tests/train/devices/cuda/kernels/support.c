/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "numbers.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN
#endif
#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) ((void)(memory))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) ((void)(memory))
#endif

#define GUARD 128
#define GUARD_BYTE 0xff /* NaN in each type */

const dtrain_dtype test_types[3] = {DTRAIN_F32, DTRAIN_F16, DTRAIN_BF16};

static size_t bytes_of(const array *a)
{
	return (size_t)a->count * dtrain_dtype_size(a->dtype);
}

static size_t block_bytes(const array *a)
{
	size_t bytes = (size_t)a->shift * dtrain_dtype_size(a->dtype) + bytes_of(a) + 2 * GUARD;
	return (bytes + 63) / 64 * 64;
}

static size_t front_bytes(const array *a)
{
	return GUARD + (size_t)a->shift * dtrain_dtype_size(a->dtype);
}

array array_make(const char *name, dtrain_dtype dtype, int64_t count, int shift)
{
	array a = {.name = name, .dtype = dtype, .count = count, .shift = shift};
	a.block = aligned_alloc(64, block_bytes(&a));
	assert_non_null(a.block);
	memset(a.block, GUARD_BYTE, block_bytes(&a));
	a.memory = a.block + front_bytes(&a);
	ASAN_POISON_MEMORY_REGION(a.block, front_bytes(&a));
	ASAN_POISON_MEMORY_REGION((char *)a.memory + bytes_of(&a), block_bytes(&a) - front_bytes(&a) - bytes_of(&a));
	return a;
}

void array_free(array *a)
{
	ASAN_UNPOISON_MEMORY_REGION(a->block, block_bytes(a));
	const unsigned char *end = (unsigned char *)a->memory + bytes_of(a);
	for (const unsigned char *p = a->block; p < a->block + block_bytes(a); p++)
		if ((p < (unsigned char *)a->memory || p >= end) && *p != GUARD_BYTE)
			fail_msg("'%s' was written outside of its %lld elements, at byte %lld", a->name,
				 (long long)a->count, (long long)(p - (unsigned char *)a->memory));
	free(a->block);
	*a = (array){0};
}

static double uniform(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

array array_random(const char *name, dtrain_dtype dtype, int64_t count, int shift, double least, double most)
{
	array a = array_make(name, dtype, count, shift);
	uint64_t state = (uint64_t)count * 1000003u;
	for (const char *p = name; *p; p++)
		state = state * 31 + (unsigned char)*p;
	for (int64_t i = 0; i < count; i++)
		array_set(&a, i, least + uniform(&state) * (most - least));
	return a;
}

array array_copy(const array *from)
{
	array a = array_make(from->name, from->dtype, from->count, from->shift);
	memcpy(a.memory, from->memory, bytes_of(from));
	return a;
}

double array_get(const array *a, int64_t i)
{
	return number_get(a->dtype, a->memory, i);
}

void array_set(array *a, int64_t i, double value)
{
	number_set(a->dtype, a->memory, i, value);
}

array array_as(const array *from, dtrain_dtype dtype)
{
	array a = array_make(from->name, dtype, from->count, 0);
	for (int64_t i = 0; i < from->count; i++)
		array_set(&a, i, array_get(from, i));
	return a;
}

array array_turned(const array *from, int64_t batch, int64_t rows, int64_t columns)
{
	assert_int_equal(from->count, batch * rows * columns);
	array a = array_make(from->name, from->dtype, from->count, 0);
	size_t size = dtrain_dtype_size(from->dtype);
	for (int64_t b = 0; b < batch; b++)
		for (int64_t r = 0; r < rows; r++)
			for (int64_t c = 0; c < columns; c++)
				memcpy((char *)a.memory + (size_t)((b * columns + c) * rows + r) * size,
				       (char *)from->memory + (size_t)((b * rows + r) * columns + c) * size, size);
	return a;
}

double type_rounding(dtrain_dtype dtype)
{
	return dtype == DTRAIN_F16 ? 0x1p-11 : dtype == DTRAIN_BF16 ? 0x1p-8 : dtype == DTRAIN_F32 ? 0x1p-24 : 0;
}

void array_compare(const array *a, const array *right, double allowed)
{
	assert_int_equal(a->count, right->count);
	double rounding = type_rounding(a->dtype);
	for (int64_t i = 0; i < a->count; i++) {
		double x = array_get(a, i), y = array_get(right, i);
		bool same = isnan(y) ? isnan(x) : x == y || fabs(x - y) <= rounding * fabs(y) + allowed;
		if (!same)
			fail_msg("'%s' in %s, element %lld of %lld: %.9g, not %.9g (allowed: %.3g)", a->name,
				 dtrain_dtype_name(a->dtype), (long long)i, (long long)a->count, x, y,
				 rounding * fabs(y) + allowed);
	}
}

void array_compare_exact(const array *a, const array *right)
{
	assert_int_equal(a->count, right->count);
	assert_int_equal(a->dtype, right->dtype);
	size_t size = dtrain_dtype_size(a->dtype);
	for (int64_t i = 0; i < a->count; i++)
		if (memcmp((char *)a->memory + (size_t)i * size, (char *)right->memory + (size_t)i * size, size) != 0)
			fail_msg("'%s' in %s, element %lld of %lld: %.9g, not %.9g", a->name,
				 dtrain_dtype_name(a->dtype), (long long)i, (long long)a->count, array_get(a, i),
				 array_get(right, i));
}

void ref_run(dtrain_op_kind kind, const dtrain_op_attrs *attrs, int num_inputs, int num_outputs,
	     const dtrain_shape *shapes, array *const *operands)
{
	beton_error err = {0};
	dtrain_device_options options = {.struct_size = sizeof(options)};
	dtrain_device *device;
	dtrain_stream *stream;
	dtrain_op *op;
	assert_int_equal(dtrain_device_open("ref", &options, &device, &err), BETON_OK);
	const dtrain_device_api *api = dtrain_device_get_api(device);
	assert_int_equal(api->stream_create(device, &stream, &err), BETON_OK);
	dtrain_op_desc desc = {.kind = kind, .attrs = *attrs, .num_inputs = num_inputs, .num_outputs = num_outputs};
	void *memory[2 * DTRAIN_OP_MAX_OPERANDS];
	for (int i = 0; i < num_inputs + num_outputs; i++) {
		dtrain_operand *operand = i < num_inputs ? &desc.inputs[i] : &desc.outputs[i - num_inputs];
		assert_int_equal(dtrain_shape_count(&shapes[i]), operands[i]->count);
		*operand = (dtrain_operand){operands[i]->dtype, shapes[i], NULL, bytes_of(operands[i])};
		memory[i] = operands[i]->memory;
	}
	if (api->op_create(device, &desc, &op, &err) != BETON_OK ||
	    api->op_run(op, stream, memory, NULL, &err) != BETON_OK)
		fail_msg("%s", err.message);
	api->op_destroy(op);
	api->stream_destroy(stream);
	dtrain_device_close(&device);
}
