/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts the loader's pictures, bytes in NHWC, to normalized numbers in the model's layout.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

struct coefficients {
	float scale[4], shift[4];
};

coefficients coefficients_of(const float scale[4], const float shift[4])
{
	coefficients a;
	for (int c = 0; c < 4; c++) {
		a.scale[c] = scale[c];
		a.shift[c] = shift[c];
	}
	return a;
}

/* NHWC: a thread computes V elements of y, of any channels. */
template <int C, int V, typename T>
__global__ void __launch_bounds__(THREADS) normalize_nhwc(coefficients a, const uint8_t *x, T *y, int64_t vectors)
{
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < vectors; i += (int64_t)gridDim.x * THREADS) {
		const vector<uint8_t, V> bytes = reinterpret_cast<const vector<uint8_t, V> *>(x)[i];
		/* The first element's channel depends on i modulo C and V modulo C only. */
		const int first = (int)(i % C) * (V % C) % C;
		float scale[C], shift[C];
#pragma unroll
		for (int c = 0; c < C; c++) {
			scale[c] = a.scale[c];
			shift[c] = a.shift[c];
		}
		/* Rotated so that the first element's channel comes first: selections between registers, without
		 * indexed memory. */
#pragma unroll
		for (int turn = 1; turn < C; turn++)
			if (turn <= first) {
				const float s = scale[0], t = shift[0];
#pragma unroll
				for (int c = 0; c + 1 < C; c++) {
					scale[c] = scale[c + 1];
					shift[c] = shift[c + 1];
				}
				scale[C - 1] = s;
				shift[C - 1] = t;
			}
		float out[V];
#pragma unroll
		for (int k = 0; k < V; k++)
			out[k] = (float)bytes.v[k] * scale[k % C] + shift[k % C];
		store_vector(y + i * V, out);
	}
}

/* NCHW: a thread computes V pixels with all channels. vectors: in one picture's pixels. */
template <int C, int V, typename T>
__global__ void __launch_bounds__(THREADS)
	normalize_nchw(coefficients a, const uint8_t *x, T *y, int64_t vectors, int64_t pieces)
{
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < pieces; i += (int64_t)gridDim.x * THREADS) {
		uint8_t bytes[V * C];
#pragma unroll
		for (int k = 0; k < C; k++) {
			const vector<uint8_t, V> part = reinterpret_cast<const vector<uint8_t, V> *>(x)[i * C + k];
#pragma unroll
			for (int j = 0; j < V; j++)
				bytes[k * V + j] = part.v[j];
		}
		const int64_t picture = i / vectors, inside = i % vectors;
#pragma unroll
		for (int c = 0; c < C; c++) {
			float out[V];
#pragma unroll
			for (int j = 0; j < V; j++)
				out[j] = (float)bytes[j * C + c] * a.scale[c] + a.shift[c];
			store_vector(y + ((picture * C + c) * vectors + inside) * V, out);
		}
	}
}

struct cell_grid {
	divider rows, columns;
	int64_t height, width; /* of a picture */
	int32_t above, left;   /* padding */
	uint32_t count;        /* halves of cells */
};

/* A thread computes a half of a cell: two pixels of a row, and zeros outside of the picture and in further channels. */
template <int C, typename T>
__global__ void __launch_bounds__(THREADS) normalize_cells(coefficients a, cell_grid g, const uint8_t *x, T *y)
{
	for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < g.count; i += gridDim.x * THREADS) {
		const uint32_t cell = i / 2, row_of_all = g.columns.divide(cell), picture = g.rows.divide(row_of_all);
		const int64_t row = 2 * (int64_t)(row_of_all - picture * g.rows.d) + i % 2 - g.above;
		const int64_t column = 2 * (int64_t)(cell - row_of_all * g.columns.d) - g.left;
		const int64_t first = (picture * g.height + row) * g.width + column;
		float out[8] = {0};
#pragma unroll
		for (int k = 0; k < 2; k++)
			if (row >= 0 && row < g.height && column + k >= 0 && column + k < g.width) {
#pragma unroll
				for (int c = 0; c < C; c++)
					out[k * C + c] = (float)x[(first + k) * C + c] * a.scale[c] + a.shift[c];
			}
		store_vector(y + (int64_t)i * 8, out);
	}
}

/* As many pictures at a time as the kernel can count. */
template <int C, typename T>
cudaError_t launch_cells(cudaStream_t stream, const coefficients &a, const cuda_cell_pictures *p, const uint8_t *x,
			 T *y)
{
	const int64_t halves = 2 * p->rows * p->columns, most = INT32_MAX / halves;
	cudaError_t status = most > 0 ? cudaSuccess : cudaErrorInvalidValue;
	cell_grid g = {divider((uint32_t)p->rows),
		       divider((uint32_t)p->columns),
		       p->height,
		       p->width,
		       p->padding[0],
		       p->padding[1],
		       0};
	for (int64_t first = 0; first < p->n && status == cudaSuccess; first += most) {
		g.count = (uint32_t)(halves * (p->n - first < most ? p->n - first : most));
		status = launch(normalize_cells<C, T>, blocks_of(g.count), dim3(THREADS), stream, a, g,
				x + first * p->height * p->width * C, y + first * halves * 8);
	}
	return status;
}

template <int C, int V, typename T>
cudaError_t launch_normalize(cudaStream_t stream, const coefficients &a, const uint8_t *x, T *y, bool nhwc, int64_t n,
			     int64_t area)
{
	const int64_t pieces = n * area / V;
	if (nhwc)
		return launch(normalize_nhwc<C, V, T>, blocks_of(pieces * C), dim3(THREADS), stream, a, x, y,
			      pieces * C);
	return launch(normalize_nchw<C, V, T>, blocks_of(pieces), dim3(THREADS), stream, a, x, y, area / V, pieces);
}

/* Vectors of 8: for NHWC the number of elements must be a multiple, for NCHW that of each plane. */
template <int C, typename T>
cudaError_t normalize(cudaStream_t stream, const coefficients &a, const uint8_t *x, void *y, bool nhwc, int64_t n,
		      int64_t area)
{
	constexpr int V = 8;
	const bool whole = (nhwc ? n * area : area) % V == 0 && is_aligned(x, V) && is_aligned(y, V * sizeof(T));
	return whole ? launch_normalize<C, V, T>(stream, a, x, (T *)y, nhwc, n, area)
		     : launch_normalize<C, 1, T>(stream, a, x, (T *)y, nhwc, n, area);
}

} // namespace
} // namespace cuda_kernels

extern "C" cudaError_t cuda_kernel_normalize(cudaStream_t stream, const uint8_t *x, void *y, dtrain_dtype dtype,
					     bool nhwc, int64_t n, int64_t area, int channels, const float scale[4],
					     const float shift[4])
{
	using namespace cuda_kernels;
	const coefficients a = coefficients_of(scale, shift);
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		switch (channels) {
		case 1:
			return normalize<1, T>(stream, a, x, y, nhwc, n, area);
		case 2:
			return normalize<2, T>(stream, a, x, y, nhwc, n, area);
		case 3:
			return normalize<3, T>(stream, a, x, y, nhwc, n, area);
		case 4:
			return normalize<4, T>(stream, a, x, y, nhwc, n, area);
		default:
			return cudaErrorInvalidValue;
		}
	});
}

extern "C" cudaError_t cuda_kernel_normalize_cells(cudaStream_t stream, const cuda_cell_pictures *p, const uint8_t *x,
						   void *y, dtrain_dtype dtype, const float scale[4],
						   const float shift[4])
{
	using namespace cuda_kernels;
	const coefficients a = coefficients_of(scale, shift);
	if (dtype == DTRAIN_F32)
		return cudaErrorInvalidValue;
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		switch (p->channels) {
		case 1:
			return launch_cells<1, T>(stream, a, p, x, (T *)y);
		case 2:
			return launch_cells<2, T>(stream, a, p, x, (T *)y);
		case 3:
			return launch_cells<3, T>(stream, a, p, x, (T *)y);
		case 4:
			return launch_cells<4, T>(stream, a, p, x, (T *)y);
		default:
			return cudaErrorInvalidValue;
		}
	});
}
