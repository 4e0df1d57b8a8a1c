/* SPDX-License-Identifier: Apache-2.0
 *
 * Where attention's heads are, and which keys a query attends to: for the kernels with and without tensor cores.
 */
#ifndef DTRAIN_CUDA_ATTENTION_CUH
#define DTRAIN_CUDA_ATTENTION_CUH

#include "core/chunks.h"
#include "core/philox.h"
#include "kernel.cuh"

namespace cuda_kernels
{

/* A query sees the keys up to its position + this. */
__device__ inline int64_t ahead(const cuda_attention &a)
{
	return a.chunks.ranks ? 0 : a.keys - a.queries;
}

/* One head of one sequence. */
template <typename T> struct head {
	const T *q, *k, *v, *d_y;
	const float *lse, *own; /* own: sums of d_y * y */
	const int32_t *segment;
	int64_t index; /* of the sequence and the head */
	int64_t batch, number;

	__device__ head(const cuda_attention &a, int64_t batch, int64_t number, const float *products)
	    : batch(batch), number(number)
	{
		const int64_t keys = batch * a.k_batch * a.k_step + number * a.kv_heads / a.heads * a.dim;
		const int64_t y = batch * a.queries * a.y_step + number * a.dim;
		index = batch * a.heads + number;
		q = (const T *)a.q + batch * a.queries * a.q_step + number * a.dim;
		k = (const T *)a.k + keys;
		v = (const T *)a.v + keys;
		d_y = (const T *)a.d_y + y;
		lse = a.lse + index * a.queries;
		own = products + index * a.queries;
		segment = a.segment ? a.segment + batch * a.keys : nullptr;
	}
};

/* The rows of a cache that are filled; within its memory also for a past that does not fit. */
__device__ inline int64_t keys_of(const cuda_attention &a)
{
	const int64_t keys = *a.past + a.queries;
	return keys < a.queries || keys > a.keys ? a.queries : keys;
}

/* The count of dropout's random numbers for a head. */
__device__ inline uint64_t numbers_of_head(const cuda_attention &a)
{
	return (uint64_t)(a.chunks.ranks ? a.keys : a.queries) * (uint64_t)a.keys;
}
/* The number of a head's first one in the whole batch. */
__device__ inline uint64_t first_number(const cuda_attention &a, int64_t batch, int64_t number)
{
	const int64_t row = a.random[DTRAIN_RANDOM_FIRST_ROW] + batch * a.random[DTRAIN_RANDOM_ROW_STRIDE];
	return (uint64_t)(row * a.all_heads + a.first_head + number) * numbers_of_head(a);
}

__host__ __device__ inline int64_t tiles_of(int64_t count, int rows)
{
	return (count + rows - 1) / rows;
}

} // namespace cuda_kernels

#endif
