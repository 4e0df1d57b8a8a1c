/* SPDX-License-Identifier: Apache-2.0
 *
 * Elementwise casts, relu, gelu, silu and its gate, scaling and additions, 16 bytes of the wider type at a time.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

/* The functions, of one or two elements. They keep NaN, and the sign of zero, like the reference. */
struct identity {
	__device__ float operator()(float x, float) const
	{
		return x;
	}
};
struct relu {
	__device__ float operator()(float x, float) const
	{
		return x < 0 ? 0 : x;
	}
};
struct relu_bwd {
	__device__ float operator()(float y, float d_y) const
	{
		return y > 0 ? d_y : 0;
	}
};
/* The standard normal distribution's function at x. */
__device__ inline float normal_below(float x)
{
	return 0.5f * (1 + erff(x * (float)M_SQRT1_2));
}
struct gelu {
	__device__ float operator()(float x, float) const
	{
		return x * normal_below(x);
	}
};
struct gelu_bwd {
	__device__ float operator()(float x, float d_y) const
	{
		const float density = (float)(0.5 * M_2_SQRTPI * M_SQRT1_2) * expf(-0.5f * x * x);
		return d_y * (normal_below(x) + x * density);
	}
};
/* The tangent's argument in the approximation of gelu, divided by x: sqrt(2 / pi) (1 + 0.044715 x^2). */
constexpr float GELU_LINEAR = (float)(M_2_SQRTPI * M_SQRT1_2), GELU_CUBIC = GELU_LINEAR * 0.044715f;
struct gelu_tanh {
	__device__ float operator()(float x, float) const
	{
		return 0.5f * x * (1 + tanhf(x * (GELU_LINEAR + GELU_CUBIC * x * x)));
	}
};
struct gelu_tanh_bwd {
	__device__ float operator()(float x, float d_y) const
	{
		const float t = tanhf(x * (GELU_LINEAR + GELU_CUBIC * x * x));
		const float slope = GELU_LINEAR + 3 * GELU_CUBIC * x * x;
		return d_y * 0.5f * (1 + t + x * (1 - t * t) * slope);
	}
};
__device__ inline float logistic(float x)
{
	return 1 / (1 + expf(-x));
}
__device__ inline float silu_slope(float x)
{
	return logistic(x) * (1 + x * (1 - logistic(x)));
}
struct silu {
	__device__ float operator()(float x, float) const
	{
		return x / (1 + expf(-x));
	}
};
struct silu_bwd {
	__device__ float operator()(float x, float d_y) const
	{
		return d_y * silu_slope(x);
	}
};
struct swiglu {
	__device__ float operator()(float a, float b) const
	{
		return silu()(a, 0) * b;
	}
};
struct scaled {
	float factor;
	__device__ float operator()(float x, float) const
	{
		return x * factor;
	}
};
/* The product is rounded before it is added, as on the other devices. */
struct carry {
	float factor;
	__device__ float operator()(float x, float y) const
	{
		const float left = x + __fmul_rn(factor, y);
		return isfinite(left) ? left : 0;
	}
};
struct add {
	__device__ float operator()(float a, float b) const
	{
		return a + b;
	}
};
struct add_relu {
	__device__ float operator()(float a, float b) const
	{
		return a + b < 0 ? 0 : a + b;
	}
};

/* Vectors of each input that a thread reads at once. */
template <bool BINARY> constexpr int UNROLL = BINARY ? 2 : 4;

/* f of N vectors, `stride` apart; all are read before any is written. */
template <int N, bool BINARY, int V, typename F, typename X, typename Y>
__device__ inline void map_vectors(F f, const X *a, const X *b, Y *y, int64_t first, int64_t stride)
{
	vector<X, V> left[N], right[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		left[k] = reinterpret_cast<const vector<X, V> *>(a)[first + k * stride];
		right[k] = reinterpret_cast<const vector<X, V> *>(BINARY ? b : a)[first + k * stride];
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		float out[V];
#pragma unroll
		for (int j = 0; j < V; j++)
			out[j] = f(to_float(left[k].v[j]), to_float(right[k].v[j]));
		store_vector(y + (first + k * stride) * V, out);
	}
}

/* y = f(a, b); b only if BINARY. Vectors first; the first threads process the remaining count % V elements. Pointers
 * are not restrict, because y may be a or b. */
template <typename F, bool BINARY, int V, typename X, typename Y>
__global__ void __launch_bounds__(THREADS) map(F f, const X *a, const X *b, Y *y, int64_t count)
{
	constexpr int N = UNROLL<BINARY>;
	const int64_t vectors = count / V, stride = (int64_t)gridDim.x * THREADS;
	const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	int64_t i = thread;
	for (; i + (N - 1) * stride < vectors; i += N * stride)
		map_vectors<N, BINARY, V>(f, a, b, y, i, stride);
	for (; i < vectors; i += stride)
		map_vectors<1, BINARY, V>(f, a, b, y, i, stride);
	if (thread < count - vectors * V)
		map_vectors<1, BINARY, 1>(f, a, b, y, vectors * V + thread, 0);
}

template <typename F, bool BINARY, int V, typename X, typename Y>
cudaError_t launch_map(cudaStream_t stream, F f, const void *a, const void *b, void *y, int64_t count)
{
	constexpr int EACH = V * UNROLL<BINARY>;
	return launch(map<F, BINARY, V, X, Y>, blocks_of((count + EACH - 1) / EACH), dim3(THREADS), stream, f,
		      (const X *)a, (const X *)b, (Y *)y, count);
}

template <typename F, bool BINARY, typename X, typename Y>
cudaError_t map_any(cudaStream_t stream, F f, const void *a, const void *b, void *y, int64_t count)
{
	constexpr int V = 16 / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y));
	if (count < 1)
		return cudaSuccess;
	if (is_aligned(a, V * sizeof(X)) && is_aligned(b, V * sizeof(X)) && is_aligned(y, V * sizeof(Y)))
		return launch_map<F, BINARY, V, X, Y>(stream, f, a, b, y, count);
	return launch_map<F, BINARY, 1, X, Y>(stream, f, a, b, y, count);
}

/* V elements of each operand at a time; the first threads process the remaining count % V. */
template <int V, typename T>
__device__ inline void swiglu_bwd_at(const T *a, const T *b, const T *d_y, T *d_a, T *d_b, int64_t i)
{
	const vector<T, V> of_a = reinterpret_cast<const vector<T, V> *>(a)[i];
	const vector<T, V> of_b = reinterpret_cast<const vector<T, V> *>(b)[i];
	const vector<T, V> of_y = reinterpret_cast<const vector<T, V> *>(d_y)[i];
	float left[V], right[V];
#pragma unroll
	for (int j = 0; j < V; j++) {
		const float x = to_float(of_a.v[j]), d = to_float(of_y.v[j]);
		left[j] = d * to_float(of_b.v[j]) * silu_slope(x);
		right[j] = d * silu()(x, 0);
	}
	store_vector(d_a + i * V, left);
	store_vector(d_b + i * V, right);
}

template <int V, typename T>
__global__ void __launch_bounds__(THREADS)
	swiglu_bwd(const T *a, const T *b, const T *d_y, T *d_a, T *d_b, int64_t count)
{
	const int64_t vectors = count / V, thread = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	for (int64_t i = thread; i < vectors; i += (int64_t)gridDim.x * THREADS)
		swiglu_bwd_at<V>(a, b, d_y, d_a, d_b, i);
	if (thread < count - vectors * V)
		swiglu_bwd_at<1>(a, b, d_y, d_a, d_b, vectors * V + thread);
}

template <typename F, bool BINARY>
cudaError_t map_type(cudaStream_t stream, F f, dtrain_dtype dtype, const void *a, const void *b, void *y, int64_t count)
{
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return map_any<F, BINARY, T, T>(stream, f, a, b, y, count);
	});
}

template <typename F>
cudaError_t map_types(cudaStream_t stream, F f, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
		      int64_t count)
{
	return with_type(from, [&](auto source) {
		typedef decltype(source) X;
		return with_type(to, [&](auto target) {
			typedef decltype(target) Y;
			return map_any<F, false, X, Y>(stream, f, x, nullptr, y, count);
		});
	});
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_cast(cudaStream_t stream, const void *x, dtrain_dtype from, void *y, dtrain_dtype to,
					int64_t count)
{
	return map_types(stream, identity(), x, from, y, to, count);
}

extern "C" cudaError_t cuda_kernel_relu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count)
{
	return map_type<relu, false>(stream, relu(), dtype, x, nullptr, y, count);
}

extern "C" cudaError_t cuda_kernel_relu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *y, const void *d_y,
					    void *d_x, int64_t count)
{
	return map_type<relu_bwd, true>(stream, relu_bwd(), dtype, y, d_y, d_x, count);
}

extern "C" cudaError_t cuda_kernel_gelu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count)
{
	return map_type<gelu, false>(stream, gelu(), dtype, x, nullptr, y, count);
}

extern "C" cudaError_t cuda_kernel_gelu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *x, const void *d_y,
					    void *d_x, int64_t count)
{
	return map_type<gelu_bwd, true>(stream, gelu_bwd(), dtype, x, d_y, d_x, count);
}

extern "C" cudaError_t cuda_kernel_gelu_tanh(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y,
					     int64_t count)
{
	return map_type<gelu_tanh, false>(stream, gelu_tanh(), dtype, x, nullptr, y, count);
}

extern "C" cudaError_t cuda_kernel_gelu_tanh_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *x,
						 const void *d_y, void *d_x, int64_t count)
{
	return map_type<gelu_tanh_bwd, true>(stream, gelu_tanh_bwd(), dtype, x, d_y, d_x, count);
}

extern "C" cudaError_t cuda_kernel_silu(cudaStream_t stream, dtrain_dtype dtype, const void *x, void *y, int64_t count)
{
	return map_type<silu, false>(stream, silu(), dtype, x, nullptr, y, count);
}

extern "C" cudaError_t cuda_kernel_silu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *x, const void *d_y,
					    void *d_x, int64_t count)
{
	return map_type<silu_bwd, true>(stream, silu_bwd(), dtype, x, d_y, d_x, count);
}

extern "C" cudaError_t cuda_kernel_swiglu(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b,
					  void *y, int64_t count)
{
	return map_type<swiglu, true>(stream, swiglu(), dtype, a, b, y, count);
}

extern "C" cudaError_t cuda_kernel_swiglu_bwd(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b,
					      const void *d_y, void *d_a, void *d_b, int64_t count)
{
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		constexpr int V = 16 / sizeof(T);
		const bool aligned = is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(d_y, 16) &&
				     is_aligned(d_a, 16) && is_aligned(d_b, 16);
		const int64_t blocks = blocks_of(aligned ? (count + V - 1) / V : count);
		return launch(aligned ? swiglu_bwd<V, T> : swiglu_bwd<1, T>, blocks, dim3(THREADS), stream,
			      (const T *)a, (const T *)b, (const T *)d_y, (T *)d_a, (T *)d_b, count);
	});
}

extern "C" cudaError_t cuda_kernel_scale(cudaStream_t stream, const void *x, dtrain_dtype from, void *y,
					 dtrain_dtype to, double factor, int64_t count)
{
	return map_types(stream, scaled{(float)factor}, x, from, y, to, count);
}

extern "C" cudaError_t cuda_kernel_carry(cudaStream_t stream, const float *x, const float *y, float *out, double factor,
					 int64_t count)
{
	return map_any<carry, true, float, float>(stream, carry{(float)factor}, x, y, out, count);
}

extern "C" cudaError_t cuda_kernel_add(cudaStream_t stream, dtrain_dtype dtype, const void *a, const void *b, void *y,
				       bool relu_after, int64_t count)
{
	return relu_after ? map_type<add_relu, true>(stream, add_relu(), dtype, a, b, y, count)
			  : map_type<add, true>(stream, add(), dtype, a, b, y, count);
}
