/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA kernels on the CPU, for tests: include this, then the .cu file, in C++.
 *
 * A launch runs one block after the other. The threads of a block are fibers of the calling thread: each runs until it
 * reaches a barrier or its end, then the next one does. A missing barrier shows, because the order of the threads is
 * turned around at each barrier and in each block. Shared memory is static; that of a launch is allocated for it, so
 * that AddressSanitizer finds an access out of its bounds. What the threads of a warp do together, as in
 * tensor_core.cuh, is a barrier of the warp. Later copies are made at once in every second block, and in the others
 * when the thread waits for them.
 *
 * It is an error of the test program, which ends, when some threads of a block wait at a barrier and others are done.
 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_KERNELS_EMULATION_H
#define TESTS_TRAIN_DEVICES_CUDA_KERNELS_EMULATION_H

#define CUDA_EMULATION 1

#include <functional>

#include <math.h>
#include <stdint.h>
#include <string.h>

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

inline int min(int a, int b)
{
	return a < b ? a : b;
}

inline unsigned atomicAdd(unsigned *to, unsigned value)
{
	const unsigned old = *to;
	*to += value;
	return old;
}

/* Runs the body once for each thread of each block. shared: bytes of dynamic_shared(). */
void emulate_launch(int64_t blocks, dim3 threads, size_t shared, const std::function<void()> &body);

/* A barrier of the warp: what each of its threads gave, EMULATED_SLOT bytes apart, until the thread's next one. */
constexpr size_t EMULATED_SLOT = 64;
const unsigned char *emulate_exchange(const void *mine, size_t bytes);
/* from NULL: zeros. */
void emulate_copy_later(void *to, const void *from, size_t bytes);

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

/* ---- tensor_core.cuh ---- */

void wait_for_copies();

inline float power_of_two(float x)
{
	return exp2f(x);
}

template <typename V> V exchange(V value, int mask)
{
	const unsigned char *all = emulate_exchange(&value, sizeof(value));
	memcpy(&value, all + (threadIdx.x % 32 ^ (unsigned)mask) * EMULATED_SLOT, sizeof(value));
	return value;
}

template <int BYTES> void copy_later(void *to, const void *from, bool exists)
{
	emulate_copy_later(to, exists ? from : nullptr, BYTES);
}

void emulate_matrices(bool turned, uint32_t (&to)[4], const void *row);
void emulate_product(float (*value)(uint16_t), float (&c)[4], const uint32_t (&a)[4], uint32_t low, uint32_t high);

template <bool TURNED> void load_matrices(uint32_t (&to)[4], const void *row)
{
	emulate_matrices(TURNED, to, row);
}

template <typename T> float emulated_value(uint16_t bits)
{
	T value;
	memcpy((void *)&value, &bits, sizeof(value));
	return (float)value;
}

template <typename T> void add_product(float (&c)[4], const uint32_t (&a)[4], uint32_t low, uint32_t high)
{
	emulate_product(emulated_value<T>, c, a, low, high);
}

} // namespace cuda_kernels

#endif
