/* SPDX-License-Identifier: Apache-2.0
 *
 * The largest elements as pairs of index and element, and their sum.
 *
 * A size is the 31 bits of an element without its sign. Three passes find the size of the kth largest element, a digit
 * at a time from the highest: each counts the digits of the elements that agree with the digits found so far, and
 * chooses one. Then each tile of elements is counted, the counts are added up, and a last pass writes the pairs. Counts
 * are integers, so atomic additions have the same result in any order.
 */
#include <cub/block/block_scan.cuh>

#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

constexpr int DIGITS = 3, MOST_BITS = 11, BINS = 1 << MOST_BITS;
constexpr int TILE = THREADS * OCTET;
/* Blocks that a multiprocessor runs at once: each adds its counts to the totals, so more of them cost more. */
constexpr int RESIDENT = 8;

/* The bits of a digit; the bit above the highest digit is the sign. */
struct digit {
	int shift, bits;
};
constexpr digit digits[DIGITS] = {{20, 11}, {10, 10}, {0, 10}};

/* The digits of the kth largest's size that are known, and how many of the elements that have them are among the k. */
struct found {
	uint32_t size, left;
};

/* Elements larger than the kth largest, and as large as it: of a tile, or of all tiles before it. */
struct sides {
	uint32_t larger, equal;
};

struct add_sides {
	__device__ sides operator()(const sides &a, const sides &b) const
	{
		return {a.larger + b.larger, a.equal + b.equal};
	}
};

struct pair {
	int32_t index;
	float value;
};
static_assert(sizeof(pair) == DTRAIN_PAIR_BYTES, "a pair is an index and an element");

typedef cub::BlockScan<uint32_t, THREADS> scan_counts;
typedef cub::BlockScan<sides, THREADS> scan_sides;

/* The elements of a thread; threads past the end have none. */
template <bool VECTOR> __device__ inline octet<float> load(const float *x, int64_t first, int64_t count, int *valid)
{
	const int64_t left = count - first;
	*valid = left < 0 ? 0 : left < OCTET ? (int)left : OCTET;
	return VECTOR && left >= OCTET ? load_octet<VECTOR>(x + first, OCTET) : load_octet<false>(x + first, *valid);
}

/* ---- the size of the kth largest ---- */

template <bool VECTOR>
__global__ void __launch_bounds__(THREADS)
	count_digits(const float *x, int64_t count, digit d, const found *last, unsigned *totals)
{
	__shared__ unsigned counts[BINS];
	const int above = d.shift + d.bits;
	const uint32_t known = last ? last->size >> above : 0;
	for (int bin = threadIdx.x; bin < BINS; bin += THREADS)
		counts[bin] = 0;
	__syncthreads();
	for (int64_t first = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * OCTET; first < count;
	     first += (int64_t)gridDim.x * TILE) {
		int valid;
		const octet<float> part = load<VECTOR>(x, first, count, &valid);
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			const uint32_t size = size_of(part.v[i]);
			if (i < valid && size >> above == known)
				atomicAdd(&counts[size >> d.shift & ((1u << d.bits) - 1)], 1u);
		}
	}
	__syncthreads();
	for (int bin = threadIdx.x; bin < BINS; bin += THREADS)
		if (counts[bin])
			atomicAdd(&totals[bin], counts[bin]);
}

/* One block, whose first thread has the highest bins. last NULL: k are left; it may be next. */
__global__ void __launch_bounds__(THREADS)
	choose_digit(const unsigned *totals, digit d, uint32_t k, const found *last, found *next)
{
	constexpr int EACH = BINS / THREADS;
	__shared__ scan_counts::TempStorage storage;
	const uint32_t left = last ? last->left : k, size = last ? last->size : 0;
	const int top = BINS - 1 - (int)threadIdx.x * EACH;
	uint32_t own = 0, before = 0;
	for (int i = 0; i < EACH; i++)
		own += totals[top - i];
	scan_counts(storage).ExclusiveSum(own, before);
	__syncthreads();
	if (before >= left || before + own < left)
		return;
	int bin = top;
	for (; before + totals[bin] < left; bin--)
		before += totals[bin];
	next->size = size | (uint32_t)bin << d.shift;
	next->left = left - before;
}

/* ---- what is chosen ---- */

__device__ inline sides sides_of(const octet<float> &part, int valid, uint32_t least)
{
	sides out = {0, 0};
#pragma unroll
	for (int i = 0; i < OCTET; i++) {
		out.larger += i < valid && size_of(part.v[i]) > least;
		out.equal += i < valid && size_of(part.v[i]) == least;
	}
	return out;
}

/* Counts before each thread of the block; *all: the block's counts, which every thread gets. */
__device__ inline sides sides_before(const sides &own, sides *all)
{
	__shared__ scan_sides::TempStorage storage;
	sides before;
	scan_sides(storage).ExclusiveScan(own, before, sides{0, 0}, add_sides(), *all);
	return before;
}

template <bool VECTOR>
__global__ void __launch_bounds__(THREADS) count_sides(const float *x, int64_t count, const found *state, sides *tiles)
{
	int valid;
	const octet<float> part = load<VECTOR>(x, (int64_t)blockIdx.x * TILE + threadIdx.x * OCTET, count, &valid);
	sides all;
	sides_before(sides_of(part, valid, state->size), &all);
	if (threadIdx.x == 0)
		tiles[blockIdx.x] = all;
}

/* One block: replaces each tile's counts by the sum before the tile. */
__global__ void __launch_bounds__(THREADS) add_tiles(sides *tiles, int64_t count)
{
	const int64_t each = (count + THREADS - 1) / THREADS, first = threadIdx.x * each;
	const int64_t end = first + each < count ? first + each : count;
	sides own = {0, 0}, all;
	for (int64_t i = first; i < end; i++)
		own = add_sides()(own, tiles[i]);
	sides before = sides_before(own, &all);
	for (int64_t i = first; i < end; i++) {
		const sides tile = tiles[i];
		tiles[i] = before;
		before = add_sides()(before, tile);
	}
}

template <bool VECTOR>
__global__ void __launch_bounds__(THREADS)
	write_pairs(float *x, int64_t count, const found *state, const sides *tiles, pair *pairs)
{
	const found last = *state;
	const int64_t first = (int64_t)blockIdx.x * TILE + threadIdx.x * OCTET;
	int valid;
	const octet<float> part = load<VECTOR>(x, first, count, &valid);
	sides all;
	sides before = add_sides()(tiles[blockIdx.x], sides_before(sides_of(part, valid, last.size), &all));
#pragma unroll
	for (int i = 0; i < OCTET; i++) {
		if (i >= valid)
			break;
		const uint32_t size = size_of(part.v[i]);
		const bool equal = size == last.size, chosen = size > last.size || (equal && before.equal < last.left);
		if (chosen)
			pairs[before.larger + (before.equal < last.left ? before.equal : last.left)] = {
				(int32_t)(first + i), part.v[i]};
		if (chosen || !isfinite(part.v[i]))
			x[first + i] = 0;
		before.larger += size > last.size;
		before.equal += equal;
	}
}

__global__ void __launch_bounds__(THREADS)
	add_pairs(const pair *pairs, int64_t first, int64_t end, float *y, int64_t count, int64_t *fault)
{
	for (int64_t i = first + (int64_t)blockIdx.x * THREADS + threadIdx.x; i < end;
	     i += (int64_t)gridDim.x * THREADS) {
		const pair own = pairs[i];
		if (own.index < 0 || own.index >= count)
			*fault = fault_of(i, own.index);
		else
			y[own.index] += own.value;
	}
}

int64_t tiles_of(int64_t count)
{
	return (count + TILE - 1) / TILE;
}

/* The workspace: the counts of each digit's values, what is found, tiles. */
struct layout {
	unsigned *totals;
	found *state;
	sides *tiles;

	explicit layout(void *workspace)
	{
		totals = (unsigned *)workspace;
		state = (found *)(totals + DIGITS * BINS);
		tiles = (sides *)(state + 1);
	}
};

template <bool VECTOR>
cudaError_t choose_pairs(cudaStream_t stream, float *x, int64_t count, pair *pairs, int64_t k, const layout &at)
{
	const int64_t tiles = tiles_of(count), most = (int64_t)multiprocessors() * RESIDENT;
	cudaError_t status = cudaMemsetAsync(at.totals, 0, DIGITS * BINS * sizeof(*at.totals), stream);
	for (int i = 0; i < DIGITS && status == cudaSuccess; i++) {
		unsigned *totals = at.totals + i * BINS;
		const found *last = i ? at.state : nullptr;
		status = launch(count_digits<VECTOR>, tiles < most ? tiles : most, dim3(THREADS), stream, x, count,
				digits[i], last, totals);
		if (status == cudaSuccess)
			status = launch(choose_digit, 1, dim3(THREADS), stream, totals, digits[i], (uint32_t)k, last,
					at.state);
	}
	if (status == cudaSuccess)
		status = launch(count_sides<VECTOR>, tiles, dim3(THREADS), stream, x, count, at.state, at.tiles);
	if (status == cudaSuccess)
		status = launch(add_tiles, 1, dim3(THREADS), stream, at.tiles, tiles);
	return status == cudaSuccess
		       ? launch(write_pairs<VECTOR>, tiles, dim3(THREADS), stream, x, count, at.state, at.tiles, pairs)
		       : status;
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" size_t cuda_kernel_top_k_workspace(int64_t count)
{
	return DIGITS * BINS * sizeof(unsigned) + sizeof(found) + (size_t)tiles_of(count) * sizeof(sides);
}

extern "C" cudaError_t cuda_kernel_top_k(cudaStream_t stream, float *x, int64_t count, void *pairs, int64_t k,
					 void *workspace)
{
	const layout at(workspace);
	return is_aligned(x, 16) ? choose_pairs<true>(stream, x, count, (pair *)pairs, k, at)
				 : choose_pairs<false>(stream, x, count, (pair *)pairs, k, at);
}

extern "C" cudaError_t cuda_kernel_add_pairs(cudaStream_t stream, const void *pairs, int64_t parts, int64_t k, float *y,
					     int64_t count, int64_t *fault)
{
	cudaError_t status = cudaMemsetAsync(y, 0, (size_t)count * sizeof(*y), stream);
	for (int64_t p = 0; p < parts && status == cudaSuccess; p++)
		status = launch(add_pairs, blocks_of(k), dim3(THREADS), stream, (const pair *)pairs, p * k, p * k + k,
				y, count, fault);
	return status;
}
