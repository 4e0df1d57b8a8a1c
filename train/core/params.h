/* SPDX-License-Identifier: Apache-2.0
 *
 * The inside of dtrain_params.
 */
#ifndef DTRAIN_CORE_PARAMS_H
#define DTRAIN_CORE_PARAMS_H

#include <dtrain/params.h>

struct dtrain_params {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_dtype dtype;
	bool allocated;

	dtrain_param *params; /* by order of declaration */
	int count, capacity;
	dtrain_buffer *buffers;
	int buffer_count, buffer_capacity;
	dtrain_block *blocks; /* by order of declaration; made by allocate */
	int block_count;

	int32_t block; /* of the next parameter */
	bool block_used;

	int64_t flat_count;
	void *values;
	void *grad_memory; /* DTRAIN_GRAD_EXTRA elements, then the gradients */
	void *buffer_memory;
	int64_t buffer_elements; /* in it, with what lies between the buffers, which is zero */
};

/* Elements of a parameter or buffer as it starts: a pure function of (seed, name, declaration), so that every device
 * and rank makes the same numbers, rounded to float whatever dtype is. Writes count elements of dtype (F32 or F64). */
void dtrain__init_fill(void *out, dtrain_dtype dtype, int64_t count, dtrain_init init, const dtrain_shape *shape,
		       int64_t fan_in, const char *name, uint64_t seed);

#endif
