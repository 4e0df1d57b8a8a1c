/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of convolutions over cells of 2 x 2 pixels (ops/space_to_depth.h), which have half the kernel's height and
 * width. They have some ten thousand elements, so a thread computes one.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

constexpr int64_t CELL = CUDA_CELL_CHANNELS, HALF = CELL / 2;

/* to [filters][height / 2][width / 2][CELL] */
template <typename From, typename To>
__global__ void __launch_bounds__(THREADS) to_cells(cuda_cell_weight w, const From *x, To *y, int64_t count)
{
	const int64_t rows = (w.kernel[0] + 1) / 2, columns = (w.kernel[1] + 1) / 2;
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
		const int64_t place = i % HALF, lower = i / HALF % 2, at = i / CELL;
		const int64_t row = at / columns % rows * 2 + lower;
		const int64_t column = at % columns * 2 + place / w.channels, channel = place % w.channels;
		const int64_t filter = at / columns / rows;
		const int64_t krsc = ((filter * w.kernel[0] + row) * w.kernel[1] + column) * w.channels + channel;
		const int64_t kcrs = ((filter * w.channels + channel) * w.kernel[0] + row) * w.kernel[1] + column;
		const bool exists = place < 2 * w.channels && row < w.kernel[0] && column < w.kernel[1];
		y[i] = from_float<To>(exists ? to_float(x[w.krsc ? krsc : kcrs]) : 0);
	}
}

/* x [filters][CELL][height / 2][width / 2] */
template <typename T>
__global__ void __launch_bounds__(THREADS) from_cells(cuda_cell_weight w, const T *x, T *y, int64_t count)
{
	const int64_t rows = (w.kernel[0] + 1) / 2, columns = (w.kernel[1] + 1) / 2;
	for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += (int64_t)gridDim.x * THREADS) {
		const int64_t column = i % w.kernel[1], row = i / w.kernel[1] % w.kernel[0];
		const int64_t rest = i / w.kernel[1] / w.kernel[0], channel = rest % w.channels;
		const int64_t place = row % 2 * HALF + column % 2 * w.channels + channel;
		y[i] = x[((rest / w.channels * CELL + place) * rows + row / 2) * columns + column / 2];
	}
}

} // namespace
} // namespace cuda_kernels

extern "C" cudaError_t cuda_kernel_weight_to_cells(cudaStream_t stream, const cuda_cell_weight *w, const void *x,
						   dtrain_dtype from, void *y, dtrain_dtype to)
{
	using namespace cuda_kernels;
	const int64_t count = w->filters * ((w->kernel[0] + 1) / 2) * ((w->kernel[1] + 1) / 2) * CELL;
	return with_type(from, [&](auto zero_from) {
		typedef decltype(zero_from) From;
		return with_type(to, [&](auto zero_to) {
			typedef decltype(zero_to) To;
			return launch(to_cells<From, To>, blocks_of(count), dim3(THREADS), stream, *w, (const From *)x,
				      (To *)y, count);
		});
	});
}

extern "C" cudaError_t cuda_kernel_weight_from_cells(cudaStream_t stream, const cuda_cell_weight *w, dtrain_dtype dtype,
						     const void *x, void *y)
{
	using namespace cuda_kernels;
	const int64_t count = w->filters * w->channels * w->kernel[0] * w->kernel[1];
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return launch(from_cells<T>, blocks_of(count), dim3(THREADS), stream, *w, (const T *)x, (T *)y, count);
	});
}
