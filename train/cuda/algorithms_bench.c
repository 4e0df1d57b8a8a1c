/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms_bench.h"

#include <string.h>

#include "cuda.h"

/* Of each byte: 0.0115 as F32 or BF16, 1.06 as F16. */
enum { FILL = 0x3c };

int cuda_bench_open(cuda_bench *bench, size_t bytes, beton_error *err)
{
	memset(bench, 0, sizeof(*bench));
	int status = cuda_check(cudaMalloc(&bench->memory, bytes ? bytes : 1), err, "memory to time algorithms on");
	if (status == BETON_OK)
		status = cuda_check(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking), err, "stream");
	if (status == BETON_OK)
		status = cuda_check(cudaEventCreate(&bench->start), err, "event");
	if (status == BETON_OK)
		status = cuda_check(cudaEventCreate(&bench->end), err, "event");
	if (status == BETON_OK)
		status = cuda_check(cudaMemsetAsync(bench->memory, 0, bytes ? bytes : 1, bench->stream), err,
				    "clearing memory");
	if (status != BETON_OK)
		cuda_bench_close(bench);
	return status;
}

void cuda_bench_close(cuda_bench *bench)
{
	if (bench->stream)
		cudaStreamSynchronize(bench->stream);
	if (bench->end)
		cudaEventDestroy(bench->end);
	if (bench->start)
		cudaEventDestroy(bench->start);
	if (bench->stream)
		cudaStreamDestroy(bench->stream);
	if (bench->memory)
		cudaFree(bench->memory);
	memset(bench, 0, sizeof(*bench));
}

int cuda_bench_fill(cuda_bench *bench, size_t offset, size_t bytes, beton_error *err)
{
	return cuda_check(cudaMemsetAsync((char *)bench->memory + offset, FILL, bytes, bench->stream), err,
			  "filling memory");
}

int cuda_bench_time(cuda_bench *bench, int (*run)(void *context, cudaStream_t stream, beton_error *err), void *context,
		    double *ms, beton_error *err)
{
	float elapsed = 0;
	int status = cuda_check(cudaEventRecord(bench->start, bench->stream), err, "event");
	if (status == BETON_OK)
		status = run(context, bench->stream, err);
	if (status == BETON_OK)
		status = cuda_check(cudaEventRecord(bench->end, bench->stream), err, "event");
	if (status == BETON_OK)
		status = cuda_check(cudaEventSynchronize(bench->end), err, "timing an algorithm");
	if (status == BETON_OK)
		status = cuda_check(cudaEventElapsedTime(&elapsed, bench->start, bench->end), err, "event");
	*ms = (double)elapsed;
	return status;
}
