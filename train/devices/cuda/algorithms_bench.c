/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms_bench.h"

#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/half.h"
#include "cuda.h"
#include "gate.h"

static int open_bench(cuda_bench *bench, size_t bytes, beton_error *err)
{
	*bench = (cuda_bench){.gate = bench->gate};
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
	if (status == BETON_OK && bench->gate)
		status = cuda_check(cudaStreamSynchronize(bench->stream), err, "clearing memory");
	return status;
}

static void close_bench(cuda_bench *bench)
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
	*bench = (cuda_bench){.gate = bench->gate};
}

int cuda_bench_open(cuda_bench *bench, size_t bytes, beton_error *err)
{
	cuda_gate_enter(bench->gate);
	int status = open_bench(bench, bytes, err);
	if (status != BETON_OK)
		close_bench(bench);
	cuda_gate_leave(bench->gate);
	return status;
}

void cuda_bench_close(cuda_bench *bench)
{
	cuda_gate_enter(bench->gate);
	close_bench(bench);
	cuda_gate_leave(bench->gate);
}

/* ---- random numbers ---- */

/* Made by the host. The rest of an operand repeats them, which does not affect timings. */
enum { RANDOM_BYTES = 1 << 20 };

/* SplitMix64 (Steele, Lea, Flood 2014): its upper 24 bits, as a number from 0 to 1. */
static float next_random(uint64_t *state)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (float)((x ^ x >> 31) >> 40) * 0x1p-24f;
}

static void make_random(void *out, size_t bytes, dtrain_dtype dtype, bool positive)
{
	size_t size = dtrain_dtype_size(dtype);
	uint64_t state = 1;
	for (size_t i = 0; i < bytes / size; i++) {
		float x = next_random(&state);
		if (!positive)
			x = 2 * x - 1;
		uint16_t half = dtype == DTRAIN_F16 ? bt_float16(x) : bt_bfloat16(x);
		memcpy((char *)out + i * size, size == sizeof(x) ? (const void *)&x : &half, size);
	}
}

int cuda_bench_fill(cuda_bench *bench, size_t offset, size_t bytes, dtrain_dtype dtype, bool positive, beton_error *err)
{
	char *to = (char *)bench->memory + offset;
	size_t done = bytes < RANDOM_BYTES ? bytes : RANDOM_BYTES;
	void *random = malloc(done ? done : 1);
	if (!random)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for random numbers");
	make_random(random, done, dtype, positive);
	cuda_gate_enter(bench->gate);
	int status = cuda_check(cudaMemcpyAsync(to, random, done, cudaMemcpyHostToDevice, bench->stream), err,
				"filling memory");
	while (status == BETON_OK && done < bytes) {
		size_t more = bytes - done < done ? bytes - done : done;
		status = cuda_check(cudaMemcpyAsync(to + done, to, more, cudaMemcpyDeviceToDevice, bench->stream), err,
				    "filling memory");
		done += more;
	}
	if (status == BETON_OK)
		status = cuda_check(cudaStreamSynchronize(bench->stream), err, "filling memory");
	cuda_gate_leave(bench->gate);
	free(random);
	return status;
}

/* ---- running ---- */

/* Ends the capture in any case. */
static int try_capture(cuda_bench *bench, cuda_bench_run *run, void *context, beton_error *err)
{
	cudaGraph_t graph = NULL;
	int status = cuda_check(cudaStreamBeginCapture(bench->stream, cudaStreamCaptureModeThreadLocal), err,
				"trial capture");
	if (status != BETON_OK)
		return status;
	status = run(context, bench->stream, err);
	cudaError_t ended = cudaStreamEndCapture(bench->stream, &graph);
	if (status == BETON_OK)
		status = cuda_check(ended, err, "trial capture");
	else
		(void)cudaGetLastError();
	if (graph)
		cudaGraphDestroy(graph);
	return status;
}

int cuda_bench_try(cuda_bench *bench, cuda_bench_run *run, void *context, beton_error *err)
{
	cuda_gate_enter(bench->gate);
	int status = run(context, bench->stream, err);
	if (status == BETON_OK)
		status = cuda_check(cudaStreamSynchronize(bench->stream), err, "trying an algorithm");
	cuda_gate_leave(bench->gate);
	return status == BETON_OK ? try_capture(bench, run, context, err) : status;
}

enum { RUNS = 5 };

int cuda_bench_time(cuda_bench *bench, cuda_bench_run *run, void *context, double *ms, beton_error *err)
{
	return cuda_bench_time_runs(bench, RUNS, run, context, ms, err);
}

int cuda_bench_time_runs(cuda_bench *bench, int runs, cuda_bench_run *run, void *context, double *ms, beton_error *err)
{
	float elapsed = 0;
	cuda_gate_enter(bench->gate);
	int status = cuda_check(cudaEventRecord(bench->start, bench->stream), err, "event");
	for (int i = 0; i < runs && status == BETON_OK; i++)
		status = run(context, bench->stream, err);
	if (status == BETON_OK)
		status = cuda_check(cudaEventRecord(bench->end, bench->stream), err, "event");
	if (status == BETON_OK)
		status = cuda_check(cudaEventSynchronize(bench->end), err, "timing an algorithm");
	if (status == BETON_OK)
		status = cuda_check(cudaEventElapsedTime(&elapsed, bench->start, bench->end), err, "event");
	cuda_gate_leave(bench->gate);
	*ms = (double)elapsed / runs;
	return status;
}
