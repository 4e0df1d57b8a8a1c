/* SPDX-License-Identifier: Apache-2.0
 *
 * The compute copies of all parameters in one launch: a block moves one piece of a part. Elements that keep their order
 * go from memory to memory, 8 a thread. Filters from KCRS to KRSC go through shared memory: a piece is a number of
 * whole rows (the pixels of one channel of one filter), contiguous in x, which is read in order; y is written along the
 * channels.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

/* The parts are parameters of the launch; CUDA 12.0 takes 4 KiB of them. */
constexpr int PIECE = CUDA_CAST_LARGEST_AREA, MOST_PARTS = 72;

struct cast_part {
	int64_t first, count; /* elements */
	uint32_t first_block;
	uint32_t area; /* 1: the order stays */
	uint32_t rows; /* of a whole piece */
	divider by_rows, by_channels;
};

struct cast_parts {
	const float *x;
	void *y;
	int32_t count;
	cast_part list[MOST_PARTS];
};
static_assert(sizeof(cast_parts) <= 4096, "more than the parameters of a launch may have");

__device__ inline int find_part(const cast_parts &parts, uint32_t block)
{
	int low = 0, high = parts.count;
	while (high - low > 1) {
		const int middle = (low + high) / 2;
		(parts.list[middle].first_block <= block ? low : high) = middle;
	}
	return low;
}

template <bool VECTOR, typename Y> __device__ inline void cast_piece(const float *x, Y *y, int count)
{
	constexpr int N = PIECE / (THREADS * OCTET);
	octet<float> in[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int first = (k * THREADS + (int)threadIdx.x) * OCTET;
		const bool whole = VECTOR && count - first >= OCTET;
		in[k] = whole ? load_octet<VECTOR>(x + first, OCTET) : load_octet<false>(x + first, count - first);
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int first = (k * THREADS + (int)threadIdx.x) * OCTET;
		if (VECTOR && count - first >= OCTET)
			store_octet<VECTOR>(y + first, OCTET, in[k].v);
		else
			store_octet<false>(y + first, count - first, in[k].v);
	}
}

/* x: the piece; y: the part; row: the piece's first. */
template <typename Y>
__device__ inline void turn_piece(const cast_part &part, const float *x, Y *y, uint32_t row, uint32_t count,
				  float *tile)
{
	const uint32_t rows = count / part.area, channels = part.by_channels.d;
#pragma unroll 4
	for (uint32_t i = threadIdx.x; i < count; i += THREADS)
		tile[i] = x[i];
	__syncthreads();
#pragma unroll 4
	for (uint32_t i = threadIdx.x; i < part.rows * part.area; i += THREADS) {
		const uint32_t pixel = part.by_rows.divide(i), r = i - pixel * part.rows;
		const uint32_t filter = part.by_channels.divide(row + r), channel = row + r - filter * channels;
		if (r < rows)
			y[((int64_t)filter * part.area + pixel) * channels + channel] =
				from_float<Y>(tile[r * part.area + pixel]);
	}
}

template <bool VECTOR, typename Y> __global__ void __launch_bounds__(THREADS) cast_all(const cast_parts parts)
{
	__shared__ float tile[PIECE];
	const cast_part &part = parts.list[find_part(parts, blockIdx.x)];
	const uint32_t piece = blockIdx.x - part.first_block, whole = part.rows * part.area;
	const int64_t begin = (int64_t)piece * whole, left = part.count - begin;
	const uint32_t count = left < whole ? (uint32_t)left : whole;
	const float *x = parts.x + part.first;
	Y *y = static_cast<Y *>(parts.y) + part.first;
	if (part.area > 1)
		turn_piece(part, x + begin, y, piece * part.rows, count, tile);
	else
		cast_piece<VECTOR>(x + begin, y + begin, (int)count);
}

/* As many rows as fit, a multiple of 32 if possible: then most groups of threads write a row of neighbours. */
uint32_t rows_of_piece(uint32_t area)
{
	const uint32_t rows = PIECE / area;
	return rows < 32 ? rows : rows / 32 * 32;
}

/* Returns the number of blocks. */
int64_t add_part(cast_parts &to, const cuda_cast_part &from, int64_t blocks)
{
	cast_part &part = to.list[to.count++];
	part.first = from.first;
	part.count = from.count;
	part.first_block = (uint32_t)blocks;
	part.area = (uint32_t)from.area;
	part.rows = rows_of_piece(part.area);
	part.by_rows = divider(part.rows);
	part.by_channels = divider((uint32_t)from.channels);
	const int64_t whole = (int64_t)part.rows * part.area;
	return blocks + (from.count + whole - 1) / whole;
}

} // namespace
} // namespace cuda_kernels

extern "C" cudaError_t cuda_kernel_cast_parts(cudaStream_t stream, const float *x, void *y, dtrain_dtype to,
					      const cuda_cast_part *list, int count)
{
	using namespace cuda_kernels;
	const bool vectors = is_aligned(x, 16) && is_aligned(y, 16);
	cudaError_t status = cudaSuccess;
	for (int i = 0; i < count && status == cudaSuccess;) {
		cast_parts parts;
		int64_t blocks = 0;
		parts.x = x;
		parts.y = y;
		for (parts.count = 0; i < count && parts.count < MOST_PARTS; i++)
			blocks = add_part(parts, list[i], blocks);
		status = with_type(to, [&](auto target) {
			typedef decltype(target) Y;
			return launch(vectors ? cast_all<true, Y> : cast_all<false, Y>, blocks, dim3(THREADS), stream,
				      parts);
		});
	}
	return status;
}
