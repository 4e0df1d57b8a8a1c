/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's own speed: a convolution or a product, and nothing around it.
 */
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "common/error.h"
#include "common/system.h"
#include "devices/cpu/onednn.h"

typedef struct bare_run {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_data_type_t type;
	dnnl_primitive_desc_t hint, pd;
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t args[3];
} bare_run;

static dnnl_status_t make_conv_pd(const bare_run *run, dtrain_op_kind kind, const onednn_md *md,
				  const dtrain_window_attrs *attrs, dnnl_primitive_desc_t *pd)
{
	const dnnl_dims_t stride = {attrs->stride[0], attrs->stride[1]}, dilation = {0};
	const dnnl_dims_t padding = {attrs->padding[0], attrs->padding[1]};
	if (kind == DTRAIN_OP_CONV2D_BWD_DATA)
		return dnnl_convolution_backward_data_primitive_desc_create(pd, run->engine, dnnl_convolution_direct,
									    md[0], md[1], md[2], stride, dilation,
									    padding, padding, run->hint, NULL);
	if (kind == DTRAIN_OP_CONV2D_BWD_WEIGHT)
		return dnnl_convolution_backward_weights_primitive_desc_create(
			pd, run->engine, dnnl_convolution_direct, md[0], md[1], NULL, md[2], stride, dilation, padding,
			padding, run->hint, NULL);
	return dnnl_convolution_forward_primitive_desc_create(pd, run->engine, dnnl_forward_training,
							      dnnl_convolution_direct, md[0], md[1], NULL, md[2],
							      stride, dilation, padding, padding, NULL);
}

/* shapes: of three tensors with `rank` dimensions; oneDNN chooses their layouts. */
static dnnl_status_t make_layouts(const bare_run *run, int rank, const dtrain_shape *const *shapes, onednn_md md[3])
{
	dnnl_status_t status = dnnl_success;
	for (int i = 0; i < 3 && status == dnnl_success; i++) {
		dnnl_dims_t dims;
		for (int d = 0; d < rank; d++)
			dims[d] = shapes[i]->dim[d];
		status = dnnl_memory_desc_create_with_tag(&md[i], rank, dims, run->type, dnnl_format_tag_any);
	}
	return status;
}

static void destroy_layouts(onednn_md md[3])
{
	for (int i = 0; i < 3; i++)
		if (md[i])
			dnnl_memory_desc_destroy(md[i]);
}

/* shapes: of x, w and y. */
static dnnl_status_t make_conv(bare_run *run, dtrain_op_kind kind, const dtrain_shape *const *shapes,
			       const dtrain_window_attrs *attrs)
{
	onednn_md md[3] = {NULL};
	dnnl_status_t status = make_layouts(run, 4, shapes, md);
	if (status == dnnl_success && kind != DTRAIN_OP_CONV2D)
		status = make_conv_pd(run, DTRAIN_OP_CONV2D, md, attrs, &run->hint);
	if (status == dnnl_success)
		status = make_conv_pd(run, kind, md, attrs, &run->pd);
	destroy_layouts(md);
	return status;
}

/* shapes: of both factors and of the product. */
static dnnl_status_t make_product(bare_run *run, const dtrain_shape *const *shapes)
{
	onednn_md md[3] = {NULL};
	dnnl_status_t status = make_layouts(run, 2, shapes, md);
	if (status == dnnl_success)
		status = dnnl_matmul_primitive_desc_create(&run->pd, run->engine, md[0], md[1], NULL, md[2], NULL);
	destroy_layouts(md);
	return status;
}

static void fill_with_ones(void *memory, size_t bytes, dnnl_data_type_t type)
{
	const float one = 1;
	const uint16_t half = 0x3f80; /* the upper half of 1.0f */
	const bool is_f32 = type == dnnl_f32;
	const size_t size = is_f32 ? sizeof(one) : sizeof(half);
	for (size_t k = 0; k + size <= bytes; k += size)
		memcpy((char *)memory + k, is_f32 ? (const void *)&one : &half, size);
}

/* Memory that oneDNN allocates, in the layouts that the primitive chose, filled with ones. */
static dnnl_status_t make_memory(bare_run *run, const int names[3])
{
	for (int i = 0; i < 3; i++) {
		const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(run->pd, dnnl_query_exec_arg_md, names[i]);
		run->args[i].arg = names[i];
		dnnl_status_t status = dnnl_memory_create(&run->args[i].memory, md, run->engine, DNNL_MEMORY_ALLOCATE);
		void *handle = NULL;
		if (status == dnnl_success)
			status = dnnl_memory_get_data_handle(run->args[i].memory, &handle);
		if (status != dnnl_success)
			return status;
		fill_with_ones(handle, dnnl_memory_desc_get_size(md), run->type);
	}
	return dnnl_success;
}

static void release(bare_run *run)
{
	for (int i = 0; i < 3; i++)
		if (run->args[i].memory)
			dnnl_memory_destroy(run->args[i].memory);
	if (run->primitive)
		dnnl_primitive_destroy(run->primitive);
	if (run->pd)
		dnnl_primitive_desc_destroy(run->pd);
	if (run->hint)
		dnnl_primitive_desc_destroy(run->hint);
	if (run->stream)
		dnnl_stream_destroy(run->stream);
	if (run->engine)
		dnnl_engine_destroy(run->engine);
}

static dnnl_status_t begin(bare_run *run, bool bf16)
{
	*run = (bare_run){.type = bf16 ? dnnl_bf16 : dnnl_f32};
	dnnl_status_t status = dnnl_engine_create(&run->engine, dnnl_cpu, 0);
	return status == dnnl_success ? dnnl_stream_create(&run->stream, run->engine, dnnl_stream_in_order) : status;
}

/* Makes the primitive that run->pd describes, unless status is a failure, times it, and releases all. */
static int finish(bare_run *run, dnnl_status_t status, const int names[3], int repeats, double *seconds,
		  beton_error *err)
{
	if (status == dnnl_success)
		status = dnnl_primitive_create(&run->primitive, run->pd);
	if (status == dnnl_success)
		status = make_memory(run, names);
	uint64_t best = UINT64_MAX;
	for (int i = 0; i <= repeats && status == dnnl_success; i++) {
		uint64_t start = bt_now_ns();
		status = dnnl_primitive_execute(run->primitive, run->stream, 3, run->args);
		if (status == dnnl_success)
			status = dnnl_stream_wait(run->stream);
		uint64_t took = bt_now_ns() - start;
		/* The first run pays for page faults. */
		if (i > 0 && took < best)
			best = took;
	}
	release(run);
	*seconds = (double)best * 1e-9;
	if (status == dnnl_success)
		return BETON_OK;
	return bt_fail(err, status == dnnl_unimplemented ? BETON_UNSUPPORTED : BETON_DEVICE,
		       "oneDNN failed with status %d", (int)status);
}

int bench_conv(dtrain_op_kind kind, bool bf16, const dtrain_shape *x, const dtrain_shape *w, const dtrain_shape *y,
	       const dtrain_window_attrs *attrs, int repeats, double *seconds, beton_error *err)
{
	const bool data = kind == DTRAIN_OP_CONV2D_BWD_DATA, weight = kind == DTRAIN_OP_CONV2D_BWD_WEIGHT;
	const int names[] = {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
			     data || weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST};
	bare_run run;
	dnnl_status_t status = begin(&run, bf16);
	if (status == dnnl_success)
		status = make_conv(&run, kind, (const dtrain_shape *[]){x, w, y}, attrs);
	return finish(&run, status, names, repeats, seconds, err);
}

int bench_product(bool bf16, int64_t m, int64_t k, int64_t n, int repeats, double *seconds, beton_error *err)
{
	const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
	const dtrain_shape a = dtrain_shape_of(2, (int64_t[]){m, k}), b = dtrain_shape_of(2, (int64_t[]){k, n}),
			   c = dtrain_shape_of(2, (int64_t[]){m, n});
	bare_run run;
	dnnl_status_t status = begin(&run, bf16);
	if (status == dnnl_success)
		status = make_product(&run, (const dtrain_shape *[]){&a, &b, &c});
	return finish(&run, status, names, repeats, seconds, err);
}
