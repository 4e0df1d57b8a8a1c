/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradients of attention by tensor cores. The probabilities are found again from lse, once for d_q by blocks that
 * have queries and walk over keys, and once for d_k and d_v by blocks that have keys and walk over queries: seven
 * products in place of five, but no sum needs atomic additions, so that each is in a fixed order.
 */
#include <float.h>

#include "attention_tiles.cuh"

namespace cuda_kernels
{
namespace
{

/* Scores are computed for so many columns of a tile at a time, which limits registers. */
constexpr int PART = 32, N = PART / 8;
constexpr int ROWS = WARPS * 16; /* of a block */
static_assert(ROWS == TILE, "a tile of left factors is one of right factors");

template <int DIM, int PER_NARROW> constexpr int BLOCKS = DIM == NARROW ? PER_NARROW : 2;

/* lse for powers of two. A query that attends to no key has minus infinity, as its scores do. */
__device__ inline float origin_of(float lse)
{
	return fmaxf(lse * (float)M_LOG2E, -FLT_MAX);
}

/* ---- the gradient of queries ---- */

/* own[r] = sum of d_y * y of row query + r, which the other kernel reads from products. */
template <int DIM, typename T>
__device__ inline void multiply_rows(float *own, float *products, const memory_rows<const T> &y, const T *d_y,
				     int query)
{
	constexpr int PIECES = DIM / PIECE, STEP = CREW / PIECES;
	const int first = (int)(threadIdx.x & (CREW - 1)) / PIECES, piece = (int)(threadIdx.x & (PIECES - 1));
#pragma unroll
	for (int i = 0; i < ROWS / STEP; i++) {
		const int place = i * STEP + first, row = query + place;
		float sum = 0;
		if (row < y.rows && piece * PIECE < y.dim) {
			const octet<T> a = load_octet<true>(y.first + row * y.step + piece * PIECE, PIECE);
			const octet<T> b = load_octet<true>(d_y + place_of<DIM>(place, piece), PIECE);
#pragma unroll
			for (int e = 0; e < PIECE; e++)
				sum += a.at(e) * b.at(e);
		}
#pragma unroll
		for (int other = 1; other < PIECES; other *= 2)
			sum += exchange(sum, other);
		if (piece == 0)
			own[place] = sum;
		if (piece == 0 && row < y.rows)
			products[row] = sum;
	}
}

/* A thread's two queries. */
struct two_queries {
	int position[2];
	float origin[2], own[2];
};

/* Scores become the gradients of scores before scaling. d: gradients of probabilities. */
template <bool DROPS>
__device__ inline void differentiate(float (&scores)[N][4], const float (&d)[N][4], const two_queries &q,
				     const attention_numbers &numbers, uint32_t kept)
{
#pragma unroll
	for (int i = 0; i < 4 * N; i++) {
		const int n = i / 4, e = i % 4;
		const float gradient = DROPS ? is_kept(kept, n, e) ? d[n][e] * numbers.kept : 0 : d[n][e];
		scores[n][e] =
			power_of_two(scores[n][e] * numbers.exponent - q.origin[e / 2]) * (gradient - q.own[e / 2]);
	}
}

template <typename T, int DIM, bool DROPS>
__global__ void __launch_bounds__(CREW, BLOCKS<DIM, 4>)
	query_gradients(cuda_attention a, attention_numbers numbers, float *products)
{
	constexpr int STAGE = 2 * TILE * DIM;
	__shared__ float own[ROWS];
	T *const stages = (T *)dynamic_shared();
	const int64_t tiles = tiles_of(a.queries, ROWS), rest = blockIdx.x / tiles;
	const int query = (int)(tiles - 1 - blockIdx.x % tiles) * ROWS, mine = (int)threadIdx.x / WARP * 16;
	const head<T> of(a, rest / a.heads, rest % a.heads, products);
	const sight see(a, of.segment);
	const memory_rows<const T> k = {of.k, a.k_step, see.keys, (int)a.dim}, v = {of.v, a.k_step, k.rows, k.dim};
	const memory_rows<const T> y = {(const T *)a.y + (of.d_y - (const T *)a.d_y), a.y_step, see.queries, k.dim};
	T *const d_y = stages + STAGE + TILE * DIM;
	fetch<DIM, TILE, in_order>(stages + STAGE, memory_rows<const T>{of.q, a.q_step, y.rows, y.dim}, query);
	fetch<DIM, TILE, in_order>(d_y, memory_rows<const T>{of.d_y, a.y_step, y.rows, y.dim}, query);
	fetch<DIM, TILE, for_columns>(stages, k, 0);
	fetch<DIM, TILE, for_columns>(stages + TILE * DIM, v, 0);
	left_rows<T, DIM, true> left[1], right[1];
	two_queries both;
	float out[1][DIM / 8][4] = {};
	drops random;
	if constexpr (DROPS)
		random = drops(a, of.batch, of.number, numbers.threshold);
	wait_for_copies();
	__syncthreads();
	left[0].take(stages + STAGE, mine);
	right[0].take(d_y, mine);
	multiply_rows<DIM>(own, products + of.index * a.queries, y, d_y, query);
	__syncthreads();
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = mine + 8 * r + lane_row();
		both.position[r] = see.position(query + row);
		both.origin[r] = query + row < y.rows ? origin_of(of.lse[query + row]) : 0;
		both.own[r] = own[row];
	}
	const int least = see.last(see.position(query + mine)), most = see.last(see.position(query + mine + 15));
	const int end = see.last(see.position(query + ROWS - 1)) + 1;
#pragma unroll 1
	for (int key = 0, stage = 0; key < end; key += TILE, stage ^= 1) {
		wait_for_copies();
		__syncthreads();
		if (key + TILE < end) {
			T *const next = stages + (stage ^ 1) * STAGE;
			fetch<DIM, TILE, for_columns>(next, k, key + TILE);
			fetch<DIM, TILE, for_columns>(next + TILE * DIM, v, key + TILE);
		}
		const T *const tile = stages + stage * STAGE;
#pragma unroll 1
		for (int part = 0; part < TILE && key + part <= most; part += PART) {
			float scores[1][N][4], gradients[1][N][4];
			uint32_t kept = 0;
			if constexpr (DROPS)
				kept = kept_columns<N>(random, both.position, key + part);
			multiply<N>(scores, left, tile, part);
			multiply<N>(gradients, right, tile + TILE * DIM, part);
			if (see.segment || key + part + PART - 1 > least)
				hide_keys(scores[0], see, both.position, key + part);
			differentiate<DROPS>(scores[0], gradients[0], both, numbers, kept);
			add_multiplied<DIM>(out, scores, tile, part);
		}
	}
	__syncthreads();
	put<DIM>(stages, mine, out[0], numbers.scale, numbers.scale);
	__syncthreads();
	T *const d_q = (T *)a.d_q + of.batch * a.queries * a.q_step + of.number * a.dim;
	store_tile<DIM, ROWS, in_order>(memory_rows<T>{d_q, a.q_step, y.rows, y.dim}, query, stages);
}

/* ---- the gradients of keys and values ---- */

/* For one column of the thread in each matrix: see kept_rows. */
template <bool ALIGNED> __device__ inline uint32_t draw_rows(const drops &d, const sight &see, int query, int key)
{
	uint32_t kept = 0;
#pragma unroll 2
	for (int n = 0; n < N; n++)
		kept = kept >> 4 | d.four<ALIGNED>(see.position(query + 8 * n), key) << (N * 4 - 4);
	return kept;
}

/* The thread's bits in N * 8 columns, the queries from `query` on: bit 4 n + r of bits[i] is for row r and column i of
 * matrix n. Two threads have the same four keys, so each draws the numbers of one column for both. */
__device__ inline void kept_rows(uint32_t (&bits)[2], const drops &d, const sight &see, int query, int key)
{
	const int odd = lane_row() & 1, column = query + lane_column() + odd, row = key + lane_row() / 2 * 4;
	const uint32_t mine =
		d.is_aligned() ? draw_rows<true>(d, see, column, row) : draw_rows<false>(d, see, column, row);
	const uint32_t other = exchange(mine, WARP / 8);
	bits[0] = (odd ? other : mine) >> 2 * odd;
	bits[1] = (odd ? mine : other) >> 2 * odd;
}

/* Numbers of the queries of a tile. */
struct of_queries {
	float lse[TILE], own[TILE];
};

/* Scores become probabilities after dropout. d, gradients of probabilities, becomes gradients of scores. */
template <bool DROPS>
__device__ inline void differentiate(float (&scores)[N][4], float (&d)[N][4], const float *lse, const float *own,
				     const attention_numbers &numbers, const uint32_t (&kept)[2])
{
#pragma unroll
	for (int n = 0; n < N; n++) {
		const float2 powers = *(const float2 *)(lse + 8 * n + lane_column());
		const float2 products = *(const float2 *)(own + 8 * n + lane_column());
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float origin = origin_of(e % 2 ? powers.y : powers.x);
			const float product = e % 2 ? products.y : products.x;
			const float p = power_of_two(scores[n][e] * numbers.exponent - origin);
			const bool stays = !DROPS || (kept[e % 2] >> (4 * n + e / 2) & 1);
			const float gradient = DROPS ? stays ? d[n][e] * numbers.kept : 0 : d[n][e];
			scores[n][e] = stays ? p : 0;
			d[n][e] = p * (gradient - product);
		}
	}
}

/* The memory of a block: the keys and values unless they are in registers, two stages of q and d_y, and lse and own. */
template <typename T, int DIM> struct block_memory {
	static constexpr bool HELD = DIM == NARROW;
	static constexpr int STAGE = 2 * TILE * DIM, BESIDE = HELD ? 0 : STAGE;
	static constexpr size_t BYTES = (2 * STAGE + BESIDE) * sizeof(T) + 2 * sizeof(of_queries);
	T *const left, *const stages;
	of_queries *const numbers;

	__device__ block_memory(void *memory)
	    : left((T *)memory + (HELD ? STAGE : 2 * STAGE)), stages((T *)memory),
	      numbers((of_queries *)((T *)memory + 2 * STAGE + BESIDE))
	{
	}
	/* Starts to copy the block's keys and values. */
	__device__ void fetch_keys(const cuda_attention &a, const head<T> &of, int key) const
	{
		const memory_rows<const T> k = {of.k, a.k_step, (int)a.keys, (int)a.dim},
					   v = {of.v, a.k_step, k.rows, k.dim};
		fetch<DIM, TILE, for_rows>(left, k, key);
		fetch<DIM, TILE, for_rows>(left + TILE * DIM, v, key);
	}
	/* Starts to copy a tile of queries. */
	__device__ void fetch_queries(const cuda_attention &a, const head<T> &of, int number, int query,
				      int stage) const
	{
		const int rows = (int)a.queries, row = (int)threadIdx.x % TILE;
		const memory_rows<const T> q = {of.q + number * a.dim, a.q_step, rows, (int)a.dim};
		const memory_rows<const T> d_y = {of.d_y + number * a.dim, a.y_step, rows, (int)a.dim};
		const bool is_lse = threadIdx.x < TILE, exists = query + row < rows;
		const float *from = (is_lse ? of.lse : of.own) + number * a.queries;
		fetch<DIM, TILE, in_order>(stages + stage * STAGE, q, query);
		fetch<DIM, TILE, in_order>(stages + stage * STAGE + TILE * DIM, d_y, query);
		copy_later<4>((is_lse ? numbers[stage].lse : numbers[stage].own) + row,
			      exists ? from + query + row : from, exists);
	}
};

template <typename T, int DIM, bool DROPS>
__global__ void __launch_bounds__(CREW, BLOCKS<DIM, 3>)
	key_gradients(cuda_attention a, attention_numbers numbers, const float *products)
{
	typedef block_memory<T, DIM> block;
	constexpr int STAGE = block::STAGE;
	const block memory(dynamic_shared());
	const int64_t tiles = tiles_of(a.keys, ROWS), rest = blockIdx.x / tiles;
	const int key = (int)(blockIdx.x % tiles) * ROWS, mine = (int)threadIdx.x / WARP * 16;
	const int group = (int)(a.heads / a.kv_heads);
	const head<T> of(a, rest / a.kv_heads, rest % a.kv_heads * group, products);
	const sight see(a, of.segment);
	/* The first query that attends to one of these keys, or to some before. */
	const int64_t reached = a.causal ? dtrain__chunk_row(a.chunks, a.queries, key - ahead(a)) : 0;
	const int begin = (int)reached / TILE * TILE, count = (int)tiles_of(a.queries - begin, TILE);
	memory.fetch_keys(a, of, key);
	if (count > 0)
		memory.fetch_queries(a, of, 0, begin, 0);
	left_rows<T, DIM, block::HELD> k[1], v[1];
	float d_k[1][DIM / 8][4] = {}, d_v[1][DIM / 8][4] = {};
	drops random;
	if constexpr (DROPS)
		random = drops(a, of.batch, of.number, numbers.threshold);
	wait_for_copies();
	__syncthreads();
	k[0].take(memory.left, mine);
	v[0].take(memory.left + TILE * DIM, mine);
	const int own = key + mine + 2 * lane_row(); /* the thread's first key */
	int number = 0, query = begin, stage = 0;
#pragma unroll 1
	for (int left = group * count; left > 0; left--, stage ^= 1) {
		const int current = query;
		wait_for_copies();
		__syncthreads();
		query += TILE;
		if (query >= see.queries) {
			query = begin;
			number++;
		}
		if (left > 1)
			memory.fetch_queries(a, of, number, query, stage ^ 1);
		const T *const tile = memory.stages + stage * STAGE;
#pragma unroll 1
		for (int part = 0; part < TILE; part += PART) {
			const int first = current + part;
			if (first >= see.queries || see.last(see.position(first + PART - 1)) < key + mine)
				continue;
			float scores[1][N][4], gradients[1][N][4];
			uint32_t kept[2] = {0, 0};
			if constexpr (DROPS)
				kept_rows(kept, random, see, first, key + mine);
			multiply<N>(scores, k, tile, part);
			multiply<N>(gradients, v, tile + TILE * DIM, part);
			if (see.segment || first + PART > see.queries ||
			    see.last(see.position(first)) < key + mine + 15)
				hide_queries(scores[0], see, first, own);
			differentiate<DROPS>(scores[0], gradients[0], memory.numbers[stage].lse + part,
					     memory.numbers[stage].own + part, numbers, kept);
			add_multiplied<DIM>(d_v, scores, tile + TILE * DIM, part);
			add_multiplied<DIM>(d_k, gradients, tile, part);
		}
		if constexpr (DROPS)
			if (query == begin)
				random.first += (uint64_t)random.each;
	}
	__syncthreads();
	put<DIM>(memory.stages, mine, d_k[0], numbers.scale, numbers.scale);
	put<DIM>(memory.stages + TILE * DIM, mine, d_v[0], numbers.kept, numbers.kept);
	__syncthreads();
	const int64_t at = of.k - (const T *)a.k;
	const memory_rows<T> to_k = {(T *)a.d_k + at, a.k_step, see.keys, (int)a.dim};
	const memory_rows<T> to_v = {(T *)a.d_v + at, a.k_step, see.keys, (int)a.dim};
	store_tile<DIM, ROWS, for_rows>(to_k, key, memory.stages);
	store_tile<DIM, ROWS, for_rows>(to_v, key, memory.stages + TILE * DIM);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_attention_tensor_bwd(cudaStream_t stream, const cuda_attention *a, void *workspace)
{
	float *const products = (float *)workspace;
	const attention_numbers numbers = numbers_of(a);
	return with_width(a, [&](auto zero, auto wide) {
		typedef decltype(zero) T;
		constexpr int DIM = decltype(wide)::value;
		auto of_queries = a->random ? query_gradients<T, DIM, true> : query_gradients<T, DIM, false>;
		auto of_keys = a->random ? key_gradients<T, DIM, true> : key_gradients<T, DIM, false>;
		const cudaError_t status =
			launch_shared(of_queries, a->batch * a->heads * tiles_of(a->queries, ROWS), dim3(CREW),
				      4 * TILE * DIM * sizeof(T), stream, *a, numbers, products);
		if (status != cudaSuccess)
			return status;
		return launch_shared(of_keys, a->batch * a->kv_heads * tiles_of(a->keys, ROWS), dim3(CREW),
				     block_memory<T, DIM>::BYTES, stream, *a, numbers, products);
	});
}
