/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax and cross entropy: one block for each row, with 32 threads if there are few classes. The logits are read
 * three times, the second and third time from the cache.
 */
#include "reduce.cuh"

namespace cuda_kernels
{
namespace
{

struct loss_op {
	cuda_loss of;
	float smoothing, of_all; /* of_all: smoothing / classes */
};

__device__ inline bool is_class(const cuda_loss &of, int64_t label)
{
	return label >= 0 && label < of.classes;
}

/* *out = number of rows whose label counts. */
__global__ void __launch_bounds__(THREADS) count_labels(const int64_t *label, int64_t ignored, int64_t rows, float *out)
{
	double count = 0;
	for (int64_t row = threadIdx.x; row < rows; row += THREADS)
		count += label[row] != ignored;
	count = add_up(count);
	if (threadIdx.x == 0)
		*out = (float)count;
}

__global__ void __launch_bounds__(THREADS)
	labelled_mean(const float *x, const int64_t *label, int64_t ignored, int64_t rows, float *y)
{
	double count = 0, total = 0;
	for (int64_t row = threadIdx.x; row < rows; row += THREADS) {
		const bool counts = label[row] != ignored;
		count += counts;
		total += counts ? (double)x[row] : 0;
	}
	count = add_up(count);
	__syncthreads();
	total = add_up(total);
	if (threadIdx.x == 0)
		*y = count > 0 ? (float)(total / count) : 0;
}

/* A row without a loss: its label is ignored, or wrong. */
template <typename Y, int N> __device__ inline void leave_out(const cuda_loss &of, int64_t row, Y *d_x)
{
	for (int64_t c = threadIdx.x; d_x && c < of.classes; c += N)
		d_x[c] = from_float<Y>(0);
	if (threadIdx.x == 0) {
		of.loss[row] = 0;
		if (of.hits)
			of.hits[row] = 0;
	}
}

template <typename X, typename Y, int N>
__global__ void __launch_bounds__(N) softmax_xent(loss_op a, const X *logits, Y *d_logits)
{
	const int64_t row = blockIdx.x, classes = a.of.classes, label = a.of.label[row];
	const int64_t other = a.of.mixed ? a.of.mixed[row] : label;
	const X *x = logits + row * classes;
	Y *d_x = d_logits ? d_logits + row * classes : nullptr;
	const bool ignored = a.of.ignored < 0 && !a.of.mixed && label == a.of.ignored;
	if (ignored || !is_class(a.of, label) || !is_class(a.of, other)) {
		leave_out<Y, N>(a.of, row, d_x);
		if (threadIdx.x == 0 && !ignored)
			*a.of.fault = fault_of(a.of.first_row + row, is_class(a.of, label) ? other : label);
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
	if (!d_x)
		return;
	const int64_t rows = a.of.all_rows ? a.of.all_rows : a.of.rows;
	const float counted = a.of.counted ? *a.of.counted : (float)rows;
	const float scale = (a.of.scaler ? a.of.scaler[DTRAIN_SCALER_SCALE] : 1.f) / counted;
	for (int64_t c = threadIdx.x; c < classes; c += N) {
		const float probability = expf(to_float(x[c]) - most - log_sum);
		const float part = (c == label ? share : 0) + (c == other ? 1 - share : 0);
		const float target = part * (1 - a.smoothing) + a.of_all;
		d_x[c] = from_float<Y>((probability - target) * scale);
	}
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_softmax_xent(cudaStream_t stream, const cuda_loss *loss, const void *logits,
						dtrain_dtype from, void *d_logits, dtrain_dtype to,
						double label_smoothing)
{
	loss_op a = {*loss, (float)label_smoothing, (float)(label_smoothing / (double)loss->classes)};
	return with_type(from, [&](auto source) {
		typedef decltype(source) X;
		return with_type(to, [&](auto target) {
			typedef decltype(target) Y;
			const X *x = (const X *)logits;
			if (loss->classes <= 128)
				return launch(softmax_xent<X, Y, 32>, loss->rows, dim3(32), stream, a, x,
					      (Y *)d_logits);
			return launch(softmax_xent<X, Y, 256>, loss->rows, dim3(256), stream, a, x, (Y *)d_logits);
		});
	});
}

extern "C" cudaError_t cuda_kernel_count_labels(cudaStream_t stream, const int64_t *label, int64_t ignored,
						int64_t rows, float *out)
{
	return launch(count_labels, 1, dim3(THREADS), stream, label, ignored, rows, out);
}

extern "C" cudaError_t cuda_kernel_labelled_mean(cudaStream_t stream, const float *x, const int64_t *label,
						 int64_t ignored, int64_t rows, float *y)
{
	return launch(labelled_mean, 1, dim3(THREADS), stream, x, label, ignored, rows, y);
}
