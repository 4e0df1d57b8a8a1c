/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels that convert between cuDNN's statistics and ours; for their conventions see kernels.h.
 */
#ifndef DTRAIN_CUDA_KERNELS_DNN_KERNELS_H
#define DTRAIN_CUDA_KERNELS_DNN_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cuda_statistics {
	int64_t channels;
	int64_t count; /* values of a channel, at least 2 */
	double epsilon, momentum;
	bool keeps_inverse;
} cuda_statistics;

/* var holds 1 / sqrt(var + epsilon), and becomes the biased variance unless it keeps the inverse. The running
 * statistics move towards mean and the unbiased variance: running = (1 - momentum) * running + momentum * new. */
cudaError_t cuda_kernel_statistics(cudaStream_t stream, const cuda_statistics *g, const float *mean, float *var,
				   float *running_mean, float *running_var);
/* Computes mean and (biased) var, and the running statistics as above, from each channel's sums of values, followed by
 * its sums of squares. epsilon and keeps_inverse are not used. The error of var is about the F32 sums' error times 1 +
 * mean^2 / var. */
cudaError_t cuda_kernel_statistics_of_sums(cudaStream_t stream, const cuda_statistics *g, const float *sums,
					   float *mean, float *var, float *running_mean, float *running_var);
/* inverse = 1 / sqrt(var + epsilon) */
cudaError_t cuda_kernel_inverse_deviation(cudaStream_t stream, const cuda_statistics *g, const float *var,
					  float *inverse);

#ifdef __cplusplus
}
#endif

#endif
