/* SPDX-License-Identifier: Apache-2.0
 *
 * LAMB and LARS, whose rates depend on norms of whole parameters: a launch for each piece's sums of squares, one for
 * the ratio of each parameter, and one for the values. A block has one piece, so the bits do not depend on the GPU.
 */
#include "piece.cuh"

namespace cuda_kernels
{
namespace
{

struct trust_op {
	cuda_update u;
	float divisor;
	double *sums;  /* [pieces][2]: squares of the values, and of what they are compared with */
	float *ratios; /* [pieces]: of the first piece of each parameter */
};

struct lamb_op {
	float rise1, keep2, rise2, epsilon;

	__device__ static float direction(const float *step, float epsilon, float w, float m, float v, float decay)
	{
		return m / step[DTRAIN_STEP_CORRECTION1] / (sqrtf(v) / step[DTRAIN_STEP_CORRECTION2] + epsilon) +
		       decay * w;
	}

	/* Element i's part of the first pass: what the value is compared with. */
	template <int V>
	__device__ void first(const trust_op &a, const piece &p, int64_t i, const float (&w)[V],
			      float (&other)[V]) const
	{
		typedef vector<float, V> numbers;
		const numbers g = *reinterpret_cast<const numbers *>(a.u.g + i);
		numbers m = *reinterpret_cast<const numbers *>(a.u.m + i);
		numbers v = *reinterpret_cast<const numbers *>(a.u.v + i);
#pragma unroll
		for (int k = 0; k < V; k++) {
			const float gradient = g.v[k] * p.inverse;
			m.v[k] += rise1 * (gradient - m.v[k]);
			v.v[k] = keep2 * v.v[k] + rise2 * gradient * gradient;
			other[k] = direction(a.u.scaler, epsilon, w[k], m.v[k], v.v[k], p.decay);
		}
		store_vector(a.u.m + i, m.v);
		store_vector(a.u.v + i, v.v);
	}

	__device__ float ratio(double weights, double others, float decay) const
	{
		return decay != 0 && weights > 0 && others > 0 ? (float)(sqrt(weights) / sqrt(others)) : 1;
	}

	template <int V>
	__device__ void last(const trust_op &a, const piece &p, int64_t i, float (&w)[V], float ratio) const
	{
		typedef vector<float, V> numbers;
		const numbers m = *reinterpret_cast<const numbers *>(a.u.m + i);
		const numbers v = *reinterpret_cast<const numbers *>(a.u.v + i);
#pragma unroll
		for (int k = 0; k < V; k++)
			w[k] -= p.lr * (direction(a.u.scaler, epsilon, w[k], m.v[k], v.v[k], p.decay) * ratio);
	}
};

struct lars_op {
	float momentum;
	double trust, epsilon;
	bool nesterov;

	template <int V>
	__device__ void first(const trust_op &a, const piece &p, int64_t i, const float (&)[V], float (&other)[V]) const
	{
		typedef vector<float, V> numbers;
		const numbers g = *reinterpret_cast<const numbers *>(a.u.g + i);
#pragma unroll
		for (int k = 0; k < V; k++)
			other[k] = g.v[k] * p.inverse;
	}

	__device__ float ratio(double weights, double others, float decay) const
	{
		const double norm = sqrt(weights), gradient = sqrt(others);
		return decay != 0 && norm > 0 && gradient > 0
			       ? (float)(trust * norm / (gradient + (double)decay * norm + epsilon))
			       : 1;
	}

	template <int V>
	__device__ void last(const trust_op &a, const piece &p, int64_t i, float (&w)[V], float ratio) const
	{
		typedef vector<float, V> numbers;
		const numbers g = *reinterpret_cast<const numbers *>(a.u.g + i);
		numbers m = *reinterpret_cast<const numbers *>(a.u.m + i);
#pragma unroll
		for (int k = 0; k < V; k++) {
			const float gradient = (g.v[k] * p.inverse + p.decay * w[k]) * ratio;
			m.v[k] = momentum * m.v[k] + gradient;
			w[k] -= p.lr * (nesterov ? gradient + momentum * m.v[k] : m.v[k]);
		}
		store_vector(a.u.m + i, m.v);
	}
};

template <int V, typename OP>
__device__ inline void first_vector(const trust_op &a, const OP &op, const piece &p, int64_t i, double (&sums)[2])
{
	const vector<float, V> w = *reinterpret_cast<const vector<float, V> *>(a.u.w + i);
	float other[V], weights = 0, others = 0;
	op.template first<V>(a, p, i, w.v, other);
#pragma unroll
	for (int k = 0; k < V; k++) {
		weights += w.v[k] * w.v[k];
		others += other[k] * other[k];
	}
	sums[0] += (double)weights;
	sums[1] += (double)others;
}

template <int V, typename OP> __global__ void __launch_bounds__(THREADS) first_pass(trust_op a, OP op)
{
	const piece p = piece_of(a.u, a.divisor, blockIdx.x);
	if (p.skips)
		return;
	const int64_t vectors = p.count / V;
	double sums[2] = {0, 0};
	for (int64_t i = threadIdx.x; i < vectors; i += THREADS)
		first_vector<V>(a, op, p, p.begin + i * V, sums);
	if (threadIdx.x < p.count - vectors * V)
		first_vector<1>(a, op, p, p.begin + vectors * V + threadIdx.x, sums);
	for (int k = 0; k < 2; k++) {
		__syncthreads();
		const double sum = add_up(sums[k]);
		if (threadIdx.x == 0)
			a.sums[2 * (int64_t)blockIdx.x + k] = sum;
	}
}

template <typename OP> __global__ void __launch_bounds__(THREADS) make_ratios(trust_op a, OP op)
{
	const piece p = piece_of(a.u, a.divisor, blockIdx.x);
	if (p.skips || p.first != blockIdx.x)
		return;
	double sums[2] = {0, 0};
	for (int k = 0; k < 2; k++) {
		for (int64_t i = threadIdx.x; i < p.parts; i += THREADS)
			sums[k] += a.sums[2 * (p.first + i) + k];
		__syncthreads();
		sums[k] = add_up(sums[k]);
	}
	if (threadIdx.x == 0)
		a.ratios[p.first] = op.ratio(sums[0], sums[1], p.decay);
}

template <int V, typename OP>
__device__ inline void last_vector(const trust_op &a, const OP &op, const piece &p, int64_t i, float ratio)
{
	vector<float, V> w = *reinterpret_cast<const vector<float, V> *>(a.u.w + i);
	op.template last<V>(a, p, i, w.v, ratio);
	store_vector(a.u.w + i, w.v);
}

template <int V, typename OP> __global__ void __launch_bounds__(THREADS) last_pass(trust_op a, OP op)
{
	const piece p = piece_of(a.u, a.divisor, blockIdx.x);
	if (p.skips)
		return;
	const float ratio = a.ratios[p.first];
	const int64_t vectors = p.count / V;
	for (int64_t i = threadIdx.x; i < vectors; i += THREADS)
		last_vector<V>(a, op, p, p.begin + i * V, ratio);
	if (threadIdx.x < p.count - vectors * V)
		last_vector<1>(a, op, p, p.begin + vectors * V + threadIdx.x, ratio);
}

template <int V, typename OP> cudaError_t launch_passes(cudaStream_t stream, const trust_op &a, const OP &op)
{
	const int64_t blocks = a.u.num_pieces;
	cudaError_t status = launch(first_pass<V, OP>, blocks, dim3(THREADS), stream, a, op);
	if (status == cudaSuccess)
		status = launch(make_ratios<OP>, blocks, dim3(THREADS), stream, a, op);
	return status == cudaSuccess ? launch(last_pass<V, OP>, blocks, dim3(THREADS), stream, a, op) : status;
}

template <typename OP>
cudaError_t run(cudaStream_t stream, const cuda_update *u, const OP &op, double divisor, void *workspace)
{
	double *sums = (double *)workspace;
	const trust_op a = {*u, (float)divisor, sums, (float *)(sums + 2 * u->num_pieces)};
	const bool aligned =
		is_aligned(u->w, 16) && is_aligned(u->g, 16) && is_aligned(u->m, 16) && is_aligned(u->v, 16);
	return aligned ? launch_passes<4>(stream, a, op) : launch_passes<1>(stream, a, op);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" size_t cuda_kernel_trust_workspace(int64_t pieces)
{
	return (size_t)pieces * (2 * sizeof(double) + sizeof(float));
}

extern "C" cudaError_t cuda_kernel_lamb(cudaStream_t stream, const cuda_update *u, const dtrain_adam_attrs *attrs,
					void *workspace)
{
	const lamb_op op = {(float)(1 - attrs->beta1), (float)attrs->beta2, (float)(1 - attrs->beta2),
			    (float)attrs->epsilon};
	return run(stream, u, op, attrs->grad_divisor, workspace);
}

extern "C" cudaError_t cuda_kernel_lars(cudaStream_t stream, const cuda_update *u, const dtrain_lars_attrs *attrs,
					void *workspace)
{
	const lars_op op = {(float)attrs->momentum, attrs->trust, attrs->epsilon, attrs->nesterov};
	return run(stream, u, op, attrs->grad_divisor, workspace);
}
