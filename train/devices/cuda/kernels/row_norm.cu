/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm and RMS norm. Forward, a block has one row, which it reads once and holds in registers; longer rows are
 * read again from the cache. Backward, a block has many rows one after the other, several at a time, and its threads
 * hold the sums of their columns for the gradients of gamma and beta. Rows that are too long for that have a block
 * each, and a second kernel reads x and d_y again for the sums of columns.
 */
#include "columns.cuh"
#include "reduce.cuh"

namespace cuda_kernels
{
namespace
{

/* Octets of a row that a thread holds; rows of a column that it reads at once. */
constexpr int HELD = 4, UNROLL = 2, PER_MULTIPROCESSOR = 4, LEAST_ROWS = 8;
/* Backward, so that a thread's registers suffice for them, the sums of their columns and two blocks. */
constexpr int HELD_BACK = 3, BLOCKS_BACK = 2;

template <bool VECTOR> __device__ inline int valid_of(int64_t columns, int64_t c)
{
	return VECTOR || columns - c >= OCTET ? OCTET : (int)(columns - c);
}

/* Calls f with the first column of each of this thread's octets, and its place among those it holds or HELD. */
template <int N, typename F> __device__ inline void each_octet(int64_t columns, F f)
{
#pragma unroll
	for (int k = 0; k < HELD; k++) {
		const int64_t c = ((int64_t)k * N + threadIdx.x) * OCTET;
		if (c < columns)
			f(c, k);
	}
	for (int64_t c = ((int64_t)HELD * N + threadIdx.x) * OCTET; c < columns; c += N * OCTET)
		f(c, HELD);
}

template <int N, bool VECTOR, typename T> struct held_row {
	const T *x;
	int64_t columns;
	octet<T> held[HELD];

	__device__ held_row(const T *row, int64_t count) : x(row), columns(count)
	{
#pragma unroll
		for (int k = 0; k < HELD; k++) {
			const int64_t c = ((int64_t)k * N + threadIdx.x) * OCTET;
			if (c < columns)
				held[k] = load_octet<VECTOR>(x + c, valid_of<VECTOR>(columns, c));
		}
	}
	__device__ octet<T> at(int64_t c, int k) const
	{
		return k < HELD ? held[k] : load_octet<VECTOR>(x + c, valid_of<VECTOR>(columns, c));
	}
};

/* The sum of f(column's octet, number in it) over the row; all threads get it. */
template <int N, bool VECTOR, typename F> __device__ inline float sum_row(int64_t columns, F f)
{
	float total = 0;
	each_octet<N>(columns, [&](int64_t c, int k) {
		const int valid = valid_of<VECTOR>(columns, c);
		float part[OCTET];
		f(c, k, part);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			total += i < valid ? part[i] : 0;
	});
	return reduce<N>(total, sum());
}

struct row_norm {
	int64_t columns;
	float epsilon;
};

template <int N, bool CENTERED, bool VECTOR, typename T>
__global__ void __launch_bounds__(N)
	norm_rows(row_norm a, const T *x, const float *gamma, const float *beta, T *y, float *first, float *var)
{
	const int64_t row = blockIdx.x, columns = a.columns;
	const held_row<N, VECTOR, T> own(x + row * columns, columns);
	const float share = 1 / (float)columns;
	float mean = 0;
	if (CENTERED)
		mean = share * sum_row<N, VECTOR>(columns, [&](int64_t c, int k, float(&part)[OCTET]) {
			       const octet<T> of_x = own.at(c, k);
#pragma unroll
			       for (int i = 0; i < OCTET; i++)
				       part[i] = of_x.at(i);
		       });
	const float square = share * sum_row<N, VECTOR>(columns, [&](int64_t c, int k, float(&part)[OCTET]) {
				     const octet<T> of_x = own.at(c, k);
#pragma unroll
				     for (int i = 0; i < OCTET; i++)
					     part[i] = (of_x.at(i) - mean) * (of_x.at(i) - mean);
			     });
	const float inverse = 1 / sqrtf(square + a.epsilon);
	each_octet<N>(columns, [&](int64_t c, int k) {
		const int valid = valid_of<VECTOR>(columns, c);
		const octet<T> of_x = own.at(c, k);
		const octet<float> factor = load_octet<VECTOR>(gamma + c, valid);
		float out[OCTET];
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			out[i] = (of_x.at(i) - mean) * inverse * factor.at(i);
		if (beta) {
			const octet<float> shift = load_octet<VECTOR>(beta + c, valid);
#pragma unroll
			for (int i = 0; i < OCTET; i++)
				out[i] += shift.at(i);
		}
		store_octet<VECTOR>(y + row * columns + c, valid, out);
	});
	if (threadIdx.x == 0) {
		first[row] = CENTERED ? mean : inverse;
		if (CENTERED)
			var[row] = square;
	}
}

/* The numbers that normalized a row. */
template <bool CENTERED> struct moments {
	float mean, inverse;

	__device__ moments(const float *first, const float *var, int64_t row, float epsilon)
	{
		mean = CENTERED ? first[row] : 0;
		inverse = CENTERED ? 1 / sqrtf(var[row] + epsilon) : first[row];
	}
};

/* Adds eight elements at `at` of addend, unless that is NULL. */
template <bool VECTOR, typename T>
__device__ inline void add_octet(const T *addend, int64_t at, int valid, float (&to)[OCTET])
{
	if (!addend)
		return;
	const octet<T> more = load_octet<VECTOR>(addend + at, valid);
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		to[i] += more.at(i);
}

/* ---- gradients: a block has many rows ---- */

/* Adds two numbers over the N threads that have a row together; each of them gets the sums. All threads of the block
 * must call it. */
template <int N> __device__ inline void sum_crew(float (&x)[2])
{
	constexpr int WARPS = N / WARP;
	x[0] = sum_warp(x[0]);
	x[1] = sum_warp(x[1]);
	if constexpr (WARPS > 1) {
		__shared__ float parts[2][THREADS / WARP];
		const int warp = threadIdx.x / WARP, first = warp / WARPS * WARPS;
		if (threadIdx.x % WARP == 0) {
			parts[0][warp] = x[0];
			parts[1][warp] = x[1];
		}
		__syncthreads();
		x[0] = x[1] = 0;
#pragma unroll
		for (int i = 0; i < WARPS; i++) {
			x[0] += parts[0][first + i];
			x[1] += parts[1][first + i];
		}
		__syncthreads();
	}
}

/* to[column] is the sum of what the block's crews of N threads have of that column. to NULL: not wanted. */
template <int N> __device__ inline void join_crews(const float (&part)[HELD_BACK][OCTET], int columns, float *to)
{
	constexpr int CREWS = THREADS / N, K = HELD_BACK;
	__shared__ float total[K][OCTET][N];
	const int member = threadIdx.x % N, crew = threadIdx.x / N;
	if (!to)
		return;
	for (int turn = 0; turn < CREWS; turn++) {
		if (turn == crew)
#pragma unroll
			for (int k = 0; k < K; k++)
#pragma unroll
				for (int i = 0; i < OCTET; i++)
					total[k][i][member] = part[k][i] + (turn ? total[k][i][member] : 0);
		__syncthreads();
	}
	for (int c = threadIdx.x; c < columns; c += THREADS)
		to[c] = total[c / OCTET / N][c % OCTET][c / OCTET % N];
	__syncthreads();
}

/* N threads have a row; the columns are the same for all rows of a thread. The block's sums of columns go to row
 * blockIdx.x of d_gamma and d_beta. */
template <int N, bool CENTERED, bool VECTOR, typename T>
__global__ void __launch_bounds__(THREADS, BLOCKS_BACK)
	norm_bwd(row_norm a, int64_t rows, const T *x, const T *d_y, const T *addend, const float *gamma,
		 const float *first, const float *var, T *d_x, float *d_gamma, float *d_beta)
{
	constexpr int CREWS = THREADS / N, K = HELD_BACK;
	const int columns = (int)a.columns, member = threadIdx.x % N;
	const float share = 1 / (float)columns;
	float of_gamma[K][OCTET] = {}, of_beta[K][OCTET] = {};
	for (int64_t begin = (int64_t)blockIdx.x * CREWS; begin < rows; begin += (int64_t)gridDim.x * CREWS) {
		const int64_t row = begin + threadIdx.x / N, at = row * columns;
		const bool exists = row < rows;
		const moments<CENTERED> of(first, var, exists ? row : begin, a.epsilon);
		octet<T> of_x[K] = {}, of_y[K] = {};
		float sums[2] = {0, 0};
#pragma unroll
		for (int k = 0; k < K; k++) {
			const int c = (k * N + member) * OCTET;
			if (exists && c < columns) {
				of_x[k] = load_octet<VECTOR>(x + at + c, valid_of<VECTOR>(columns, c));
				of_y[k] = load_octet<VECTOR>(d_y + at + c, valid_of<VECTOR>(columns, c));
			}
		}
#pragma unroll
		for (int k = 0; k < K; k++) {
			const int c = (k * N + member) * OCTET;
			if (!exists || c >= columns)
				continue;
			const octet<float> factor = load_octet<VECTOR>(gamma + c, valid_of<VECTOR>(columns, c));
#pragma unroll
			for (int i = 0; i < OCTET; i++) {
				const float normal = (of_x[k].at(i) - of.mean) * of.inverse;
				const float scaled = of_y[k].at(i) * factor.at(i);
				sums[0] += scaled;
				sums[1] += scaled * normal;
				of_gamma[k][i] += of_y[k].at(i) * normal;
				if (CENTERED)
					of_beta[k][i] += of_y[k].at(i);
			}
		}
		sum_crew<N>(sums);
		const float common = CENTERED ? share * sums[0] : 0, product = share * sums[1];
#pragma unroll
		for (int k = 0; k < K; k++) {
			const int c = (k * N + member) * OCTET, valid = valid_of<VECTOR>(columns, c);
			if (!exists || c >= columns)
				continue;
			const octet<float> factor = load_octet<VECTOR>(gamma + c, valid);
			float out[OCTET];
#pragma unroll
			for (int i = 0; i < OCTET; i++) {
				const float normal = (of_x[k].at(i) - of.mean) * of.inverse;
				out[i] = of.inverse * (of_y[k].at(i) * factor.at(i) - common - normal * product);
			}
			add_octet<VECTOR>(addend, at + c, valid, out);
			store_octet<VECTOR>(d_x + at + c, valid, out);
		}
	}
	const int64_t place = (int64_t)blockIdx.x * columns;
	join_crews<N>(of_gamma, columns, d_gamma + place);
	join_crews<N>(of_beta, columns, d_beta ? d_beta + place : nullptr);
}

constexpr int ADDING = 32; /* columns of a block that adds up parts */

/* *_out[column]: the sum of the parts [parts][columns], in an order that depends on their number alone. beta NULL:
 * none. The threads of a block have ADDING columns and a part of the rows. */
__global__ void __launch_bounds__(THREADS)
	add_parts(int parts, int columns, const float *gamma, const float *beta, float *gamma_out, float *beta_out)
{
	__shared__ float sums[THREADS / ADDING][ADDING];
	const int blocks = (columns + ADDING - 1) / ADDING;
	const bool second = (int)blockIdx.x >= blocks;
	const float *from = second ? beta : gamma;
	float *to = second ? beta_out : gamma_out;
	const int lane = threadIdx.x % ADDING, first = threadIdx.x / ADDING;
	const int c = ((int)blockIdx.x - (second ? blocks : 0)) * ADDING + lane;
	float total = 0;
#pragma unroll 8
	for (int i = first; i < parts; i += THREADS / ADDING)
		total += c < columns ? from[(int64_t)i * columns + c] : 0;
	sums[first][lane] = total;
	__syncthreads();
	if (first != 0 || c >= columns)
		return;
	for (int i = 1; i < THREADS / ADDING; i++)
		total += sums[i][lane];
	to[c] = total;
}

/* ---- gradients: a block has one row, of any length ---- */

template <bool CENTERED, bool VECTOR, typename T>
__global__ void __launch_bounds__(THREADS)
	norm_rows_bwd(row_norm a, const T *x, const T *d_y, const T *addend, const float *gamma, const float *first,
		      const float *var, T *d_x)
{
	constexpr int N = THREADS;
	const int64_t row = blockIdx.x, columns = a.columns;
	const held_row<N, VECTOR, T> own(x + row * columns, columns), gradient(d_y + row * columns, columns);
	const moments<CENTERED> of(first, var, row, a.epsilon);
	const float share = 1 / (float)columns;
	const auto scaled = [&](int64_t c, int k, float(&part)[OCTET]) {
		const octet<float> factor = load_octet<VECTOR>(gamma + c, valid_of<VECTOR>(columns, c));
		const octet<T> of_y = gradient.at(c, k);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			part[i] = of_y.at(i) * factor.at(i);
	};
	float common = 0;
	if (CENTERED)
		common = share * sum_row<N, VECTOR>(columns, scaled);
	const float product = share * sum_row<N, VECTOR>(columns, [&](int64_t c, int k, float(&part)[OCTET]) {
				      const octet<T> of_x = own.at(c, k);
				      scaled(c, k, part);
#pragma unroll
				      for (int i = 0; i < OCTET; i++)
					      part[i] *= (of_x.at(i) - of.mean) * of.inverse;
			      });
	each_octet<N>(columns, [&](int64_t c, int k) {
		const octet<T> of_x = own.at(c, k);
		float out[OCTET];
		scaled(c, k, out);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			out[i] = of.inverse * (out[i] - common - (of_x.at(i) - of.mean) * of.inverse * product);
		add_octet<VECTOR>(addend, row * columns + c, valid_of<VECTOR>(columns, c), out);
		store_octet<VECTOR>(d_x + row * columns + c, valid_of<VECTOR>(columns, c), out);
	});
}

/* d_gamma[chunk][column], d_beta[chunk][column]; the latter NULL: not wanted. */
template <bool CENTERED, bool VECTOR, typename T>
__global__ void __launch_bounds__(THREADS)
	norm_columns(columns g, float epsilon, const T *x, const T *d_y, const float *first, const float *var,
		     float *d_gamma, float *d_beta)
{
	const share s(g);
	float of_gamma[OCTET] = {0}, of_beta[OCTET] = {0};
	const auto add = [&](const octet<T> &of_x, const octet<T> &of_y, int64_t row) {
		const moments<CENTERED> of(first, var, row, epsilon);
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			of_gamma[i] += of_y.at(i) * ((of_x.at(i) - of.mean) * of.inverse);
			of_beta[i] += of_y.at(i);
		}
	};
	const int64_t step = blockDim.y;
	int64_t row = s.valid > 0 ? s.first + threadIdx.y : s.end;
	for (; row + (UNROLL - 1) * step < s.end; row += UNROLL * step) {
		octet<T> of_x[UNROLL], of_y[UNROLL];
#pragma unroll
		for (int k = 0; k < UNROLL; k++) {
			const int64_t at = (row + k * step) * g.channels + s.channel;
			of_x[k] = load_octet<VECTOR>(x + at, s.valid);
			of_y[k] = load_octet<VECTOR>(d_y + at, s.valid);
		}
#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			add(of_x[k], of_y[k], row + k * step);
	}
	for (; row < s.end; row += step) {
		const int64_t at = row * g.channels + s.channel;
		add(load_octet<VECTOR>(x + at, s.valid), load_octet<VECTOR>(d_y + at, s.valid), row);
	}
	add_up(of_gamma);
	__syncthreads();
	if (d_beta)
		add_up(of_beta);
	if (threadIdx.y != 0 || s.valid <= 0)
		return;
	const int64_t at = (int64_t)s.chunk * g.channels + s.channel;
#pragma unroll
	for (int i = 0; i < OCTET; i++) {
		if (i < s.valid)
			d_gamma[at + i] = of_gamma[i];
		if (d_beta && i < s.valid)
			d_beta[at + i] = of_beta[i];
	}
}

columns sums_of(const cuda_row_norm *norm)
{
	return columns_of(1, norm->rows, norm->columns, PER_MULTIPROCESSOR, LEAST_ROWS);
}

/* Whether the threads of a block can hold a row and the sums of its columns. */
bool holds(const cuda_row_norm *norm)
{
	return norm->columns <= THREADS * OCTET * HELD_BACK;
}

/* Threads for a row backward. */
int crew_of(int64_t columns)
{
	int threads = 32;
	while (threads * OCTET * HELD_BACK < columns)
		threads *= 2;
	return threads;
}

/* Blocks of norm_bwd: all of them run at once. */
int64_t blocks_of(const cuda_row_norm *norm)
{
	const int64_t crews = THREADS / crew_of(norm->columns), most = (int64_t)multiprocessors() * BLOCKS_BACK;
	const int64_t blocks = (norm->rows + crews - 1) / crews;
	return blocks < most ? blocks : most;
}

/* Calls f with the number of threads for a row, as a constant. */
template <int N> struct threads {
	static constexpr int count = N;
};
template <typename F> cudaError_t with_threads(int64_t columns, F f)
{
	if (columns <= 32 * OCTET * HELD)
		return f(threads<32>());
	return columns <= 128 * OCTET * HELD ? f(threads<128>()) : f(threads<256>());
}

/* Calls f with values of the kernel's types. */
template <typename F> cudaError_t with_norm(const cuda_row_norm *norm, bool vectors, F f)
{
	return with_type(norm->dtype, [&](auto zero) {
		return with_bool(norm->centered, [&](auto centered) {
			return with_bool(vectors, [&](auto vector) { return f(zero, centered, vector); });
		});
	});
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_row_norm(cudaStream_t stream, const cuda_row_norm *norm, const void *x,
					    const float *gamma, const float *beta, void *y, float *first, float *var)
{
	const row_norm a = {norm->columns, (float)norm->epsilon};
	const bool vectors = is_vector(norm->columns, x, gamma, beta, y);
	return with_norm(norm, vectors, [&](auto zero, auto centered, auto vector) {
		typedef decltype(zero) T;
		return with_threads(norm->columns, [&](auto n) {
			return launch(norm_rows<n.count, centered.value, vector.value, T>, norm->rows, dim3(n.count),
				      stream, a, (const T *)x, gamma, beta, (T *)y, first, var);
		});
	});
}

namespace
{

/* Calls f with the number of threads for a row backward, as a constant. */
template <typename F> cudaError_t with_crew(int64_t columns, F f)
{
	switch (crew_of(columns)) {
	case 32:
		return f(threads<32>());
	case 64:
		return f(threads<64>());
	case 128:
		return f(threads<128>());
	default:
		return f(threads<256>());
	}
}

cudaError_t launch_held(cudaStream_t stream, const cuda_row_norm *norm, const cuda_row_norm_bwd *b, float *parts)
{
	const row_norm a = {norm->columns, (float)norm->epsilon};
	const int64_t blocks = blocks_of(norm), columns = norm->columns;
	float *of_gamma = blocks > 1 ? parts : b->d_gamma;
	float *of_beta = blocks > 1 && b->d_beta ? of_gamma + blocks * columns : b->d_beta;
	const bool vectors = is_vector(columns, b->x, b->d_y, b->addend, b->gamma, b->d_x);
	cudaError_t status = with_norm(norm, vectors, [&](auto zero, auto centered, auto vector) {
		typedef decltype(zero) T;
		return with_crew(columns, [&](auto c) {
			return launch(norm_bwd<c.count, centered.value, vector.value, T>, blocks, dim3(THREADS), stream,
				      a, norm->rows, (const T *)b->x, (const T *)b->d_y, (const T *)b->addend, b->gamma,
				      b->first, b->var, (T *)b->d_x, of_gamma, of_beta);
		});
	});
	if (status != cudaSuccess || blocks == 1)
		return status;
	const int64_t adding = (columns + ADDING - 1) / ADDING;
	return launch(add_parts, b->d_beta ? 2 * adding : adding, dim3(THREADS), stream, (int)blocks, (int)columns,
		      of_gamma, of_beta, b->d_gamma, b->d_beta);
}

} // namespace

extern "C" size_t cuda_kernel_row_norm_workspace(const cuda_row_norm *norm)
{
	if (holds(norm))
		return 2 * (size_t)(blocks_of(norm) * norm->columns) * sizeof(float);
	const columns g = sums_of(norm);
	if (g.chunks == 1)
		return 0;
	return 2 * (size_t)g.chunks * (size_t)g.channels * sizeof(float) +
	       cuda_kernel_column_sums_workspace(1, g.chunks, g.channels);
}

extern "C" cudaError_t cuda_kernel_row_norm_bwd(cudaStream_t stream, const cuda_row_norm *norm,
						const cuda_row_norm_bwd *b, void *workspace)
{
	if (holds(norm))
		return launch_held(stream, norm, b, (float *)workspace);
	const row_norm a = {norm->columns, (float)norm->epsilon};
	const columns g = sums_of(norm);
	const bool vectors = is_vector(norm->columns, b->x, b->d_y, b->addend, b->gamma, b->d_x), parts = g.chunks > 1;
	float *of_gamma = parts ? (float *)workspace : b->d_gamma;
	float *of_beta = parts && b->d_beta ? of_gamma + g.chunks * g.channels : b->d_beta;
	void *own = (float *)workspace + (parts ? 2 * g.chunks * g.channels : 0);
	cudaError_t status = with_norm(norm, vectors, [&](auto zero, auto centered, auto vector) {
		typedef decltype(zero) T;
		cudaError_t rows = launch(norm_rows_bwd<centered.value, vector.value, T>, norm->rows, dim3(THREADS),
					  stream, a, (const T *)b->x, (const T *)b->d_y, (const T *)b->addend, b->gamma,
					  b->first, b->var, (T *)b->d_x);
		if (rows != cudaSuccess)
			return rows;
		return launch(norm_columns<centered.value, vector.value, T>, g.blocks, g.threads, stream, g, a.epsilon,
			      (const T *)b->x, (const T *)b->d_y, b->first, b->var, of_gamma, of_beta);
	});
	if (status == cudaSuccess && parts)
		status = cuda_kernel_column_sums(stream, of_gamma, DTRAIN_F32, b->d_gamma, DTRAIN_F32, 1, g.chunks,
						 g.channels, 1, own);
	if (status == cudaSuccess && parts && b->d_beta)
		status = cuda_kernel_column_sums(stream, of_beta, DTRAIN_F32, b->d_beta, DTRAIN_F32, 1, g.chunks,
						 g.channels, 1, own);
	return status;
}
