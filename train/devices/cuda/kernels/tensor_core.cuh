/* SPDX-License-Identifier: Apache-2.0
 *
 * Work of the 32 threads of a warp together: products of tensor cores, their operands from shared memory, and shuffles.
 * Also copies to shared memory that go on while the thread does other work. Compute capability 8.0 or newer.
 *
 * In a product of a warp, thread i has of each 8 x 8 matrix the columns i % 4 * 2 and the next one of row i / 4.
 */
#ifndef DTRAIN_CUDA_TENSOR_CORE_CUH
#define DTRAIN_CUDA_TENSOR_CORE_CUH

#include <type_traits>

#include "kernel.cuh"

namespace cuda_kernels
{

/* The major number of the compute capability that tensor_core.cuh needs. */
constexpr int TENSOR_CORE_CAPABILITY = 8;

inline bool has_tensor_cores()
{
	int device = 0, major = 0;
	return cudaGetDevice(&device) == cudaSuccess &&
	       cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
	       major >= TENSOR_CORE_CAPABILITY;
}

#ifndef CUDA_EMULATION

__device__ inline uint32_t shared_address(const void *p)
{
	return (uint32_t)__cvta_generic_to_shared(p);
}

/* The value of thread i ^ mask. */
template <typename V> __device__ inline V exchange(V value, int mask)
{
	return __shfl_xor_sync(0xffffffff, value, mask);
}

/* 2^x; 0 below 2^-126. */
__device__ inline float power_of_two(float x)
{
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define DTRAIN_TENSOR_ASM(...) __trap()
#else
#define DTRAIN_TENSOR_ASM(...) asm volatile(__VA_ARGS__)
#endif

/* Reads four 8 x 8 matrices of a 2-byte type. Thread i says where row i % 8 of matrix i / 8 is, a multiple of 16 bytes.
 * TURNED: rows become columns. */
template <bool TURNED> __device__ inline void load_matrices(uint32_t (&to)[4], const void *row)
{
	const uint32_t at = shared_address(row);
	if constexpr (TURNED)
		DTRAIN_TENSOR_ASM("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
				  : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
				  : "r"(at));
	else
		DTRAIN_TENSOR_ASM("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
				  : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
				  : "r"(at));
}

/* c [16][8] += a [16][16] * b [16][8]. a: rows 0-7 and 8-15 of columns 0-7, then of columns 8-15. low and high: the
 * transposed rows 0-7 and 8-15 of b. c: two numbers of rows 0-7, two of rows 8-15. */
template <typename T>
__device__ inline void add_product(float (&c)[4], const uint32_t (&a)[4], uint32_t low, uint32_t high)
{
	static_assert(sizeof(T) == 2, "products of 2-byte types");
	if constexpr (std::is_same<T, __half>::value)
		DTRAIN_TENSOR_ASM("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
				  "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
				  : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
				  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
	else
		DTRAIN_TENSOR_ASM("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
				  "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
				  : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
				  : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
}

/* Starts to copy 4 or 16 bytes to shared memory; zeros where nothing exists, and then from is not read. */
template <int BYTES> __device__ inline void copy_later(void *to, const void *from, bool exists)
{
	static_assert(BYTES == 4 || BYTES == 16, "a number, or a piece");
	const uint32_t at = shared_address(to);
	if constexpr (BYTES == 16)
		DTRAIN_TENSOR_ASM("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
				  "r"(exists ? BYTES : 0)
				  : "memory");
	else
		DTRAIN_TENSOR_ASM("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from),
				  "r"(exists ? BYTES : 0)
				  : "memory");
}

/* Waits for the thread's own copies; after a barrier all of the block's have ended. */
__device__ inline void wait_for_copies()
{
	DTRAIN_TENSOR_ASM("cp.async.wait_all;" ::: "memory");
}

#undef DTRAIN_TENSOR_ASM
#endif

} // namespace cuda_kernels

#endif
