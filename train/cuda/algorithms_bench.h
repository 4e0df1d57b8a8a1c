/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream, two events and memory to time candidates on, while no program runs yet.
 */
#ifndef DTRAIN_CUDA_ALGORITHMS_BENCH_H
#define DTRAIN_CUDA_ALGORITHMS_BENCH_H

#include <cuda_runtime_api.h>

#include <beton/error.h>

typedef struct cuda_bench {
	cudaStream_t stream;
	cudaEvent_t start, end;
	void *memory; /* on 256 bytes, zeros */
} cuda_bench;

/* Errors: NO_MEMORY, DEVICE; nothing is left then. */
int cuda_bench_open(cuda_bench *bench, size_t bytes, beton_error *err);
void cuda_bench_close(cuda_bench *bench);
/* Fills a part of the memory with numbers that are small and no zeros, whatever floating-point type they are read as:
 * what a GPU makes of zeros takes less power, and so less time. */
int cuda_bench_fill(cuda_bench *bench, size_t offset, size_t bytes, beton_error *err);
/* Milliseconds of what run puts on the stream. */
int cuda_bench_time(cuda_bench *bench, int (*run)(void *context, cudaStream_t stream, beton_error *err), void *context,
		    double *ms, beton_error *err);

#endif
