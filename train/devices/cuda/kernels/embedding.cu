/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a table by index, and the table's gradient. For the gradient the index is sorted, 6 bits at a time and
 * keeping the order of equal ones, so that the sum of each row has a fixed order without atomic additions.
 */
#include "columns.cuh"

namespace cuda_kernels
{
namespace
{

constexpr int BITS = 6, DIGITS = 1 << BITS, EACH = 8, TILE = EACH * THREADS;
/* Gradients of one row that one thread adds for 8 columns. Rows with more have a block of their own. */
constexpr int LONG = 64;

/* Whether the whole table has it. */
__device__ inline bool is_row(const cuda_table &table, int64_t index)
{
	return index >= 0 && index < table.all;
}

template <typename W, typename T, typename I, bool VECTOR>
__global__ void __launch_bounds__(THREADS) embedding(columns g, cuda_table table, const W *w, const I *index, T *y)
{
	const share s(g);
	if (s.valid <= 0)
		return;
	for (int64_t row = s.first + threadIdx.y; row < s.end; row += blockDim.y) {
		const int64_t from = index[row] - table.first;
		float out[OCTET] = {0};
		if (from >= 0 && from < table.table_rows) {
			const octet<W> part = load_octet<VECTOR>(w + from * g.channels + s.channel, s.valid);
#pragma unroll
			for (int i = 0; i < OCTET; i++)
				out[i] = part.at(i);
		} else if (s.channel == 0 && !is_row(table, index[row])) {
			*table.fault = fault_of(row, index[row]);
		}
		store_octet<VECTOR>(y + row * g.channels + s.channel, s.valid, out);
	}
}

/* ---- sorting ---- */

/* Indices and their places; an index outside this part of the table becomes table_rows, and sorts last. */
template <typename I>
__global__ void __launch_bounds__(THREADS) make_keys(cuda_table table, const I *index, uint32_t *keys, uint32_t *places)
{
	const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (i >= table.count)
		return;
	const int64_t from = index[i] - table.first;
	if (!is_row(table, index[i]))
		*table.fault = fault_of(i, index[i]);
	keys[i] = (uint32_t)(from >= 0 && from < table.table_rows ? from : table.table_rows);
	places[i] = (uint32_t)i;
}

__device__ inline uint32_t digit_of(uint32_t key, int shift)
{
	return key >> shift & (DIGITS - 1);
}

/* counts[thread][digit] of the tile's keys; a thread has EACH neighbours. The padding spreads threads over banks. */
typedef uint16_t tile_counts[THREADS][DIGITS + 2];

__device__ inline void count_digits(tile_counts &counts, const uint32_t *keys, int64_t count, int shift)
{
	const unsigned self = threadIdx.x;
	const int64_t first = (int64_t)blockIdx.x * TILE + self * EACH;
	for (int d = 0; d < DIGITS; d++)
		counts[self][d] = 0;
#pragma unroll
	for (int e = 0; e < EACH; e++)
		if (first + e < count)
			counts[self][digit_of(keys[first + e], shift)]++;
	__syncthreads();
}

/* totals[tile][digit] */
__global__ void __launch_bounds__(THREADS) count_keys(const uint32_t *keys, int64_t count, int shift, uint32_t *totals)
{
	__shared__ tile_counts counts;
	count_digits(counts, keys, count, shift);
	if (threadIdx.x >= DIGITS)
		return;
	uint32_t total = 0;
	for (int thread = 0; thread < THREADS; thread++)
		total += counts[thread][threadIdx.x];
	totals[blockIdx.x * DIGITS + threadIdx.x] = total;
}

/* Keys and their places in the order of a digit; equal digits stay in order. */
__global__ void __launch_bounds__(THREADS)
	order_keys(const uint32_t *keys, const uint32_t *places, int64_t count, int shift, const uint32_t *totals,
		   uint32_t tiles, uint32_t *keys_out, uint32_t *places_out)
{
	__shared__ tile_counts counts;
	__shared__ uint32_t all[DIGITS], begin[DIGITS];
	const unsigned self = threadIdx.x;
	count_digits(counts, keys, count, shift);
	if (self < DIGITS) {
		uint32_t total = 0, before = 0;
		for (uint32_t tile = 0; tile < tiles; tile++) {
			before = tile == blockIdx.x ? total : before;
			total += totals[tile * DIGITS + self];
		}
		all[self] = total;
		begin[self] = before;
		uint16_t places_before = 0;
		for (int thread = 0; thread < THREADS; thread++) {
			const uint16_t own = counts[thread][self];
			counts[thread][self] = places_before;
			places_before = (uint16_t)(places_before + own);
		}
	}
	__syncthreads();
	if (self < DIGITS)
		for (unsigned lower = 0; lower < self; lower++)
			begin[self] += all[lower];
	__syncthreads();
	const int64_t first = (int64_t)blockIdx.x * TILE + self * EACH;
	for (int e = 0; e < EACH && first + e < count; e++) {
		const uint32_t key = keys[first + e], digit = digit_of(key, shift);
		const uint32_t to = begin[digit] + counts[self][digit]++;
		keys_out[to] = key;
		places_out[to] = places[first + e];
	}
}

/* starts[row]: the first sorted key that is not below row; for each row and for table_rows. */
__global__ void __launch_bounds__(THREADS)
	find_starts(const uint32_t *keys, int64_t count, int64_t table_rows, uint32_t *starts)
{
	const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (row > table_rows)
		return;
	int64_t low = 0, high = count;
	while (low < high) {
		const int64_t middle = (low + high) / 2;
		if (keys[middle] < row)
			low = middle + 1;
		else
			high = middle;
	}
	starts[row] = (uint32_t)low;
}

/* ---- sums ---- */

template <typename T> struct gradients {
	const T *d_y;
	const uint32_t *keys, *places, *starts;
	const float *addend;
	float *d_w;
	int64_t table_rows, count;
};

/* Adds rows of d_y: places first, first + step ... before end. */
template <bool VECTOR, typename T>
__device__ inline void add_rows(const gradients<T> &a, const columns &g, int64_t channel, int valid, uint32_t first,
				uint32_t end, uint32_t step, float (&out)[OCTET])
{
#pragma unroll 4
	for (uint32_t i = first; i < end; i += step) {
		const octet<T> part = load_octet<VECTOR>(a.d_y + (int64_t)a.places[i] * g.channels + channel, valid);
#pragma unroll
		for (int k = 0; k < OCTET; k++)
			out[k] += part.at(k);
	}
}

template <bool VECTOR, typename T>
__device__ inline void load_addend(const gradients<T> &a, int64_t at, int valid, float (&out)[OCTET])
{
	if (!a.addend)
		return;
	const octet<float> part = load_octet<VECTOR>(a.addend + at, valid);
#pragma unroll
	for (int k = 0; k < OCTET; k++)
		out[k] = part.at(k);
}

/* Rows of the table with up to LONG gradients. Where d_w has the addend already, rows without any are left alone. */
template <typename T, bool VECTOR> __global__ void __launch_bounds__(THREADS) add_short(columns g, gradients<T> a)
{
	const share s(g);
	if (s.valid <= 0)
		return;
	for (int64_t row = s.first + threadIdx.y; row < s.end; row += blockDim.y) {
		const uint32_t first = a.starts[row], end = a.starts[row + 1];
		if (end - first > LONG || (first == end && a.addend == a.d_w))
			continue;
		float out[OCTET] = {0};
		load_addend<VECTOR>(a, row * g.channels + s.channel, s.valid, out);
		add_rows<VECTOR>(a, g, s.channel, s.valid, first, end, 1, out);
		store_octet<VECTOR>(a.d_w + row * g.channels + s.channel, s.valid, out);
	}
}

/* The others: each block has a multiple of LONG among the sorted keys, and processes its key's row if the row has more
 * than LONG keys and this is the first such multiple among them. */
template <typename T, bool VECTOR> __global__ void __launch_bounds__(THREADS) add_long(columns g, gradients<T> a)
{
	const int64_t channel = ((int64_t)(blockIdx.x % g.groups) * blockDim.x + threadIdx.x) * OCTET;
	const uint32_t at = blockIdx.x / g.groups * LONG, key = a.keys[at];
	const int valid = g.channels - channel < OCTET ? (int)(g.channels - channel) : OCTET;
	if (key >= a.table_rows)
		return;
	const uint32_t first = a.starts[key], end = a.starts[key + 1];
	if (end - first <= LONG || at - first >= LONG)
		return;
	float out[OCTET] = {0}, own[OCTET] = {0};
	if (valid > 0)
		add_rows<VECTOR>(a, g, channel, valid, first + threadIdx.y, end, blockDim.y, out);
	add_up(out);
	if (threadIdx.y != 0 || valid <= 0)
		return;
	load_addend<VECTOR>(a, key * g.channels + channel, valid, own);
#pragma unroll
	for (int k = 0; k < OCTET; k++)
		out[k] += own[k];
	store_octet<VECTOR>(a.d_w + key * g.channels + channel, valid, out);
}

uint32_t tiles_of(int64_t count)
{
	return (uint32_t)((count + TILE - 1) / TILE);
}

/* The workspace: two lists of keys and places, totals, starts. */
struct layout {
	size_t keys[2], places[2], totals, starts, bytes;

	explicit layout(const cuda_table *table)
	{
		const size_t list = (size_t)table->count * sizeof(uint32_t);
		bytes = 0;
		for (int i = 0; i < 2; i++) {
			keys[i] = take(list);
			places[i] = take(list);
		}
		totals = take((size_t)tiles_of(table->count) * DIGITS * sizeof(uint32_t));
		starts = take((size_t)(table->table_rows + 1) * sizeof(uint32_t));
	}
	size_t take(size_t more)
	{
		const size_t at = bytes;
		bytes += (more + 15) / 16 * 16;
		return at;
	}
};

template <typename F> cudaError_t with_index(dtrain_dtype dtype, F f)
{
	return dtype == DTRAIN_I32 ? f(int32_t()) : dtype == DTRAIN_I64 ? f(int64_t()) : cudaErrorInvalidValue;
}

/* Sorts the index; *last: which of the two lists has the result. */
cudaError_t sort(cudaStream_t stream, const cuda_table *table, const void *index, const layout &at, char *workspace,
		 int *last)
{
	uint32_t *const keys[] = {(uint32_t *)(workspace + at.keys[0]), (uint32_t *)(workspace + at.keys[1])};
	uint32_t *const places[] = {(uint32_t *)(workspace + at.places[0]), (uint32_t *)(workspace + at.places[1])};
	uint32_t *totals = (uint32_t *)(workspace + at.totals);
	const int64_t count = table->count;
	const uint32_t tiles = tiles_of(count);
	cudaError_t status = with_index(table->index, [&](auto zero) {
		typedef decltype(zero) I;
		return launch(make_keys<I>, (count + THREADS - 1) / THREADS, dim3(THREADS), stream, *table,
			      (const I *)index, keys[0], places[0]);
	});
	int from = 0;
	for (int shift = 0; status == cudaSuccess && shift < 32 && table->table_rows >> shift; shift += BITS) {
		status = launch(count_keys, tiles, dim3(THREADS), stream, keys[from], count, shift, totals);
		if (status == cudaSuccess)
			status = launch(order_keys, tiles, dim3(THREADS), stream, keys[from], places[from], count,
					shift, totals, tiles, keys[1 - from], places[1 - from]);
		from = 1 - from;
	}
	*last = from;
	return status;
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_embedding(cudaStream_t stream, const cuda_table *table, const void *w,
					     const void *index, void *y)
{
	const columns g = columns_of(1, table->count, table->columns, 16, 1);
	return with_type(table->weight, [&](auto source) {
		typedef decltype(source) W;
		return with_type(table->dtype, [&](auto target) {
			typedef decltype(target) T;
			return with_index(table->index, [&](auto number) {
				typedef decltype(number) I;
				return with_bool(is_vector(g.channels, w, y), [&](auto vector) {
					return launch(embedding<W, T, I, vector.value>, g.blocks, g.threads, stream, g,
						      *table, (const W *)w, (const I *)index, (T *)y);
				});
			});
		});
	});
}

extern "C" size_t cuda_kernel_embedding_workspace(const cuda_table *table)
{
	return layout(table).bytes;
}

extern "C" cudaError_t cuda_kernel_embedding_bwd(cudaStream_t stream, const cuda_table *table, const void *d_y,
						 const void *index, const float *addend, float *d_w, void *workspace)
{
	const layout at(table);
	char *own = (char *)workspace;
	uint32_t *starts = (uint32_t *)(own + at.starts);
	int last = 0;
	cudaError_t status = sort(stream, table, index, at, own, &last);
	const uint32_t *keys = (const uint32_t *)(own + at.keys[last]);
	const uint32_t *places = (const uint32_t *)(own + at.places[last]);
	if (status == cudaSuccess)
		status = launch(find_starts, table->table_rows / THREADS + 1, dim3(THREADS), stream, keys, table->count,
				table->table_rows, starts);
	if (status != cudaSuccess)
		return status;
	const columns g = columns_of(1, table->table_rows, table->columns, 16, 1);
	const bool vectors = is_vector(g.channels, d_y, addend, d_w);
	return with_type(table->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		const gradients<T> a = {(const T *)d_y,    keys,        places, starts, addend, d_w,
					table->table_rows, table->count};
		return with_bool(vectors, [&](auto vector) {
			cudaError_t short_rows = launch(add_short<T, vector.value>, g.blocks, g.threads, stream, g, a);
			if (short_rows != cudaSuccess || table->count <= LONG)
				return short_rows;
			return launch(add_long<T, vector.value>, (table->count + LONG - 1) / LONG * g.groups, g.threads,
				      stream, g, a);
		});
	});
}
