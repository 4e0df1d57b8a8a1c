/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and maxima of what the threads of a block have, for kernels with one block for each row.
 */
#ifndef DTRAIN_CUDA_REDUCE_CUH
#define DTRAIN_CUDA_REDUCE_CUH

#include <cub/block/block_reduce.cuh>

#include "kernel.cuh"

namespace cuda_kernels
{

struct largest {
	__device__ float operator()(float a, float b) const
	{
		return a > b ? a : b;
	}
};
struct sum {
	template <typename T> __device__ T operator()(T a, T b) const
	{
		return a + b;
	}
};

#ifndef CUDA_EMULATION
/* Adds x over the threads of a warp; each gets the sum. All threads of the block must call it. */
__device__ inline float sum_warp(float x)
{
#pragma unroll
	for (int mask = 16; mask > 0; mask /= 2)
		x += __shfl_xor_sync(0xffffffff, x, mask);
	return x;
}
#endif

/* Reduces x over all N threads of the block; each gets the result. */
template <int N, typename T, typename F> __device__ inline T reduce(T x, F f)
{
	typedef cub::BlockReduce<T, N> reduction;
	__shared__ typename reduction::TempStorage storage;
	__shared__ T result;
	T out = reduction(storage).Reduce(x, f);
	if (threadIdx.x == 0)
		result = out;
	__syncthreads();
	out = result;
	__syncthreads();
	return out;
}

} // namespace cuda_kernels

#endif
