/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA kernels on the CPU, for tests: include this, then the .cu file, in C++.
 *
 * A launch runs one block after the other. The threads of a block are fibers of the calling thread: each runs until it
 * reaches a barrier or its end, then the next one does. A missing barrier shows, because the order of the threads is
 * turned around at each barrier and in each block. Shared memory is static; that of a launch is allocated for it, so
 * that AddressSanitizer finds an access out of its bounds.
 *
 * It is an error of the test program, which ends, when some threads of a block wait at a barrier and others are done.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_KERNELS_EMULATION_H
#define TESTS_TRAIN_DEVICES_CUDA_KERNELS_EMULATION_H

#define CUDA_EMULATION 1

#include <functional>

#include <stdint.h>

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(...)

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

void __syncthreads();

/* A store; of vectors as a whole. */
template <typename T> void __stwb(T *to, T value)
{
	*to = value;
}

/* A product that no addition becomes a part of. */
inline float __fmul_rn(float a, float b)
{
	const volatile float product = a * b;
	return product;
}

inline unsigned atomicAdd(unsigned *to, unsigned value)
{
	const unsigned old = *to;
	*to += value;
	return old;
}

/* Runs the body once for each thread of each block. shared: bytes of dynamic_shared(). */
void emulate_launch(int64_t blocks, dim3 threads, size_t shared, const std::function<void()> &body);

namespace cuda_kernels
{

template <typename T> struct emulated {
	typedef T type;
};

template <typename... Parameters>
cudaError_t launch_shared(void (*kernel)(Parameters...), int64_t blocks, dim3 threads, size_t bytes, cudaStream_t,
			  typename emulated<Parameters>::type... parameters)
{
	if (blocks < 1 || blocks > INT32_MAX)
		return cudaErrorInvalidConfiguration;
	emulate_launch(blocks, threads, bytes, [&] { kernel(parameters...); });
	return cudaSuccess;
}

template <typename... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), int64_t blocks, dim3 threads, cudaStream_t stream,
		   typename emulated<Parameters>::type... parameters)
{
	return launch_shared(kernel, blocks, threads, 0, stream, parameters...);
}

void *dynamic_shared();
float sum_warp(float x);

} // namespace cuda_kernels

#endif
