/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotation of pairs by their position: a thread has the same few pairs of several heads, and finds their sines once.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

constexpr int HEADS = 8; /* of a thread */

struct rotation {
	int64_t rows, tokens, heads, head_dim, groups, parts; /* groups of heads; parts of a head's pairs */
	const int64_t *position;
	bool per_row;
	double step, sign; /* step: -2 / head_dim * log2(theta) */
};

/* Cosine and sine of a pair's angle. The angle is reduced in F64: positions have up to 20 bits. */
__device__ inline void angle_of(const rotation &a, int64_t position, int64_t pair, float *cosine, float *sine)
{
	const double turns = (double)position * exp2(a.step * (double)pair) * (0.5 * M_1_PI);
	const float angle = (float)((turns - rint(turns)) * (2 * M_PI));
	*cosine = cosf(angle);
	*sine = (float)a.sign * sinf(angle);
}

/* V pairs at p. Their halves are `apart` elements from each other; 1: neighbours. */
template <int V, bool NEIGHBOURS, typename T>
__device__ inline void turn(const T *x, T *y, int64_t apart, const float (&cosine)[V], const float (&sine)[V])
{
	float left[V], right[V];
	if constexpr (NEIGHBOURS && V > 1) {
		const vector<T, 2 *V> both = *reinterpret_cast<const vector<T, 2 * V> *>(x);
		float out[2 * V];
#pragma unroll
		for (int i = 0; i < V; i++) {
			left[i] = to_float(both.v[2 * i]);
			right[i] = to_float(both.v[2 * i + 1]);
			out[2 * i] = left[i] * cosine[i] - right[i] * sine[i];
			out[2 * i + 1] = left[i] * sine[i] + right[i] * cosine[i];
		}
		store_vector(y, out);
	} else {
		const vector<T, V> first = *reinterpret_cast<const vector<T, V> *>(x);
		const vector<T, V> second = *reinterpret_cast<const vector<T, V> *>(x + apart);
#pragma unroll
		for (int i = 0; i < V; i++) {
			const float a = to_float(first.v[i]), b = to_float(second.v[i]);
			left[i] = a * cosine[i] - b * sine[i];
			right[i] = a * sine[i] + b * cosine[i];
		}
		store_vector(y, left);
		store_vector(y + apart, right);
	}
}

template <int V, bool NEIGHBOURS, typename T>
__global__ void __launch_bounds__(THREADS) rotary(rotation a, const T *x, T *y)
{
	const int64_t pieces = a.rows * a.groups * a.parts;
	for (int64_t piece = (int64_t)blockIdx.x * THREADS + threadIdx.x; piece < pieces;
	     piece += (int64_t)gridDim.x * THREADS) {
		const int64_t part = piece % a.parts, rest = piece / a.parts;
		const int64_t group = rest % a.groups, row = rest / a.groups;
		const int64_t token = a.per_row ? row : row % a.tokens;
		const int64_t position = a.position ? a.position[token] : token;
		float cosine[V], sine[V];
#pragma unroll
		for (int i = 0; i < V; i++)
			angle_of(a, position, part * V + i, &cosine[i], &sine[i]);
		int64_t at = (row * a.heads + group * HEADS) * a.head_dim + part * V * (NEIGHBOURS ? 2 : 1);
		for (int64_t head = group * HEADS; head < a.heads && head < (group + 1) * HEADS; head++) {
			turn<V, NEIGHBOURS>(x + at, y + at, NEIGHBOURS ? 1 : a.head_dim / 2, cosine, sine);
			at += a.head_dim;
		}
	}
}

template <int V, bool NEIGHBOURS, typename T>
cudaError_t launch_rotary(cudaStream_t stream, rotation a, const void *x, void *y)
{
	a.parts = a.head_dim / 2 / V;
	return launch(rotary<V, NEIGHBOURS, T>, blocks_of(a.rows * a.groups * a.parts), dim3(THREADS), stream, a,
		      (const T *)x, (T *)y);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_rotary(cudaStream_t stream, const cuda_rotary *r, const dtrain_rotary_attrs *attrs,
					  const void *x, void *y)
{
	rotation a;
	a.rows = r->batch * r->tokens;
	a.tokens = r->tokens;
	a.heads = r->heads;
	a.head_dim = attrs->head_dim;
	a.groups = (r->heads + HEADS - 1) / HEADS;
	a.position = r->position;
	a.per_row = r->per_row;
	a.step = -2.0 / attrs->head_dim * log2(attrs->theta);
	a.sign = attrs->inverse ? -1.0 : 1.0;
	return with_type(r->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		constexpr int V = 16 / sizeof(T);
		const bool aligned = is_aligned(x, 16) && is_aligned(y, 16);
		if (attrs->interleaved)
			return aligned && attrs->head_dim % V == 0 ? launch_rotary<V / 2, true, T>(stream, a, x, y)
								   : launch_rotary<1, true, T>(stream, a, x, y);
		return aligned && attrs->head_dim / 2 % V == 0 ? launch_rotary<V, false, T>(stream, a, x, y)
							       : launch_rotary<1, false, T>(stream, a, x, y);
	});
}
