/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout: each thread draws the numbers of its elements again instead of reading a mask. Two draws give the numbers of
 * eight elements where a row has a multiple of eight.
 */
#include "columns.cuh"
#include "core/chunks.h"
#include "core/philox.h"

namespace cuda_kernels
{
namespace
{

struct dropping {
	uint32_t threshold; /* the least number that keeps */
	float factor;       /* 0: nothing is kept */
	dtrain_dropout_attrs attrs;
};

/* The factors of elements first ... of the whole batch. WHOLE: first is a multiple of 8. */
template <bool WHOLE>
__device__ inline void draw(const dropping &a, const int64_t *random, uint64_t first, int valid, float (&out)[OCTET])
{
	uint32_t words[4];
#pragma unroll
	for (int i = 0; i < OCTET; i++) {
		const uint64_t at = first + (WHOLE || i < valid ? i : 0);
		if (!WHOLE || i % 4 == 0)
			dtrain__philox_at(random, a.attrs.layer, at / 4, words);
		out[i] = words[WHOLE ? i % 4 : at % 4] >= a.threshold ? a.factor : 0;
	}
}

template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS) dropout(columns g, dropping a, const T *x, const int64_t *random, T *y)
{
	const share s(g);
	if (s.valid <= 0)
		return;
	for (int64_t row = s.first + threadIdx.y; row < s.end; row += blockDim.y) {
		const uint64_t number = (uint64_t)dtrain__dropout_number(a.attrs, random, row);
		const octet<T> part = load_octet<VECTOR>(x + row * g.channels + s.channel, s.valid);
		float factor[OCTET];
		if (a.attrs.per_row) {
			uint32_t words[4];
			dtrain__philox_at(random, a.attrs.layer, number / 4, words);
#pragma unroll
			for (int i = 0; i < OCTET; i++)
				factor[i] = words[number % 4] >= a.threshold ? a.factor : 0;
		} else {
			draw<VECTOR>(a, random, number * (uint64_t)g.channels + (uint64_t)s.channel, s.valid, factor);
		}
		float out[OCTET];
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			out[i] = factor[i] > 0 ? part.at(i) * factor[i] : 0;
		store_octet<VECTOR>(y + row * g.channels + s.channel, s.valid, out);
	}
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_dropout(cudaStream_t stream, dtrain_dtype dtype, const void *x,
					   const int64_t *random, void *y, int64_t rows, int64_t each,
					   const dtrain_dropout_attrs *attrs)
{
	const double limit = ceil(attrs->p * 0x1p32);
	const bool none = limit > UINT32_MAX;
	const dropping a = {none ? UINT32_MAX : (uint32_t)limit, none ? 0 : (float)(1 / (1 - attrs->p)), *attrs};
	const columns g = columns_of(1, rows, each, 16, 1);
	return with_type(dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(each, x, y), [&](auto vector) {
			return launch(dropout<T, vector.value>, g.blocks, g.threads, stream, g, a, (const T *)x, random,
				      (T *)y);
		});
	});
}
