/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies between boxes with strides: parts of tensors, and other orders of dimensions. Threads follow the order of y,
 * so that writes are contiguous.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

struct strided {
	int ndim;
	uint32_t count;
	divider by[CUDA_BOX_DIMS];
	int64_t from[CUDA_BOX_DIMS], to[CUDA_BOX_DIMS];
};

/* x NULL: zeros. */
template <typename T> __global__ void __launch_bounds__(THREADS) copy_box(strided g, const T *x, T *y)
{
	for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < g.count; i += gridDim.x * THREADS) {
		int64_t from = 0, to = 0;
		uint32_t rest = i;
#pragma unroll
		for (int d = CUDA_BOX_DIMS - 1; d >= 0; d--) {
			if (d >= g.ndim)
				continue;
			const uint32_t quotient = g.by[d].divide(rest), at = rest - quotient * g.by[d].d;
			from += at * g.from[d];
			to += at * g.to[d];
			rest = quotient;
		}
		T value = {};
		y[to] = x ? x[from] : value;
	}
}

/* Joins neighbouring dimensions that are contiguous in both tensors, and drops dimensions of one element. */
cuda_box join(const cuda_box *box)
{
	cuda_box out = {};
	for (int d = 0; d < box->ndim; d++) {
		if (box->dim[d] == 1)
			continue;
		const int last = out.ndim - 1;
		if (last >= 0 && out.from[last] == box->from[d] * box->dim[d] &&
		    out.to[last] == box->to[d] * box->dim[d]) {
			out.dim[last] *= box->dim[d];
			out.from[last] = box->from[d];
			out.to[last] = box->to[d];
			continue;
		}
		out.dim[out.ndim] = box->dim[d];
		out.from[out.ndim] = box->from[d];
		out.to[out.ndim++] = box->to[d];
	}
	return out;
}

/* Makes 16 bytes one element, if each run of the box is a multiple of them in both tensors. */
bool widen(cuda_box *box, size_t element, const void *x, const void *y)
{
	const int last = box->ndim - 1, each = (int)(16 / element);
	bool whole = last >= 0 && box->from[last] == 1 && box->to[last] == 1 && box->dim[last] % each == 0 &&
		     is_aligned(x, 16) && is_aligned(y, 16);
	for (int d = 0; d < last; d++)
		whole = whole && box->from[d] % each == 0 && box->to[d] % each == 0;
	if (!whole)
		return false;
	box->dim[last] /= each;
	for (int d = 0; d < last; d++) {
		box->from[d] /= each;
		box->to[d] /= each;
	}
	return true;
}

template <typename T> cudaError_t put(cudaStream_t stream, const cuda_box &box, const T *x, T *y)
{
	strided g = {};
	int64_t count = 1;
	for (int d = 0; d < box.ndim; d++)
		count *= box.dim[d];
	/* A half of the outermost dimension at a time, until the numbers of elements fit. */
	if (count > INT32_MAX) {
		cuda_box half = box, other = box;
		half.dim[0] = box.dim[0] / 2;
		other.dim[0] -= half.dim[0];
		const cudaError_t status = put(stream, half, x, y);
		return status != cudaSuccess
			       ? status
			       : put(stream, other, x ? x + half.dim[0] * box.from[0] : x, y + half.dim[0] * box.to[0]);
	}
	g.ndim = box.ndim;
	g.count = (uint32_t)count;
	for (int d = 0; d < box.ndim; d++) {
		g.by[d] = divider((uint32_t)box.dim[d]);
		g.from[d] = box.from[d];
		g.to[d] = box.to[d];
	}
	return launch(copy_box<T>, blocks_of(count), dim3(THREADS), stream, g, x, y);
}

} // namespace
} // namespace cuda_kernels

extern "C" cudaError_t cuda_kernel_copy_box(cudaStream_t stream, size_t element, const void *x, void *y,
					    const cuda_box *given)
{
	using namespace cuda_kernels;
	cuda_box box = join(given);
	if (element <= 8 && widen(&box, element, x, y))
		return put(stream, box, (const uint4 *)x, (uint4 *)y);
	switch (element) {
	case 1:
		return put(stream, box, (const uint8_t *)x, (uint8_t *)y);
	case 2:
		return put(stream, box, (const uint16_t *)x, (uint16_t *)y);
	case 4:
		return put(stream, box, (const uint32_t *)x, (uint32_t *)y);
	case 8:
		return put(stream, box, (const uint64_t *)x, (uint64_t *)y);
	default:
		return cudaErrorInvalidValue;
	}
}
