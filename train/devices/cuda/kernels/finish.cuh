/* SPDX-License-Identifier: Apache-2.0
 *
 * The last step of sums over rows for each channel: blocks of 8 channels with 32 threads each; a thread takes every
 * 32nd chunk.
 */
#ifndef DTRAIN_CUDA_FINISH_CUH
#define DTRAIN_CUDA_FINISH_CUH

#include "columns.cuh"

namespace cuda_kernels
{

constexpr int FINISH_CHANNELS = 8, FINISH_THREADS = THREADS / FINISH_CHANNELS;

/* Runs merge_with(y of another thread) in a tree over the threads of a channel. */
template <typename F> __device__ inline void tree(F merge_with)
{
	for (unsigned half = FINISH_THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.y < half)
			merge_with(threadIdx.y + half);
	}
}

inline dim3 finish_threads()
{
	return dim3(FINISH_CHANNELS, FINISH_THREADS);
}

inline int64_t finish_blocks(const columns &g)
{
	return (g.channels + FINISH_CHANNELS - 1) / FINISH_CHANNELS;
}

} // namespace cuda_kernels

#endif
