/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in tiles with an online softmax (Dao, "FlashAttention-2", 2023): no memory grows with queries * keys. A
 * block has one tile of queries, or for the gradients of keys and values one of keys. Products are sums in F32 without
 * tensor cores. For the gradients the probabilities of a tile are found again from lse, once for d_q, and once for d_k
 * and d_v, so that no sum needs atomic additions.
 */
#include "attention.cuh"

namespace cuda_kernels
{
namespace
{

/* Elements of a row that a thread has. Tiles have 2048 elements, whatever the dimension of a head. */
constexpr int EACH = 8;
template <int DIM> constexpr int ROWS = THREADS *EACH / DIM;

/* The padding spreads rows over banks. */
template <int DIM> struct tile {
	float v[ROWS<DIM>][DIM + 1];
};
/* The scores of a tile of queries and a tile of keys. */
template <int DIM> struct scores {
	float v[ROWS<DIM>][ROWS<DIM> + 1];
};

/* The thread's row in a tile, and its first column of each. */
template <int DIM> struct place {
	static constexpr int LANES = DIM / EACH; /* threads of a row */
	int row, lane;

	__device__ place() : row((int)threadIdx.x / LANES), lane((int)threadIdx.x % LANES)
	{
	}
};

/* Rows first ... of memory, whose rows are `step` apart; 0 where there is nothing. */
template <int DIM, typename T>
__device__ inline void load(tile<DIM> &to, const T *from, int64_t step, int64_t first, int64_t rows, int64_t dim)
{
	for (int i = threadIdx.x; i < ROWS<DIM> * DIM; i += THREADS) {
		const int row = i / DIM, column = i % DIM;
		const bool exists = first + row < rows && column < dim;
		to.v[row][column] = exists ? to_float(from[(first + row) * step + column]) : 0;
	}
}

/* Elements of the thread's row. */
template <int DIM, typename T>
__device__ inline void store(T *to, int64_t step, int64_t first, int64_t rows, int64_t dim, const float (&x)[EACH],
			     float factor)
{
	const place<DIM> self;
	for (int e = 0; e < EACH; e++) {
		const int column = self.lane + e * place<DIM>::LANES;
		if (first + self.row < rows && column < dim)
			to[(first + self.row) * step + column] = from_float<T>(x[e] * factor);
	}
}

template <int DIM> __device__ inline float dot(const tile<DIM> &a, int row, const tile<DIM> &b, int other)
{
	float sum = 0;
#pragma unroll 8
	for (int e = 0; e < DIM; e++)
		sum += a.v[row][e] * b.v[other][e];
	return sum;
}

template <typename T>
__device__ inline bool attends(const cuda_attention &a, const head<T> &of, int64_t query, int64_t key)
{
	if (query >= a.queries || key >= a.keys)
		return false;
	const int64_t position = dtrain__chunk_position(a.chunks, a.queries, query);
	if (a.causal && key > position + ahead(a))
		return false;
	return !of.segment || of.segment[position] == of.segment[key];
}

/* The factor that dropout gives the probability of a pair. number: of the head in its sequence. */
__device__ inline float dropped(const cuda_attention &a, int64_t batch, int64_t number, int64_t query, int64_t key)
{
	if (!a.random)
		return 1;
	const int64_t position = dtrain__chunk_position(a.chunks, a.queries, query);
	const uint64_t at = first_number(a, batch, number) + (uint64_t)(position * a.keys + key);
	uint32_t words[4];
	dtrain__philox_at(a.random, a.layer, at / 4, words);
	return words[at % 4] * 0x1p-32 >= a.dropout ? (float)(1 / (1 - a.dropout)) : 0;
}

/* The end of the keys that a tile of queries attends to. */
template <int DIM> __device__ inline int64_t end_of_keys(const cuda_attention &a, int64_t query)
{
	const int64_t last = query + ROWS<DIM> < a.queries ? query + ROWS<DIM> : a.queries;
	const int64_t end = dtrain__chunk_position(a.chunks, a.queries, last - 1) + 1 + ahead(a);
	return a.causal && end < a.keys ? end : a.keys;
}

/* Late tiles of queries have the most keys, so they begin first. */
template <typename T, int DIM> __global__ void __launch_bounds__(THREADS) attention(cuda_attention a)
{
	__shared__ tile<DIM> q, other;         /* other: keys, then values */
	__shared__ scores<DIM> pairs, factors; /* factors: of dropout */
	constexpr int LANES = place<DIM>::LANES, KEYS = ROWS<DIM>;
	const place<DIM> self;
	const int64_t tiles = tiles_of(a.queries, KEYS), rest = blockIdx.x / tiles;
	const int64_t query = (tiles - 1 - blockIdx.x % tiles) * KEYS;
	const head<T> of(a, rest / a.heads, rest % a.heads, nullptr);
	if (a.past)
		a.keys = keys_of(a);
	float most = -INFINITY, total = 0, out[EACH] = {0};
	load<DIM>(q, of.q, a.q_step, query, a.queries, a.dim);
	const int64_t end = end_of_keys<DIM>(a, query);
	for (int64_t key = 0; key < end; key += KEYS) {
		__syncthreads();
		load<DIM>(other, of.k, a.k_step, key, a.keys, a.dim);
		__syncthreads();
		for (int j = self.lane; j < KEYS; j += LANES)
			pairs.v[self.row][j] = attends(a, of, query + self.row, key + j)
						       ? dot<DIM>(q, self.row, other, j) * (float)a.scale
						       : -INFINITY;
		for (int j = self.lane; j < KEYS && a.random; j += LANES)
			factors.v[self.row][j] = dropped(a, of.batch, of.number, query + self.row, key + j);
		__syncthreads();
		load<DIM>(other, of.v, a.k_step, key, a.keys, a.dim);
		float next = most;
		for (int j = 0; j < KEYS; j++)
			next = fmaxf(next, pairs.v[self.row][j]);
		const float before = next > -INFINITY ? expf(most - next) : 1;
		total *= before;
		for (int e = 0; e < EACH; e++)
			out[e] *= before;
		__syncthreads();
		for (int j = 0; j < KEYS; j++) {
			const float score = pairs.v[self.row][j], p = score > -INFINITY ? expf(score - next) : 0;
			total += p;
			const float kept = a.random ? p * factors.v[self.row][j] : p;
#pragma unroll
			for (int e = 0; e < EACH; e++)
				out[e] += kept * other.v[j][self.lane + e * LANES];
		}
		most = next;
	}
	T *y = (T *)a.y + rest / a.heads * a.queries * a.y_step + rest % a.heads * a.dim;
	store<DIM>(y, a.y_step, query, a.queries, a.dim, out, total > 0 ? 1 / total : 0);
	if (a.lse && self.lane == 0 && query + self.row < a.queries)
		a.lse[of.index * a.queries + query + self.row] = most + logf(total);
}

template <typename V>
__global__ void __launch_bounds__(THREADS)
	cache_rows(const V *from, V *to, int64_t batch, int64_t rows, int64_t to_rows, int64_t columns,
		   const int64_t *past, int64_t *fault)
{
	const int64_t first = *past, count = rows * columns;
	if (first < 0 || first > to_rows - rows) {
		if (blockIdx.x == 0 && threadIdx.x == 0)
			*fault = fault_of(0, first);
		return;
	}
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < batch * count;
	     i += (int64_t)gridDim.x * THREADS)
		to[(i / count * to_rows + first) * columns + i % count] = from[i];
}

template <typename V>
cudaError_t launch_cache_rows(cudaStream_t stream, const void *from, void *to, int64_t batch, int64_t rows,
			      int64_t to_rows, int64_t columns, const int64_t *past, int64_t *fault)
{
	columns /= (int64_t)sizeof(V);
	return launch(cache_rows<V>, blocks_of(batch * rows * columns), dim3(THREADS), stream, (const V *)from, (V *)to,
		      batch, rows, to_rows, columns, past, fault);
}

/* out[batch][head][query] = sum of d_y * y, one thread each. */
template <typename T> __global__ void __launch_bounds__(THREADS) row_products(cuda_attention a, float *out)
{
	const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, heads = i / a.queries;
	if (heads >= a.batch * a.heads)
		return;
	const int64_t row = heads / a.heads * a.queries + i % a.queries;
	const int64_t at = row * a.y_step + heads % a.heads * a.dim;
	float sum = 0;
	for (int64_t e = 0; e < a.dim; e++)
		sum += to_float(((const T *)a.y)[at + e]) * to_float(((const T *)a.d_y)[at + e]);
	out[i] = sum;
}

/* Computes a pair of tiles: the probabilities after dropout, and the gradients of the scores before scaling. */
template <typename T, int DIM>
__device__ inline void find_pairs(const cuda_attention &a, const head<T> &of, const tile<DIM> &q, const tile<DIM> &d_y,
				  const tile<DIM> &k, const tile<DIM> &v, int64_t query, int64_t key,
				  scores<DIM> *probabilities, scores<DIM> &gradients)
{
	const place<DIM> self;
	for (int j = self.lane; j < ROWS<DIM>; j += place<DIM>::LANES) {
		const int64_t i = query + self.row;
		float p = 0, d = 0;
		if (attends(a, of, i, key + j)) {
			const float factor = dropped(a, of.batch, of.number, i, key + j);
			p = expf(dot<DIM>(q, self.row, k, j) * (float)a.scale - of.lse[i]);
			d = p * (factor * dot<DIM>(d_y, self.row, v, j) - of.own[i]) * (float)a.scale;
			p *= factor;
		}
		if (probabilities)
			probabilities->v[self.row][j] = p;
		gradients.v[self.row][j] = d;
	}
}

template <typename T, int DIM>
__global__ void __launch_bounds__(THREADS) query_gradients(cuda_attention a, const float *products)
{
	__shared__ tile<DIM> q, d_y, k, v;
	__shared__ scores<DIM> gradients;
	constexpr int LANES = place<DIM>::LANES, KEYS = ROWS<DIM>;
	const place<DIM> self;
	const int64_t tiles = tiles_of(a.queries, KEYS), rest = blockIdx.x / tiles;
	const int64_t query = (tiles - 1 - blockIdx.x % tiles) * KEYS;
	const head<T> of(a, rest / a.heads, rest % a.heads, products);
	float out[EACH] = {0};
	load<DIM>(q, of.q, a.q_step, query, a.queries, a.dim);
	load<DIM>(d_y, of.d_y, a.y_step, query, a.queries, a.dim);
	const int64_t end = end_of_keys<DIM>(a, query);
	for (int64_t key = 0; key < end; key += KEYS) {
		__syncthreads();
		load<DIM>(k, of.k, a.k_step, key, a.keys, a.dim);
		load<DIM>(v, of.v, a.k_step, key, a.keys, a.dim);
		__syncthreads();
		find_pairs<T, DIM>(a, of, q, d_y, k, v, query, key, nullptr, gradients);
		__syncthreads();
		for (int j = 0; j < KEYS; j++)
#pragma unroll
			for (int e = 0; e < EACH; e++)
				out[e] += gradients.v[self.row][j] * k.v[j][self.lane + e * LANES];
	}
	T *d_q = (T *)a.d_q + rest / a.heads * a.queries * a.q_step + rest % a.heads * a.dim;
	store<DIM>(d_q, a.q_step, query, a.queries, a.dim, out, 1);
}

template <typename T, int DIM>
__global__ void __launch_bounds__(THREADS) key_gradients(cuda_attention a, const float *products)
{
	__shared__ tile<DIM> q, d_y, k, v;
	__shared__ scores<DIM> probabilities, gradients;
	constexpr int LANES = place<DIM>::LANES, KEYS = ROWS<DIM>;
	const place<DIM> self;
	const int64_t tiles = tiles_of(a.keys, KEYS), rest = blockIdx.x / tiles, key = blockIdx.x % tiles * KEYS;
	const int64_t batch = rest / a.kv_heads, kv_head = rest % a.kv_heads, group = a.heads / a.kv_heads;
	const head<T> first(a, batch, kv_head * group, products);
	/* The first query that attends to one of these keys, or to some before. */
	int64_t begin = a.causal ? dtrain__chunk_row(a.chunks, a.queries, key - ahead(a)) : 0;
	begin = begin / KEYS * KEYS;
	float of_k[EACH] = {0}, of_v[EACH] = {0};
	load<DIM>(k, first.k, a.k_step, key, a.keys, a.dim);
	load<DIM>(v, first.v, a.k_step, key, a.keys, a.dim);
	for (int64_t number = 0; number < group; number++) {
		const head<T> of(a, batch, kv_head * group + number, products);
		for (int64_t query = begin; query < a.queries; query += KEYS) {
			__syncthreads();
			load<DIM>(q, of.q, a.q_step, query, a.queries, a.dim);
			load<DIM>(d_y, of.d_y, a.y_step, query, a.queries, a.dim);
			__syncthreads();
			find_pairs<T, DIM>(a, of, q, d_y, k, v, query, key, &probabilities, gradients);
			__syncthreads();
			for (int i = 0; i < KEYS; i++) {
				const float p = probabilities.v[i][self.row], d = gradients.v[i][self.row];
#pragma unroll
				for (int e = 0; e < EACH; e++) {
					of_k[e] += d * q.v[i][self.lane + e * LANES];
					of_v[e] += p * d_y.v[i][self.lane + e * LANES];
				}
			}
		}
	}
	const int64_t at = batch * a.keys * a.k_step + kv_head * a.dim;
	store<DIM>((T *)a.d_k + at, a.k_step, key, a.keys, a.dim, of_k, 1);
	store<DIM>((T *)a.d_v + at, a.k_step, key, a.keys, a.dim, of_v, 1);
}

template <int N> struct dimension {
	static constexpr int value = N;
};

/* Calls f with a value of the type and the least dimension of tiles. */
template <typename F> cudaError_t with_dim(const cuda_attention *a, F f)
{
	if (a->dim > CUDA_ATTENTION_LARGEST_DIM)
		return cudaErrorInvalidValue;
	return with_type(a->dtype, [&](auto zero) {
		if (a->dim <= 64)
			return f(zero, dimension<64>());
		return a->dim <= 128 ? f(zero, dimension<128>()) : f(zero, dimension<256>());
	});
}

int64_t blocks_for(int64_t sequences, int64_t rows, int each)
{
	return sequences * ((rows + each - 1) / each);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_attention(cudaStream_t stream, const cuda_attention *a)
{
	if (cuda_kernel_attention_has_tensor_cores(a))
		return cuda_kernel_attention_tensor(stream, a);
	return with_dim(a, [&](auto zero, auto dim) {
		typedef decltype(zero) T;
		constexpr int DIM = decltype(dim)::value;
		return launch(attention<T, DIM>, blocks_for(a->batch * a->heads, a->queries, ROWS<DIM>), dim3(THREADS),
			      stream, *a);
	});
}

extern "C" cudaError_t cuda_kernel_cache_rows(cudaStream_t stream, const void *from, void *to, int64_t batch,
					      int64_t rows, int64_t to_rows, int64_t columns, const int64_t *past,
					      int64_t *fault)
{
	if (columns % 16 == 0 && is_aligned(from, 16) && is_aligned(to, 16))
		return launch_cache_rows<uint4>(stream, from, to, batch, rows, to_rows, columns, past, fault);
	return launch_cache_rows<uint16_t>(stream, from, to, batch, rows, to_rows, columns, past, fault);
}

extern "C" cudaError_t cuda_kernel_attention_bwd(cudaStream_t stream, const cuda_attention *a, void *workspace)
{
	if (cuda_kernel_attention_has_tensor_cores(a))
		return cuda_kernel_attention_tensor_bwd(stream, a, workspace);
	float *products = (float *)workspace;
	return with_dim(a, [&](auto zero, auto dim) {
		typedef decltype(zero) T;
		constexpr int DIM = decltype(dim)::value;
		const int64_t rows = a->batch * a->heads * a->queries;
		cudaError_t status =
			launch(row_products<T>, (rows + THREADS - 1) / THREADS, dim3(THREADS), stream, *a, products);
		if (status == cudaSuccess)
			status = launch(query_gradients<T, DIM>, blocks_for(a->batch * a->heads, a->queries, ROWS<DIM>),
					dim3(THREADS), stream, *a, products);
		if (status == cudaSuccess)
			status = launch(key_gradients<T, DIM>, blocks_for(a->batch * a->kv_heads, a->keys, ROWS<DIM>),
					dim3(THREADS), stream, *a, products);
		return status;
	});
}
