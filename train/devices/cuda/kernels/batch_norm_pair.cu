/* SPDX-License-Identifier: Apache-2.0
 *
 * Two batch norms of matrices [rows][channels], whose sum a relu cuts: DTRAIN_OP_BATCH_NORM_PAIR. batch_norm.cu finds
 * their statistics. Forward is one pass over both; backward is a pass for the sums and one for the gradients. The
 * second passes go from the last row of a block to the first, because the last rows read are still in the L2 cache.
 */
#include "finish.cuh"

namespace cuda_kernels
{
namespace
{

/* Two blocks of up to 128 registers fit a multiprocessor. */
constexpr int PER_MULTIPROCESSOR = 2, LEAST_ROWS = 4;
/* Rows that a thread processes at once: 128 bytes of both x forward, 96 of both x and d_y backward. */
template <typename T, bool VECTOR> constexpr int FORWARD_ROWS = 8 / sizeof(T) / (VECTOR ? 1 : 2);
template <typename T, bool VECTOR> constexpr int BACKWARD_ROWS = VECTOR ? 4 / sizeof(T) : 1;

columns matrix_of(const cuda_batch_norm *g)
{
	return columns_of(1, g->rows, g->channels, PER_MULTIPROCESSOR, LEAST_ROWS);
}

struct pair_of_norms {
	cuda_norm_side sides[2];
	const void *d_y;
	void *y;
	uint8_t *mask;
	float epsilon;
};

/* ---- forward ---- */

struct pair_scaling {
	float mean[2][OCTET], scale[2][OCTET], shift[OCTET];

	__device__ pair_scaling(const share &s, const pair_of_norms &a)
	{
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			const bool valid = i < s.valid;
			shift[i] = 0;
#pragma unroll
			for (int k = 0; k < 2; k++) {
				const cuda_norm_side &side = a.sides[k];
				mean[k][i] = valid ? side.mean[s.channel + i] : 0;
				scale[k][i] =
					valid ? side.gamma[s.channel + i] / sqrtf(side.var[s.channel + i] + a.epsilon)
					      : 0;
				shift[i] += valid ? side.beta[s.channel + i] : 0;
			}
		}
	}
};

/* N rows, `stride` rows apart. */
template <int N, bool VECTOR, typename T>
__device__ inline void apply_rows(const columns &g, const share &s, const pair_scaling &c, const pair_of_norms &a,
				  int64_t row, int64_t stride)
{
	octet<T> x[2][N];
#pragma unroll
	for (int k = 0; k < N; k++)
#pragma unroll
		for (int side = 0; side < 2; side++)
			x[side][k] = load_octet<VECTOR>(
				(const T *)a.sides[side].x + (row - k * stride) * g.channels + s.channel, s.valid);
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t at = row - k * stride;
		float y[OCTET];
		unsigned bits = 0;
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			y[i] = (x[0][k].at(i) - c.mean[0][i]) * c.scale[0][i] +
			       ((x[1][k].at(i) - c.mean[1][i]) * c.scale[1][i] + c.shift[i]);
			bits |= (unsigned)(y[i] > 0) << i;
			y[i] = y[i] < 0 ? 0 : y[i];
		}
		store_octet<VECTOR>((T *)a.y + at * g.channels + s.channel, s.valid, y);
		a.mask[at * g.mask_bytes() + s.channel / OCTET] = (uint8_t)bits;
	}
}

template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) apply_pair(columns g, pair_of_norms a)
{
	constexpr int N = FORWARD_ROWS<T, VECTOR>;
	const share s(g);
	if (s.valid <= 0)
		return;
	const pair_scaling c(s, a);
	const int64_t stride = blockDim.y;
	int64_t row = s.end - 1 - threadIdx.y;
	for (; row - (N - 1) * stride >= s.first; row -= N * stride)
		apply_rows<N, VECTOR, T>(g, s, c, a, row, stride);
	for (; row >= s.first; row -= stride)
		apply_rows<1, VECTOR, T>(g, s, c, a, row, stride);
}

/* ---- backward ---- */

/* N rows of both x and of the gradient of the sum before the relu. */
template <int N, bool VECTOR, typename T> struct rows_of_pair {
	octet<T> x[2][N], d_y[N];
	unsigned bits[N];

	/* step: from row to row, maybe negative. */
	__device__ rows_of_pair(const columns &g, const share &s, const pair_of_norms &a, int64_t row, int64_t step)
	{
#pragma unroll
		for (int k = 0; k < N; k++) {
			const int64_t at = row + k * step, i = at * g.channels + s.channel;
			x[0][k] = load_octet<VECTOR>((const T *)a.sides[0].x + i, s.valid);
			x[1][k] = load_octet<VECTOR>((const T *)a.sides[1].x + i, s.valid);
			d_y[k] = load_octet<VECTOR>((const T *)a.d_y + i, s.valid);
			bits[k] = a.mask[at * g.mask_bytes() + s.channel / OCTET];
		}
	}

	__device__ float d(int k, int i) const
	{
		return bits[k] >> i & 1 ? d_y[k].at(i) : 0;
	}
};

/* Adds N rows to the sums of d, and of d * (x - mean) of both. */
template <int N, bool VECTOR, typename T>
__device__ inline void add_rows(const columns &g, const share &s, const float (&mean)[2][OCTET], const pair_of_norms &a,
				int64_t row, float (&sum)[3 * OCTET])
{
	const rows_of_pair<N, VECTOR, T> rows(g, s, a, row, blockDim.y);
#pragma unroll
	for (int k = 0; k < N; k++)
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			const float d = rows.d(k, i);
			sum[i] += d;
			sum[OCTET + i] += d * (rows.x[0][k].at(i) - mean[0][i]);
			sum[2 * OCTET + i] += d * (rows.x[1][k].at(i) - mean[1][i]);
		}
}

/* partial: [3][chunks][channels], those sums. */
template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) pair_sums(columns g, pair_of_norms a, float *partial)
{
	constexpr int N = BACKWARD_ROWS<T, VECTOR>;
	const share s(g);
	float mean[2][OCTET], sum[3 * OCTET] = {0};
#pragma unroll
	for (int i = 0; i < OCTET; i++)
#pragma unroll
		for (int k = 0; k < 2; k++)
			mean[k][i] = i < s.valid ? a.sides[k].mean[s.channel + i] : 0;
	const int64_t stride = blockDim.y;
	int64_t row = s.valid > 0 ? s.first + threadIdx.y : s.end;
	for (; row + (N - 1) * stride < s.end; row += N * stride)
		add_rows<N, VECTOR, T>(g, s, mean, a, row, sum);
	for (; row < s.end; row += stride)
		add_rows<1, VECTOR, T>(g, s, mean, a, row, sum);
	add_up(sum);
	if (threadIdx.y != 0)
		return;
#pragma unroll
	for (int part = 0; part < 3; part++)
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			if (i < s.valid)
				partial[(part * g.chunks + s.chunk) * g.channels + s.channel + i] =
					sum[part * OCTET + i];
}

__global__ void __launch_bounds__(THREADS) finish_pair(columns g, const float *partial, pair_of_norms a)
{
	__shared__ double sums[3][FINISH_THREADS][FINISH_CHANNELS];
	const unsigned x = threadIdx.x, y = threadIdx.y;
	const int64_t channel = (int64_t)blockIdx.x * FINISH_CHANNELS + x;
#pragma unroll
	for (int part = 0; part < 3; part++) {
		double sum = 0;
		if (channel < g.channels)
#pragma unroll 4
			for (uint32_t chunk = y; chunk < g.chunks; chunk += FINISH_THREADS)
				sum += partial[(part * g.chunks + chunk) * g.channels + channel];
		sums[part][y][x] = sum;
	}
	tree([&](unsigned other) {
		for (int part = 0; part < 3; part++)
			sums[part][y][x] += sums[part][other][x];
	});
	if (y != 0 || channel >= g.channels)
		return;
	for (int k = 0; k < 2; k++) {
		const cuda_norm_side &side = a.sides[k];
		side.d_beta[channel] = (float)sums[0][0][x];
		side.d_gamma[channel] = (float)(sums[1 + k][0][x] / sqrt((double)side.var[channel] + a.epsilon));
	}
}

/* d_x = d * slope - (x * tilt + level), for an octet of channels of both. */
struct pair_slopes {
	float slope[2][OCTET], tilt[2][OCTET], level[2][OCTET];

	__device__ pair_slopes(const columns &g, const share &s, const pair_of_norms &a)
	{
		const float share_of_one = 1.f / (float)g.rows;
#pragma unroll
		for (int i = 0; i < OCTET; i++)
#pragma unroll
			for (int k = 0; k < 2; k++) {
				slope[k][i] = tilt[k][i] = level[k][i] = 0;
				if (i >= s.valid)
					continue;
				const cuda_norm_side &side = a.sides[k];
				const int64_t c = s.channel + i;
				const float inverse = 1 / sqrtf(side.var[c] + a.epsilon);
				slope[k][i] = side.gamma[c] * inverse;
				tilt[k][i] = slope[k][i] * inverse * side.d_gamma[c] * share_of_one;
				level[k][i] = slope[k][i] * side.d_beta[c] * share_of_one - side.mean[c] * tilt[k][i];
			}
	}
};

template <int N, bool VECTOR, typename T>
__device__ inline void write_rows(const columns &g, const share &s, const pair_slopes &c, const pair_of_norms &a,
				  int64_t row)
{
	const int64_t stride = blockDim.y;
	const rows_of_pair<N, VECTOR, T> rows(g, s, a, row, -stride);
#pragma unroll
	for (int k = 0; k < N; k++)
#pragma unroll
		for (int side = 0; side < 2; side++) {
			float d_x[OCTET];
#pragma unroll
			for (int i = 0; i < OCTET; i++)
				d_x[i] = rows.d(k, i) * c.slope[side][i] -
					 (rows.x[side][k].at(i) * c.tilt[side][i] + c.level[side][i]);
			store_octet<VECTOR>((T *)a.sides[side].d_x + (row - k * stride) * g.channels + s.channel,
					    s.valid, d_x);
		}
}

template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) pair_gradients(columns g, pair_of_norms a)
{
	constexpr int N = BACKWARD_ROWS<T, VECTOR>;
	const share s(g);
	if (s.valid <= 0)
		return;
	const pair_slopes c(g, s, a);
	const int64_t stride = blockDim.y;
	int64_t row = s.end - 1 - threadIdx.y;
	for (; row - (N - 1) * stride >= s.first; row -= N * stride)
		write_rows<N, VECTOR, T>(g, s, c, a, row);
	for (; row >= s.first; row -= stride)
		write_rows<1, VECTOR, T>(g, s, c, a, row);
}

pair_of_norms pair_from(const cuda_batch_norm *p, const cuda_norm_side sides[2])
{
	pair_of_norms a = {};
	a.sides[0] = sides[0];
	a.sides[1] = sides[1];
	a.epsilon = (float)p->epsilon;
	return a;
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" size_t cuda_kernel_batch_norm_pair_workspace(const cuda_batch_norm *p)
{
	const size_t sums = 3 * sizeof(float) * matrix_of(p).chunks * (size_t)p->channels,
		     statistics = cuda_kernel_batch_norm_workspace(p);
	return sums > statistics ? sums : statistics;
}

extern "C" cudaError_t cuda_kernel_batch_norm_pair_apply(cudaStream_t stream, const cuda_batch_norm *p,
							 const cuda_norm_side sides[2], void *y, uint8_t *mask)
{
	const columns g = matrix_of(p);
	pair_of_norms a = pair_from(p, sides);
	a.y = y;
	a.mask = mask;
	return with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(p->channels, sides[0].x, sides[1].x, y), [&](auto vector) {
			return launch(apply_pair<T, decltype(vector)::value>, g.blocks, g.threads, stream, g, a);
		});
	});
}

extern "C" cudaError_t cuda_kernel_batch_norm_pair_bwd(cudaStream_t stream, const cuda_batch_norm *p,
						       const cuda_norm_side sides[2], const void *d_y,
						       const uint8_t *mask, void *workspace)
{
	const columns g = matrix_of(p);
	pair_of_norms a = pair_from(p, sides);
	a.d_y = d_y;
	a.mask = const_cast<uint8_t *>(mask);
	return with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		const bool whole = is_vector(p->channels, sides[0].x, sides[1].x, d_y, sides[0].d_x, sides[1].d_x);
		return with_bool(whole, [&](auto vector) {
			constexpr bool VECTOR = decltype(vector)::value;
			cudaError_t status =
				launch(pair_sums<T, VECTOR>, g.blocks, g.threads, stream, g, a, (float *)workspace);
			if (status == cudaSuccess)
				status = launch(finish_pair, finish_blocks(g), finish_threads(), stream, g,
						(const float *)workspace, a);
			return status == cudaSuccess
				       ? launch(pair_gradients<T, VECTOR>, g.blocks, g.threads, stream, g, a)
				       : status;
		});
	});
}
