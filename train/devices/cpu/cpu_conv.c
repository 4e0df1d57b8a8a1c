/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

/* x, w and y, whichever of them is the output. */
typedef struct conv_operands {
	const dtrain_operand *x, *w, *y;
} conv_operands;

static conv_operands operands_of(const dtrain_op_desc *desc)
{
	const dtrain_operand *a = &desc->inputs[0], *b = &desc->inputs[1], *out = &desc->outputs[0];
	switch (desc->kind) {
	case DTRAIN_OP_CONV2D_BWD_DATA:
		return (conv_operands){.x = out, .w = b, .y = a};
	case DTRAIN_OP_CONV2D_BWD_WEIGHT:
		return (conv_operands){.x = a, .w = out, .y = b};
	default:
		return (conv_operands){.x = a, .w = b, .y = out};
	}
}

static dnnl_primitive_desc_t conv_pd(cpu_build *build, dtrain_op_kind kind, dnnl_primitive_desc_t hint)
{
	const dtrain_window_attrs *attrs = &build->desc->attrs.window;
	conv_operands operands = operands_of(build->desc);
	/* A weight that is read has the type of x, its gradient the parameter's. */
	dtrain_dtype of_w = kind == DTRAIN_OP_CONV2D_BWD_WEIGHT ? operands.w->dtype : operands.x->dtype;
	dtrain_operand weight = cpu_in_type(operands.w, of_w);
	const_dnnl_memory_desc_t x = cpu_any_md(build, operands.x), w = cpu_any_md(build, &weight);
	const_dnnl_memory_desc_t y = cpu_any_md(build, operands.y);
	const dnnl_dims_t strides = {attrs->stride[0], attrs->stride[1]}, dilates = {0};
	const dnnl_dims_t padding = {attrs->padding[0], attrs->padding[1]};
	dnnl_engine_t engine = build->device->engine;
	/* oneDNN 2 then chooses Winograd's algorithm where that is faster: products of sums, whose rounding errors are
	 * several times as large, but far below TF32's. */
	bool rounds = build->device->tf32 && kind == build->desc->kind;
	dnnl_alg_kind_t algorithm = rounds ? dnnl_convolution_auto : dnnl_convolution_direct;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status;
	if (kind == DTRAIN_OP_CONV2D_BWD_DATA)
		status = dnnl_convolution_backward_data_primitive_desc_create(
			&pd, engine, algorithm, x, w, y, strides, dilates, padding, padding, hint, build->attr);
	else if (kind == DTRAIN_OP_CONV2D_BWD_WEIGHT)
		status = dnnl_convolution_backward_weights_primitive_desc_create(
			&pd, engine, algorithm, x, w, NULL, y, strides, dilates, padding, padding, hint, build->attr);
	else
		status = dnnl_convolution_forward_primitive_desc_create(&pd, engine, dnnl_forward_training, algorithm,
									x, w, NULL, y, strides, dilates, padding,
									padding, build->attr);
	return cpu_made(build, pd, status, "convolution");
}

void cpu_build_conv(cpu_build *build)
{
	dtrain_op_kind kind = build->desc->kind;
	conv_operands operands = operands_of(build->desc);
	if (cpu_winograd_fits(build, operands.w, operands.y)) {
		cpu_build_winograd(build, operands.x, operands.w, operands.y);
		return;
	}
	dnnl_primitive_desc_t hint = kind == DTRAIN_OP_CONV2D ? NULL : conv_pd(build, DTRAIN_OP_CONV2D, NULL);
	dnnl_primitive_desc_t pd = conv_pd(build, kind, hint);

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
		const_dnnl_memory_desc_t md = cpu_query(build, pd, roles[kind].layouts[i], 0);
		arguments[i].arg = roles[kind].args[i];
		arguments[i].view = i < 2 ? cpu_convert(build, cpu_input(build, i), md) : cpu_output(build, 0, md);
	}
	cpu_step_add(build, pd, 3, arguments);
	cpu_store(build, 0, arguments[2].view);
}
