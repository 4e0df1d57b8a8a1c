/* SPDX-License-Identifier: Apache-2.0
 *
 * One thread for each channel. There are at most a few thousand, so double precision is free, and the only error is
 * cuDNN's: that of its sums, or of 1 / sqrt(var + epsilon) rounded to F32, which is 2^-23 of var + epsilon.
 */
#include "dnn_kernels.h"
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

__device__ inline void run_along(const cuda_statistics &g, int64_t c, double mean, double var, float *running_mean,
				 float *running_var)
{
	const double unbiased = var * (double)g.count / (double)(g.count - 1);
	running_mean[c] = (float)((1 - g.momentum) * running_mean[c] + g.momentum * mean);
	running_var[c] = (float)((1 - g.momentum) * running_var[c] + g.momentum * unbiased);
}

__global__ void __launch_bounds__(THREADS)
	statistics(cuda_statistics g, const float *mean, float *var, float *running_mean, float *running_var)
{
	int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (c >= g.channels)
		return;
	double inverse = var[c];
	double biased = 1 / (inverse * inverse) - g.epsilon;
	biased = biased < 0 ? 0 : biased; /* NaN stays */
	if (!g.keeps_inverse)
		var[c] = (float)biased;
	run_along(g, c, mean[c], biased, running_mean, running_var);
}

__global__ void __launch_bounds__(THREADS) statistics_of_sums(cuda_statistics g, const float *sums, float *mean,
							      float *var, float *running_mean, float *running_var)
{
	int64_t c = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (c >= g.channels)
		return;
	const double count = (double)g.count, middle = sums[c] / count;
	double biased = sums[g.channels + c] / count - middle * middle;
	biased = biased < 0 ? 0 : biased; /* NaN stays */
	mean[c] = (float)middle;
	var[c] = (float)biased;
	run_along(g, c, middle, biased, running_mean, running_var);
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

cudaError_t cuda_kernel_statistics_of_sums(cudaStream_t stream, const cuda_statistics *g, const float *sums,
					   float *mean, float *var, float *running_mean, float *running_var)
{
	return launch(statistics_of_sums, (g->channels + THREADS - 1) / THREADS, THREADS, stream, *g, sums, mean, var,
		      running_mean, running_var);
}

cudaError_t cuda_kernel_inverse_deviation(cudaStream_t stream, const cuda_statistics *g, const float *var,
					  float *inverse)
{
	return launch(inverse_deviation, (g->channels + THREADS - 1) / THREADS, THREADS, stream, *g, var, inverse);
}
