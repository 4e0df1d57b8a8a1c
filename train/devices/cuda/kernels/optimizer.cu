/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD and Lookahead over all parameters in one launch, the norm of the gradients, and the dynamic scale of the loss.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

struct sgd_op {
	float *w, *m;
	const float *g, *scalars, *scaler; /* scaler NULL: none */
	const uint8_t *group;
	float divisor, momentum;
	bool nesterov;
};

/* A vector lies within one run of a group. The runs' group numbers are read with the vectors, and the groups' rates
 * from the cache. */
template <int N, int V> __device__ inline void sgd_step(const sgd_op &a, float inverse, int64_t first, int64_t stride)
{
	static_assert(DTRAIN_PARAM_ALIGN % V == 0, "vectors do not divide a run");
	typedef vector<float, V> numbers;
	numbers w[N], g[N], m[N];
	int group[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		group[k] = a.group[(first + k * stride) / (DTRAIN_PARAM_ALIGN / V)];
		w[k] = reinterpret_cast<const numbers *>(a.w)[first + k * stride];
		g[k] = reinterpret_cast<const numbers *>(a.g)[first + k * stride];
		m[k] = reinterpret_cast<const numbers *>(a.m)[first + k * stride];
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		const float lr = a.scalars[DTRAIN_UPDATE_SCALARS * group[k]];
		const float decay = a.scalars[DTRAIN_UPDATE_SCALARS * group[k] + 1];
#pragma unroll
		for (int i = 0; i < V; i++) {
			const float gradient = g[k].v[i] * inverse + decay * w[k].v[i];
			m[k].v[i] = a.momentum * m[k].v[i] + gradient;
			w[k].v[i] -= lr * (a.nesterov ? gradient + a.momentum * m[k].v[i] : m[k].v[i]);
		}
		store_vector(a.w + (first + k * stride) * V, w[k].v);
		store_vector(a.m + (first + k * stride) * V, m[k].v);
	}
}

template <int V> __global__ void __launch_bounds__(THREADS) sgd(sgd_op a, int64_t count)
{
	if (a.scaler && a.scaler[DTRAIN_SCALER_INFINITE] != 0)
		return;
	const float inverse = 1 / (a.scaler ? a.divisor * a.scaler[DTRAIN_SCALER_SCALE] : a.divisor);
	const int64_t vectors = count / V, stride = (int64_t)gridDim.x * THREADS;
	const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	int64_t i = thread;
	for (; i + stride < vectors; i += 2 * stride)
		sgd_step<2, V>(a, inverse, i, stride);
	if (i < vectors)
		sgd_step<1, V>(a, inverse, i, 0);
	if (thread < count - vectors * V)
		sgd_step<1, 1>(a, inverse, vectors * V + thread, 0);
}

template <int N, int V, bool BACK>
__device__ inline void look_ahead(float *slow, float *w, float weight, int64_t first, int64_t stride)
{
	typedef vector<float, V> numbers;
	numbers s[N], x[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		s[k] = reinterpret_cast<const numbers *>(slow)[first + k * stride];
		x[k] = reinterpret_cast<const numbers *>(w)[first + k * stride];
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
#pragma unroll
		for (int i = 0; i < V; i++) {
			const float apart = x[k].v[i] - s[k].v[i];
			s[k].v[i] = weight < 0.5f ? s[k].v[i] + weight * apart : x[k].v[i] - (1 - weight) * apart;
		}
		store_vector(slow + (first + k * stride) * V, s[k].v);
		if (BACK)
			store_vector(w + (first + k * stride) * V, s[k].v);
	}
}

/* Like torch.lerp, which is exact at both ends. BACK: w becomes slow. */
template <int V, bool BACK>
__global__ void __launch_bounds__(THREADS) lookahead(float *slow, float *w, const float *weight, int64_t count)
{
	const int64_t vectors = count / V, stride = (int64_t)gridDim.x * THREADS;
	const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	int64_t i = thread;
	for (; i + stride < vectors; i += 2 * stride)
		look_ahead<2, V, BACK>(slow, w, *weight, i, stride);
	if (i < vectors)
		look_ahead<1, V, BACK>(slow, w, *weight, i, 0);
	if (thread < count - vectors * V)
		look_ahead<1, 1, BACK>(slow, w, *weight, vectors * V + thread, 0);
}

__device__ inline bool is_finite(float x)
{
	return x - x == 0;
}

/* Several threads may write the flag; all write the same. */
template <int V> __global__ void __launch_bounds__(THREADS) inspect(const float *g, float *scaler, int64_t count)
{
	typedef vector<float, V> numbers;
	constexpr int N = 4;
	const int64_t vectors = count / V, stride = (int64_t)gridDim.x * THREADS;
	const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	bool finite = true;
	int64_t i = thread;
	for (; i + (N - 1) * stride < vectors; i += N * stride) {
		numbers part[N];
#pragma unroll
		for (int k = 0; k < N; k++)
			part[k] = reinterpret_cast<const numbers *>(g)[i + k * stride];
#pragma unroll
		for (int k = 0; k < N; k++)
#pragma unroll
			for (int j = 0; j < V; j++)
				finite = finite && is_finite(part[k].v[j]);
	}
	for (; i < vectors; i += stride) {
		const numbers part = reinterpret_cast<const numbers *>(g)[i];
#pragma unroll
		for (int j = 0; j < V; j++)
			finite = finite && is_finite(part.v[j]);
	}
	if (thread < count - vectors * V)
		finite = finite && is_finite(g[vectors * V + thread]);
	if (!finite)
		scaler[DTRAIN_SCALER_INFINITE] = 1;
}

/* As in the device table: torch.amp.GradScaler's defaults. */
__global__ void update(float *scaler)
{
	const bool infinite = scaler[DTRAIN_SCALER_INFINITE] != 0;
	const float good = infinite ? 0 : scaler[DTRAIN_SCALER_GOOD_STEPS] + 1;
	if (infinite)
		scaler[DTRAIN_SCALER_SCALE] *= 0.5f;
	else if (good == 2000 && is_finite(scaler[DTRAIN_SCALER_SCALE] * 2))
		scaler[DTRAIN_SCALER_SCALE] *= 2;
	scaler[DTRAIN_SCALER_GOOD_STEPS] = good == 2000 ? 0 : good;
}

/* Elements of one block, whatever the GPU: the same sums on all of them. */
constexpr int64_t NORM_CHUNK = 64 * THREADS;

/* The reduction of a norm: adds a number to a total, and a total to another. */
struct squares : sum_of_two {
	template <typename T> __device__ static T take(T total, T x)
	{
		return total + x * x;
	}
};
struct magnitudes : sum_of_two {
	template <typename T> __device__ static T take(T total, T x)
	{
		return total + (x < 0 ? -x : x);
	}
};
struct greatest {
	__device__ double operator()(double a, double b) const
	{
		return a > b || a != a ? a : b;
	}

	template <typename T> __device__ static T take(T total, T x)
	{
		const T size = x < 0 ? -x : x;
		return size > total || size != size ? size : total;
	}
};

template <typename F, int V>
__global__ void __launch_bounds__(THREADS)
	collect(const float *g, const float *scaler, float divisor, double *totals, int64_t count)
{
	typedef vector<float, V> numbers;
	const float inverse = 1 / (scaler ? divisor * scaler[DTRAIN_SCALER_SCALE] : divisor);
	const int64_t first = blockIdx.x * NORM_CHUNK, left = count - first;
	const int64_t here = left < NORM_CHUNK ? left : NORM_CHUNK, vectors = here / V;
	float part_of[V] = {};
#pragma unroll 4
	for (int64_t i = threadIdx.x; i < vectors; i += THREADS) {
		const numbers part = reinterpret_cast<const numbers *>(g + first)[i];
#pragma unroll
		for (int k = 0; k < V; k++)
			part_of[k] = F::take(part_of[k], part.v[k] * inverse);
	}
	double total = 0;
#pragma unroll
	for (int k = 0; k < V; k++)
		total = F()(total, (double)part_of[k]);
	if (threadIdx.x < here - vectors * V)
		total = F::take(total, (double)(g[first + vectors * V + threadIdx.x] * inverse));
	total = join_up(total, F());
	if (threadIdx.x == 0)
		totals[blockIdx.x] = total;
}

template <typename F>
__global__ void __launch_bounds__(THREADS)
	join_totals(const double *totals, int64_t count, const float *before, float *after)
{
	double total = 0;
	for (int64_t i = threadIdx.x; i < count; i += THREADS)
		total = F()(total, totals[i]);
	total = join_up(total, F());
	if (threadIdx.x == 0) {
		const float joined = (float)F()((double)before[DTRAIN_CLIP_TOTAL], (double)(float)total);
		for (int i = 0; i < DTRAIN_CLIPS; i++)
			after[i] = before[i];
		after[DTRAIN_CLIP_TOTAL] = joined;
	}
}

/* As the device table says: torch.nn.utils.clip_grad_norm_. */
__global__ void clip(const float *before, const float *scaler, float *after, float max_norm, bool root)
{
	const float total = before[DTRAIN_CLIP_TOTAL], norm = root ? sqrtf(total) : total;
	const float factor = max_norm / (norm + 1e-6f);
	after[DTRAIN_CLIP_SCALE] = (scaler ? scaler[DTRAIN_SCALER_SCALE] : 1) / (factor > 1 ? 1 : factor);
	after[DTRAIN_CLIP_NORM] = norm;
	after[DTRAIN_CLIP_INFINITE] = scaler ? scaler[DTRAIN_SCALER_INFINITE] : 0;
	after[DTRAIN_CLIP_TOTAL] = 0;
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_sgd(cudaStream_t stream, float *w, const float *g, float *m, const float *scalars,
				       const uint8_t *group, const float *scaler, int64_t count, double divisor,
				       double momentum, bool nesterov)
{
	sgd_op a = {w, m, g, scalars, scaler, group, (float)divisor, (float)momentum, nesterov};
	if (is_aligned(w, 16) && is_aligned(g, 16) && is_aligned(m, 16))
		return launch(sgd<4>, blocks_of((count + 7) / 8), dim3(THREADS), stream, a, count);
	return launch(sgd<1>, blocks_of((count + 1) / 2), dim3(THREADS), stream, a, count);
}

extern "C" cudaError_t cuda_kernel_lookahead(cudaStream_t stream, float *slow, float *w, const float *weight,
					     int64_t count, bool back)
{
	const bool aligned = is_aligned(slow, 16) && is_aligned(w, 16);
	const int64_t blocks = aligned ? blocks_of((count + 7) / 8) : blocks_of((count + 1) / 2);
	if (back)
		return launch(aligned ? lookahead<4, true> : lookahead<1, true>, blocks, dim3(THREADS), stream, slow, w,
			      weight, count);
	return launch(aligned ? lookahead<4, false> : lookahead<1, false>, blocks, dim3(THREADS), stream, slow, w,
		      weight, count);
}

extern "C" cudaError_t cuda_kernel_scaler_inspect(cudaStream_t stream, const float *g, float *scaler, int64_t count,
						  bool more)
{
	cudaError_t status =
		more ? cudaSuccess : cudaMemsetAsync(&scaler[DTRAIN_SCALER_INFINITE], 0, sizeof(*scaler), stream);
	if (status != cudaSuccess)
		return status;
	if (is_aligned(g, 16))
		return launch(inspect<4>, blocks_of((count + 15) / 16), dim3(THREADS), stream, g, scaler, count);
	return launch(inspect<1>, blocks_of((count + 3) / 4), dim3(THREADS), stream, g, scaler, count);
}

extern "C" cudaError_t cuda_kernel_scaler_update(cudaStream_t stream, float *scaler)
{
	return launch(update, 1, dim3(1), stream, scaler);
}

extern "C" size_t cuda_kernel_grad_norm_workspace(int64_t count)
{
	return (size_t)((count + NORM_CHUNK - 1) / NORM_CHUNK) * sizeof(double);
}

template <typename F>
static cudaError_t grad_norm(cudaStream_t stream, const float *g, const float *before, const float *scaler,
			     float *after, int64_t count, double divisor, void *workspace)
{
	double *totals = (double *)workspace;
	const int64_t blocks = (count + NORM_CHUNK - 1) / NORM_CHUNK;
	cudaError_t status = is_aligned(g, 16) ? launch(collect<F, 4>, blocks, dim3(THREADS), stream, g, scaler,
							(float)divisor, totals, count)
					       : launch(collect<F, 1>, blocks, dim3(THREADS), stream, g, scaler,
							(float)divisor, totals, count);
	return status == cudaSuccess ? launch(join_totals<F>, 1, dim3(THREADS), stream, totals, blocks, before, after)
				     : status;
}

extern "C" cudaError_t cuda_kernel_grad_norm(cudaStream_t stream, dtrain_norm norm, const float *g, const float *before,
					     const float *scaler, float *after, int64_t count, double divisor,
					     void *workspace)
{
	switch (norm) {
	case DTRAIN_NORM_1:
		return grad_norm<magnitudes>(stream, g, before, scaler, after, count, divisor, workspace);
	case DTRAIN_NORM_MAX:
		return grad_norm<greatest>(stream, g, before, scaler, after, count, divisor, workspace);
	default:
		return grad_norm<squares>(stream, g, before, scaler, after, count, divisor, workspace);
	}
}

extern "C" cudaError_t cuda_kernel_clip(cudaStream_t stream, dtrain_norm norm, const float *before, const float *scaler,
					float *after, double max_norm)
{
	return launch(clip, 1, dim3(1), stream, before, scaler, after, (float)max_norm, norm == DTRAIN_NORM_2);
}
