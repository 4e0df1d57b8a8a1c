/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream, two events and memory to try and time candidates before a program runs.
 */
#ifndef DTRAIN_CUDA_ALGORITHMS_BENCH_H
#define DTRAIN_CUDA_ALGORITHMS_BENCH_H

#include <cuda_runtime_api.h>

#include <dtrain/device.h>

typedef struct cuda_bench {
	struct cuda_gate *gate; /* set before cuda_bench_open: the functions below wait until it lets them use the GPU;
				   NULL: it is free */
	cudaStream_t stream;
	cudaEvent_t start, end;
	void *memory; /* aligned to 256 bytes, zeroed */
} cuda_bench;

/* Puts one run of a candidate on the stream. */
typedef int cuda_bench_run(void *context, cudaStream_t stream, beton_error *err);

/* Errors: NO_MEMORY, DEVICE; frees everything then. */
int cuda_bench_open(cuda_bench *bench, size_t bytes, beton_error *err);
void cuda_bench_close(cuda_bench *bench);
/* Fills a part of the memory with random numbers of a type (F32, F16 or BF16), from -1 to 1 or from 0 to 1. With
 * constant data a GPU needs less power, and so less time. */
int cuda_bench_fill(cuda_bench *bench, size_t offset, size_t bytes, dtrain_dtype dtype, bool positive,
		    beton_error *err);
/* Runs the candidate once, and once more in a capture that is thrown away, because some engines run but cannot be
 * captured. */
int cuda_bench_try(cuda_bench *bench, cuda_bench_run *run, void *context, beton_error *err);
/* Milliseconds of one run: the mean of five between two events, to reduce the effect of the first launch and of the
 * events' resolution (half a microsecond). */
int cuda_bench_time(cuda_bench *bench, cuda_bench_run *run, void *context, double *ms, beton_error *err);
/* The same of `runs` runs. */
int cuda_bench_time_runs(cuda_bench *bench, int runs, cuda_bench_run *run, void *context, double *ms, beton_error *err);

#endif
