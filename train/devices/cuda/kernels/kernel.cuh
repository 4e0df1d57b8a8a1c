/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by all kernels: launching, types, and reading and writing several elements at once.
 *
 * The same sources are compiled by a plain C++ compiler for the tests (tests/train/devices/cuda/kernels/emulation.h),
 * so kernels use no more of CUDA than blocks, shared memory (that of a launch is dynamic_shared), __syncthreads,
 * sum_warp, __stwb, __fmul_rn, atomicAdd, tensor_core.cuh and what is in the tests' cub/.
 */
#ifndef DTRAIN_CUDA_KERNEL_CUH
#define DTRAIN_CUDA_KERNEL_CUH

#include <math.h>
#include <string.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifndef CUDA_EMULATION
#include <cuda_runtime.h>
#endif

#include "kernels.h"

namespace cuda_kernels
{

constexpr int THREADS = 256, WARP = 32;

/* T, but not deduced from this argument. */
template <typename T> struct plain {
	typedef T type;
};

#ifndef CUDA_EMULATION
/* Returns the error of this launch; cudaGetLastError could return that of an earlier call. */
template <typename... Parameters>
cudaError_t launch(void (*kernel)(Parameters...), int64_t blocks, dim3 threads, cudaStream_t stream,
		   typename plain<Parameters>::type... parameters)
{
	if (blocks > INT32_MAX)
		return cudaErrorInvalidConfiguration;
	void *arguments[] = {(void *)&parameters...};
	return cudaLaunchKernel((const void *)kernel, dim3((unsigned)blocks), threads, arguments, 0, stream);
}

/* The same, with so many bytes of dynamic_shared(). As much of the L1 cache becomes shared memory as can, so that
 * several blocks fit. */
template <typename... Parameters>
cudaError_t launch_shared(void (*kernel)(Parameters...), int64_t blocks, dim3 threads, size_t bytes,
			  cudaStream_t stream, typename plain<Parameters>::type... parameters)
{
	if (blocks > INT32_MAX || bytes > INT32_MAX)
		return cudaErrorInvalidConfiguration;
	const void *function = (const void *)kernel;
	void *arguments[] = {(void *)&parameters...};
	cudaError_t status = cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
	if (status == cudaSuccess)
		status = cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout,
					      cudaSharedmemCarveoutMaxShared);
	return status == cudaSuccess
		       ? cudaLaunchKernel(function, dim3((unsigned)blocks), threads, arguments, bytes, stream)
		       : status;
}

/* Memory of the block, as many bytes as the launch says; aligned to 16. */
__device__ inline void *dynamic_shared()
{
	extern __shared__ uint4 dynamic_memory[];
	return dynamic_memory;
}
#endif

/* Multiprocessors of the current device; 1 if unknown, and then the launch fails. */
inline int multiprocessors()
{
	int device = 0, count = 0;
	if (cudaGetDevice(&device) != cudaSuccess ||
	    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
		return 1;
	return count;
}

/* Bytes of shared memory that a block may have on the current device; 0 if unknown. */
inline size_t shared_memory_limit()
{
	int device = 0, bytes = 0;
	if (cudaGetDevice(&device) != cudaSuccess ||
	    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess)
		return 0;
	return (size_t)bytes;
}

/* Number of blocks of THREADS for kernels that step by the whole grid: one thread for each piece, up to a few times
 * what the GPU runs at once. More blocks only take time to start; fewer end at different times. */
inline int64_t blocks_of(int64_t pieces)
{
	int64_t blocks = (pieces + THREADS - 1) / THREADS, most = (int64_t)multiprocessors() * 32;
	return blocks < 1 ? 1 : blocks > most ? most : blocks;
}

/* ---- types ---- */

__host__ __device__ inline float to_float(float x)
{
	return x;
}
__host__ __device__ inline float to_float(__half x)
{
	return __half2float(x);
}
__host__ __device__ inline float to_float(__nv_bfloat16 x)
{
	return __bfloat162float(x);
}

template <typename T> __host__ __device__ inline T from_float(float x);
template <> __host__ __device__ inline float from_float<float>(float x)
{
	return x;
}
template <> __host__ __device__ inline __half from_float<__half>(float x)
{
	return __float2half_rn(x);
}
template <> __host__ __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
	return __float2bfloat16_rn(x);
}

/* Calls f with a value of the type. */
template <typename F> cudaError_t with_type(dtrain_dtype dtype, F f)
{
	switch (dtype) {
	case DTRAIN_F32:
		return f(float());
	case DTRAIN_F16:
		return f(__half());
	case DTRAIN_BF16:
		return f(__nv_bfloat16());
	default:
		return cudaErrorInvalidValue;
	}
}

/* ---- several elements ---- */

/* Read and written whole. */
template <typename T, int N> struct alignas(sizeof(T) * N) vector {
	T v[N];
};

/* Two halves as one word of memory. */
__host__ __device__ inline __half2 two_of(__half, float low, float high)
{
	return __floats2half2_rn(low, high);
}
__host__ __device__ inline __nv_bfloat162 two_of(__nv_bfloat16, float low, float high)
{
	return __floats2bfloat162_rn(low, high);
}
template <typename T> __host__ __device__ inline uint32_t word_of(float low, float high)
{
	const auto two = two_of(T(), low, high);
	uint32_t word;
	static_assert(sizeof(two) == sizeof(word), "two halves are a word");
	memcpy(&word, &two, sizeof(word));
	return word;
}

__host__ __device__ inline uint32_t word_of(float x)
{
	uint32_t word;
	memcpy(&word, &x, sizeof(word));
	return word;
}

/* Grows with the size of x without its sign; NaN is larger than infinity. */
__host__ __device__ inline uint32_t size_of(float x)
{
	return word_of(x) & 0x7fffffff;
}

/* p is a multiple of 4 * N bytes, or of 16. Explicit words, because a compiler may split the store of a struct. */
template <int N> __device__ inline void store_words(void *p, const uint32_t (&w)[N])
{
	if constexpr (N % 4 == 0) {
#pragma unroll
		for (int i = 0; i < N / 4; i++)
			__stwb(static_cast<uint4 *>(p) + i,
			       make_uint4(w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3]));
	} else if constexpr (N == 2) {
		__stwb(static_cast<uint2 *>(p), make_uint2(w[0], w[1]));
	} else {
		static_assert(N == 1, "1, 2 or a multiple of 4 words");
		__stwb(static_cast<unsigned *>(p), w[0]);
	}
}

/* Rounds x and writes it whole; p is a multiple of that size, or of 16 bytes. */
template <typename T, int N> __device__ inline void store_vector(T *p, const float (&x)[N])
{
	if constexpr (sizeof(T) == 2 && N % 2 == 0) {
		uint32_t words[N / 2];
#pragma unroll
		for (int i = 0; i < N / 2; i++)
			words[i] = word_of<T>(x[2 * i], x[2 * i + 1]);
		store_words(p, words);
	} else if constexpr (sizeof(T) == 4) {
		uint32_t words[N];
#pragma unroll
		for (int i = 0; i < N; i++)
			words[i] = word_of(x[i]);
		store_words(p, words);
	} else {
		static_assert(N == 1, "halves in pairs, or one");
		*p = from_float<T>(x[0]);
	}
}

inline bool is_aligned(const void *pointer, size_t bytes)
{
	return (uintptr_t)pointer % bytes == 0;
}

/* ---- sums ---- */

/* Joins what the threads of the block have, in an order that depends on nothing: thread 0 gets the result. */
template <typename F> __device__ inline double join_up(double x, F join)
{
	__shared__ double shared[THREADS];
	shared[threadIdx.x] = x;
	for (unsigned half = THREADS / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.x < half)
			shared[threadIdx.x] = x = join(x, shared[threadIdx.x + half]);
	}
	return x;
}

struct sum_of_two {
	__device__ double operator()(double a, double b) const
	{
		return a + b;
	}
};

__device__ inline double add_up(double x)
{
	return join_up(x, sum_of_two());
}

/* A kernel's value of cuda_loss.fault for a label or an index of a row. */
__device__ inline int64_t fault_of(int64_t row, int64_t label)
{
	const int64_t nearest = label < INT32_MIN ? INT32_MIN : label > INT32_MAX ? INT32_MAX : label;
	return (int64_t)((uint64_t)nearest << 32 | (uint32_t)(row + 1));
}

/* ---- eight elements ---- */

constexpr int OCTET = 8;

/* Eight neighbours in a row. One thread handles eight channels for any type, so that it owns whole bytes of a mask. */
template <typename T> struct octet {
	T v[OCTET];

	__device__ float at(int i) const
	{
		return to_float(v[i]);
	}
};

/* VECTOR: p is a multiple of 16 bytes, and all 8 exist. Otherwise the first `valid` exist, and the others read as 0. */
template <bool VECTOR, typename T> __device__ inline octet<T> load_octet(const T *p, int valid)
{
	octet<T> out;
	if constexpr (VECTOR) {
		constexpr int N = 16 / sizeof(T);
#pragma unroll
		for (int i = 0; i < OCTET / N; i++) {
			vector<T, N> part = reinterpret_cast<const vector<T, N> *>(p)[i];
#pragma unroll
			for (int k = 0; k < N; k++)
				out.v[i * N + k] = part.v[k];
		}
	} else {
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			out.v[i] = i < valid ? p[i] : from_float<T>(0);
	}
	return out;
}

template <bool VECTOR, typename T> __device__ inline void store_octet(T *p, int valid, const float (&x)[OCTET])
{
	if constexpr (VECTOR) {
		store_vector(p, x);
	} else {
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			if (i < valid)
				p[i] = from_float<T>(x[i]);
	}
}

/* ---- division by what is known before the launch ---- */

/* n / d as a product, for n below 2^31 and d from 1 to 2^31 (Granlund and Montgomery, PLDI 1994). */
struct divider {
	uint32_t d, multiplier, shift;

	divider() = default;
	explicit divider(uint32_t divisor) : d(divisor), multiplier(0), shift(0)
	{
		while (shift < 31 && (1u << shift) < d)
			shift++;
		multiplier = (uint32_t)((((uint64_t)1 << 32) * (((uint64_t)1 << shift) - d)) / d + 1);
	}
	__host__ __device__ uint32_t divide(uint32_t n) const
	{
		uint32_t high = (uint32_t)((uint64_t)n * multiplier >> 32);
		return (high + n) >> shift;
	}
};

} // namespace cuda_kernels

#endif
