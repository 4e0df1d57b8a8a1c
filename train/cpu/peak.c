/* SPDX-License-Identifier: Apache-2.0
 *
 * How fast oneDNN multiplies matrices on this processor.
 */
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "cpu.h"

/* Rows of each thread, and both sides of the other factor: as large as a transformer's products, and some MiB. */
enum { ROWS = 512, SIDE = 1024, LEAST_RUNS = 3, MOST_RUNS = 50 };

#define ENOUGH_NS 50000000u

enum { OPERANDS = 3 };

typedef struct peak_run {
	dnnl_primitive_desc_t pd;
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t args[OPERANDS];
} peak_run;

/* oneDNN chooses the layouts. */
static dnnl_status_t describe(peak_run *run, const dtrain_device *device, dnnl_data_type_t type)
{
	const dnnl_dim_t m = (dnnl_dim_t)ROWS * device->threads;
	const dnnl_dims_t dims[OPERANDS] = {{m, SIDE}, {SIDE, SIDE}, {m, SIDE}};
	onednn_md md[OPERANDS] = {NULL};
	dnnl_status_t status = dnnl_success;
	for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
		status = dnnl_memory_desc_create_with_tag(&md[i], 2, dims[i], type, dnnl_format_tag_any);
	if (status == dnnl_success)
		status = dnnl_matmul_primitive_desc_create(&run->pd, device->engine, md[0], md[1], NULL, md[2], NULL);
	for (int i = 0; i < OPERANDS; i++)
		if (md[i])
			dnnl_memory_desc_destroy(md[i]);
	return status;
}

static dnnl_status_t add_memory(peak_run *run, const dtrain_device *device, int index, int name)
{
	const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(run->pd, dnnl_query_exec_arg_md, name);
	void *values = NULL;
	run->args[index].arg = name;
	dnnl_status_t status = dnnl_memory_create(&run->args[index].memory, md, device->engine, DNNL_MEMORY_ALLOCATE);
	if (status == dnnl_success)
		status = dnnl_memory_get_data_handle(run->args[index].memory, &values);
	/* In each type a number near 0.75: products of zeros may be faster. */
	if (status == dnnl_success)
		memset(values, 0x3f, dnnl_memory_desc_get_size(md));
	return status;
}

static dnnl_status_t prepare(peak_run *run, const dtrain_device *device, dnnl_data_type_t type)
{
	const int names[OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
	dnnl_status_t status = describe(run, device, type);
	if (status == dnnl_success)
		status = dnnl_primitive_create(&run->primitive, run->pd);
	for (int i = 0; i < OPERANDS && status == dnnl_success; i++)
		status = add_memory(run, device, i, names[i]);
	return status;
}

/* best: the shortest time of a run. */
static dnnl_status_t repeat(const peak_run *run, const dtrain_device *device, uint64_t *best)
{
	uint64_t all = 0;
	dnnl_status_t status = dnnl_primitive_execute(run->primitive, device->stream, OPERANDS, run->args);
	*best = UINT64_MAX;
	for (int i = 0; i < MOST_RUNS && (i < LEAST_RUNS || all < ENOUGH_NS) && status == dnnl_success; i++) {
		uint64_t start = bt_now_ns();
		status = dnnl_primitive_execute(run->primitive, device->stream, OPERANDS, run->args);
		if (status == dnnl_success)
			status = dnnl_stream_wait(device->stream);
		uint64_t took = bt_now_ns() - start;
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

int cpu_time_product(dtrain_device *device, dtrain_dtype dtype, double *out, beton_error *err)
{
	peak_run run = {0};
	uint64_t best = 1;
	/* Ops in F16 multiply in F32 (half.c). */
	dnnl_status_t status = prepare(&run, device, dtype == DTRAIN_BF16 ? dnnl_bf16 : dnnl_f32);
	if (status == dnnl_success)
		status = repeat(&run, device, &best);
	release(&run);
	if (status != dnnl_success)
		return bt_fail(err, status == dnnl_out_of_memory ? BETON_NO_MEMORY : BETON_DEVICE,
			       "device 'cpu': oneDNN failed with status %d in the product that is timed for the peak",
			       (int)status);
	*out = 2.0 * ROWS * device->threads * SIDE * SIDE / ((double)best * 1e-9);
	return BETON_OK;
}
