/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by tensor cores (Dao, "FlashAttention-2", 2023), of halves in heads of up to DIM elements: what its kernels
 * share. A block has CREW threads. Each warp has M * 16 rows of its own, the left factors, and walks with the others
 * over tiles of TILE rows, the right factors, which are copied to shared memory while the tile before is in use.
 *
 * The scores of a warp's rows and a tile stay in registers, and are the left factors of the next product. Rows of keys
 * are in tiles in an order that gives a thread four neighbouring keys, because dropout draws four numbers at once.
 */
#ifndef DTRAIN_CUDA_ATTENTION_TILES_CUH
#define DTRAIN_CUDA_ATTENTION_TILES_CUH

#include "attention.cuh"
#include "tensor_core.cuh"

namespace cuda_kernels
{

constexpr int TILE = 64, WARPS = 4, CREW = WARPS * WARP;
constexpr int PIECE = 8; /* elements of 16 bytes, which are read and written whole */
constexpr int NARROW = 64, WIDE = 128;

/* The thread's number in its warp, in the order of an 8 x 8 matrix: its row, and the first of its two columns. */
__device__ inline int lane()
{
	return (int)(threadIdx.x & (WARP - 1));
}
__device__ inline int lane_row()
{
	return lane() >> 2;
}
__device__ inline int lane_column()
{
	return (lane() & 3) * 2;
}

/* Numbers that a launch computes of cuda_attention. */
struct attention_numbers {
	float scale, exponent; /* exponent: the scale of scores for powers of two */
	float kept;            /* dropout's factor of a probability */
	uint32_t threshold;    /* the least number that keeps one */
};

/* Orders of rows in a tile: which row of 16 is at each place. */
struct in_order {
	__device__ static int at(int place)
	{
		return place;
	}
};
/* As right factors: the columns of a thread in two neighbouring matrices are four neighbouring rows. */
struct for_columns {
	__device__ static int at(int place)
	{
		return (place & ~15) + (place >> 1 & 3) * 4 + (place >> 3 & 1) * 2 + (place & 1);
	}
};
/* As left factors: rows i and i + 8 are neighbours. */
struct for_rows {
	__device__ static int at(int place)
	{
		return (place & ~15) + (place & 7) * 2 + (place >> 3 & 1);
	}
};

/* The element that a piece of a row in a tile begins with. Eight neighbouring rows have it in different banks. */
template <int DIM> __device__ inline int place_of(int row, int piece)
{
	return row * DIM + (piece ^ (row & 7)) * PIECE;
}

/* Rows in the GPU's memory, `step` elements apart. */
template <typename T> struct memory_rows {
	T *first;
	int64_t step;
	int rows, dim;
};

/* Starts to copy ROWS rows from number `row` on; zeros where there is nothing. */
template <int DIM, int ROWS, typename ORDER, typename T>
__device__ inline void fetch(T *tile, const memory_rows<const T> &from, int row)
{
	constexpr int PIECES = DIM / PIECE, STEP = CREW / PIECES;
	const int first = (int)(threadIdx.x & (CREW - 1)) / PIECES, piece = (int)(threadIdx.x & (PIECES - 1));
	const int begin = row + ORDER::at(first), end = piece * PIECE < from.dim ? from.rows : 0;
	const T *const start = from.first + begin * from.step + piece * PIECE;
#pragma unroll
	for (int i = 0; i < ROWS / STEP; i++) {
		/* An order moves each bit of a place. */
		const int after = ORDER::at(i * STEP);
		copy_later<16>(tile + place_of<DIM>(i * STEP + first, piece), start + after * from.step,
			       begin + after < end);
	}
}

/* Writes a warp's rows, times a factor for the upper and one for the lower eight, into a tile. */
template <int DIM, typename T>
__device__ inline void put(T *tile, int row, const float (&x)[DIM / 8][4], float upper, float lower)
{
	const int r = row + lane_row();
#pragma unroll
	for (int n = 0; n < DIM / 8; n++) {
		T *const to = tile + place_of<DIM>(r, n) + lane_column();
		*(uint32_t *)to = word_of<T>(x[n][0] * upper, x[n][1] * upper);
		*(uint32_t *)(to + 8 * DIM) = word_of<T>(x[n][2] * lower, x[n][3] * lower);
	}
}

/* Copies ROWS rows of a tile to memory. */
template <int DIM, int ROWS, typename ORDER, typename T>
__device__ inline void store_tile(const memory_rows<T> &to, int row, const T *tile)
{
	constexpr int PIECES = DIM / PIECE, STEP = CREW / PIECES;
	const int first = (int)(threadIdx.x & (CREW - 1)) / PIECES, piece = (int)(threadIdx.x & (PIECES - 1));
#pragma unroll
	for (int i = 0; i < ROWS / STEP; i++) {
		const int place = i * STEP + first, at = row + ORDER::at(place);
		if (at < to.rows && piece * PIECE < to.dim)
			*(uint4 *)(to.first + at * to.step + piece * PIECE) =
				*(const uint4 *)(tile + place_of<DIM>(place, piece));
	}
}

/* ---- products ---- */

/* 16 rows of a tile as left factors: held in registers, or read for each product. */
template <typename T, int DIM, bool HELD> struct left_rows {
	const T *tile;
	int row;

	__device__ void take(const T *from, int first)
	{
		tile = from;
		row = first;
	}
	__device__ void get(uint32_t (&to)[4], int step) const
	{
		load_matrices<false>(to, tile + place_of<DIM>(row + (lane() & 15), 2 * step + (lane() >> 4)));
	}
};
template <typename T, int DIM> struct left_rows<T, DIM, true> {
	uint32_t held[DIM / 16][4];

	__device__ void take(const T *from, int first)
	{
		left_rows<T, DIM, false> there;
		there.take(from, first);
#pragma unroll
		for (int step = 0; step < DIM / 16; step++)
			there.get(held[step], step);
	}
	__device__ void get(uint32_t (&to)[4], int step) const
	{
#pragma unroll
		for (int i = 0; i < 4; i++)
			to[i] = held[step][i];
	}
};

/* out = each left row times rows `row` ... of a tile: N * 8 columns. */
template <int N, int M, typename T, int DIM, bool HELD>
__device__ inline void multiply(float (&out)[M][N][4], const left_rows<T, DIM, HELD> (&left)[M], const T *tile, int row)
{
	const int r = row + (lane() >> 4) * 8 + (lane() & 7);
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int i = 0; i < N * 4; i++)
			out[m][i / 4][i % 4] = 0;
#pragma unroll
	for (int step = 0; step < DIM / 16; step++) {
		uint32_t a[M][4], b[4];
#pragma unroll
		for (int m = 0; m < M; m++)
			left[m].get(a[m], step);
#pragma unroll
		for (int n = 0; n < N; n += 2) {
			load_matrices<false>(b, tile + place_of<DIM>(r + 8 * n, 2 * step + (lane() >> 3 & 1)));
#pragma unroll
			for (int m = 0; m < M; m++) {
				add_product<T>(out[m][n], a[m], b[0], b[1]);
				add_product<T>(out[m][n + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* out += left, rounded, times the columns of rows `row` ... of a tile. */
template <int DIM, typename T, int M, int N>
__device__ inline void add_multiplied(float (&out)[M][DIM / 8][4], const float (&left)[M][N][4], const T *tile, int row)
{
	const int r = row + (lane() & 15);
#pragma unroll
	for (int n = 0; n < N; n += 2) {
		uint32_t a[M][4], b[4];
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int i = 0; i < 4; i++)
				a[m][i] = word_of<T>(left[m][n + i / 2][i % 2 * 2], left[m][n + i / 2][i % 2 * 2 + 1]);
#pragma unroll
		for (int column = 0; column < DIM / 8; column += 2) {
			load_matrices<true>(b, tile + place_of<DIM>(r + 8 * n, column + (lane() >> 4)));
#pragma unroll
			for (int m = 0; m < M; m++) {
				add_product<T>(out[m][column], a[m], b[0], b[1]);
				add_product<T>(out[m][column + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* ---- masks ---- */

/* Which keys queries attend to. */
struct sight {
	int queries, keys;
	int half, first, second; /* positions are first or, from query `half` on, second more than the query */
	int ahead;
	const int32_t *segment;

	__device__ sight(const cuda_attention &a, const int32_t *segment)
	    : queries((int)a.queries), keys((int)a.keys), half(queries / 2),
	      first((int)dtrain__chunk_position(a.chunks, queries, 0)),
	      second((int)dtrain__chunk_position(a.chunks, queries, half) - half),
	      ahead(a.causal ? (int)cuda_kernels::ahead(a) : keys), segment(segment)
	{
	}
	/* Queries after the last one are like it. */
	__device__ int position(int query) const
	{
		const int known = min(query, queries - 1);
		return known + (known < half ? first : second);
	}
	/* The last key that a query at this position can attend to; negative: none. */
	__device__ int last(int position) const
	{
		return min(position + ahead, keys - 1);
	}
};

/* Scores of what the thread's two queries do not attend to become the least; in the order for_columns. */
template <int N>
__device__ inline void hide_keys(float (&scores)[N][4], const sight &see, const int (&position)[2], int key)
{
	const int first = key + 2 * lane_column();
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int last = see.last(position[r]) - first;
#pragma unroll
		for (int i = 0; i < 2 * N; i++)
			if (for_columns::at(i / 2 * 8 + i % 2) > last)
				scores[i / 2][2 * r + i % 2] = -INFINITY;
		if (!see.segment)
			continue;
		const int32_t segment = see.segment[position[r]];
#pragma unroll
		for (int i = 0; i < 2 * N; i++) {
			const int at = for_columns::at(i / 2 * 8 + i % 2);
			if (at <= last && see.segment[first + at] != segment)
				scores[i / 2][2 * r + i % 2] = -INFINITY;
		}
	}
}

/* The same where columns are queries from `query` on and the thread's rows are the keys `key` and key + 1. */
template <int N> __device__ inline void hide_queries(float (&scores)[N][4], const sight &see, int query, int key)
{
#pragma unroll
	for (int i = 0; i < 2 * N; i++) {
		const int row = query + i / 2 * 8 + lane_column() + i % 2;
		const int last = row < see.queries ? see.last(see.position(row)) - key : -1;
		if (last < 0)
			scores[i / 2][i % 2] = -INFINITY;
		if (last < 1)
			scores[i / 2][2 + i % 2] = -INFINITY;
	}
	if (!see.segment || key >= see.keys)
		return;
	const int32_t segments[2] = {see.segment[key], see.segment[min(key + 1, see.keys - 1)]};
#pragma unroll
	for (int i = 0; i < 2 * N; i++) {
		const int32_t segment = see.segment[see.position(query + i / 2 * 8 + lane_column() + i % 2)];
		if (segment != segments[0])
			scores[i / 2][i % 2] = -INFINITY;
		if (segment != segments[1])
			scores[i / 2][2 + i % 2] = -INFINITY;
	}
}

/* ---- dropout ---- */

/* The numbers of one head. */
struct drops {
	uint64_t first, each; /* each: numbers of a head */
	uint32_t keys, threshold, seed[2], step, layer;

	__device__ drops(){};
	__device__ drops(const cuda_attention &a, int64_t batch, int64_t number, uint32_t threshold)
	    : first(first_number(a, batch, number)), each(numbers_of_head(a)), keys((uint32_t)a.keys),
	      threshold(threshold), seed{(uint32_t)a.random[DTRAIN_RANDOM_SEED],
					 (uint32_t)((uint64_t)a.random[DTRAIN_RANDOM_SEED] >> 32)},
	      step((uint32_t)a.random[DTRAIN_RANDOM_STEP]), layer((uint32_t)a.layer)
	{
	}
	__device__ uint32_t draw(uint64_t block) const
	{
		const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), step, layer};
		uint32_t words[4];
		dtrain__philox(counter, seed, words);
		return (words[0] >= threshold ? 1u : 0) | (words[1] >= threshold ? 2u : 0) |
		       (words[2] >= threshold ? 4u : 0) | (words[3] >= threshold ? 8u : 0);
	}
	/* Whether each draw of a multiple of four keys is one call of the generator. */
	__device__ bool is_aligned() const
	{
		return ((uint32_t)first | keys) % 4 == 0;
	}
	/* Bit i: the probability of key + i is kept. key: a multiple of four. Calls of ALIGNED in one loop share the
	 * generator's keys. */
	template <bool ALIGNED> __device__ uint32_t four(int position, int key) const
	{
		const uint64_t at = first + (uint64_t)(uint32_t)position * keys + (uint32_t)key;
		const uint32_t kept = draw(at / 4);
		if constexpr (ALIGNED)
			return kept;
		return (kept | draw(at / 4 + 1) << 4) >> at % 4 & 15;
	}
};

template <int N, bool ALIGNED>
__device__ inline uint32_t draw_columns(const drops &d, const int (&position)[2], int key)
{
	uint32_t kept = 0;
#pragma unroll 1
	for (int i = 0; i < N / 2; i++) {
		const int at = key + 16 * i + 2 * lane_column();
		kept = kept >> 8 | d.four<ALIGNED>(position[0], at) << (N * 4 - 8) |
		       d.four<ALIGNED>(position[1], at) << (N * 4 - 4);
	}
	return kept;
}
/* The thread's bits in N * 8 columns, which are the keys from `key` on, in the order for_columns: see is_kept. */
template <int N> __device__ inline uint32_t kept_columns(const drops &d, const int (&position)[2], int key)
{
	return d.is_aligned() ? draw_columns<N, true>(d, position, key) : draw_columns<N, false>(d, position, key);
}
/* Element e of matrix n. */
__device__ inline bool is_kept(uint32_t kept, int n, int e)
{
	return kept >> (n / 2 * 8 + e / 2 * 4 + n % 2 * 2 + e % 2) & 1;
}

/* Calls f with 16-byte pieces' type of a and the least DIM. */
template <int N> struct width {
	static constexpr int value = N;
};

template <typename F> cudaError_t with_width(const cuda_attention *a, F f)
{
	return with_type(a->dtype, [&](auto zero) {
		if constexpr (sizeof(zero) == 2)
			return a->dim <= NARROW ? f(zero, width<NARROW>()) : f(zero, width<WIDE>());
		else
			return cudaErrorInvalidValue;
	});
}

inline attention_numbers numbers_of(const cuda_attention *a)
{
	const double limit = ceil(a->dropout * 0x1p32);
	const bool none = limit > UINT32_MAX;
	return {(float)a->scale, (float)(a->scale * M_LOG2E), a->random ? none ? 0 : (float)(1 / (1 - a->dropout)) : 1,
		none ? UINT32_MAX : (uint32_t)limit};
}

} // namespace cuda_kernels

#endif
