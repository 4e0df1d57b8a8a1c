/* SPDX-License-Identifier: Apache-2.0
 *
 * Gram and Schmidt for the columns of a matrix [rows][columns] with few columns: one block, so that the bits depend on
 * the shape alone, and sums in F64. A pass over a column takes off its part along one column and multiplies the rest
 * with the next one.
 */
#include "core/philox.h"
#include "reduce.cuh"

namespace cuda_kernels
{
namespace
{

constexpr int WIDE = 1024;

struct matrix {
	float *x;
	int64_t rows, columns;
};

/* The sum over the rows of (column c - part * column k) * column `with`, or of its square without one. The column
 * becomes that difference; k < 0: it stays. Every thread of the block gets the sum. */
__device__ inline double take_off(const matrix &m, int64_t c, int64_t k, double part, int64_t with)
{
	double sum_of_thread = 0;
#pragma unroll 4
	for (int64_t i = threadIdx.x; i < m.rows; i += WIDE) {
		float *row = m.x + i * m.columns, own = row[c];
		if (k >= 0)
			row[c] = own = (float)((double)own - part * (double)row[k]);
		sum_of_thread += (double)own * (double)(with < c ? row[with] : own);
	}
	return reduce<WIDE>(sum_of_thread, sum());
}

/* Divides the column by its norm. False: there is none to divide by. */
__device__ inline bool scale_column(const matrix &m, int64_t c, double squares, double least)
{
	const double norm = sqrt(squares);
	if (!(norm > least) || !isfinite(norm))
		return false;
	for (int64_t i = threadIdx.x; i < m.rows; i += WIDE)
		m.x[i * m.columns + c] = (float)((double)m.x[i * m.columns + c] / norm);
	return true;
}

/* Twice: after the first time rounding has left parts of a column that was nearly a sum of the others. False: nothing
 * is left of it. */
__device__ inline bool take_off_columns(const matrix &m, int64_t c)
{
	if (!scale_column(m, c, take_off(m, c, -1, 0, c), 0))
		return false;
	for (int pass = 0; pass < 2; pass++) {
		double part = take_off(m, c, -1, 0, 0);
		for (int64_t k = 0; k < c; k++)
			part = take_off(m, c, k, part, k + 1);
		if (!scale_column(m, c, part, 1e-6))
			return false;
	}
	return true;
}

__device__ inline void draw_column(const matrix &m, int64_t c, int attempt, const int64_t *random)
{
	for (int64_t i = threadIdx.x; i < m.rows; i += WIDE) {
		uint32_t words[4];
		dtrain__philox_at(random, (int32_t)(c * 16 + attempt), (uint64_t)i / 4, words);
		m.x[i * m.columns + c] = (float)((double)words[i % 4] / 0x1p31 - 1);
	}
}

/* A kernel cannot report a column that cannot be drawn: the column becomes NaN, and so does the gradient. */
__device__ inline void make_column(const matrix &m, int64_t c, const int64_t *random)
{
	constexpr int ATTEMPTS = 16; /* one is enough */
	for (int attempt = 0; !take_off_columns(m, c); attempt++) {
		if (attempt == ATTEMPTS) {
			for (int64_t i = threadIdx.x; i < m.rows; i += WIDE)
				m.x[i * m.columns + c] = NAN;
			return;
		}
		draw_column(m, c, attempt, random);
	}
}

__global__ void __launch_bounds__(WIDE) orthonormalize(matrix m, int64_t *random)
{
	for (int64_t c = 0; c < m.columns; c++)
		make_column(m, c, random);
	__syncthreads();
	if (threadIdx.x == 0)
		random[DTRAIN_RANDOM_STEP]++;
}

} // namespace
} // namespace cuda_kernels

extern "C" cudaError_t cuda_kernel_orthonormalize(cudaStream_t stream, float *x, int64_t rows, int64_t columns,
						  int64_t *random)
{
	using namespace cuda_kernels;
	return launch(orthonormalize, 1, dim3(WIDE), stream, matrix{x, rows, columns}, random);
}
