/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax and cross entropy: a block for each row, of 32 threads where there are few classes. The logits are read three
 * times, from the cache but for the first.
 */
#include <cub/block/block_reduce.cuh>

#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

struct largest {
	__device__ float operator()(float a, float b) const
	{
		return a > b ? a : b;
	}
};
struct sum {
	__device__ float operator()(float a, float b) const
	{
		return a + b;
	}
};

/* What all threads of the block have, reduced; each gets the result. */
template <int N, typename F> __device__ inline float reduce(float x, F f)
{
	typedef cub::BlockReduce<float, N> reduction;
	__shared__ typename reduction::TempStorage storage;
	__shared__ float result;
	float out = reduction(storage).Reduce(x, f);
	if (threadIdx.x == 0)
		result = out;
	__syncthreads();
	out = result;
	__syncthreads();
	return out;
}

struct loss_op {
	const int64_t *label;
	const float *scaler; /* NULL: none */
	float *loss;
	int64_t *fault;
	int64_t rows, classes;
	float smoothing, of_all; /* of_all: smoothing / classes */
};

__device__ inline int64_t fault_of(int64_t row, int64_t label)
{
	const int64_t nearest = label < INT32_MIN ? INT32_MIN : label > INT32_MAX ? INT32_MAX : label;
	return (int64_t)((uint64_t)nearest << 32 | (uint32_t)(row + 1));
}

template <typename T, int N> __global__ void __launch_bounds__(N) softmax_xent(loss_op a, const T *logits, T *d_logits)
{
	const int64_t row = blockIdx.x, label = a.label[row];
	const T *x = logits + row * a.classes;
	T *d_x = d_logits + row * a.classes;
	if (label < 0 || label >= a.classes) {
		for (int64_t c = threadIdx.x; c < a.classes; c += N)
			d_x[c] = from_float<T>(0);
		if (threadIdx.x == 0) {
			a.loss[row] = 0;
			*a.fault = fault_of(row, label);
		}
		return;
	}
	float own = -INFINITY, exponentials = 0, total = 0;
	for (int64_t c = threadIdx.x; c < a.classes; c += N)
		own = largest()(to_float(x[c]), own);
	const float most = reduce<N>(own, largest());
	for (int64_t c = threadIdx.x; c < a.classes; c += N) {
		const float distance = to_float(x[c]) - most;
		exponentials += expf(distance);
		total += distance;
	}
	exponentials = reduce<N>(exponentials, sum());
	total = reduce<N>(total, sum());
	const float log_sum = logf(exponentials);
	if (threadIdx.x == 0)
		a.loss[row] = (1 - a.smoothing) * (log_sum - (to_float(x[label]) - most)) +
			      a.smoothing * (log_sum - total / (float)a.classes);
	const float scale = (a.scaler ? a.scaler[DTRAIN_SCALER_SCALE] : 1.f) / (float)a.rows;
	for (int64_t c = threadIdx.x; c < a.classes; c += N) {
		const float probability = expf(to_float(x[c]) - most - log_sum);
		const float target = (c == label ? 1 - a.smoothing : 0) + a.of_all;
		d_x[c] = from_float<T>((probability - target) * scale);
	}
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_softmax_xent(cudaStream_t stream, dtrain_dtype dtype, const void *logits,
						const int64_t *label, const float *scaler, float *loss, void *d_logits,
						int64_t *fault, int64_t rows, int64_t classes, double label_smoothing)
{
	loss_op a = {label,
		     scaler,
		     loss,
		     fault,
		     rows,
		     classes,
		     (float)label_smoothing,
		     (float)(label_smoothing / (double)classes)};
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		if (classes <= 128)
			return launch(softmax_xent<T, 32>, rows, dim3(32), stream, a, (const T *)logits, (T *)d_logits);
		return launch(softmax_xent<T, 256>, rows, dim3(256), stream, a, (const T *)logits, (T *)d_logits);
	});
}
