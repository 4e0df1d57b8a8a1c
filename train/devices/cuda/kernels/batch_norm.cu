/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm of a matrix [rows][channels]. Forward: mean and sum of squared distances of each block's rows, then those
 * of all rows, then a pass that normalizes. Backward: the two sums, then one pass. With the batches of several ranks
 * the ops end at the moments and at the sums, which the ranks exchange.
 *
 * Mean and variance are formed as Chan, Golub and LeVeque do (1979): a thread computes mean and squared distances of
 * several rows at a time, and merges them into its moments; threads are merged in F32, blocks in F64. Nothing is
 * subtracted from a sum of squares, so the relative error of the variance is about (merges of a thread + 8 + 8) * 2^-24
 * * (1 + |mean| / deviation), and does not grow with the square of that quotient. The second passes go from the last
 * row of a block to the first, because the last rows read are still in the L2 cache.
 */
#include "finish.cuh"

namespace cuda_kernels
{
namespace
{

/* Three blocks of 80 registers fit a multiprocessor. No more are launched, so that all start and end together. */
constexpr int PER_MULTIPROCESSOR = 3, LEAST_ROWS = 4;
/* Rows that a thread processes at once: 64 bytes of all tensors that it reads; half of that where addresses need the
 * registers. */
template <typename T, int TENSORS, bool VECTOR>
constexpr int ROWS = 8 / sizeof(T) / TENSORS / (VECTOR || sizeof(T) * TENSORS == 8 ? 1 : 2);

columns matrix_of(const cuda_batch_norm *g)
{
	return columns_of(1, g->rows, g->channels, PER_MULTIPROCESSOR, LEAST_ROWS);
}

/* ---- statistics ---- */

/* Merges the moments of n2 values into the moments of n values. */
template <typename REAL>
__device__ inline void merge(REAL &n, REAL &mean, REAL &squares, REAL n2, REAL mean2, REAL squares2)
{
	if (n2 == 0)
		return;
	REAL fraction = n2 / (n + n2), distance = mean2 - mean;
	squares += squares2 + distance * distance * n * fraction;
	mean += distance * fraction;
	n += n2;
}

/* Merges the moments of N rows into the moments of the n rows before. */
template <int N, typename T>
__device__ inline void take_rows(float n, const octet<T> (&x)[N], float (&mean)[OCTET], float (&squares)[OCTET])
{
	const float fraction = N / (n + N), weight = n * fraction;
#pragma unroll
	for (int i = 0; i < OCTET; i++) {
		float sum = 0, distances = 0;
#pragma unroll
		for (int k = 0; k < N; k++)
			sum += x[k].at(i);
		const float own = sum * (1.f / N);
#pragma unroll
		for (int k = 0; k < N; k++)
			distances += (x[k].at(i) - own) * (x[k].at(i) - own);
		const float distance = own - mean[i];
		mean[i] += distance * fraction;
		squares[i] += distances + distance * distance * weight;
	}
}

/* Merges the moments of each column's threads; the threads with y 0 get the result. */
__device__ inline void merge_threads(float n, float (&mean)[OCTET], float (&squares)[OCTET])
{
	__shared__ float means[OCTET][THREADS], distances[OCTET][THREADS], counts[THREADS];
	const unsigned self = threadIdx.y * blockDim.x + threadIdx.x;
#pragma unroll
	for (int i = 0; i < OCTET; i++) {
		means[i][self] = mean[i];
		distances[i][self] = squares[i];
	}
	counts[self] = n;
	for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
		__syncthreads();
		if (threadIdx.y >= half)
			continue;
		const unsigned other = self + half * blockDim.x;
		float total = n;
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			total = n;
			merge(total, mean[i], squares[i], counts[other], means[i][other], distances[i][other]);
			means[i][self] = mean[i];
			distances[i][self] = squares[i];
		}
		counts[self] = n = total;
	}
}

/* partial: [2][chunks][channels], the means and the squares of each chunk. */
template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR) moments(columns g, const T *x, float *partial)
{
	constexpr int N = ROWS<T, 1, VECTOR>;
	const share s(g);
	float mean[OCTET] = {0}, squares[OCTET] = {0}, n = 0;
	const T *p = x + (s.first + threadIdx.y) * g.channels + s.channel;
	const int64_t step = (int64_t)blockDim.y * g.channels;
	int64_t row = s.valid > 0 ? s.first + threadIdx.y : s.end;
	for (; row + (N - 1) * (int64_t)blockDim.y < s.end; row += N * blockDim.y, p += N * step, n += N) {
		octet<T> part[N];
#pragma unroll
		for (int k = 0; k < N; k++)
			part[k] = load_octet<VECTOR>(p + k * step, s.valid);
		take_rows(n, part, mean, squares);
	}
	for (; row < s.end; row += blockDim.y, p += step, n++) {
		octet<T> part[1] = {load_octet<VECTOR>(p, s.valid)};
		take_rows(n, part, mean, squares);
	}
	merge_threads(n, mean, squares);
	float *means = partial + s.chunk * g.channels + s.channel, *distances = means + g.chunks * g.channels;
	if (threadIdx.y != 0)
		return;
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		if (i < s.valid) {
			means[i] = mean[i];
			distances[i] = squares[i];
		}
}

struct running {
	float *mean, *var; /* NULL: none */
	double momentum;
};

/* The moments of a channel in all chunks, in the threads with y 0. Returns whether this thread has them. */
__device__ inline bool join_chunks(const columns &g, const float *partial, double &n_out, double &mean_out,
				   double &squares_out)
{
	__shared__ double n[FINISH_THREADS][FINISH_CHANNELS], mean[FINISH_THREADS][FINISH_CHANNELS],
		squares[FINISH_THREADS][FINISH_CHANNELS];
	const unsigned x = threadIdx.x, y = threadIdx.y;
	const int64_t channel = (int64_t)blockIdx.x * FINISH_CHANNELS + x;
	n[y][x] = mean[y][x] = squares[y][x] = 0;
	const float *distances = partial + g.chunks * g.channels;
	if (channel < g.channels)
#pragma unroll 4
		for (uint32_t chunk = y; chunk < g.chunks; chunk += FINISH_THREADS) {
			const int64_t left = g.rows - chunk * g.chunk;
			merge(n[y][x], mean[y][x], squares[y][x], (double)(left < g.chunk ? left : g.chunk),
			      (double)partial[chunk * g.channels + channel],
			      (double)distances[chunk * g.channels + channel]);
		}
	tree([&](unsigned other) {
		merge(n[y][x], mean[y][x], squares[y][x], n[other][x], mean[other][x], squares[other][x]);
	});
	if (y != 0 || channel >= g.channels)
		return false;
	n_out = n[0][x];
	mean_out = mean[0][x];
	squares_out = squares[0][x];
	return true;
}

__device__ inline void update_running(const running &r, int64_t channel, double mean, double squares, double count)
{
	r.mean[channel] = (float)((1 - r.momentum) * r.mean[channel] + r.momentum * mean);
	r.var[channel] =
		(float)((1 - r.momentum) * r.var[channel] + r.momentum * squares / (count > 1 ? count - 1 : 1));
}

__global__ void __launch_bounds__(THREADS)
	finish_moments(columns g, const float *partial, float *mean_out, float *var_out, running r)
{
	const int64_t channel = (int64_t)blockIdx.x * FINISH_CHANNELS + threadIdx.x;
	double n, mean, squares;
	if (!join_chunks(g, partial, n, mean, squares))
		return;
	mean_out[channel] = (float)mean;
	var_out[channel] = (float)(squares / n);
	if (r.mean)
		update_running(r, channel, mean, squares, n);
}

/* moments: [ranks][2 channels + 1], each rank's number, means and squares; this rank writes one row. */
__global__ void __launch_bounds__(THREADS)
	finish_row(columns g, const float *partial, float *moments, int64_t ranks, int64_t rank)
{
	const int64_t channel = (int64_t)blockIdx.x * FINISH_CHANNELS + threadIdx.x;
	double n, mean, squares;
	if (!join_chunks(g, partial, n, mean, squares))
		return;
	for (int64_t i = 0; i < ranks; i++, moments += 2 * g.channels + 1) {
		const bool own = i == rank;
		moments[1 + channel] = own ? (float)mean : 0;
		moments[1 + g.channels + channel] = own ? (float)squares : 0;
		if (channel == 0)
			moments[0] = own ? (float)n : 0;
	}
}

/* One thread for each channel. */
__global__ void __launch_bounds__(THREADS)
	join_rows(int64_t channels, const float *moments, int64_t ranks, float *mean_out, float *var_out, running r)
{
	const int64_t channel = (int64_t)blockIdx.x * THREADS + threadIdx.x;
	if (channel >= channels)
		return;
	double n = 0, mean = 0, squares = 0;
	for (int64_t i = 0; i < ranks; i++, moments += 2 * channels + 1)
		merge(n, mean, squares, (double)moments[0], (double)moments[1 + channel],
		      (double)moments[1 + channels + channel]);
	mean_out[channel] = (float)mean;
	var_out[channel] = (float)(squares / n);
	if (r.momentum != 0)
		update_running(r, channel, mean, squares, n);
}

/* ---- forward ---- */

/* Factors and offsets of an octet of channels. */
struct scaling {
	float mean[OCTET], scale[OCTET], shift[OCTET];

	__device__ scaling(const share &s, const float *gamma, const float *beta, const float *means, const float *vars,
			   float epsilon)
	{
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			const bool valid = i < s.valid;
			mean[i] = valid ? means[s.channel + i] : 0;
			scale[i] = valid ? gamma[s.channel + i] / sqrtf(vars[s.channel + i] + epsilon) : 0;
			shift[i] = valid ? beta[s.channel + i] : 0;
		}
	}
};

struct apply_to {
	const void *x, *residual; /* residual, mask: NULL, or used */
	void *y;
	uint8_t *mask;
};

/* N rows, `step` elements apart. */
template <int N, bool VECTOR, bool RELU, bool RESIDUAL, typename T>
__device__ inline void apply_rows(const columns &g, const share &s, const scaling &c, const apply_to &a, int64_t row,
				  int64_t stride)
{
	octet<T> x[N], residual[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t i = (row - k * stride) * g.channels + s.channel;
		x[k] = load_octet<VECTOR>((const T *)a.x + i, s.valid);
		if constexpr (RESIDUAL)
			residual[k] = load_octet<VECTOR>((const T *)a.residual + i, s.valid);
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		float y[OCTET];
		unsigned bits = 0;
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			y[i] = (x[k].at(i) - c.mean[i]) * c.scale[i] + c.shift[i];
			if constexpr (RESIDUAL)
				y[i] += residual[k].at(i);
			if constexpr (RELU) {
				bits |= (unsigned)(y[i] > 0) << i;
				y[i] = y[i] < 0 ? 0 : y[i];
			}
		}
		const int64_t at = row - k * stride;
		store_octet<VECTOR>((T *)a.y + at * g.channels + s.channel, s.valid, y);
		if (RELU && a.mask)
			a.mask[at * g.mask_bytes() + s.channel / OCTET] = (uint8_t)bits;
	}
}

template <typename T, bool VECTOR, bool RELU, bool RESIDUAL>
__global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR)
	apply(columns g, apply_to a, const float *gamma, const float *beta, const float *mean, const float *var,
	      float epsilon)
{
	constexpr int N = ROWS<T, 1 + RESIDUAL, VECTOR>;
	const share s(g);
	if (s.valid <= 0)
		return;
	const scaling c(s, gamma, beta, mean, var, epsilon);
	const int64_t stride = blockDim.y;
	int64_t row = s.end - 1 - threadIdx.y;
	for (; row - (N - 1) * stride >= s.first; row -= N * stride)
		apply_rows<N, VECTOR, RELU, RESIDUAL, T>(g, s, c, a, row, stride);
	for (; row >= s.first; row -= stride)
		apply_rows<1, VECTOR, RELU, RESIDUAL, T>(g, s, c, a, row, stride);
}

/* ---- backward ---- */

struct gradients {
	const void *x, *d_y;
	const uint8_t *mask;    /* NULL: all bits are set */
	void *d_x, *d_residual; /* d_residual: NULL, or used */
};

/* The bits of 8 channels of a row. */
__device__ inline unsigned mask_of(const columns &g, const share &s, const uint8_t *mask, int64_t row)
{
	return mask ? mask[row * g.mask_bytes() + s.channel / OCTET] : 0xff;
}

/* Adds N rows to the sums of d and d * (x - mean). */
template <int N, bool VECTOR, typename T>
__device__ inline void add_rows(const columns &g, const share &s, const float (&mean)[OCTET], const gradients &a,
				int64_t row, float (&sum)[2 * OCTET])
{
	octet<T> x[N], d_y[N];
	unsigned bits[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t at = row + k * (int64_t)blockDim.y, i = at * g.channels + s.channel;
		x[k] = load_octet<VECTOR>((const T *)a.x + i, s.valid);
		d_y[k] = load_octet<VECTOR>((const T *)a.d_y + i, s.valid);
		bits[k] = mask_of(g, s, a.mask, at);
	}
#pragma unroll
	for (int k = 0; k < N; k++)
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			const float d = bits[k] >> i & 1 ? d_y[k].at(i) : 0;
			sum[i] += d;
			sum[OCTET + i] += d * (x[k].at(i) - mean[i]);
		}
}

/* partial: [2][chunks][channels], the sums of d and of d * (x - mean). */
template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR)
	gradient_sums(columns g, gradients a, const float *means, float *partial)
{
	constexpr int N = ROWS<T, 2, VECTOR>;
	const share s(g);
	float mean[OCTET], sum[2 * OCTET] = {0};
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		mean[i] = i < s.valid ? means[s.channel + i] : 0;
	const int64_t stride = blockDim.y;
	int64_t row = s.valid > 0 ? s.first + threadIdx.y : s.end;
	for (; row + (N - 1) * stride < s.end; row += N * stride)
		add_rows<N, VECTOR, T>(g, s, mean, a, row, sum);
	for (; row < s.end; row += stride)
		add_rows<1, VECTOR, T>(g, s, mean, a, row, sum);
	add_up(sum);
	if (threadIdx.y != 0)
		return;
	float *first = partial + s.chunk * g.channels + s.channel, *second = first + g.chunks * g.channels;
#pragma unroll
	for (int i = 0; i < OCTET; i++)
		if (i < s.valid) {
			first[i] = sum[i];
			second[i] = sum[OCTET + i];
		}
}

/* sums: number of rows, d_beta, d_gamma; NULL: not wanted. */
__global__ void __launch_bounds__(THREADS) finish_gradients(columns g, const float *partial, const float *var,
							    float epsilon, float *d_gamma, float *d_beta, float *sums)
{
	__shared__ double first[FINISH_THREADS][FINISH_CHANNELS], second[FINISH_THREADS][FINISH_CHANNELS];
	const unsigned x = threadIdx.x, y = threadIdx.y;
	const int64_t channel = (int64_t)blockIdx.x * FINISH_CHANNELS + x;
	const float *products = partial + g.chunks * g.channels;
	double sum = 0, product = 0;
	if (channel < g.channels)
#pragma unroll 4
		for (uint32_t chunk = y; chunk < g.chunks; chunk += FINISH_THREADS) {
			sum += partial[chunk * g.channels + channel];
			product += products[chunk * g.channels + channel];
		}
	first[y][x] = sum;
	second[y][x] = product;
	tree([&](unsigned other) {
		first[y][x] += first[other][x];
		second[y][x] += second[other][x];
	});
	if (y != 0 || channel >= g.channels)
		return;
	d_beta[channel] = (float)first[0][x];
	d_gamma[channel] = (float)(second[0][x] / sqrt((double)var[channel] + epsilon));
	if (!sums)
		return;
	sums[1 + channel] = d_beta[channel];
	sums[1 + g.channels + channel] = d_gamma[channel];
	if (channel == 0)
		sums[0] = (float)g.rows;
}

/* The sums over all rows, whose number is `count` (NULL: g's rows). */
struct totals {
	const float *d_gamma, *d_beta, *count;
};

/* d_x = d * slope - (x - mean) * tilt - level, for an octet of channels. */
struct slopes {
	float mean[OCTET], slope[OCTET], tilt[OCTET], level[OCTET];

	__device__ slopes(const columns &g, const share &s, const float *gamma, const float *means, const float *vars,
			  const totals &t, float epsilon)
	{
		const float share_of_one = 1.f / (t.count ? *t.count : (float)g.rows);
#pragma unroll
		for (int i = 0; i < OCTET; i++) {
			mean[i] = slope[i] = tilt[i] = level[i] = 0;
			if (i >= s.valid)
				continue;
			const int64_t c = s.channel + i;
			const float inverse = 1 / sqrtf(vars[c] + epsilon);
			mean[i] = means[c];
			slope[i] = gamma[c] * inverse;
			tilt[i] = slope[i] * inverse * t.d_gamma[c] * share_of_one;
			level[i] = slope[i] * t.d_beta[c] * share_of_one;
		}
	}
};

template <int N, bool VECTOR, typename T>
__device__ inline void write_rows(const columns &g, const share &s, const slopes &c, const gradients &a, int64_t row)
{
	octet<T> x[N], d_y[N];
	unsigned bits[N];
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t at = row - k * (int64_t)blockDim.y, i = at * g.channels + s.channel;
		x[k] = load_octet<VECTOR>((const T *)a.x + i, s.valid);
		d_y[k] = load_octet<VECTOR>((const T *)a.d_y + i, s.valid);
		bits[k] = mask_of(g, s, a.mask, at);
	}
#pragma unroll
	for (int k = 0; k < N; k++) {
		const int64_t to = (row - k * (int64_t)blockDim.y) * g.channels + s.channel;
		float d[OCTET];
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			d[i] = bits[k] >> i & 1 ? d_y[k].at(i) : 0;
		if (a.d_residual)
			store_octet<VECTOR>((T *)a.d_residual + to, s.valid, d);
#pragma unroll
		for (int i = 0; i < OCTET; i++)
			d[i] = d[i] * c.slope[i] - ((x[k].at(i) - c.mean[i]) * c.tilt[i] + c.level[i]);
		store_octet<VECTOR>((T *)a.d_x + to, s.valid, d);
	}
}

template <typename T, bool VECTOR>
__global__ void __launch_bounds__(THREADS, PER_MULTIPROCESSOR)
	gradient_apply(columns g, gradients a, const float *gamma, const float *mean, const float *var, totals t,
		       float epsilon)
{
	constexpr int N = ROWS<T, 2, VECTOR>;
	const share s(g);
	if (s.valid <= 0)
		return;
	const slopes c(g, s, gamma, mean, var, t, epsilon);
	const int64_t stride = blockDim.y;
	int64_t row = s.end - 1 - threadIdx.y;
	for (; row - (N - 1) * stride >= s.first; row -= N * stride)
		write_rows<N, VECTOR, T>(g, s, c, a, row);
	for (; row >= s.first; row -= stride)
		write_rows<1, VECTOR, T>(g, s, c, a, row);
}

template <typename T, bool VECTOR, bool RELU, bool RESIDUAL>
cudaError_t launch_apply(cudaStream_t stream, const cuda_batch_norm *p, const apply_to &a, const float *gamma,
			 const float *beta, const float *mean, const float *var)
{
	columns g = matrix_of(p);
	return launch(apply<T, VECTOR, RELU, RESIDUAL>, g.blocks, g.threads, stream, g, a, gamma, beta, mean, var,
		      (float)p->epsilon);
}

cudaError_t launch_moments(cudaStream_t stream, const cuda_batch_norm *p, const void *x, void *workspace)
{
	columns g = matrix_of(p);
	return with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(g.channels, x), [&](auto vector) {
			return launch(moments<T, vector.value>, g.blocks, g.threads, stream, g, (const T *)x,
				      (float *)workspace);
		});
	});
}

cudaError_t launch_sums(cudaStream_t stream, const cuda_batch_norm *p, const gradients &a, const float *mean,
			const float *var, float *d_gamma, float *d_beta, float *sums, void *workspace)
{
	columns g = matrix_of(p);
	cudaError_t status = with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(p->channels, a.x, a.d_y), [&](auto vector) {
			return launch(gradient_sums<T, vector.value>, g.blocks, g.threads, stream, g, a, mean,
				      (float *)workspace);
		});
	});
	return status != cudaSuccess ? status
				     : launch(finish_gradients, finish_blocks(g), finish_threads(), stream, g,
					      (const float *)workspace, var, (float)p->epsilon, d_gamma, d_beta, sums);
}

cudaError_t launch_gradient(cudaStream_t stream, const cuda_batch_norm *p, const gradients &a, const float *gamma,
			    const float *mean, const float *var, const totals &t)
{
	columns g = matrix_of(p);
	return with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(p->channels, a.x, a.d_y, a.d_x, a.d_residual), [&](auto vector) {
			return launch(gradient_apply<T, vector.value>, g.blocks, g.threads, stream, g, a, gamma, mean,
				      var, t, (float)p->epsilon);
		});
	});
}

} // namespace
} // namespace cuda_kernels

using namespace cuda_kernels;

extern "C" size_t cuda_kernel_batch_norm_workspace(const cuda_batch_norm *p)
{
	return 2 * sizeof(float) * matrix_of(p).chunks * (size_t)p->channels;
}

extern "C" cudaError_t cuda_kernel_batch_norm_statistics(cudaStream_t stream, const cuda_batch_norm *p, const void *x,
							 float *mean, float *var, float *running_mean,
							 float *running_var, void *workspace)
{
	columns g = matrix_of(p);
	cudaError_t status = launch_moments(stream, p, x, workspace);
	running r = {running_mean, running_var, p->momentum};
	return status != cudaSuccess ? status
				     : launch(finish_moments, finish_blocks(g), finish_threads(), stream, g,
					      (const float *)workspace, mean, var, r);
}

extern "C" cudaError_t cuda_kernel_batch_norm_moments(cudaStream_t stream, const cuda_batch_norm *p, const void *x,
						      float *moments, int64_t ranks, int64_t rank, void *workspace)
{
	columns g = matrix_of(p);
	cudaError_t status = launch_moments(stream, p, x, workspace);
	return status != cudaSuccess ? status
				     : launch(finish_row, finish_blocks(g), finish_threads(), stream, g,
					      (const float *)workspace, moments, ranks, rank);
}

extern "C" cudaError_t cuda_kernel_batch_norm_join(cudaStream_t stream, const cuda_batch_norm *p, const float *moments,
						   int64_t ranks, float *mean, float *var, float *running_mean,
						   float *running_var)
{
	running r = {running_mean, running_var, p->momentum};
	return launch(join_rows, (p->channels + THREADS - 1) / THREADS, dim3(THREADS), stream, p->channels, moments,
		      ranks, mean, var, r);
}

extern "C" cudaError_t cuda_kernel_batch_norm_apply(cudaStream_t stream, const cuda_batch_norm *p, const void *x,
						    const float *gamma, const float *beta, const float *mean,
						    const float *var, const void *residual, void *y, uint8_t *mask)
{
	apply_to a = {x, residual, y, mask};
	return with_type(p->dtype, [&](auto zero) {
		typedef decltype(zero) T;
		return with_bool(is_vector(p->channels, x, y, residual), [&](auto vector) {
			constexpr bool VECTOR = decltype(vector)::value;
			if (residual && p->relu)
				return launch_apply<T, VECTOR, true, true>(stream, p, a, gamma, beta, mean, var);
			if (residual)
				return launch_apply<T, VECTOR, false, true>(stream, p, a, gamma, beta, mean, var);
			if (p->relu)
				return launch_apply<T, VECTOR, true, false>(stream, p, a, gamma, beta, mean, var);
			return launch_apply<T, VECTOR, false, false>(stream, p, a, gamma, beta, mean, var);
		});
	});
}

extern "C" cudaError_t cuda_kernel_batch_norm_bwd(cudaStream_t stream, const cuda_batch_norm *p, const void *x,
						  const void *d_y, const float *gamma, const float *mean,
						  const float *var, const uint8_t *mask, void *d_x, float *d_gamma,
						  float *d_beta, void *d_residual, void *workspace)
{
	gradients a = {x, d_y, mask, d_x, d_residual};
	cudaError_t status = launch_sums(stream, p, a, mean, var, d_gamma, d_beta, NULL, workspace);
	return status != cudaSuccess ? status
				     : launch_gradient(stream, p, a, gamma, mean, var, totals{d_gamma, d_beta, NULL});
}

extern "C" cudaError_t cuda_kernel_batch_norm_sums(cudaStream_t stream, const cuda_batch_norm *p, const void *x,
						   const void *d_y, const float *mean, const float *var,
						   const uint8_t *mask, float *sums, float *d_gamma, float *d_beta,
						   void *workspace)
{
	gradients a = {x, d_y, mask, NULL, NULL};
	return launch_sums(stream, p, a, mean, var, d_gamma, d_beta, sums, workspace);
}

extern "C" cudaError_t cuda_kernel_batch_norm_sync_bwd(cudaStream_t stream, const cuda_batch_norm *p, const void *x,
						       const void *d_y, const float *gamma, const float *mean,
						       const float *var, const float *sums, const uint8_t *mask,
						       void *d_x, void *d_residual)
{
	gradients a = {x, d_y, mask, d_x, d_residual};
	return launch_gradient(stream, p, a, gamma, mean, var, totals{sums + 1 + p->channels, sums + 1, sums});
}
