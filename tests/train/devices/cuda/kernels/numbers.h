/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of the half types, converted by CUDA's own headers.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_KERNELS_NUMBERS_H
#define TESTS_TRAIN_DEVICES_CUDA_KERNELS_NUMBERS_H

#include <dtrain/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element i of an array of F32, F16, BF16, F64, I64 or U8. Set rounds to the nearest. */
double number_get(dtrain_dtype dtype, const void *array, int64_t i);
void number_set(dtrain_dtype dtype, void *array, int64_t i, double value);

#ifdef __cplusplus
}
#endif

#endif
