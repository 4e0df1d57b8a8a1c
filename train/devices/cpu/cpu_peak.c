/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast oneDNN multiplies matrices on this processor. Each thread multiplies for itself, and its own CPU time
 * counts: where other processes have a core for a while, or a thread waits, the clock on the wall says nothing about
 * the processor.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/error.h"
#include "cpu.h"

/* Rows of each thread, and both sides of the other factor: as large as a transformer's products, and some MiB. */
enum { ROWS = 512, SIDE = 1024, LEAST_RUNS = 3, MOST_RUNS = 50 };

#define ENOUGH_NS 50000000u

enum { SRC, WEIGHTS, DST, OPERANDS };

/* The product of one thread. All threads share the weights. */
typedef struct peak_run {
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t args[OPERANDS];
} peak_run;

/* oneDNN chooses the layouts. */
static dnnl_status_t describe(peak_run *run, const dtrain_device *device, dnnl_data_type_t type)
{
	const dnnl_dims_t dims[OPERANDS] = {{ROWS, SIDE}, {SIDE, SIDE}, {ROWS, SIDE}};
	onednn_md md[OPERANDS] = {NULL};
	dnnl_status_t status = dnnl_success;
	for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
		status = dnnl_memory_desc_create_with_tag(&md[i], 2, dims[i], type, dnnl_format_tag_any);
	if (status == dnnl_success)
		status = dnnl_matmul_primitive_desc_create(&run->pd, device->engine, md[SRC], md[WEIGHTS], NULL,
							   md[DST], NULL);
	for (int i = 0; i < OPERANDS; i++)
		if (md[i])
			dnnl_memory_desc_destroy(md[i]);
	return status;
}

/* shared: memory of the operand in another run; NULL: the run gets its own. */
static dnnl_status_t add_memory(peak_run *run, const dtrain_device *device, int index, dnnl_memory_t shared)
{
	static const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
	const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(run->pd, dnnl_query_exec_arg_md, names[index]);
	void *values = DNNL_MEMORY_ALLOCATE;
	dnnl_status_t status = shared ? dnnl_memory_get_data_handle(shared, &values) : dnnl_success;
	run->args[index].arg = names[index];
	if (status == dnnl_success)
		status = dnnl_memory_create(&run->args[index].memory, md, device->engine, values);
	if (status == dnnl_success)
		status = dnnl_memory_get_data_handle(run->args[index].memory, &values);
	/* In each type a number near 0.75: products of zeros may be faster. */
	if (status == dnnl_success && !shared)
		memset(values, 0x3f, dnnl_memory_desc_get_size(md));
	return status;
}

static dnnl_status_t prepare(peak_run *run, const peak_run *first, const dtrain_device *device, dnnl_data_type_t type)
{
	dnnl_status_t status = describe(run, device, type);
	if (status == dnnl_success)
		status = dnnl_primitive_create(&run->primitive, run->pd);
	for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
		status = add_memory(run, device, i, i == WEIGHTS && run != first ? first->args[i].memory : NULL);
	return status;
}

/* CPU time of the calling thread. */
static uint64_t used_ns(void)
{
	struct timespec used;
	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used) != 0)
		return 0;
	return (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
}

/* best: the shortest time of a run. */
static dnnl_status_t repeat(const peak_run *run, const dtrain_device *device, uint64_t *best)
{
	uint64_t all = 0;
	dnnl_status_t status = dnnl_primitive_execute(run->primitive, device->stream, OPERANDS, run->args);
	*best = UINT64_MAX;
	for (int i = 0; i < MOST_RUNS && (i < LEAST_RUNS || all < ENOUGH_NS) && status == dnnl_success; i++) {
		uint64_t start = used_ns();
		status = dnnl_primitive_execute(run->primitive, device->stream, OPERANDS, run->args);
		uint64_t took = used_ns() - start;
		all += took;
		*best = took < *best ? took : *best;
	}
	return status;
}

static void release(peak_run *run)
{
	for (int i = 0; i < OPERANDS; i++)
		if (run->args[i].memory)
			dnnl_memory_destroy(run->args[i].memory);
	if (run->primitive)
		dnnl_primitive_destroy(run->primitive);
	if (run->pd)
		dnnl_primitive_desc_destroy(run->pd);
}

/* Adds the speeds of the threads, which multiply at the same time. */
static dnnl_status_t time_runs(const peak_run *runs, const dtrain_device *device, double *out)
{
	double sum = 0;
	int failure = dnnl_success;
#ifdef _OPENMP
#pragma omp parallel for schedule(static, 1) num_threads(device->threads) reduction(+ : sum) reduction(max : failure)
#endif
	for (int i = 0; i < device->threads; i++) {
		uint64_t best;
		dnnl_status_t status = repeat(&runs[i], device, &best);
		failure = status == dnnl_success ? failure : (int)status;
		sum += 2.0 * ROWS * SIDE * SIDE / ((double)best * 1e-9);
	}
	*out = sum;
	return (dnnl_status_t)failure;
}

int cpu_time_product(dtrain_device *device, dtrain_dtype dtype, double *out, beton_error *err)
{
	peak_run *runs = calloc((size_t)device->threads, sizeof(*runs));
	if (!runs)
		return bt_fail(err, BETON_NO_MEMORY, "device 'cpu': out of memory for the product that is timed");
	dnnl_status_t status = dnnl_success;
	/* A primitive for one thread. */
	omp_set_num_threads(1);
	/* Ops of half.c multiply in F32. */
	bool is_bf16 = dtype == DTRAIN_BF16 && device->has_bf16;
	for (int i = 0; i < device->threads && status == dnnl_success; i++)
		status = prepare(&runs[i], runs, device, is_bf16 ? dnnl_bf16 : dnnl_f32);
	omp_set_num_threads(device->threads);
	if (status == dnnl_success)
		status = time_runs(runs, device, out);
	for (int i = 0; i < device->threads; i++)
		release(&runs[i]);
	free(runs);
	return status == dnnl_success
		       ? BETON_OK
		       : bt_fail(err, status == dnnl_out_of_memory ? BETON_NO_MEMORY : BETON_DEVICE,
				 "device 'cpu': oneDNN failed with status %d in the product that is timed for the peak",
				 (int)status);
}
