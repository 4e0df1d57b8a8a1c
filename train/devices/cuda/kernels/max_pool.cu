/* SPDX-License-Identifier: Apache-2.0
 *
 * Max pool in NHWC: a thread has 16 bytes of channels. The backward op gathers: each element of x reads the windows
 * that contain it, so no two threads add to one element.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

/* A side of the picture; 32 bits are enough. */
struct side {
	int size, out, kernel, stride, padding;
};

struct pool {
	side h, w;
	uint32_t vectors;         /* of a pixel */
	int64_t channels, pieces; /* pieces: number of threads with work */
	divider by_vectors, by_width, by_height;
};

/* Picture, row, column and channel of piece i of a tensor with this height and width. */
struct piece {
	int64_t n, channel;
	int row, column;

	__device__ piece(const pool &g, int64_t i, int height, int width, int each)
	{
		if (i < INT32_MAX) {
			uint32_t pixel = g.by_vectors.divide((uint32_t)i);
			channel = (int64_t)((uint32_t)i - pixel * g.vectors) * each;
			uint32_t line = g.by_width.divide(pixel), picture = g.by_height.divide(line);
			column = (int)(pixel - line * (uint32_t)width);
			row = (int)(line - picture * (uint32_t)height);
			n = picture;
		} else {
			channel = i % g.vectors * each;
			column = (int)(i / g.vectors % width);
			row = (int)(i / g.vectors / width % height);
			n = i / g.vectors / width / height;
		}
	}
};

__device__ inline int clamp(int x, int size)
{
	return x < 0 ? 0 : x < size ? x : size - 1;
}

/* K: both sides of the window, or 0: any. Places outside of the picture are read at its edge and ignored, so that all
 * reads can be in flight at once. */
template <typename T, int V, int K>
__global__ void __launch_bounds__(THREADS) max_pool(pool g, const T *x, T *y, uint8_t *index)
{
	const int height = K ? K : g.h.kernel, width = K ? K : g.w.kernel;
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < g.pieces; i += (int64_t)gridDim.x * THREADS) {
		const piece at(g, i, g.h.out, g.w.out, V);
		const int top = at.row * g.h.stride - g.h.padding, left = at.column * g.w.stride - g.w.padding;
		const T *picture = x + at.n * g.h.size * g.w.size * g.channels + at.channel;
		const int first = (top < 0 ? -top : 0) * width + (left < 0 ? -left : 0);
		float best[V];
		vector<uint8_t, V> places;
#pragma unroll
		for (int k = 0; k < V; k++) {
			best[k] = -INFINITY;
			places.v[k] = (uint8_t)first;
		}
#pragma unroll(K ? K : 1)
		for (int r = 0; r < height; r++) {
			const T *line = picture + (int64_t)clamp(top + r, g.h.size) * g.w.size * g.channels;
#pragma unroll(K ? K : 1)
			for (int s = 0; s < width; s++) {
				const bool inside = (unsigned)(top + r) < (unsigned)g.h.size &&
						    (unsigned)(left + s) < (unsigned)g.w.size;
				const vector<T, V> part = *reinterpret_cast<const vector<T, V> *>(
					line + clamp(left + s, g.w.size) * g.channels);
#pragma unroll
				for (int k = 0; k < V; k++) {
					const float value = to_float(part.v[k]);
					if (inside && (value > best[k] || value != value)) {
						best[k] = value;
						places.v[k] = (uint8_t)(r * width + s);
					}
				}
			}
		}
		store_vector(y + i * V, best);
		reinterpret_cast<vector<uint8_t, V> *>(index)[i] = places;
	}
}

/* An element is in the windows first .. last. */
struct windows {
	int first, last;

	__device__ windows(const side &s, int at)
	{
		const int behind = at + s.padding - s.kernel + 1;
		first = behind <= 0 ? 0 : (behind + s.stride - 1) / s.stride;
		last = (at + s.padding) / s.stride;
		last = last < s.out ? last : s.out - 1;
	}
};

/* W: most windows that contain an element, in each direction; 0: any number. */
template <typename T, int V, int W>
__global__ void __launch_bounds__(THREADS) max_pool_bwd(pool g, const T *d_y, const uint8_t *index, T *d_x)
{
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < g.pieces; i += (int64_t)gridDim.x * THREADS) {
		const piece at(g, i, g.h.size, g.w.size, V);
		const windows rows(g.h, at.row), columns(g.w, at.column);
		const int high = W ? W : rows.last - rows.first + 1, wide = W ? W : columns.last - columns.first + 1;
		float sum[V] = {0};
#pragma unroll(W ? W : 1)
		for (int r = 0; r < high; r++)
#pragma unroll(W ? W : 1)
			for (int s = 0; s < wide; s++) {
				const int p = clamp(rows.first + r, g.h.out), q = clamp(columns.first + s, g.w.out);
				const bool inside = rows.first + r <= rows.last && columns.first + s <= columns.last;
				const int64_t from =
					(((at.n * g.h.out + p) * g.w.out + q) * g.channels + at.channel) / V;
				const vector<uint8_t, V> places =
					reinterpret_cast<const vector<uint8_t, V> *>(index)[from];
				const vector<T, V> part = reinterpret_cast<const vector<T, V> *>(d_y)[from];
				const int self = (at.row - p * g.h.stride + g.h.padding) * g.w.kernel + at.column -
						 q * g.w.stride + g.w.padding;
#pragma unroll
				for (int k = 0; k < V; k++)
					sum[k] += inside && places.v[k] == self ? to_float(part.v[k]) : 0.f;
			}
		store_vector(d_x + i * V, sum);
	}
}

side side_of(int64_t size, int64_t out, int kernel, int stride, int padding)
{
	return {(int)size, (int)out, kernel, stride, padding};
}

/* height and width: of the tensor that the threads write. */
pool pool_of(const cuda_pool *p, int64_t height, int64_t width, int each)
{
	pool g;
	g.h = side_of(p->height, p->out_height, p->kernel[0], p->stride[0], p->padding[0]);
	g.w = side_of(p->width, p->out_width, p->kernel[1], p->stride[1], p->padding[1]);
	g.channels = p->channels;
	g.vectors = (uint32_t)(p->channels / each);
	g.pieces = p->n * height * width * g.vectors;
	g.by_vectors = divider(g.vectors);
	g.by_width = divider((uint32_t)width);
	g.by_height = divider((uint32_t)height);
	return g;
}

bool is_too_large(const cuda_pool *g)
{
	return g->height > INT32_MAX / 4 || g->width > INT32_MAX / 4 || g->channels > INT32_MAX;
}

template <int N> struct number {
	static constexpr int value = N;
};

/* Calls f with the number of channels that a thread has: 16 bytes, or 1. */
template <typename T, typename F>
cudaError_t with_width(const cuda_pool *g, const void *a, const void *b, const uint8_t *index, F f)
{
	constexpr int V = 16 / sizeof(T);
	if (g->channels % V == 0 && is_aligned(a, 16) && is_aligned(b, 16) && is_aligned(index, V))
		return f(number<V>());
	return f(number<1>());
}

template <typename T, int V, int K>
cudaError_t launch_max_pool(cudaStream_t stream, const cuda_pool *p, const void *x, void *y, uint8_t *index)
{
	pool g = pool_of(p, p->out_height, p->out_width, V);
	return launch(max_pool<T, V, K>, blocks_of(g.pieces), dim3(THREADS), stream, g, (const T *)x, (T *)y, index);
}

template <typename T, int V, int W>
cudaError_t launch_max_pool_bwd(cudaStream_t stream, const cuda_pool *p, const void *d_y, const uint8_t *index,
				void *d_x)
{
	pool g = pool_of(p, p->height, p->width, V);
	return launch(max_pool_bwd<T, V, W>, blocks_of(g.pieces), dim3(THREADS), stream, g, (const T *)d_y, index,
		      (T *)d_x);
}

/* Most windows that contain an element. */
int most_windows(const cuda_pool *p, int i)
{
	return (p->kernel[i] + p->stride[i] - 1) / p->stride[i];
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_max_pool(cudaStream_t stream, const cuda_pool *p, const void *x, void *y,
					    uint8_t *index)
{
	if (is_too_large(p))
		return cudaErrorInvalidConfiguration;
	const bool three = p->kernel[0] == 3 && p->kernel[1] == 3;
	return with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_width<T>(p, x, y, index, [&](auto width) {
			constexpr int V = decltype(width)::value;
			return three ? launch_max_pool<T, V, 3>(stream, p, x, y, index)
				     : launch_max_pool<T, V, 0>(stream, p, x, y, index);
		});
	});
}

extern "C" cudaError_t cuda_kernel_max_pool_bwd(cudaStream_t stream, const cuda_pool *p, const void *d_y,
						const uint8_t *index, void *d_x)
{
	if (is_too_large(p))
		return cudaErrorInvalidConfiguration;
	const bool two = most_windows(p, 0) <= 2 && most_windows(p, 1) <= 2;
	return with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_width<T>(p, d_y, d_x, index, [&](auto width) {
			constexpr int V = decltype(width)::value;
			return two ? launch_max_pool_bwd<T, V, 2>(stream, p, d_y, index, d_x)
				   : launch_max_pool_bwd<T, V, 0>(stream, p, d_y, index, d_x);
		});
	});
}
