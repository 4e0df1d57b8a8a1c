/* SPDX-License-Identifier: Apache-2.0 */
#include "group_elements.h"

#include "common/half.h"

/* 16-bit elements that are widened at a time. */
#define BLOCK 512

#define EACH(to, expression)                       \
	do {                                       \
		for (size_t i = 0; i < count; i++) \
			(to)[i] = (expression);    \
	} while (0)

/* wide: the type of sums and products; unsigned for integers, so that they wrap around. The reduction is selected
 * outside of the loops, so that compilers can vectorize them. */
#define DEFINE_COMBINE(type, wide)                                                                           \
	static void combine_##type(type *to, const type *from, size_t count, dtrain_reduce_op op)            \
	{                                                                                                    \
		if (op == DTRAIN_MAX)                                                                        \
			EACH(to, from[i] > to[i] ? from[i] : to[i]);                                         \
		else if (op == DTRAIN_MIN)                                                                   \
			EACH(to, from[i] < to[i] ? from[i] : to[i]);                                         \
		else if (op == DTRAIN_PRODUCT)                                                               \
			EACH(to, (type)((wide)to[i] * (wide)from[i]));                                       \
		else                                                                                         \
			EACH(to, (type)((wide)to[i] + (wide)from[i]));                                       \
	}                                                                                                    \
                                                                                                             \
	static void reduce_##type(type *to, const type *parts, size_t count, int ranks, dtrain_reduce_op op) \
	{                                                                                                    \
		memcpy(to, parts, count * sizeof(*to));                                                      \
		for (int rank = 1; rank < ranks; rank++)                                                     \
			combine_##type(to, parts + count * (size_t)rank, count, op);                         \
	}

DEFINE_COMBINE(float, float)
DEFINE_COMBINE(double, double)
DEFINE_COMBINE(int64_t, uint64_t)
DEFINE_COMBINE(uint8_t, unsigned)

static void widen(float *to, const uint16_t *from, size_t count, dtrain_dtype dtype)
{
	if (dtype == DTRAIN_BF16)
		EACH(to, bt_widen_bfloat16(from[i]));
	else
		EACH(to, bt_widen_float16(from[i]));
}

static void narrow(uint16_t *to, const float *from, size_t count, dtrain_dtype dtype)
{
	if (dtype == DTRAIN_BF16)
		EACH(to, bt_bfloat16(from[i]));
	else
		EACH(to, bt_float16(from[i]));
}

static void reduce_half(uint16_t *to, const uint16_t *parts, size_t count, int ranks, dtrain_dtype dtype,
			dtrain_reduce_op op)
{
	float one[BLOCK], sum[BLOCK];
	for (size_t at = 0; at < count; at += BLOCK) {
		size_t size = count - at < BLOCK ? count - at : BLOCK;
		widen(sum, parts + at, size, dtype);
		for (int rank = 1; rank < ranks; rank++) {
			widen(one, parts + count * (size_t)rank + at, size, dtype);
			combine_float(sum, one, size, op);
		}
		narrow(to + at, sum, size, dtype);
	}
}

void dtrain__elements_reduce(void *out, const void *parts, size_t count, int ranks, dtrain_dtype dtype,
			     dtrain_reduce_op op)
{
	switch (dtype) {
	case DTRAIN_F32:
		reduce_float(out, parts, count, ranks, op);
		break;
	case DTRAIN_F64:
		reduce_double(out, parts, count, ranks, op);
		break;
	case DTRAIN_I64:
		reduce_int64_t(out, parts, count, ranks, op);
		break;
	case DTRAIN_U8:
		reduce_uint8_t(out, parts, count, ranks, op);
		break;
	default:
		reduce_half(out, parts, count, ranks, dtype, op);
		break;
	}
}

static void divide_half(uint16_t *data, size_t count, dtrain_dtype dtype, float divisor)
{
	float wide[BLOCK];
	for (size_t at = 0; at < count; at += BLOCK) {
		size_t size = count - at < BLOCK ? count - at : BLOCK;
		widen(wide, data + at, size, dtype);
		for (size_t i = 0; i < size; i++)
			wide[i] /= divisor;
		narrow(data + at, wide, size, dtype);
	}
}

void dtrain__elements_divide(void *data, size_t count, dtrain_dtype dtype, int divisor)
{
	if (dtype == DTRAIN_F32) {
		for (size_t i = 0; i < count; i++)
			((float *)data)[i] /= (float)divisor;
	} else if (dtype == DTRAIN_F64) {
		for (size_t i = 0; i < count; i++)
			((double *)data)[i] /= divisor;
	} else {
		divide_half(data, count, dtype, (float)divisor);
	}
}
