/* SPDX-License-Identifier: Apache-2.0
 *
 * Softmax and cross entropy: one block for each row. Rows of many classes are read once, 16 bytes at a time: the
 * largest logit and the sum of exponentials are found together, and the gradient is computed from a copy in shared
 * memory, or from a second read where the row does not fit. Other rows are read three times, the second and third time
 * from the cache.
 */
#include <float.h>

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

/* A row's target is `share` at label, and the rest at other. A row with one label has it twice. */
struct row_target {
	int64_t label, other;
	float share;
};

/* Returns whether the row has a loss. If not, its outputs are 0, and a wrong label is reported. */
template <typename Y, int N> __device__ inline bool read_target(const loss_op &a, int64_t row, Y *d_x, row_target *out)
{
	const int64_t label = a.of.label[row], other = a.of.mixed ? a.of.mixed[row] : label;
	*out = {label, other, a.of.mixed ? a.of.lambda[row] : 1.f};
	const bool ignored = a.of.ignored < 0 && !a.of.mixed && label == a.of.ignored;
	if (!ignored && is_class(a.of.classes, label) && is_class(a.of.classes, other))
		return true;
	leave_out<Y, N>(a.of, row, d_x);
	if (threadIdx.x == 0 && !ignored)
		*a.of.fault = fault_of(a.of.first_row + row, is_class(a.of.classes, label) ? other : label);
	return false;
}

/* chosen, mean: the logits of the target and of all classes, above the largest one. */
__device__ inline float loss_of(const loss_op &a, float log_sum, float chosen, float mean)
{
	const float smoothed = a.smoothing > 0 ? a.smoothing * (log_sum - mean) : 0;
	return (1 - a.smoothing) * (log_sum - chosen) + smoothed;
}

/* The factor of a row's gradient: of the mean over rows, and of the scaler. */
__device__ inline float scale_of(const loss_op &a)
{
	const int64_t rows = a.of.all_rows ? a.of.all_rows : a.of.rows;
	const float counted = a.of.counted ? *a.of.counted : (float)rows;
	return (a.of.scaler ? a.of.scaler[DTRAIN_SCALER_SCALE] : 1.f) / counted;
}

/* ---- rows that are read element by element ---- */

/* The gradients may replace the logits, so the logits of the target are read before the first barrier. */
template <typename X, typename Y, int N>
__global__ void __launch_bounds__(N) softmax_xent(loss_op a, const X *logits, Y *d_logits)
{
	const int64_t row = blockIdx.x, classes = a.of.classes;
	const X *x = logits + row * a.of.pitch;
	Y *d_x = d_logits ? d_logits + row * a.of.pitch : nullptr;
	row_target target;
	if (!read_target<Y, N>(a, row, d_x, &target))
		return;
	const float *bias = a.of.bias;
	auto logit = [&](int64_t c) { return to_float(x[c]) + (bias ? bias[c] : 0); };
	const float mine = logit(target.label), others = logit(target.other);
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
		float higher = 0; /* logits that count as higher than the label's */
		for (int64_t c = threadIdx.x; c < classes; c += N)
			higher += logit(c) > mine || (logit(c) == mine && c < target.label);
		higher = reduce<N>(higher, sum());
		if (threadIdx.x == 0)
			a.of.hits[row] = higher == 0 && mine == mine;
	}
	exponentials = reduce<N>(exponentials, sum());
	total = reduce<N>(total, sum());
	const float log_sum = logf(exponentials), share = target.share;
	const float chosen = share * (mine - most) + (share < 1 ? (1 - share) * (others - most) : 0);
	if (threadIdx.x == 0)
		a.of.loss[row] = loss_of(a, log_sum, chosen, total / (float)classes);
	if (!d_x)
		return;
	const float scale = scale_of(a);
#pragma unroll 4
	for (int64_t c = threadIdx.x; c < classes; c += N) {
		const float probability = expf(logit(c) - most - log_sum);
		const float part = (c == target.label ? share : 0) + (c == target.other ? 1 - share : 0);
		d_x[c] = from_float<Y>((probability - part * (1 - a.smoothing) - a.of_all) * scale);
	}
	for (int64_t c = classes + threadIdx.x; c < a.of.pitch; c += N)
		d_x[c] = from_float<Y>(0);
}

/* ---- rows that are read 16 bytes at a time ---- */

/* exp(x), in half the instructions of expf; the error grows with |x|, where exp(x) is small. */
__device__ inline float power(float x)
{
	return exp2f(x * 1.44269504f);
}

/* A row of logits in memory, whose octets `held` may have a copy of. */
template <bool HELD, typename X> struct logit_row {
	const X *x;
	octet<X> *held;
	const float *bias;
	int classes;

	/* Octet v of the row; past the classes -infinity. WHOLE: all eight are classes. */
	template <bool WHOLE> __device__ void add_bias(const octet<X> &from, int v, float (&out)[OCTET]) const
	{
		const int c = v * OCTET, valid = WHOLE ? OCTET : classes - c;
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			out[i] = WHOLE || i < valid ? from.at(i) : -INFINITY;
		if (!bias)
			return;
		const octet<float> shift = load_octet<WHOLE>(bias + c, valid);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			out[i] += shift.at(i);
	}
	__device__ bool is_whole(int v) const
	{
		return (v + 1) * OCTET <= classes;
	}
	__device__ octet<X> load(int v) const
	{
		return load_octet<true>(x + v * OCTET, OCTET);
	}
	/* A thread asks for its own octets alone. */
	__device__ void again(int v, float (&out)[OCTET]) const
	{
		const octet<X> from = HELD ? held[v] : load(v);
		if (is_whole(v))
			add_bias<true>(from, v, out);
		else
			add_bias<false>(from, v, out);
	}
};

/* A thread's part of a row: the largest logit so far, the sum of exponentials of the distances to it, the sum of
 * logits. */
struct row_part {
	float most = -FLT_MAX, exponentials = 0, total = 0;

	/* valid: how many of the logits are classes; the others are -infinity. */
	__device__ void add(const float (&logit)[OCTET], int valid)
	{
		float now = most;
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			now = fmaxf(now, logit[i]);
		exponentials *= power(most - now);
		most = now;
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			exponentials += power(logit[i] - now);
			total += i < valid ? logit[i] : 0;
		}
	}
};

template <int N, bool HELD, typename X> __device__ inline row_part read_row(const logit_row<HELD, X> &row)
{
	constexpr int UNROLL = sizeof(X) == 2 ? 4 : 2;
	const int whole = row.classes / OCTET;
	row_part part;
	const auto take = [&](const octet<X> &from, int v) {
		float logit[OCTET];
		if (HELD)
			row.held[v] = from;
		row.template add_bias<true>(from, v, logit);
		part.add(logit, OCTET);
	};
	int v = threadIdx.x;
	for (; v + (UNROLL - 1) * N < whole; v += UNROLL * N) {
		octet<X> from[UNROLL];
#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			from[k] = row.load(v + k * N);
#pragma unroll
		for (int k = 0; k < UNROLL; k++)
			take(from[k], v + k * N);
	}
	for (; v < whole; v += N)
		take(row.load(v), v);
	if (v == whole && whole * OCTET < row.classes) {
		float logit[OCTET];
		const octet<X> from = row.load(v);
		if (HELD)
			row.held[v] = from;
		row.template add_bias<false>(from, v, logit);
		part.add(logit, row.classes - v * OCTET);
	}
	return part;
}

/* Whether no class before label has the logit `mine`; all threads get it. */
template <int N, bool HELD, typename X>
__device__ inline bool is_first(const logit_row<HELD, X> &row, int label, float mine)
{
	float before = 0;
	for (int v = threadIdx.x; v * OCTET < label; v += N) {
		float logit[OCTET];
		row.again(v, logit);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			before += logit[i] == mine && v * OCTET + i < label;
	}
	return reduce<N>(before, sum()) == 0;
}

/* Subtracts `part` from the gradient of class `label`, if that is one of the octet v. */
__device__ inline void subtract(float (&gradient)[OCTET], int v, int label, float part)
{
	if (label / OCTET != v)
		return;
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		gradient[i] -= label % OCTET == i ? part : 0;
}

/* most, share: the gradient of a class is the exponential of its distance to `most`, times `share`, minus the target.
 */
template <int N, bool HELD, typename X, typename Y>
__device__ inline void write_gradients(const loss_op &a, const logit_row<HELD, X> &row, const row_target &target,
				       float most, float share, float scale, Y *d_x)
{
	const float each = a.of_all * scale, goal = (1 - a.smoothing) * scale;
	const int label = (int)target.label, other = (int)target.other, octets = (int)a.of.pitch / OCTET;
	for (int v = threadIdx.x; v < octets; v += N) {
		float out[OCTET] = {0};
		if (v * OCTET < row.classes) {
			const int valid = row.classes - v * OCTET;
			row.again(v, out);
#pragma unroll
			for (int i = 0; i < OCTET; i++)
				out[i] = i < valid ? power(out[i] - most) * share - each : 0;
			subtract(out, v, label, target.share * goal);
			if (target.share < 1)
				subtract(out, v, other, (1 - target.share) * goal);
		}
		store_vector(d_x + v * OCTET, out);
	}
}

/* pitch is a multiple of OCTET, and rows are aligned. HELD: shared memory has a row. The gradients may replace the
 * logits: a thread writes what it alone reads again, and the logits of the target are read before the first barrier. */
template <typename X, typename Y, int N, bool HELD>
__global__ void __launch_bounds__(N, 1024 / N) softmax_xent_octets(loss_op a, const X *logits, Y *d_logits)
{
	const int64_t at = blockIdx.x;
	Y *d_x = d_logits ? d_logits + at * a.of.pitch : nullptr;
	row_target target;
	if (!read_target<Y, N>(a, at, d_x, &target))
		return;
	const logit_row<HELD, X> row = {logits + at * a.of.pitch, HELD ? (octet<X> *)dynamic_shared() : nullptr,
					a.of.bias, (int)a.of.classes};
	const auto logit = [&](int64_t c) { return to_float(row.x[c]) + (row.bias ? row.bias[c] : 0); };
	const float mine = logit(target.label), others = logit(target.other);
	row_part part = read_row<N>(row);
	const float most = reduce<N>(part.most, largest());
	const float exponentials = reduce<N>(part.exponentials * power(part.most - most), sum());
	const float total = a.smoothing > 0 ? reduce<N>(part.total, sum()) : 0;
	if (a.of.hits) {
		const bool hit = mine == most && is_first<N>(row, (int)target.label, mine);
		if (threadIdx.x == 0)
			a.of.hits[at] = hit;
	}
	const float log_sum = logf(exponentials), share = target.share;
	const float chosen = share * (mine - most) + (share < 1 ? (1 - share) * (others - most) : 0);
	if (threadIdx.x == 0)
		a.of.loss[at] = loss_of(a, log_sum, chosen, total / (float)a.of.classes - most);
	if (!d_x)
		return;
	const float scale = scale_of(a);
	write_gradients<N>(a, row, target, most, scale / exponentials, scale, d_x);
}

/* Bytes of shared memory for a row, or 0 if a block cannot have so much. The kernel has some of its own. */
size_t held_bytes(int64_t pitch, size_t size)
{
	const size_t bytes = (size_t)pitch * size, own = 4096;
	return bytes + own <= shared_memory_limit() ? bytes : 0;
}

template <typename X, typename Y, int N>
cudaError_t launch_octets(cudaStream_t stream, const loss_op &a, const X *x, Y *d_x)
{
	const size_t held = d_x ? held_bytes(a.of.pitch, sizeof(X)) : 0;
	if (held)
		return launch_shared(softmax_xent_octets<X, Y, N, true>, a.of.rows, dim3(N), held, stream, a, x, d_x);
	return launch(softmax_xent_octets<X, Y, N, false>, a.of.rows, dim3(N), stream, a, x, d_x);
}

template <typename X, typename Y>
cudaError_t launch_softmax_xent(cudaStream_t stream, const loss_op &a, const X *x, Y *d_x)
{
	const cuda_loss &of = a.of;
	const bool octets = of.classes > 2048 && of.pitch % OCTET == 0 && of.pitch <= INT32_MAX - 1024 * OCTET &&
			    is_aligned(x, 16) && is_aligned(d_x, 16) && is_aligned(of.bias, 16);
	if (octets && of.classes <= 16384)
		return launch_octets<X, Y, 256>(stream, a, x, d_x);
	if (octets)
		return launch_octets<X, Y, 512>(stream, a, x, d_x);
	if (of.classes <= 128)
		return launch(softmax_xent<X, Y, 32>, of.rows, dim3(32), stream, a, x, d_x);
	if (of.classes <= 8192)
		return launch(softmax_xent<X, Y, 256>, of.rows, dim3(256), stream, a, x, d_x);
	/* So that the rows which are being read at a time stay in the cache. */
	return launch(softmax_xent<X, Y, 1024>, of.rows, dim3(1024), stream, a, x, d_x);
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
	if (from != to && from != DTRAIN_F32)
		return cudaErrorInvalidValue;
	return with_type(to, [&](auto target) {
		typedef decltype(target) Y;
		if (from == to)
			return launch_softmax_xent(stream, a, (const Y *)logits, (Y *)d_logits);
		return launch_softmax_xent(stream, a, (const float *)logits, (Y *)d_logits);
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
