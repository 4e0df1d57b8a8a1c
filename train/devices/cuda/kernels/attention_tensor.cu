/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by tensor cores: a block has the queries of its warps, and walks over tiles of keys and values.
 */
#include "attention_tiles.cuh"

namespace cuda_kernels
{
namespace
{

/* A thread's two rows of 16 queries: the largest score, and its own columns' part of the sum of powers. */
struct softmax {
	float most[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
};

/* Replaces scores by powers of two, and scales what was added up for those before. */
template <int N, int COLUMNS>
__device__ inline void update(softmax &s, float (&scores)[N][4], float (&out)[COLUMNS][4], float exponent)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		float next = s.most[r];
#pragma unroll
		for (int n = 0; n < N; n++)
			next = fmaxf(next, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
		next = fmaxf(next, exchange(next, 1));
		next = fmaxf(next, exchange(next, 2));
		const float origin = next > -INFINITY ? next * exponent : 0;
		const float before = power_of_two(s.most[r] * exponent - origin);
		float total = 0;
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int e = 2 * r; e < 2 * r + 2; e++) {
				scores[n][e] = power_of_two(scores[n][e] * exponent - origin);
				total += scores[n][e];
			}
		s.total[r] = s.total[r] * before + total;
		s.most[r] = next;
#pragma unroll
		for (int n = 0; n < COLUMNS; n++) {
			out[n][2 * r] *= before;
			out[n][2 * r + 1] *= before;
		}
	}
}

/* Writes y into a tile, from the warp's row `own` on, and lse, from the query `first` on. */
template <int DIM, typename T, int M>
__device__ inline void finish(T *tile, float *lse, const attention_numbers &numbers, const softmax (&sums)[M],
			      const float (&out)[M][DIM / 8][4], int own, int first, int queries)
{
#pragma unroll
	for (int m = 0; m < M; m++) {
		float factors[2];
#pragma unroll
		for (int r = 0; r < 2; r++) {
			const int query = first + 16 * m + 8 * r + lane_row();
			float total = sums[m].total[r];
			total += exchange(total, 1);
			total += exchange(total, 2);
			factors[r] = total > 0 ? numbers.kept / total : 0;
			if (lse && lane_column() == 0 && query < queries)
				lse[query] = sums[m].most[r] * numbers.scale + logf(total);
		}
		put<DIM>(tile, own + 16 * m, out[m], factors[0], factors[1]);
	}
}

/* Late tiles of queries have the most keys, so they begin first. */
template <typename T, int DIM, int M, bool DROPS>
__global__ void __launch_bounds__(CREW, DIM == NARROW && M == 1 ? 4 : 2)
	attention(cuda_attention a, attention_numbers numbers)
{
	constexpr int ROWS = WARPS * M * 16, N = TILE / 8, STAGE = 2 * TILE * DIM;
	T *const stages = (T *)dynamic_shared();
	const int own = (int)threadIdx.x / WARP * M * 16;
	const int64_t tiles = tiles_of(a.queries, ROWS), rest = blockIdx.x / tiles;
	const int query = (int)(tiles - 1 - blockIdx.x % tiles) * ROWS;
	const head<T> of(a, rest / a.heads, rest % a.heads, nullptr);
	if (a.past)
		a.keys = keys_of(a);
	const sight see(a, of.segment);
	const memory_rows<const T> k = {of.k, a.k_step, (int)a.keys, (int)a.dim}, v = {of.v, a.k_step, k.rows, k.dim};
	const memory_rows<const T> q = {of.q, a.q_step, (int)a.queries, (int)a.dim};
	fetch<DIM, ROWS, in_order>(stages + STAGE, q, query);
	fetch<DIM, TILE, for_columns>(stages, k, 0);
	fetch<DIM, TILE, for_columns>(stages + TILE * DIM, v, 0);
	int position[M][2];
	softmax sums[M];
	left_rows<T, DIM, true> left[M];
	float out[M][DIM / 8][4] = {};
	drops random;
	if constexpr (DROPS)
		random = drops(a, of.batch, of.number, numbers.threshold);
	wait_for_copies();
	__syncthreads();
#pragma unroll
	for (int m = 0; m < M; m++) {
		left[m].take(stages + STAGE, own + 16 * m);
		for (int r = 0; r < 2; r++)
			position[m][r] = see.position(query + own + 16 * m + 8 * r + lane_row());
	}
	const int least = see.last(see.position(query + own)), most = see.last(see.position(query + own + M * 16 - 1));
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
		if (key > most)
			continue;
		const T *const tile = stages + stage * STAGE;
		float scores[M][N][4];
		multiply<N>(scores, left, tile, 0);
#pragma unroll
		for (int m = 0; m < M; m++) {
			if (see.segment || key + TILE - 1 > least)
				hide_keys(scores[m], see, position[m], key);
			update(sums[m], scores[m], out[m], numbers.exponent);
			if constexpr (DROPS) {
				const uint32_t kept = kept_columns<N>(random, position[m], key);
#pragma unroll
				for (int i = 0; i < N * 4; i++)
					if (!is_kept(kept, i / 4, i % 4))
						scores[m][i / 4][i % 4] = 0;
			}
		}
		add_multiplied<DIM>(out, scores, tile + TILE * DIM, 0);
	}
	float *const lse = a.lse ? a.lse + of.index * a.queries : nullptr;
	__syncthreads();
	finish<DIM>(stages, lse, numbers, sums, out, own, query + own, q.rows);
	__syncthreads();
	T *const y = (T *)a.y + of.batch * a.queries * a.y_step + of.number * a.dim;
	store_tile<DIM, ROWS, in_order>({y, a.y_step, q.rows, q.dim}, query, stages);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" bool cuda_kernel_attention_has_tensor_cores(const cuda_attention *a)
{
	const void *const pointers[] = {a->q, a->k, a->v, a->y, a->d_y, a->d_q, a->d_k, a->d_v};
	const int64_t counts[] = {a->dim, a->q_step, a->k_step, a->y_step};
	bool fits = (a->dtype == DTRAIN_F16 || a->dtype == DTRAIN_BF16) && a->dim <= WIDE && a->queries > 0 &&
		    a->queries + a->keys < INT32_MAX - TILE;
	for (const void *pointer : pointers)
		fits = fits && is_aligned(pointer, PIECE * 2);
	for (int64_t count : counts)
		fits = fits && count % PIECE == 0;
	return fits && has_tensor_cores();
}

extern "C" cudaError_t cuda_kernel_attention_tensor(cudaStream_t stream, const cuda_attention *a)
{
	return with_width(a, [&](auto zero, auto wide) {
		typedef decltype(zero) T;
		constexpr int DIM = decltype(wide)::value, M = 1;
		auto kernel = a->random ? attention<T, DIM, M, true> : attention<T, DIM, M, false>;
		return launch_shared(kernel, a->batch * a->heads * tiles_of(a->queries, WARPS * M * 16), dim3(CREW),
				     4 * TILE * DIM * sizeof(T), stream, *a, numbers_of(a));
	});
}
