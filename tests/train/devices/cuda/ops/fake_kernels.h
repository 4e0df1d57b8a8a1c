/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels around a product, for tests, in F32 and BF16 on the memory of the host. Activations are marks that tell
 * them apart.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_OPS_FAKE_KERNELS_H
#define TESTS_TRAIN_DEVICES_CUDA_OPS_FAKE_KERNELS_H

#include <stdint.h>

#include <dtrain/device.h>

typedef struct fake_kernel_facts {
	int casts;         /* that were launched */
	long long sums_ns; /* sums of columns move the clock of the stand-in by this */
} fake_kernel_facts;

extern fake_kernel_facts fake_kernels;

/* An element of an array in either type. */
float fake_get(const void *memory, dtrain_dtype dtype, int64_t index);
void fake_put(void *memory, dtrain_dtype dtype, int64_t index, float value);

#endif
