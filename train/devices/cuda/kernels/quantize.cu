/* SPDX-License-Identifier: Apache-2.0
 *
 * Codes of a byte, and numbers from codes. A thread has eight elements, and 32 threads share a scale. Products are
 * rounded before they are added, so that the bits equal the other devices'.
 */
#include "kernel.cuh"

namespace cuda_kernels
{
namespace
{

/* Threads of a scale, and scales of a block. */
constexpr int TEAM = DTRAIN_CODE_BLOCK / OCTET, TEAMS = THREADS / TEAM;
/* Codes of a thread, in words: the scale before 256 codes leaves them on multiples of 4 bytes. */
constexpr int WORDS = OCTET / 4;
static_assert(DTRAIN_CODE_BYTES == sizeof(float) + DTRAIN_CODE_BLOCK, "codes follow their scale");

__device__ inline float float_of(uint32_t word)
{
	float x;
	memcpy(&x, &word, sizeof(x));
	return x;
}

/* The largest size in the team; every thread of the block calls it. */
__device__ inline float largest_of_team(uint32_t size)
{
	__shared__ vector<uint32_t, 4> sizes[THREADS / 4];
	sizes[threadIdx.x / 4].v[threadIdx.x % 4] = size;
	__syncthreads();
	uint32_t most = 0;
#pragma unroll
	for (int i = 0; i < TEAM / 4; i++) {
		const vector<uint32_t, 4> four = sizes[threadIdx.x / TEAM * (TEAM / 4) + i];
#pragma unroll
		for (int k = 0; k < 4; k++)
			most = four.v[k] > most ? four.v[k] : most;
	}
	return float_of(most);
}

struct quantizer {
	float scale, inverse;
	bool extreme; /* there is nothing to multiply with */

	__device__ explicit quantizer(float most)
	{
		scale = most / 127;
		inverse = scale > 0 ? 1 / scale : 0;
		extreme = !isfinite(scale) || !isfinite(inverse);
	}
	__device__ float value_of(float x) const
	{
		if (extreme)
			return x == 0 ? 0 : x < 0 ? -127 : 127;
		const float value = rintf(x * inverse);
		return value > 127 ? 127 : value < -127 ? -127 : value;
	}
	__device__ float rest_of(float x, float value) const
	{
		return isfinite(scale) ? x - __fmul_rn(value, scale) : 0;
	}
};

template <bool VECTOR>
__global__ void __launch_bounds__(THREADS) quantize(float *x, int64_t count, unsigned *codes, int64_t blocks)
{
	const int64_t block = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
	const int64_t first = block * DTRAIN_CODE_BLOCK + threadIdx.x % TEAM * OCTET, left = count - first;
	const bool whole = VECTOR && left >= OCTET;
	const int valid = left < 0 ? 0 : left < OCTET ? (int)left : OCTET;
	const octet<float> in = whole ? load_octet<VECTOR>(x + first, OCTET) : load_octet<false>(x + first, valid);
	uint32_t most = 0;
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		most = size_of(in.v[i]) > most ? size_of(in.v[i]) : most;
	const quantizer q(largest_of_team(most));
	if (block >= blocks)
		return;
	uint32_t words[WORDS] = {0};
	float rest[OCTET];
#pragma unroll
	for (int i = 0; i < OCTET; i++) {
		const float value = q.value_of(in.v[i]);
		words[i / 4] |= (uint32_t)(uint8_t)(int8_t)value << i % 4 * 8;
		rest[i] = q.rest_of(in.v[i], value);
	}
	unsigned *out = codes + block * (DTRAIN_CODE_BYTES / 4);
	if (threadIdx.x % TEAM == 0)
		__stwb(out, word_of(q.scale));
#pragma unroll
	for (int i = 0; i < WORDS; i++)
		__stwb(out + 1 + threadIdx.x % TEAM * WORDS + i, words[i]);
	if (whole)
		store_octet<VECTOR>(x + first, OCTET, rest);
	else
		store_octet<false>(x + first, valid, rest);
}

/* part: words from one part to the next. */
template <bool VECTOR>
__global__ void __launch_bounds__(THREADS)
	dequantize(const unsigned *codes, int64_t parts, int64_t part, float *y, int64_t count)
{
	const int64_t thread = (int64_t)blockIdx.x * THREADS + threadIdx.x, left = count - thread * OCTET;
	if (left <= 0)
		return;
	const unsigned *from = codes + thread / TEAM * (DTRAIN_CODE_BYTES / 4);
	float sum[OCTET] = {0};
#pragma unroll 4
	for (int64_t p = 0; p < parts; p++, from += part) {
		const float scale = float_of(from[0]);
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			const unsigned word = from[1 + thread % TEAM * WORDS + i / 4];
			const int8_t value = (int8_t)(uint8_t)(word >> i % 4 * 8);
			sum[i] += value ? __fmul_rn((float)value, scale) : 0;
		}
	}
	if (VECTOR && left >= OCTET)
		store_octet<VECTOR>(y + thread * OCTET, OCTET, sum);
	else
		store_octet<false>(y + thread * OCTET, left < OCTET ? (int)left : OCTET, sum);
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" cudaError_t cuda_kernel_quantize(cudaStream_t stream, float *x, int64_t count, void *codes, int64_t blocks)
{
	return launch(is_aligned(x, 16) ? quantize<true> : quantize<false>, (blocks + TEAMS - 1) / TEAMS, dim3(THREADS),
		      stream, x, count, (unsigned *)codes, blocks);
}

extern "C" cudaError_t cuda_kernel_dequantize(cudaStream_t stream, const void *codes, int64_t parts, int64_t blocks,
					      float *y, int64_t count)
{
	constexpr int EACH = THREADS * OCTET;
	return launch(is_aligned(y, 16) ? dequantize<true> : dequantize<false>, (count + EACH - 1) / EACH,
		      dim3(THREADS), stream, (const unsigned *)codes, parts, blocks * (DTRAIN_CODE_BYTES / 4), y,
		      count);
}
