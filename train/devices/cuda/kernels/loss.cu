/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax and cross entropy: one block for each row, with 32 threads if there are few classes, and 1024 if there are
 * many. The logits are read three times, the second and third time from the cache.
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

__device__ inline bool is_class(int64_t classes, int64_t label)
{
	return label >= 0 && label < classes;
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
	for (int64_t c = threadIdx.x; d_x && c < of.pitch; c += N)
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
	const X *x = logits + row * a.of.pitch;
	Y *d_x = d_logits ? d_logits + row * a.of.pitch : nullptr;
	const bool ignored = a.of.ignored < 0 && !a.of.mixed && label == a.of.ignored;
	if (ignored || !is_class(a.of.classes, label) || !is_class(a.of.classes, other)) {
		leave_out<Y, N>(a.of, row, d_x);
		if (threadIdx.x == 0 && !ignored)
			*a.of.fault = fault_of(a.of.first_row + row, is_class(a.of.classes, label) ? other : label);
		return;
	}
	const float *bias = a.of.bias;
	auto logit = [&](int64_t c) { return to_float(x[c]) + (bias ? bias[c] : 0); };
	float own = -INFINITY, exponentials = 0, total = 0;
#pragma unroll 4
	for (int64_t c = threadIdx.x; c < classes; c += N)
		own = largest()(logit(c), own);
	const float most = reduce<N>(own, largest());
#pragma unroll 4
	for (int64_t c = threadIdx.x; c < classes; c += N) {
		const float distance = logit(c) - most;
		exponentials += expf(distance);
		total += distance;
	}
	if (a.of.hits) {
		const float mine = logit(label);
		float higher = 0; /* logits that count as higher than the label's */
		for (int64_t c = threadIdx.x; c < classes; c += N)
			higher += logit(c) > mine || (logit(c) == mine && c < label);
		higher = reduce<N>(higher, sum());
		if (threadIdx.x == 0)
			a.of.hits[row] = higher == 0 && mine == mine;
	}
	exponentials = reduce<N>(exponentials, sum());
	total = reduce<N>(total, sum());
	const float log_sum = logf(exponentials), share = a.of.mixed ? a.of.lambda[row] : 1.f;
	if (threadIdx.x == 0) {
		float chosen = logit(label) - most;
		if (a.of.mixed)
			chosen = share * chosen + (1 - share) * (logit(other) - most);
		a.of.loss[row] =
			(1 - a.smoothing) * (log_sum - chosen) + a.smoothing * (log_sum - total / (float)classes);
	}
	if (!d_x)
		return;
	const int64_t rows = a.of.all_rows ? a.of.all_rows : a.of.rows;
	const float counted = a.of.counted ? *a.of.counted : (float)rows;
	const float scale = (a.of.scaler ? a.of.scaler[DTRAIN_SCALER_SCALE] : 1.f) / counted;
#pragma unroll 4
	for (int64_t c = threadIdx.x; c < classes; c += N) {
		const float probability = expf(logit(c) - most - log_sum);
		const float part = (c == label ? share : 0) + (c == other ? 1 - share : 0);
		const float target = part * (1 - a.smoothing) + a.of_all;
		d_x[c] = from_float<Y>((probability - target) * scale);
	}
	for (int64_t c = classes + threadIdx.x; c < a.of.pitch; c += N)
		d_x[c] = from_float<Y>(0);
}

/* One thread for each element of target. */
__global__ void __launch_bounds__(THREADS) one_hot(const int64_t *label, const int64_t *mixed, const float *lambda,
						   float *target, int64_t rows, int64_t classes, int64_t *fault)
{
	const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (i >= rows * classes)
		return;
	const int64_t row = i / classes, c = i % classes, own = label[row], other = mixed ? mixed[row] : own;
	const bool good = is_class(classes, own) && is_class(classes, other);
	const float share = mixed ? lambda[row] : 1.f;
	target[i] = good ? (c == own ? share : 0) + (c == other ? 1 - share : 0) : 0;
	if (c == 0 && !good)
		*fault = fault_of(row, is_class(classes, own) ? other : own);
}

struct target_loss_op {
	cuda_target_loss of;
	float smoothing, of_all, threshold; /* of_all: smoothing / classes */
};

__device__ inline float goal_of(const target_loss_op &a, float target)
{
	const float goal = (1 - a.smoothing) * target + a.of_all;
	return a.threshold > 0 ? goal > a.threshold : goal;
}

/* Whether the logit of the class with the largest target, of equal ones the first, is the highest. */
template <typename X, int N>
__device__ inline void note_hit(const cuda_target_loss &of, const X *x, const float *target)
{
	float own = -INFINITY, place = -(float)of.classes, higher = 0;
	for (int64_t c = threadIdx.x; c < of.classes; c += N)
		own = largest()(target[c], own);
	const float most = reduce<N>(own, largest());
	for (int64_t c = threadIdx.x; c < of.classes; c += N)
		if (target[c] == most)
			place = largest()(-(float)c, place);
	const int64_t label = (int64_t)-reduce<N>(place, largest());
	const float mine = label < of.classes ? to_float(x[label]) : NAN;
	for (int64_t c = threadIdx.x; c < of.classes; c += N)
		higher += to_float(x[c]) > mine || (to_float(x[c]) == mine && c < label);
	higher = reduce<N>(higher, sum());
	if (threadIdx.x == 0)
		of.hits[blockIdx.x] = higher == 0 && mine == mine;
}

/* The numbers of a softmax with targets: the largest logit, the logarithm of the sum of exponentials, and the sum of
 * targets. */
struct soft_row {
	float most, log_sum, whole;
};

template <typename X, int N>
__device__ inline soft_row read_soft_row(const target_loss_op &a, const X *x, const float *target)
{
	float own = -INFINITY, exponentials = 0, whole = 0;
	for (int64_t c = threadIdx.x; c < a.of.classes; c += N)
		own = largest()(to_float(x[c]), own);
	const float most = reduce<N>(own, largest());
	for (int64_t c = threadIdx.x; c < a.of.classes; c += N) {
		exponentials += expf(to_float(x[c]) - most);
		whole += goal_of(a, target[c]);
	}
	exponentials = reduce<N>(exponentials, sum());
	return {most, logf(exponentials), reduce<N>(whole, sum())};
}

template <typename X, int N, int KIND>
__global__ void __launch_bounds__(N) target_loss(target_loss_op a, const X *inputs, X *gradients)
{
	const int64_t row = blockIdx.x, classes = a.of.classes;
	const X *x = inputs + row * classes;
	X *d_x = gradients + row * classes;
	const float *target = a.of.target + row * classes;
	const float scale = (a.of.scaler ? a.of.scaler[DTRAIN_SCALER_SCALE] : 1.f) / (float)a.of.rows;
	const float each = scale / (float)classes;
	soft_row soft = {};
	if (KIND == DTRAIN_OP_SOFTMAX_XENT_SOFT)
		soft = read_soft_row<X, N>(a, x, target);
	if (a.of.hits)
		note_hit<X, N>(a.of, x, target);
	float loss = 0;
	for (int64_t c = threadIdx.x; c < classes; c += N) {
		const float value = to_float(x[c]);
		float gradient;
		if (KIND == DTRAIN_OP_SOFTMAX_XENT_SOFT) {
			const float goal = goal_of(a, target[c]), log_p = value - soft.most - soft.log_sum;
			loss -= goal * log_p;
			gradient = (expf(log_p) * soft.whole - goal) * scale;
		} else if (KIND == DTRAIN_OP_SIGMOID_XENT) {
			const float goal = goal_of(a, target[c]), e = expf(-fabsf(value));
			loss += fmaxf(value, 0) - value * goal + log1pf(e);
			gradient = ((value < 0 ? e : 1) / (1 + e) - goal) * each;
		} else {
			const float difference = value - target[c];
			loss += difference * difference;
			gradient = 2 * difference * each;
		}
		d_x[c] = from_float<X>(gradient);
	}
	loss = reduce<N>(loss, sum());
	if (threadIdx.x == 0)
		a.of.loss[row] = KIND == DTRAIN_OP_SOFTMAX_XENT_SOFT ? loss : loss / (float)classes;
}

template <typename X, int KIND>
cudaError_t launch_target_loss(cudaStream_t stream, const target_loss_op &a, const X *x, X *d_x)
{
	if (a.of.classes <= 128)
		return launch(target_loss<X, 32, KIND>, a.of.rows, dim3(32), stream, a, x, d_x);
	return launch(target_loss<X, 256, KIND>, a.of.rows, dim3(256), stream, a, x, d_x);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_softmax_xent(cudaStream_t stream, const cuda_loss *loss, const void *logits,
						dtrain_dtype from, void *d_logits, dtrain_dtype to,
						double label_smoothing)
{
	loss_op a = {*loss, (float)label_smoothing, (float)(label_smoothing / (double)loss->classes)};
	if (a.of.pitch == 0)
		a.of.pitch = a.of.classes;
	return with_type(from, [&](auto source) {
		typedef decltype(source) X;
		return with_type(to, [&](auto target) {
			typedef decltype(target) Y;
			const X *x = (const X *)logits;
			Y *d_x = (Y *)d_logits;
			if (loss->classes <= 128)
				return launch(softmax_xent<X, Y, 32>, loss->rows, dim3(32), stream, a, x, d_x);
			if (loss->classes <= 8192)
				return launch(softmax_xent<X, Y, 256>, loss->rows, dim3(256), stream, a, x, d_x);
			/* So that the rows which are being read at a time stay in the cache. */
			return launch(softmax_xent<X, Y, 1024>, loss->rows, dim3(1024), stream, a, x, d_x);
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

extern "C" cudaError_t cuda_kernel_one_hot(cudaStream_t stream, const int64_t *label, const int64_t *mixed,
					   const float *lambda, float *target, int64_t rows, int64_t classes,
					   int64_t *fault)
{
	return launch(one_hot, (rows * classes + THREADS - 1) / THREADS, dim3(THREADS), stream, label, mixed, lambda,
		      target, rows, classes, fault);
}

extern "C" cudaError_t cuda_kernel_target_loss(cudaStream_t stream, const cuda_target_loss *loss, const void *x,
					       void *d_x, dtrain_dtype dtype)
{
	const target_loss_op a = {*loss, (float)loss->smoothing, (float)(loss->smoothing / (double)loss->classes),
				  (float)loss->threshold};
	return with_type(dtype, [&](auto type) {
		typedef decltype(type) X;
		switch (loss->kind) {
		case DTRAIN_OP_SOFTMAX_XENT_SOFT:
			return launch_target_loss<X, DTRAIN_OP_SOFTMAX_XENT_SOFT>(stream, a, (const X *)x, (X *)d_x);
		case DTRAIN_OP_SIGMOID_XENT:
			return launch_target_loss<X, DTRAIN_OP_SIGMOID_XENT>(stream, a, (const X *)x, (X *)d_x);
		default:
			return launch_target_loss<X, DTRAIN_OP_SQUARED_ERROR>(stream, a, (const X *)x, (X *)d_x);
		}
	});
}
