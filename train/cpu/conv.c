/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

/* The shapes of x, w and y, whichever of them the op writes. */
typedef struct conv_shapes {
	const dtrain_shape *x, *w, *y;
} conv_shapes;

static conv_shapes shapes_of(const dtrain_op_desc *desc)
{
	const dtrain_shape *a = &desc->inputs[0].shape, *b = &desc->inputs[1].shape, *out = &desc->outputs[0].shape;
	switch (desc->kind) {
	case DTRAIN_OP_CONV2D_BWD_DATA:
		return (conv_shapes){.x = out, .w = b, .y = a};
	case DTRAIN_OP_CONV2D_BWD_WEIGHT:
		return (conv_shapes){.x = a, .w = out, .y = b};
	default:
		return (conv_shapes){.x = a, .w = b, .y = out};
	}
}

static void init_desc(cpu_build *build, dnnl_convolution_desc_t *conv, dtrain_op_kind kind)
{
	const dtrain_op_attrs *attrs = &build->desc->attrs;
	conv_shapes shapes = shapes_of(build->desc);
	dnnl_memory_desc_t x, w, y;
	cpu_any_md(&x, shapes.x);
	cpu_any_md(&w, shapes.w);
	cpu_any_md(&y, shapes.y);
	const dnnl_dims_t strides = {attrs->stride[0], attrs->stride[1]};
	const dnnl_dims_t padding = {attrs->padding[0], attrs->padding[1]};
	dnnl_status_t status;
	if (kind == DTRAIN_OP_CONV2D_BWD_DATA)
		status = dnnl_convolution_backward_data_desc_init(conv, dnnl_convolution_direct, &x, &w, &y, strides,
								  padding, padding);
	else if (kind == DTRAIN_OP_CONV2D_BWD_WEIGHT)
		status = dnnl_convolution_backward_weights_desc_init(conv, dnnl_convolution_direct, &x, &w, NULL, &y,
								     strides, padding, padding);
	else
		status = dnnl_convolution_forward_desc_init(conv, dnnl_forward_training, dnnl_convolution_direct, &x,
							    &w, NULL, &y, strides, padding, padding);
	cpu_check(build, status, "convolution");
}

void cpu_build_conv(cpu_build *build)
{
	dtrain_op_kind kind = build->desc->kind;
	dnnl_convolution_desc_t desc;
	dnnl_primitive_desc_t hint = NULL;
	if (kind != DTRAIN_OP_CONV2D) {
		init_desc(build, &desc, DTRAIN_OP_CONV2D);
		hint = cpu_primitive_desc(build, &desc, NULL, NULL);
	}
	init_desc(build, &desc, kind);
	dnnl_primitive_desc_t pd = cpu_primitive_desc(build, &desc, NULL, hint);

	static const struct {
		int args[3]; /* of the inputs and the output */
		dnnl_query_t layouts[3];
	} roles[] = {
		[DTRAIN_OP_CONV2D] = {{DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
				      {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md}},
		[DTRAIN_OP_CONV2D_BWD_DATA] = {{DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_SRC},
					       {dnnl_query_diff_dst_md, dnnl_query_weights_md, dnnl_query_diff_src_md}},
		[DTRAIN_OP_CONV2D_BWD_WEIGHT] = {{DNNL_ARG_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_WEIGHTS},
						 {dnnl_query_src_md, dnnl_query_diff_dst_md,
						  dnnl_query_diff_weights_md}},
	};
	cpu_argument arguments[3];
	for (int i = 0; i < 3; i++) {
		dnnl_memory_desc_t md = cpu_query(build, pd, roles[kind].layouts[i], 0);
		arguments[i].arg = roles[kind].args[i];
		arguments[i].view = i < 2 ? cpu_convert(build, cpu_input(build, i), &md) : cpu_output(build, 0, &md);
	}
	cpu_step_add(build, pd, 3, arguments);
	cpu_store(build, 0, arguments[2].view);
}
