/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax and cross entropy: one block for each row, with 32 threads if there are few classes. The logits are read
 * three times, the second and third time from the cache.
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

/* Reduces x over all threads of the block; each gets the result. */
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
	cuda_loss of;
	float smoothing, of_all; /* of_all: smoothing / classes */
};

__device__ inline bool is_class(const cuda_loss &of, int64_t label)
{
	return label >= 0 && label < of.classes;
}

__device__ inline int64_t fault_of(int64_t row, int64_t label)
{
	const int64_t nearest = label < INT32_MIN ? INT32_MIN : label > INT32_MAX ? INT32_MAX : label;
	return (int64_t)((uint64_t)nearest << 32 | (uint32_t)(row + 1));
}

template <typename T, int N> __global__ void __launch_bounds__(N) softmax_xent(loss_op a, const T *logits, T *d_logits)
{
	const int64_t row = blockIdx.x, classes = a.of.classes, label = a.of.label[row];
	const int64_t other = a.of.mixed ? a.of.mixed[row] : label;
	const T *x = logits + row * classes;
	T *d_x = d_logits + row * classes;
	if (!is_class(a.of, label) || !is_class(a.of, other)) {
		for (int64_t c = threadIdx.x; c < classes; c += N)
			d_x[c] = from_float<T>(0);
		if (threadIdx.x == 0) {
			a.of.loss[row] = 0;
			if (a.of.hits)
				a.of.hits[row] = 0;
			*a.of.fault = fault_of(row, is_class(a.of, label) ? other : label);
		}
		return;
	}
	float own = -INFINITY, exponentials = 0, total = 0;
	for (int64_t c = threadIdx.x; c < classes; c += N)
		own = largest()(to_float(x[c]), own);
	const float most = reduce<N>(own, largest());
	for (int64_t c = threadIdx.x; c < classes; c += N) {
		const float distance = to_float(x[c]) - most;
		exponentials += expf(distance);
		total += distance;
	}
	if (a.of.hits) {
		const float mine = to_float(x[label]);
		float higher = 0; /* logits that count as higher than the label's */
		for (int64_t c = threadIdx.x; c < classes; c += N)
			higher += to_float(x[c]) > mine || (to_float(x[c]) == mine && c < label);
		higher = reduce<N>(higher, sum());
		if (threadIdx.x == 0)
			a.of.hits[row] = higher == 0 && mine == mine;
	}
	exponentials = reduce<N>(exponentials, sum());
	total = reduce<N>(total, sum());
	const float log_sum = logf(exponentials), share = a.of.mixed ? a.of.lambda[row] : 1.f;
	if (threadIdx.x == 0) {
		float chosen = to_float(x[label]) - most;
		if (a.of.mixed)
			chosen = share * chosen + (1 - share) * (to_float(x[other]) - most);
		a.of.loss[row] =
			(1 - a.smoothing) * (log_sum - chosen) + a.smoothing * (log_sum - total / (float)classes);
	}
	const float scale = (a.of.scaler ? a.of.scaler[DTRAIN_SCALER_SCALE] : 1.f) / (float)a.of.rows;
	for (int64_t c = threadIdx.x; c < classes; c += N) {
		const float probability = expf(to_float(x[c]) - most - log_sum);
		const float part = (c == label ? share : 0) + (c == other ? 1 - share : 0);
		const float target = part * (1 - a.smoothing) + a.of_all;
		d_x[c] = from_float<T>((probability - target) * scale);
	}
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_softmax_xent(cudaStream_t stream, dtrain_dtype dtype, const cuda_loss *loss,
						const void *logits, void *d_logits, double label_smoothing)
{
	loss_op a = {*loss, (float)label_smoothing, (float)(label_smoothing / (double)loss->classes)};
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		const T *x = (const T *)logits;
		if (loss->classes <= 128)
			return launch(softmax_xent<T, 32>, loss->rows, dim3(32), stream, a, x, (T *)d_logits);
		return launch(softmax_xent<T, 256>, loss->rows, dim3(256), stream, a, x, (T *)d_logits);
	});
}
