/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of the kernels: arrays with guards around them, the reference, comparison.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_KERNELS_SUPPORT_H
#define TESTS_TRAIN_DEVICES_CUDA_KERNELS_SUPPORT_H

#include <dtrain/device.h>

/* Elements that begin `shift` elements after a multiple of 64 bytes. Memory before and after them may not be touched:
 * sanitized builds stop there, others find out in array_free. */
typedef struct array {
	const char *name;
	dtrain_dtype dtype;
	int64_t count;
	int shift;
	unsigned char *block;
	void *memory;
} array;

/* Filled with bytes that are NaN in every type. */
array array_make(const char *name, dtrain_dtype dtype, int64_t count, int shift);
/* The same, with values between least and most that depend on name and count. */
array array_random(const char *name, dtrain_dtype dtype, int64_t count, int shift, double least, double most);
array array_copy(const array *from);
double array_get(const array *a, int64_t i);
void array_set(array *a, int64_t i, double value);
void array_free(array *a);

/* The array in another type, without a shift. */
array array_as(const array *from, dtrain_dtype dtype);
/* [batch][rows][columns] -> [batch][columns][rows] */
array array_turned(const array *from, int64_t batch, int64_t rows, int64_t columns);

/* Each element of a is that of right, rounded to a's type, but for `allowed` besides; with NaN where it is NaN. */
void array_compare(const array *a, const array *right, double allowed);
/* Bit for bit. */
void array_compare_exact(const array *a, const array *right);

/* The rounding error of a type, relative: half a unit in the last place at the least. */
double type_rounding(dtrain_dtype dtype);

/* Runs an op of the device ref on plain arrays of F64 (and I64, U8, F32 scalers): inputs, then outputs. shapes: one for
 * each operand. */
void ref_run(dtrain_op_kind kind, const dtrain_op_attrs *attrs, int num_inputs, int num_outputs,
	     const dtrain_shape *shapes, array *const *operands);

/* For each of F32, F16, BF16. */
extern const dtrain_dtype test_types[3];

#define CHECK_CUDA(call) assert_int_equal((int)(call), 0)

#endif
