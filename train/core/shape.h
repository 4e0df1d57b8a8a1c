/* SPDX-License-Identifier: Apache-2.0
 *
 * Shape arithmetic inside the library.
 */
#ifndef DTRAIN_CORE_SHAPE_H
#define DTRAIN_CORE_SHAPE_H

#include <string.h>

#include <dtrain/device.h>

/* Limit of a tensor's elements; below it, bytes and offsets cannot overflow. */
#define DTRAIN__MAX_ELEMENTS ((int64_t)1 << 40)

static inline bool dtrain__shape_equal(const dtrain_shape *a, const dtrain_shape *b)
{
	return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof(a->dim[0])) == 0;
}

/* Every dimension is at least 1 and the product stays below the limit. */
static inline bool dtrain__shape_valid(const dtrain_shape *shape)
{
	int64_t count = 1;
	if (shape->ndim < 0 || shape->ndim > DTRAIN_MAX_DIMS)
		return false;
	for (int i = 0; i < shape->ndim; i++) {
		if (shape->dim[i] < 1 || shape->dim[i] > DTRAIN__MAX_ELEMENTS / count)
			return false;
		count *= shape->dim[i];
	}
	return true;
}

/* Room for DTRAIN_MAX_DIMS dimensions: "[-9223372036854775808, ...]". */
#define DTRAIN__SHAPE_TEXT 160

const char *dtrain__shape_text(const dtrain_shape *shape, char text[DTRAIN__SHAPE_TEXT]);

static inline size_t dtrain__round_up(size_t value, size_t multiple)
{
	return (value + multiple - 1) / multiple * multiple;
}

#endif
