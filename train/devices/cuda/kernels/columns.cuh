/* SPDX-License-Identifier: Apache-2.0
 *
 * Divides one or several matrices [rows][channels], such as NHWC pictures, among blocks and threads. A thread has 8
 * neighbouring channels, and rows of its block at a fixed distance. Threads that are neighbours in x have neighbouring
 * channels, so a warp reads runs of 128 bytes and more.
 */
#ifndef DTRAIN_CUDA_COLUMNS_CUH
#define DTRAIN_CUDA_COLUMNS_CUH

#include "kernel.cuh"

namespace cuda_kernels
{

/* A block has as many groups of channels as it has threads in x, and one of the chunks of rows. */
struct columns {
	int64_t rows, channels;
	int64_t chunk; /* rows in a chunk; the last one may have fewer */
	uint32_t groups, chunks;
	dim3 threads;
	int64_t blocks;

	/* Bytes of a mask for one row. */
	__device__ int64_t mask_bytes() const
	{
		return (channels + OCTET - 1) / OCTET;
	}
};

/* per_multiprocessor: wanted blocks. least: rows per thread, if there are as many. */
inline columns columns_of(int64_t batch, int64_t rows, int64_t channels, int per_multiprocessor, int least)
{
	columns g;
	g.rows = rows;
	g.channels = channels;
	int64_t octets = (channels + OCTET - 1) / OCTET;
	unsigned wide = 1;
	while (wide < 8 && wide < octets)
		wide *= 2;
	/* Wider for longer runs, unless more threads would be idle. */
	auto padded = [&](unsigned x) { return (octets + x - 1) / x * x; };
	while (wide >= 8 && wide < 32 && padded(2 * wide) == padded(wide))
		wide *= 2;
	g.threads = dim3(wide, THREADS / wide);
	g.groups = (uint32_t)((octets + wide - 1) / wide);
	int64_t others = batch * g.groups, wanted = (int64_t)multiprocessors() * per_multiprocessor / others;
	int64_t most = rows / ((int64_t)g.threads.y * least), chunks = wanted < most ? wanted : most;
	chunks = chunks < 1 ? 1 : chunks;
	g.chunk = (rows + chunks - 1) / chunks;
	g.chunks = (uint32_t)((rows + g.chunk - 1) / g.chunk);
	g.blocks = others * g.chunks;
	return g;
}

/* The part of one thread. valid: number of its 8 channels that exist; may be 0 or less. */
struct share {
	int64_t first, end; /* rows of its block */
	int64_t channel;
	int valid;
	uint32_t chunk, batch;

	__device__ explicit share(const columns &g)
	{
		uint32_t group = blockIdx.x % g.groups, rest = blockIdx.x / g.groups;
		chunk = rest % g.chunks;
		batch = rest / g.chunks;
		first = chunk * g.chunk;
		end = first + g.chunk < g.rows ? first + g.chunk : g.rows;
		channel = ((int64_t)group * blockDim.x + threadIdx.x) * OCTET;
		int64_t left = g.channels - channel;
		valid = left < OCTET ? (int)left : OCTET;
	}
};

/* Adds the values of each column's threads; those with y 0 get the sums. All threads of the block must call it. */
template <int N> __device__ inline void add_up(float (&x)[N])
{
	__shared__ float shared[N][THREADS];
	const unsigned self = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
	for (int i = 0; i < N; i++)
		shared[i][self] = x[i];
	for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.y < half)
#pragma unroll
			for (int i = 0; i < N; i++)
				shared[i][self] = x[i] += shared[i][self + half * blockDim.x];
	}
}

inline bool is_vector(int64_t channels)
{
	return channels % OCTET == 0;
}
template <typename... Others> bool is_vector(int64_t channels, const void *pointer, Others... others)
{
	return is_aligned(pointer, 16) && is_vector(channels, others...);
}

/* Calls f with a compile-time constant: vector accesses, or one element at a time. */
template <bool VALUE> struct constant {
	static constexpr bool value = VALUE;
};
template <typename F> cudaError_t with_bool(bool value, F f)
{
	return value ? f(constant<true>()) : f(constant<false>());
}

} // namespace cuda_kernels

#endif
