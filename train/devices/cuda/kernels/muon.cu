/* SPDX-License-Identifier: Apache-2.0
 *
 * Muon without its products: one launch computes the moments, and AdamW's update of parameters that are not matrices;
 * one the norm of each matrix; one writes the matrices for the products; and one updates the values. A block has one
 * piece, so the bits do not depend on the GPU.
 */
#include "piece.cuh"

namespace cuda_kernels
{
namespace
{

struct muon_op {
	cuda_update u;
	double *squares; /* [pieces]: of the update */
	float *inverses; /* [pieces]: of the norm, at the first piece of each matrix */
	void *matrices;
	float divisor, momentum, rise, rise1, keep2, rise2, epsilon, lr_scale;
};

/* Nesterov's update of an element, from the new momentum. */
__device__ inline float update_of(const muon_op &a, float gradient, float m)
{
	return gradient + a.momentum * (m - gradient);
}

__device__ inline void update_rest(const muon_op &a, const piece &p)
{
	const float correction1 = a.u.scaler[DTRAIN_STEP_CORRECTION1];
	const float correction2 = a.u.scaler[DTRAIN_STEP_CORRECTION2];
	const float lr = p.lr * a.lr_scale, keep = 1 - lr * p.decay;
#pragma unroll 4
	for (int64_t i = p.begin + threadIdx.x; i < p.begin + p.count; i += THREADS) {
		const float gradient = a.u.g[i] * p.inverse, m = a.u.m[i] + a.rise1 * (gradient - a.u.m[i]);
		const float v = a.keep2 * a.u.v[i] + a.rise2 * gradient * gradient;
		a.u.m[i] = m;
		a.u.v[i] = v;
		a.u.w[i] = a.u.w[i] * keep - lr / correction1 * m / (sqrtf(v) / correction2 + a.epsilon);
	}
}

__global__ void __launch_bounds__(THREADS) update_moments(muon_op a)
{
	const piece p = piece_of(a.u, a.divisor, blockIdx.x);
	if (p.skips)
		return;
	if (p.place < 0) {
		update_rest(a, p);
		return;
	}
	double sum = 0;
#pragma unroll 4
	for (int64_t i = p.begin + threadIdx.x; i < p.begin + p.count; i += THREADS) {
		const float gradient = a.u.g[i] * p.inverse, m = a.u.m[i] + a.rise * (gradient - a.u.m[i]);
		const float update = update_of(a, gradient, m);
		a.u.m[i] = m;
		sum += (double)(update * update);
	}
	sum = add_up(sum);
	if (threadIdx.x == 0)
		a.squares[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(THREADS) find_norms(muon_op a)
{
	const piece p = piece_of(a.u, a.divisor, blockIdx.x);
	if (p.skips || p.place < 0 || p.first != blockIdx.x)
		return;
	double sum = 0;
	for (int64_t i = threadIdx.x; i < p.parts; i += THREADS)
		sum += a.squares[p.first + i];
	sum = add_up(sum);
	if (threadIdx.x == 0)
		a.inverses[p.first] = (float)(1 / fmax(sqrt(sum), 1e-7));
}

template <typename T> __global__ void __launch_bounds__(THREADS) write_matrices(muon_op a)
{
	const piece p = piece_of(a.u, a.divisor, blockIdx.x);
	if (p.skips || p.place < 0)
		return;
	const float inverse = a.inverses[p.first];
	T *out = (T *)a.matrices + p.place;
#pragma unroll 4
	for (int64_t i = threadIdx.x; i < p.count; i += THREADS)
		out[i] = from_float<T>(update_of(a, a.u.g[p.begin + i] * p.inverse, a.u.m[p.begin + i]) * inverse);
}

template <typename T> __global__ void __launch_bounds__(THREADS) update_values(muon_op a)
{
	const piece p = piece_of(a.u, a.divisor, blockIdx.x);
	if (p.skips || p.place < 0)
		return;
	const T *x = (const T *)a.matrices + p.place;
	float *w = a.u.w + p.begin;
	const float keep = 1 - p.lr * p.decay;
#pragma unroll 4
	for (int64_t i = threadIdx.x; i < p.count; i += THREADS)
		w[i] = w[i] * keep - p.lr * to_float(x[i]);
}

template <typename T>
__global__ void __launch_bounds__(THREADS)
	make_polynomial(const T *gram, T *squares, int64_t count, int64_t edge, float a, float b, float c)
{
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count * edge * edge;
	     i += (int64_t)gridDim.x * THREADS) {
		const float diagonal = i / edge % edge == i % edge ? a : 0;
		squares[i] = from_float<T>(diagonal + b * to_float(gram[i]) + c * to_float(squares[i]));
	}
}

muon_op op_of(const cuda_muon *muon)
{
	const dtrain_adam_attrs *adamw = &muon->attrs->adamw;
	muon_op a;
	a.u = muon->update;
	a.squares = (double *)muon->workspace;
	a.inverses = (float *)(a.squares + muon->update.num_pieces);
	a.matrices = muon->matrices;
	a.divisor = (float)adamw->grad_divisor;
	a.momentum = (float)muon->attrs->momentum;
	a.rise = (float)(1 - muon->attrs->momentum);
	a.rise1 = (float)(1 - adamw->beta1);
	a.keep2 = (float)adamw->beta2;
	a.rise2 = (float)(1 - adamw->beta2);
	a.epsilon = (float)adamw->epsilon;
	a.lr_scale = (float)muon->attrs->adamw_lr_scale;
	return a;
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" size_t cuda_kernel_muon_workspace(int64_t pieces)
{
	return (size_t)pieces * (sizeof(double) + sizeof(float));
}

extern "C" cudaError_t cuda_kernel_muon_moments(cudaStream_t stream, const cuda_muon *muon)
{
	const muon_op a = op_of(muon);
	const int64_t blocks = muon->update.num_pieces;
	cudaError_t status = launch(update_moments, blocks, dim3(THREADS), stream, a);
	if (status == cudaSuccess && muon->attrs->num_matrices)
		status = launch(find_norms, blocks, dim3(THREADS), stream, a);
	if (status != cudaSuccess || !muon->attrs->num_matrices)
		return status;
	return with_type(muon->dtype,
			 [&](auto x) { return launch(write_matrices<decltype(x)>, blocks, dim3(THREADS), stream, a); });
}

extern "C" cudaError_t cuda_kernel_muon_values(cudaStream_t stream, const cuda_muon *muon)
{
	const muon_op a = op_of(muon);
	return with_type(muon->dtype, [&](auto x) {
		return launch(update_values<decltype(x)>, muon->update.num_pieces, dim3(THREADS), stream, a);
	});
}

extern "C" cudaError_t cuda_kernel_muon_polynomial(cudaStream_t stream, dtrain_dtype dtype, const void *gram,
						   void *squares, int64_t count, int64_t edge, double factor)
{
	const float a = (float)(3.4445 * factor), b = (float)(-4.7750 * factor), c = (float)(2.0315 * factor);
	return with_type(dtype, [&](auto x) {
		typedef decltype(x) T;
		return launch(make_polynomial<T>, blocks_of(count * edge * edge), dim3(THREADS), stream,
			      (const T *)gram, (T *)squares, count, edge, a, b, c);
	});
}
