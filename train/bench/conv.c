/* SPDX-License-Identifier: Apache-2.0
 *
 * oneDNN's own speed: a convolution and nothing around it.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "cpu/onednn.h"
#include "bench.h"

typedef struct bare_conv {
	dnnl_engine_t engine;
	dnnl_stream_t stream;
	dnnl_data_type_t type;
	dnnl_primitive_desc_t hint, pd;
	dnnl_primitive_t primitive;
	dnnl_exec_arg_t args[3];
} bare_conv;

static dnnl_status_t make_pd(const bare_conv *conv, dtrain_op_kind kind, const onednn_md *md,
			     const dtrain_window_attrs *attrs, dnnl_primitive_desc_t *pd)
{
	const dnnl_dims_t stride = {attrs->stride[0], attrs->stride[1]}, dilation = {0};
	const dnnl_dims_t padding = {attrs->padding[0], attrs->padding[1]};
	if (kind == DTRAIN_OP_CONV2D_BWD_DATA)
		return dnnl_convolution_backward_data_primitive_desc_create(pd, conv->engine, dnnl_convolution_direct,
									    md[0], md[1], md[2], stride, dilation,
									    padding, padding, conv->hint, NULL);
	if (kind == DTRAIN_OP_CONV2D_BWD_WEIGHT)
		return dnnl_convolution_backward_weights_primitive_desc_create(
			pd, conv->engine, dnnl_convolution_direct, md[0], md[1], NULL, md[2], stride, dilation, padding,
			padding, conv->hint, NULL);
	return dnnl_convolution_forward_primitive_desc_create(pd, conv->engine, dnnl_forward_training,
							      dnnl_convolution_direct, md[0], md[1], NULL, md[2],
							      stride, dilation, padding, padding, NULL);
}

/* shapes: of x, w and y. */
static dnnl_status_t make_primitive(bare_conv *conv, dtrain_op_kind kind, const dtrain_shape *const *shapes,
				    const dtrain_window_attrs *attrs)
{
	onednn_md md[3] = {NULL};
	dnnl_status_t status = dnnl_success;
	for (int i = 0; i < 3 && status == dnnl_success; i++) {
		dnnl_dims_t dims = {shapes[i]->dim[0], shapes[i]->dim[1], shapes[i]->dim[2], shapes[i]->dim[3]};
		status = dnnl_memory_desc_create_with_tag(&md[i], 4, dims, conv->type, dnnl_format_tag_any);
	}
	if (status == dnnl_success && kind != DTRAIN_OP_CONV2D)
		status = make_pd(conv, DTRAIN_OP_CONV2D, md, attrs, &conv->hint);
	if (status == dnnl_success)
		status = make_pd(conv, kind, md, attrs, &conv->pd);
	for (int i = 0; i < 3; i++)
		if (md[i])
			dnnl_memory_desc_destroy(md[i]);
	return status == dnnl_success ? dnnl_primitive_create(&conv->primitive, conv->pd) : status;
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
static dnnl_status_t make_memory(bare_conv *conv, dtrain_op_kind kind)
{
	const bool data = kind == DTRAIN_OP_CONV2D_BWD_DATA, weight = kind == DTRAIN_OP_CONV2D_BWD_WEIGHT;
	const int names[] = {data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS,
			     data || weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST};
	for (int i = 0; i < 3; i++) {
		const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(conv->pd, dnnl_query_exec_arg_md, names[i]);
		conv->args[i].arg = names[i];
		dnnl_status_t status =
			dnnl_memory_create(&conv->args[i].memory, md, conv->engine, DNNL_MEMORY_ALLOCATE);
		void *handle = NULL;
		if (status == dnnl_success)
			status = dnnl_memory_get_data_handle(conv->args[i].memory, &handle);
		if (status != dnnl_success)
			return status;
		fill_with_ones(handle, dnnl_memory_desc_get_size(md), conv->type);
	}
	return dnnl_success;
}

static void release(bare_conv *conv)
{
	for (int i = 0; i < 3; i++)
		if (conv->args[i].memory)
			dnnl_memory_destroy(conv->args[i].memory);
	if (conv->primitive)
		dnnl_primitive_destroy(conv->primitive);
	if (conv->pd)
		dnnl_primitive_desc_destroy(conv->pd);
	if (conv->hint)
		dnnl_primitive_desc_destroy(conv->hint);
	if (conv->stream)
		dnnl_stream_destroy(conv->stream);
	if (conv->engine)
		dnnl_engine_destroy(conv->engine);
}

int bench_conv(dtrain_op_kind kind, bool bf16, const dtrain_shape *x, const dtrain_shape *w, const dtrain_shape *y,
	       const dtrain_window_attrs *attrs, int repeats, double *seconds, beton_error *err)
{
	bare_conv conv = {.type = bf16 ? dnnl_bf16 : dnnl_f32};
	dnnl_status_t status = dnnl_engine_create(&conv.engine, dnnl_cpu, 0);
	if (status == dnnl_success)
		status = dnnl_stream_create(&conv.stream, conv.engine, dnnl_stream_in_order);
	if (status == dnnl_success)
		status = make_primitive(&conv, kind, (const dtrain_shape *[]){x, w, y}, attrs);
	if (status == dnnl_success)
		status = make_memory(&conv, kind);
	uint64_t best = UINT64_MAX;
	for (int i = 0; i <= repeats && status == dnnl_success; i++) {
		uint64_t start = bt_now_ns();
		status = dnnl_primitive_execute(conv.primitive, conv.stream, 3, conv.args);
		if (status == dnnl_success)
			status = dnnl_stream_wait(conv.stream);
		uint64_t took = bt_now_ns() - start;
		/* The first run pays for page faults. */
		if (i > 0 && took < best)
			best = took;
	}
	release(&conv);
	*seconds = (double)best * 1e-9;
	if (status == dnnl_success)
		return BETON_OK;
	return bt_fail(err, status == dnnl_unimplemented ? BETON_UNSUPPORTED : BETON_DEVICE,
		       "oneDNN failed with status %d", (int)status);
}
