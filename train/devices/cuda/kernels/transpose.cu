/* SPDX-License-Identifier: Apache-2.0
 *
 * Transposes through a tile in shared memory: reads along the rows of x, and writes along the rows of y. A tile covers
 * the narrow side of a matrix (the 3 x 3 of a filter, 3 colours) completely, so that reads and writes are as contiguous
 * as the tile allows.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

constexpr int TILE = 64, TILE_ELEMENTS = TILE * (TILE + 1);

struct tiling {
	int64_t rows, columns;
	uint32_t row_tiles, column_tiles;
	uint32_t tile_rows, tile_columns, pitch; /* pitch: odd, so that a column's elements are in different banks */
	divider by_rows, by_columns;
};

template <typename X, typename Y> __global__ void __launch_bounds__(THREADS) transpose(tiling g, const X *x, Y *y)
{
	__shared__ float tile[TILE_ELEMENTS];
	uint32_t column_tile = blockIdx.x % g.column_tiles, rest = blockIdx.x / g.column_tiles;
	uint32_t row_tile = rest % g.row_tiles, batch = rest / g.row_tiles;
	int64_t row = (int64_t)row_tile * g.tile_rows, column = (int64_t)column_tile * g.tile_columns;
	int64_t rows = g.rows - row, columns = g.columns - column; /* of the remaining part */
	const X *from = x + batch * g.rows * g.columns + row * g.columns + column;
	Y *to = y + batch * g.rows * g.columns + column * g.rows + row;
#pragma unroll 4
	for (uint32_t i = threadIdx.x; i < g.tile_rows * g.tile_columns; i += THREADS) {
		uint32_t r = g.by_columns.divide(i), c = i - r * g.tile_columns;
		if (r < rows && c < columns)
			tile[r * g.pitch + c] = to_float(from[r * g.columns + c]);
	}
	__syncthreads();
#pragma unroll 4
	for (uint32_t i = threadIdx.x; i < g.tile_rows * g.tile_columns; i += THREADS) {
		uint32_t c = g.by_rows.divide(i), r = i - c * g.tile_rows;
		if (r < rows && c < columns)
			to[c * g.rows + r] = from_float<Y>(tile[r * g.pitch + c]);
	}
}

/* The tile's size along the long side when it covers the short one: a multiple of 32, if possible. */
uint32_t long_side(int64_t size, uint32_t room)
{
	return size <= room ? (uint32_t)size : room / 32 * 32;
}

tiling tiling_of(int64_t rows, int64_t columns)
{
	tiling g;
	g.rows = rows;
	g.columns = columns;
	g.tile_rows = g.tile_columns = TILE;
	if (columns < TILE) {
		g.tile_columns = (uint32_t)columns;
		g.tile_rows = long_side(rows, TILE_ELEMENTS / (g.tile_columns | 1));
	} else if (rows < TILE) {
		g.tile_rows = (uint32_t)rows;
		g.tile_columns = long_side(columns, TILE_ELEMENTS / g.tile_rows - 1);
	}
	g.pitch = g.tile_columns | 1;
	g.row_tiles = (uint32_t)((rows + g.tile_rows - 1) / g.tile_rows);
	g.column_tiles = (uint32_t)((columns + g.tile_columns - 1) / g.tile_columns);
	g.by_rows = divider(g.tile_rows);
	g.by_columns = divider(g.tile_columns);
	return g;
}

} // namespace
} // namespace cuda_kernels

extern "C" cudaError_t cuda_kernel_transpose(cudaStream_t stream, const void *x, dtrain_dtype from, void *y,
					     dtrain_dtype to, int64_t batch, int64_t rows, int64_t columns)
{
	using namespace cuda_kernels;
	/* With one row or one column, transposing is a copy. */
	if (rows <= 1 || columns <= 1)
		return cuda_kernel_cast(stream, x, from, y, to, batch * rows * columns);
	if (rows > INT32_MAX || columns > INT32_MAX)
		return cudaErrorInvalidConfiguration;
	tiling g = tiling_of(rows, columns);
	int64_t tiles = (int64_t)g.row_tiles * g.column_tiles;
	if (batch > INT32_MAX / tiles)
		return cudaErrorInvalidConfiguration;
	return with_type(from, [&](auto source) {
		typedef decltype(source) X;
		return with_type(to, [&](auto target) {
			typedef decltype(target) Y;
			return launch(transpose<X, Y>, batch * tiles, dim3(THREADS), stream, g, (const X *)x, (Y *)y);
		});
	});
}
