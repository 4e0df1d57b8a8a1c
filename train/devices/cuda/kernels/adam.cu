/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam, AdamW and Lion over all parameters in one launch, and the count of steps.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

/* The part of an update that each launch's threads read. */
struct flat_op {
	const float *g, *scalars;
	const uint8_t *group;
	const float *scaler; /* or a step; NULL: none */
	float divisor;
};

/* The values are array 0; all arrays are read and written. */
template <bool AMSGRAD> struct adam_op {
	static constexpr int ARRAYS = AMSGRAD ? 4 : 3;
	float *arrays[ARRAYS];
	float rise1, keep2, rise2, epsilon;
	bool decoupled;
	float correction1, correction2; /* set by each thread */

	__device__ void prepare(const float *step)
	{
		correction1 = step[DTRAIN_STEP_CORRECTION1];
		correction2 = step[DTRAIN_STEP_CORRECTION2];
	}

	__device__ void update(float (&x)[ARRAYS], float g, float lr, float decay) const
	{
		float w = x[0];
		if (decoupled)
			w *= 1 - lr * decay;
		else
			g += decay * w;
		x[1] += rise1 * (g - x[1]);
		x[2] = keep2 * x[2] + rise2 * g * g;
		float second = x[2];
		if constexpr (AMSGRAD)
			x[3] = second = x[3] > second ? x[3] : second;
		x[0] = w - lr / correction1 * x[1] / (sqrtf(second) / correction2 + epsilon);
	}
};

struct lion_op {
	static constexpr int ARRAYS = 2;
	float *arrays[ARRAYS];
	float keep1, rise1, keep2, rise2;

	__device__ void prepare(const float *)
	{
	}

	__device__ void update(float (&x)[ARRAYS], float g, float lr, float decay) const
	{
		const float direction = keep1 * x[1] + rise1 * g, w = x[0] * (1 - lr * decay);
		x[0] = direction > 0 ? w - lr : direction < 0 ? w + lr : w;
		x[1] = keep2 * x[1] + rise2 * g;
	}
};

/* A vector lies within one run of a group. */
template <int N, int V, typename OP>
__device__ inline void update_vectors(const flat_op &a, const OP &op, float inverse, int64_t first, int64_t stride)
{
	static_assert(DTRAIN_PARAM_ALIGN % V == 0, "vectors do not divide a run");
	typedef vector<float, V> numbers;
	numbers x[OP::ARRAYS][N], g[N];
	int group[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		group[k] = a.group[(first + k * stride) / (DTRAIN_PARAM_ALIGN / V)];
		g[k] = reinterpret_cast<const numbers *>(a.g)[first + k * stride];
#pragma unroll
		for (int j = 0; j < OP::ARRAYS; j++)
			x[j][k] = reinterpret_cast<const numbers *>(op.arrays[j])[first + k * stride];
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float lr = a.scalars[DTRAIN_UPDATE_SCALARS * group[k]];
		const float decay = a.scalars[DTRAIN_UPDATE_SCALARS * group[k] + 1];
#pragma unroll
		for (int i = 0; i < V; i++) {
			float element[OP::ARRAYS];
#pragma unroll
			for (int j = 0; j < OP::ARRAYS; j++)
				element[j] = x[j][k].v[i];
			op.update(element, g[k].v[i] * inverse, lr, decay);
#pragma unroll
			for (int j = 0; j < OP::ARRAYS; j++)
				x[j][k].v[i] = element[j];
		}
#pragma unroll
		for (int j = 0; j < OP::ARRAYS; j++)
			store_vector(op.arrays[j] + (first + k * stride) * V, x[j][k].v);
	}
}

template <int V, typename OP> __global__ void __launch_bounds__(THREADS) update_all(flat_op a, OP op, int64_t count)
{
	if (a.scaler && a.scaler[DTRAIN_SCALER_INFINITE] != 0)
		return;
	const float inverse = 1 / (a.scaler ? a.divisor * a.scaler[DTRAIN_SCALER_SCALE] : a.divisor);
	const int64_t vectors = count / V, stride = (int64_t)gridDim.x * THREADS;
	const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	op.prepare(a.scaler);
	int64_t i = thread;
	for (; i + stride < vectors; i += 2 * stride)
		update_vectors<2, V>(a, op, inverse, i, stride);
	if (i < vectors)
		update_vectors<1, V>(a, op, inverse, i, 0);
	if (thread < count - vectors * V)
		update_vectors<1, 1>(a, op, inverse, vectors * V + thread, 0);
}

template <typename OP> cudaError_t launch_update(cudaStream_t stream, const flat_op &a, const OP &op, int64_t count)
{
	bool aligned = is_aligned(a.g, 16);
	for (int j = 0; j < OP::ARRAYS; j++)
		aligned = aligned && is_aligned(op.arrays[j], 16);
	if (aligned)
		return launch(update_all<4, OP>, blocks_of((count + 7) / 8), dim3(THREADS), stream, a, op, count);
	return launch(update_all<1, OP>, blocks_of((count + 1) / 2), dim3(THREADS), stream, a, op, count);
}

__global__ void count_step(const float *before, const float *scaler, float *after, double beta1, double beta2)
{
	const bool infinite = scaler && scaler[DTRAIN_SCALER_INFINITE] != 0;
	for (int i = 0; i < DTRAIN_STEPS; i++)
		after[i] = before[i];
	after[DTRAIN_STEP_SCALE] = scaler ? scaler[DTRAIN_SCALER_SCALE] : 1;
	after[DTRAIN_STEP_INFINITE] = scaler ? scaler[DTRAIN_SCALER_INFINITE] : 0;
	if (infinite)
		return;
	const double low = (double)after[DTRAIN_STEP_COUNT] + 1;
	const bool wraps = low >= DTRAIN_STEP_WRAP;
	after[DTRAIN_STEP_COUNT] = (float)(wraps ? low - DTRAIN_STEP_WRAP : low);
	after[DTRAIN_STEP_WRAPS] += wraps ? 1 : 0;
	const double count = (double)after[DTRAIN_STEP_COUNT] + DTRAIN_STEP_WRAP * (double)after[DTRAIN_STEP_WRAPS];
	after[DTRAIN_STEP_CORRECTION1] = (float)(1 - pow(beta1, count));
	after[DTRAIN_STEP_CORRECTION2] = (float)sqrt(1 - pow(beta2, count));
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_count_step(cudaStream_t stream, const float *before, const float *scaler,
					      float *after, const dtrain_adam_attrs *attrs)
{
	return launch(count_step, 1, dim3(1), stream, before, scaler, after, attrs->beta1, attrs->beta2);
}

extern "C" cudaError_t cuda_kernel_adam(cudaStream_t stream, const cuda_update *u, const dtrain_adam_attrs *attrs)
{
	const flat_op a = {u->g, u->scalars, u->group, u->scaler, (float)attrs->grad_divisor};
	const float rise1 = (float)(1 - attrs->beta1), keep2 = (float)attrs->beta2, rise2 = (float)(1 - attrs->beta2);
	const float epsilon = (float)attrs->epsilon;
	if (attrs->amsgrad) {
		const adam_op<true> op = {
			{u->w, u->m, u->v, u->most}, rise1, keep2, rise2, epsilon, attrs->decoupled, 0, 0};
		return launch_update(stream, a, op, u->count);
	}
	const adam_op<false> op = {{u->w, u->m, u->v}, rise1, keep2, rise2, epsilon, attrs->decoupled, 0, 0};
	return launch_update(stream, a, op, u->count);
}

extern "C" cudaError_t cuda_kernel_lion(cudaStream_t stream, const cuda_update *u, const dtrain_lion_attrs *attrs)
{
	const flat_op a = {u->g, u->scalars, u->group, u->scaler, (float)attrs->grad_divisor};
	const lion_op op = {{u->w, u->m},
			    (float)attrs->beta1,
			    (float)(1 - attrs->beta1),
			    (float)attrs->beta2,
			    (float)(1 - attrs->beta2)};
	return launch_update(stream, a, op, u->count);
}
