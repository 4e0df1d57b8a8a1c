/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross entropy of logits whose classes are divided among ranks: one block for each row of logits, and one thread for
 * each row of the ranks' numbers.
 */
#include "reduce.cuh"

namespace cuda_kernels
{
namespace
{

/* A rank's numbers: the logarithm of the sum of exponentials, the label's logit, the sum of logits. */
enum { LOG_SUM, CHOSEN, TOTAL, NUMBERS };

__device__ inline bool is_ignored(const cuda_xent_part &a, int64_t label)
{
	return a.ignored < 0 && label == a.ignored;
}

template <typename X, int N>
__global__ void __launch_bounds__(N) xent_part(cuda_xent_part a, const X *logits, float *part)
{
	const int64_t row = blockIdx.x, label = a.label[row];
	const X *x = logits + row * a.classes;
	float *numbers = part + a.rank * NUMBERS * a.rows + row;
	float own = -INFINITY, exponentials = 0, total = 0;
	if (is_ignored(a, label))
		return;
#pragma unroll 4
	for (int64_t c = threadIdx.x; c < a.classes; c += N)
		own = largest()(to_float(x[c]), own);
	const float most = reduce<N>(own, largest());
#pragma unroll 4
	for (int64_t c = threadIdx.x; c < a.classes; c += N) {
		exponentials += expf(to_float(x[c]) - most);
		total += to_float(x[c]);
	}
	exponentials = reduce<N>(exponentials, sum());
	total = reduce<N>(total, sum());
	if (threadIdx.x != 0)
		return;
	const int64_t mine = label - a.first;
	numbers[LOG_SUM * a.rows] = most + logf(exponentials);
	numbers[CHOSEN * a.rows] = mine >= 0 && mine < a.classes ? to_float(x[mine]) : 0;
	numbers[TOTAL * a.rows] = total;
}

template <typename X, int N>
__global__ void __launch_bounds__(N)
	xent_part_bwd(cuda_xent_part a, const X *logits, const float *part, const float *d_part, X *d_logits)
{
	const int64_t row = blockIdx.x, label = a.label[row], mine = label - a.first;
	const X *x = logits + row * a.classes;
	X *d_x = d_logits + row * a.classes;
	const float *numbers = part + a.rank * NUMBERS * a.rows + row, *d = d_part + a.rank * NUMBERS * a.rows + row;
	const bool counts = !is_ignored(a, label);
	const float log_sum = numbers[LOG_SUM * a.rows], d_log_sum = d[LOG_SUM * a.rows];
	const float d_chosen = d[CHOSEN * a.rows], d_total = d[TOTAL * a.rows];
#pragma unroll 4
	for (int64_t c = threadIdx.x; c < a.classes; c += N) {
		const float share = expf(to_float(x[c]) - log_sum);
		const float gradient = d_log_sum * share + d_total + (c == mine ? d_chosen : 0);
		d_x[c] = from_float<X>(counts ? gradient : 0);
	}
}

__global__ void __launch_bounds__(THREADS) xent_join(cuda_xent_part a, const float *part, float *loss, float *d_part)
{
	const int64_t row = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (row >= a.rows)
		return;
	const int64_t label = a.label[row], pitch = NUMBERS * a.rows;
	const bool exists = label >= 0 && label < a.classes, counts = exists && !is_ignored(a, label);
	const float scale = (a.scaler ? a.scaler[DTRAIN_SCALER_SCALE] : 1.f) / (a.counted ? *a.counted : (float)a.rows);
	const float smooth = (float)a.smoothing, each = (float)(a.smoothing / (double)a.classes);
	float most = -INFINITY, exponentials = 0, chosen = 0, total = 0;
	if (!exists && !is_ignored(a, label))
		*a.fault = fault_of(row, label);
	for (int64_t r = 0; r < a.ranks; r++)
		most = largest()(part[r * pitch + LOG_SUM * a.rows + row], most);
	for (int64_t r = 0; r < a.ranks; r++) {
		exponentials += expf(part[r * pitch + LOG_SUM * a.rows + row] - most);
		chosen += part[r * pitch + CHOSEN * a.rows + row];
		total += part[r * pitch + TOTAL * a.rows + row];
	}
	const float log_sum = most + logf(exponentials);
	loss[row] = counts ? log_sum - (1 - smooth) * chosen - each * total : 0;
	for (int64_t r = 0; r < a.ranks; r++) {
		float *d = d_part + r * pitch + row;
		const float share = expf(part[r * pitch + LOG_SUM * a.rows + row] - log_sum);
		d[LOG_SUM * a.rows] = counts ? share * scale : 0;
		d[CHOSEN * a.rows] = counts ? -(1 - smooth) * scale : 0;
		d[TOTAL * a.rows] = counts ? -each * scale : 0;
	}
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_xent_part(cudaStream_t stream, const cuda_xent_part *a, const void *logits,
					     dtrain_dtype dtype, float *part)
{
	const size_t bytes = (size_t)(a->ranks * NUMBERS * a->rows) * sizeof(float);
	const cudaError_t status = cudaMemsetAsync(part, 0, bytes, stream);
	if (status != cudaSuccess)
		return status;
	return with_type(dtype, [&](auto type) {
		typedef decltype(type) X;
		if (a->classes <= 8192)
			return launch(xent_part<X, 256>, a->rows, dim3(256), stream, *a, (const X *)logits, part);
		return launch(xent_part<X, 1024>, a->rows, dim3(1024), stream, *a, (const X *)logits, part);
	});
}

extern "C" cudaError_t cuda_kernel_xent_part_bwd(cudaStream_t stream, const cuda_xent_part *a, const void *logits,
						 dtrain_dtype dtype, const float *part, const float *d_part,
						 void *d_logits)
{
	return with_type(dtype, [&](auto type) {
		typedef decltype(type) X;
		if (a->classes <= 8192)
			return launch(xent_part_bwd<X, 256>, a->rows, dim3(256), stream, *a, (const X *)logits, part,
				      d_part, (X *)d_logits);
		return launch(xent_part_bwd<X, 1024>, a->rows, dim3(1024), stream, *a, (const X *)logits, part, d_part,
			      (X *)d_logits);
	});
}

extern "C" cudaError_t cuda_kernel_xent_join(cudaStream_t stream, const cuda_xent_part *a, const float *part,
					     float *loss, float *d_part)
{
	return launch(xent_join, (a->rows + THREADS - 1) / THREADS, dim3(THREADS), stream, *a, part, loss, d_part);
}
