/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread for each channel. There are at most a few thousand, so double precision is free, and the only error is
 * cuDNN's rounding to F32: 2^-23 of var + epsilon.
 */
#include "dnn_kernels.h"
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

__global__ void __launch_bounds__(THREADS)
	statistics(cuda_statistics g, const float *mean, float *var, float *running_mean, float *running_var)
{
	int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (c >= g.channels)
		return;
	double inverse = var[c];
	double biased = 1 / (inverse * inverse) - g.epsilon;
	biased = biased < 0 ? 0 : biased; /* NaN stays */
	double unbiased = biased * (double)g.count / (double)(g.count - 1);
	if (!g.keeps_inverse)
		var[c] = (float)biased;
	running_mean[c] = (float)((1 - g.momentum) * running_mean[c] + g.momentum * mean[c]);
	running_var[c] = (float)((1 - g.momentum) * running_var[c] + g.momentum * unbiased);
}

__global__ void __launch_bounds__(THREADS) inverse_deviation(cuda_statistics g, const float *var, float *inverse)
{
	int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (c < g.channels)
		inverse[c] = (float)(1 / sqrt(var[c] + g.epsilon));
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

cudaError_t cuda_kernel_statistics(cudaStream_t stream, const cuda_statistics *g, const float *mean, float *var,
				   float *running_mean, float *running_var)
{
	return launch(statistics, (g->channels + THREADS - 1) / THREADS, THREADS, stream, *g, mean, var, running_mean,
		      running_var);
}

cudaError_t cuda_kernel_inverse_deviation(cudaStream_t stream, const cuda_statistics *g, const float *var,
					  float *inverse)
{
	return launch(inverse_deviation, (g->channels + THREADS - 1) / THREADS, THREADS, stream, *g, var, inverse);
}
