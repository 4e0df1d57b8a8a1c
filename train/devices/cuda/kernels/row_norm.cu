/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer norm and RMS norm: one block for each row, which it reads once and holds in registers; longer rows are read
 * again from the cache. The gradients of gamma and beta are sums over columns, and read x and d_y a second time.
 */
#include "columns.cuh"
#include "reduce.cuh"

namespace cuda_kernels
{
namespace
{

/* Octets of a row that a thread holds; rows of a column that it reads at once. */
constexpr int HELD = 4, UNROLL = 2, PER_MULTIPROCESSOR = 4, LEAST_ROWS = 8;

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

template <int N, bool CENTERED, bool VECTOR, typename T>
__global__ void __launch_bounds__(N) norm_rows_bwd(row_norm a, const T *x, const T *d_y, const float *gamma,
						   const float *first, const float *var, T *d_x)
{
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

extern "C" size_t cuda_kernel_row_norm_workspace(const cuda_row_norm *norm)
{
	const columns g = sums_of(norm);
	if (g.chunks == 1)
		return 0;
	return 2 * (size_t)g.chunks * (size_t)g.channels * sizeof(float) +
	       cuda_kernel_column_sums_workspace(1, g.chunks, g.channels);
}

extern "C" cudaError_t cuda_kernel_row_norm_bwd(cudaStream_t stream, const cuda_row_norm *norm, const void *x,
						const void *d_y, const float *gamma, const float *first,
						const float *var, void *d_x, float *d_gamma, float *d_beta,
						void *workspace)
{
	const row_norm a = {norm->columns, (float)norm->epsilon};
	const columns g = sums_of(norm);
	const bool vectors = is_vector(norm->columns, x, d_y, gamma, d_x), parts = g.chunks > 1;
	float *of_gamma = parts ? (float *)workspace : d_gamma;
	float *of_beta = parts && d_beta ? of_gamma + g.chunks * g.channels : d_beta;
	void *own = (float *)workspace + (parts ? 2 * g.chunks * g.channels : 0);
	cudaError_t status = with_norm(norm, vectors, [&](auto zero, auto centered, auto vector) {
		typedef decltype(zero) T;
		cudaError_t rows = with_threads(norm->columns, [&](auto n) {
			return launch(norm_rows_bwd<n.count, centered.value, vector.value, T>, norm->rows,
				      dim3(n.count), stream, a, (const T *)x, (const T *)d_y, gamma, first, var,
				      (T *)d_x);
		});
		if (rows != cudaSuccess)
			return rows;
		return launch(norm_columns<centered.value, vector.value, T>, g.blocks, g.threads, stream, g, a.epsilon,
			      (const T *)x, (const T *)d_y, first, var, of_gamma, of_beta);
	});
	if (status == cudaSuccess && parts)
		status = cuda_kernel_column_sums(stream, of_gamma, DTRAIN_F32, d_gamma, DTRAIN_F32, 1, g.chunks,
						 g.channels, 1, own);
	if (status == cudaSuccess && parts && d_beta)
		status = cuda_kernel_column_sums(stream, of_beta, DTRAIN_F32, d_beta, DTRAIN_F32, 1, g.chunks,
						 g.channels, 1, own);
	return status;
}
