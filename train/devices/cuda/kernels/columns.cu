/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over rows, spreading a row over many, and adding one to many: biases and their gradients, the global average
 * pool, the mean.
 *
 * A thread adds its rows 4 at a time; a tree adds threads, and then blocks. With n rows per thread the error is below
 * (n / 4 + 4 + log2 of their number) * 2^-24 of the sum of absolute values.
 */
#include "columns.cuh"

namespace cuda_kernels
{
namespace
{

constexpr int UNROLL = 4, PER_MULTIPROCESSOR = 4, LEAST_ROWS = 32;

/* y[batch][chunk][channel]; pitch: elements from row to row of x; adds: to what is there. */
template <typename X, typename Y, bool VECTOR>
__global__ void __launch_bounds__(THREADS)
	column_sums(columns g, const X *x, int64_t pitch, Y *y, float factor, bool adds)
{
	const share s(g);
	float sum[OCTET] = {0};
	const X *p = x + ((int64_t)s.batch * g.rows + s.first + threadIdx.y) * pitch + s.channel;
	const int64_t step = (int64_t)blockDim.y * pitch;
	int64_t row = s.valid > 0 ? s.first + threadIdx.y : s.end;
	for (; row + (UNROLL - 1) * (int64_t)blockDim.y < s.end; row += UNROLL * blockDim.y, p += UNROLL * step) {
		octet<X> part[UNROLL];
#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			part[k] = load_octet<VECTOR>(p + k * step, s.valid);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			sum[i] += (part[0].at(i) + part[1].at(i)) + (part[2].at(i) + part[3].at(i));
	}
	for (; row < s.end; row += blockDim.y, p += step) {
		octet<X> part = load_octet<VECTOR>(p, s.valid);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			sum[i] += part.at(i);
	}
	add_up(sum);
	if (threadIdx.y != 0 || s.valid <= 0)
		return;
	Y *out = y + ((int64_t)s.batch * g.chunks + s.chunk) * g.channels + s.channel;
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		if (i < s.valid)
			out[i] = from_float<Y>((adds ? to_float(out[i]) : 0) + sum[i] * factor);
}

template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS) spread(columns g, const T *x, T *y, float factor)
{
	const share s(g);
	if (s.valid <= 0)
		return;
	octet<T> part = load_octet<VECTOR>(x + s.batch * g.channels + s.channel, s.valid);
	float out[OCTET];
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		out[i] = part.at(i) * factor;
	T *p = y + (int64_t)s.batch * g.rows * g.channels + s.channel;
	for (int64_t row = s.first + threadIdx.y; row < s.end; row += blockDim.y)
		store_octet<VECTOR>(p + row * g.channels, s.valid, out);
}

/* N rows, `step` apart. All are read before any is written, because y may be x. */
template <int N, bool VECTOR, typename T>
__device__ inline void add_bias(const octet<float> &bias, const T *x, T *y, int64_t step, int valid)
{
	octet<T> part[N];
#pragma unroll
	for (int k = 0; k < N; k++)
		part[k] = load_octet<VECTOR>(x + k * step, valid);
#pragma unroll
	for (int k = 0; k < N; k++) {
		float out[OCTET];
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			out[i] = part[k].at(i) + bias.at(i);
		store_octet<VECTOR>(y + k * step, valid, out);
	}
}

template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS) row_bias(columns g, const T *x, const float *b, T *y)
{
	const share s(g);
	if (s.valid <= 0)
		return;
	const octet<float> bias = load_octet<VECTOR>(b + s.channel, s.valid);
	const int64_t step = (int64_t)blockDim.y * g.channels;
	int64_t row = s.first + threadIdx.y, at = row * g.channels + s.channel;
	for (; row + (UNROLL - 1) * (int64_t)blockDim.y < s.end; row += UNROLL * blockDim.y, at += UNROLL * step)
		add_bias<UNROLL, VECTOR>(bias, x + at, y + at, step, s.valid);
	for (; row < s.end; row += blockDim.y, at += step)
		add_bias<1, VECTOR>(bias, x + at, y + at, step, s.valid);
}

columns sums_of(int64_t batch, int64_t rows, int64_t channels)
{
	return columns_of(batch, rows, channels, PER_MULTIPROCESSOR, LEAST_ROWS);
}

cudaError_t launch_sums(cudaStream_t stream, const columns &g, const void *x, int64_t pitch, dtrain_dtype from, void *y,
			dtrain_dtype to, double factor, bool adds)
{
	return with_type(from, [&](auto source) {
		typedef decltype(source) X;
		return with_type(to, [&](auto target) {
			typedef decltype(target) Y;
			return with_bool(is_vector(g.channels, x) && is_vector(pitch), [&](auto vector) {
				return launch(column_sums<X, Y, vector.value>, g.blocks, g.threads, stream, g,
					      (const X *)x, pitch, (Y *)y, (float)factor, adds);
			});
		});
	});
}

cudaError_t add_up_columns(cudaStream_t stream, const void *x, int64_t pitch, dtrain_dtype from, void *y,
			   dtrain_dtype to, int64_t batch, int64_t rows, int64_t channels, double factor, bool adds,
			   void *workspace)
{
	columns g = sums_of(batch, rows, channels);
	if (g.chunks == 1)
		return launch_sums(stream, g, x, pitch, from, y, to, factor, adds);
	cudaError_t status = launch_sums(stream, g, x, pitch, from, workspace, DTRAIN_F32, 1, false);
	if (status != cudaSuccess)
		return status;
	/* One chunk, because the chunks' sums are few. */
	g = columns_of(batch, g.chunks, channels, 1, INT32_MAX);
	return launch_sums(stream, g, workspace, channels, DTRAIN_F32, y, to, factor, adds);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" size_t cuda_kernel_column_sums_workspace(int64_t batch, int64_t rows, int64_t columns)
{
	cuda_kernels::columns g = sums_of(batch, rows, columns);
	return g.chunks > 1 ? (size_t)batch * g.chunks * (size_t)columns * sizeof(float) : 0;
}

extern "C" cudaError_t cuda_kernel_column_sums(cudaStream_t stream, const void *x, dtrain_dtype from, void *y,
					       dtrain_dtype to, int64_t batch, int64_t rows, int64_t columns,
					       double factor, void *workspace)
{
	return add_up_columns(stream, x, columns, from, y, to, batch, rows, columns, factor, false, workspace);
}

extern "C" cudaError_t cuda_kernel_matrix_sums(cudaStream_t stream, const void *x, dtrain_dtype from, float *y,
					       int64_t rows, int64_t columns, int64_t pitch, bool adds, void *workspace)
{
	return add_up_columns(stream, x, pitch, from, y, DTRAIN_F32, 1, rows, columns, 1, adds, workspace);
}

extern "C" cudaError_t cuda_kernel_spread(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y,
					  int64_t batch, int64_t rows, int64_t columns, double factor)
{
	cuda_kernels::columns g = columns_of(batch, rows, columns, 4 * PER_MULTIPROCESSOR, UNROLL);
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(columns, x, y), [&](auto vector) {
			return launch(spread<T, vector.value>, g.blocks, g.threads, stream, g, (const T *)x, (T *)y,
				      (float)factor);
		});
	});
}

extern "C" cudaError_t cuda_kernel_row_bias(cudaStream_t stream, dtrain_dtype dtype, const void *x, const float *b,
					    void *y, int64_t rows, int64_t columns)
{
	cuda_kernels::columns g = columns_of(1, rows, columns, 4 * PER_MULTIPROCESSOR, UNROLL);
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(columns, x, b, y), [&](auto vector) {
			return launch(row_bias<T, vector.value>, g.blocks, g.threads, stream, g, (const T *)x, b,
				      (T *)y);
		});
	});
}
