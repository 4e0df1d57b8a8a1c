/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

static dnnl_primitive_desc_t forward_pd(cpu_build *build, const dtrain_shape *x, const dtrain_shape *w,
					const dtrain_shape *y, bool biased, const_dnnl_primitive_attr_t attr)
{
	dnnl_memory_desc_t x_md, w_md, b_md, y_md;
	dnnl_inner_product_desc_t desc;
	dtrain_shape b = dtrain_shape_of(1, &w->dim[0]);
	cpu_any_md(&x_md, x);
	cpu_any_md(&w_md, w);
	cpu_plain_md(&b_md, &b);
	cpu_any_md(&y_md, y);
	cpu_check(build,
		  dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, &x_md, &w_md,
						       biased ? &b_md : NULL, &y_md),
		  "inner product");
	return cpu_primitive_desc(build, &desc, attr, NULL);
}

static void build_forward(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc;
	const bool biased = desc->num_inputs > 2;
	dnnl_primitive_attr_t attr = desc->attrs.relu ? cpu_relu_attr(build) : NULL;
	dnnl_primitive_desc_t pd = forward_pd(build, &desc->inputs[0].shape, &desc->inputs[1].shape,
					      &desc->outputs[0].shape, biased, attr);
	dnnl_memory_desc_t x = cpu_query(build, pd, dnnl_query_src_md, 0);
	dnnl_memory_desc_t w = cpu_query(build, pd, dnnl_query_weights_md, 0);
	dnnl_memory_desc_t y = cpu_query(build, pd, dnnl_query_dst_md, 0);
	cpu_view out = cpu_output(build, 0, &y);
	cpu_argument arguments[4] = {{DNNL_ARG_SRC, cpu_convert(build, cpu_input(build, 0), &x)},
				     {DNNL_ARG_WEIGHTS, cpu_convert(build, cpu_input(build, 1), &w)},
				     {DNNL_ARG_DST, out}};
	if (biased)
		arguments[3] = (cpu_argument){DNNL_ARG_BIAS, cpu_input(build, 2)};
	cpu_step_add(build, pd, biased ? 4 : 3, arguments);
	cpu_store(build, 0, out);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
}

static void build_data(cpu_build *build)
{
	dtrain_op_desc *op = build->desc;
	const dtrain_shape *x = &op->outputs[0].shape, *w = &op->inputs[1].shape, *y = &op->inputs[0].shape;
	dnnl_primitive_desc_t hint = forward_pd(build, x, w, y, false, NULL);
	dnnl_memory_desc_t x_md, w_md, y_md;
	dnnl_inner_product_desc_t desc;
	cpu_any_md(&x_md, x);
	cpu_any_md(&w_md, w);
	cpu_any_md(&y_md, y);
	cpu_check(build, dnnl_inner_product_backward_data_desc_init(&desc, &x_md, &w_md, &y_md), "inner product");
	dnnl_primitive_desc_t pd = cpu_primitive_desc(build, &desc, NULL, hint);
	x_md = cpu_query(build, pd, dnnl_query_diff_src_md, 0);
	w_md = cpu_query(build, pd, dnnl_query_weights_md, 0);
	y_md = cpu_query(build, pd, dnnl_query_diff_dst_md, 0);
	cpu_view out = cpu_output(build, 0, &x_md);
	cpu_step_add(build, pd, 3,
		     (cpu_argument[]){{DNNL_ARG_DIFF_DST, cpu_convert(build, cpu_input(build, 0), &y_md)},
				      {DNNL_ARG_WEIGHTS, cpu_convert(build, cpu_input(build, 1), &w_md)},
				      {DNNL_ARG_DIFF_SRC, out}});
	cpu_store(build, 0, out);
}

static void build_weight(cpu_build *build)
{
	dtrain_op_desc *op = build->desc;
	const dtrain_shape *x = &op->inputs[0].shape, *w = &op->outputs[0].shape, *y = &op->inputs[1].shape;
	const bool biased = op->num_outputs > 1;
	dnnl_primitive_desc_t hint = forward_pd(build, x, w, y, biased, NULL);
	dtrain_shape b = dtrain_shape_of(1, &w->dim[0]);
	dnnl_memory_desc_t x_md, w_md, b_md, y_md;
	dnnl_inner_product_desc_t desc;
	cpu_any_md(&x_md, x);
	cpu_any_md(&w_md, w);
	cpu_plain_md(&b_md, &b);
	cpu_any_md(&y_md, y);
	cpu_check(build,
		  dnnl_inner_product_backward_weights_desc_init(&desc, &x_md, &w_md, biased ? &b_md : NULL, &y_md),
		  "inner product");
	dnnl_primitive_desc_t pd = cpu_primitive_desc(build, &desc, NULL, hint);
	x_md = cpu_query(build, pd, dnnl_query_src_md, 0);
	w_md = cpu_query(build, pd, dnnl_query_diff_weights_md, 0);
	y_md = cpu_query(build, pd, dnnl_query_diff_dst_md, 0);
	cpu_view out = cpu_output(build, 0, &w_md);
	cpu_argument arguments[4] = {{DNNL_ARG_SRC, cpu_convert(build, cpu_input(build, 0), &x_md)},
				     {DNNL_ARG_DIFF_DST, cpu_convert(build, cpu_input(build, 1), &y_md)},
				     {DNNL_ARG_DIFF_WEIGHTS, out}};
	if (biased)
		arguments[3] = (cpu_argument){DNNL_ARG_DIFF_BIAS, cpu_output(build, 1, &b_md)};
	cpu_step_add(build, pd, biased ? 4 : 3, arguments);
	cpu_store(build, 0, out);
}

void cpu_build_linear(cpu_build *build)
{
	if (build->desc->kind == DTRAIN_OP_LINEAR)
		build_forward(build);
	else if (build->desc->kind == DTRAIN_OP_LINEAR_BWD_DATA)
		build_data(build);
	else
		build_weight(build);
}
