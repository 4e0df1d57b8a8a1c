/* SPDX-License-Identifier: Apache-2.0 */
#include "shape.h"

#include "common/system.h"

static const struct {
	size_t bytes;
	const char *name;
} dtypes[] = {
	[DTRAIN_F32] = {4, "f32"}, [DTRAIN_F64] = {8, "f64"}, [DTRAIN_F16] = {2, "f16"}, [DTRAIN_BF16] = {2, "bf16"},
	[DTRAIN_I64] = {8, "i64"}, [DTRAIN_U8] = {1, "u8"},   [DTRAIN_I32] = {4, "i32"},
};

size_t dtrain_dtype_size(dtrain_dtype dtype)
{
	return (size_t)dtype < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[dtype].bytes : 0;
}

const char *dtrain_dtype_name(dtrain_dtype dtype)
{
	return (size_t)dtype < sizeof(dtypes) / sizeof(dtypes[0]) ? dtypes[dtype].name : "unknown";
}

static bool is_possible(int ndim)
{
	return ndim >= 0 && ndim <= DTRAIN_MAX_DIMS;
}

dtrain_shape dtrain_shape_of(int ndim, const int64_t *dims)
{
	dtrain_shape shape = {.ndim = ndim};
	for (int i = 0; is_possible(ndim) && i < ndim; i++)
		shape.dim[i] = dims[i];
	return shape;
}

int64_t dtrain_shape_count(const dtrain_shape *shape)
{
	if (!shape)
		return 0;
	int64_t count = 1;
	if (!is_possible(shape->ndim))
		return 0;
	for (int i = 0; i < shape->ndim; i++)
		if (shape->dim[i] < 0 || __builtin_mul_overflow(count, shape->dim[i], &count))
			return 0;
	return count;
}

const char *dtrain__shape_text(const dtrain_shape *shape, char text[DTRAIN__SHAPE_TEXT])
{
	*text = 0;
	if (!is_possible(shape->ndim)) {
		bt_append(text, DTRAIN__SHAPE_TEXT, "[%d dimensions; 0 to %d are possible]", shape->ndim,
			  DTRAIN_MAX_DIMS);
		return text;
	}
	bt_append(text, DTRAIN__SHAPE_TEXT, "[");
	for (int i = 0; i < shape->ndim; i++)
		bt_append(text, DTRAIN__SHAPE_TEXT, "%s%lld", i ? ", " : "", (long long)shape->dim[i]);
	bt_append(text, DTRAIN__SHAPE_TEXT, "]");
	return text;
}
