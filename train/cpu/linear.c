/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

/* The shape [out, in] of a weight, whichever of the two comes first in memory. */
static dtrain_shape weight_shape(const cpu_build *build, const dtrain_shape *w)
{
	bool in_out = build->desc->attrs.linear.weight_in_out;
	return dtrain_shape_of(2, (int64_t[]){w->dim[in_out], w->dim[!in_out]});
}

/* An operand that is a weight, as [out, in]. */
static cpu_view weight_view(cpu_build *build, int operand, const dtrain_shape *w)
{
	dnnl_format_tag_t tag = build->desc->attrs.linear.weight_in_out ? dnnl_ba : dnnl_ab;
	return cpu_operand_as(cpu_tag_md(build, w, tag), operand);
}

static dnnl_primitive_desc_t forward_pd(cpu_build *build, const dtrain_shape *x, const dtrain_shape *w,
					const dtrain_shape *y, const_dnnl_memory_desc_t b,
					const_dnnl_primitive_attr_t attr)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status = dnnl_inner_product_forward_primitive_desc_create(
		&pd, build->device->engine, dnnl_forward_training, cpu_any_md(build, x), cpu_any_md(build, w), b,
		cpu_any_md(build, y), attr);
	return cpu_made(build, pd, status, "inner product");
}

/* The layout of the bias; NULL without one. */
static const_dnnl_memory_desc_t bias_md(cpu_build *build, const dtrain_shape *w, bool biased)
{
	dtrain_shape b = dtrain_shape_of(1, &w->dim[0]);
	return biased ? cpu_plain_md(build, &b) : NULL;
}

static dnnl_alg_kind_t algorithm_of(const dtrain_op_attrs *attrs)
{
	switch (attrs->linear.activation) {
	case DTRAIN_ACTIVATION_GELU:
		return dnnl_eltwise_gelu_erf;
	case DTRAIN_ACTIVATION_GELU_TANH:
		return dnnl_eltwise_gelu_tanh;
	case DTRAIN_ACTIVATION_SILU:
		return dnnl_eltwise_swish;
	default:
		return attrs->relu ? dnnl_eltwise_relu : dnnl_alg_kind_undef;
	}
}

static void build_forward(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc;
	const bool biased = desc->num_inputs > 2, keeps = desc->num_outputs > 1;
	dnnl_alg_kind_t algorithm = algorithm_of(&desc->attrs);
	dnnl_primitive_attr_t attr = NULL;
	if (algorithm != dnnl_alg_kind_undef && !keeps)
		attr = cpu_activation_attr(build, algorithm);
	const dtrain_shape w = weight_shape(build, &desc->inputs[1].shape);
	dnnl_primitive_desc_t pd = forward_pd(build, &desc->inputs[0].shape, &w, &desc->outputs[0].shape,
					      bias_md(build, &w, biased), attr ? attr : build->attr);
	const_dnnl_memory_desc_t x_md = cpu_query(build, pd, dnnl_query_src_md, 0);
	const_dnnl_memory_desc_t w_md = cpu_query(build, pd, dnnl_query_weights_md, 0);
	cpu_view out = cpu_output(build, keeps, cpu_query(build, pd, dnnl_query_dst_md, 0));
	cpu_argument arguments[4] = {{DNNL_ARG_SRC, cpu_convert(build, cpu_input(build, 0), x_md)},
				     {DNNL_ARG_WEIGHTS, cpu_convert(build, weight_view(build, 1, &w), w_md)},
				     {DNNL_ARG_DST, out}};
	if (biased)
		arguments[3] = (cpu_argument){DNNL_ARG_BIAS, cpu_input(build, 2)};
	cpu_step_add(build, pd, biased ? 4 : 3, arguments);
	cpu_store(build, keeps, out);
	if (keeps)
		cpu_activate(build, algorithm, out, 0);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
}

static void build_data(cpu_build *build)
{
	dtrain_op_desc *op = build->desc;
	const dtrain_shape *x = &op->outputs[0].shape, *y = &op->inputs[0].shape;
	const dtrain_shape w = weight_shape(build, &op->inputs[1].shape);
	dnnl_primitive_desc_t hint = forward_pd(build, x, &w, y, NULL, build->attr), pd = NULL;
	dnnl_status_t status = dnnl_inner_product_backward_data_primitive_desc_create(
		&pd, build->device->engine, cpu_any_md(build, x), cpu_any_md(build, &w), cpu_any_md(build, y), hint,
		build->attr);
	pd = cpu_made(build, pd, status, "inner product");
	const_dnnl_memory_desc_t w_md = cpu_query(build, pd, dnnl_query_weights_md, 0);
	const_dnnl_memory_desc_t y_md = cpu_query(build, pd, dnnl_query_diff_dst_md, 0);
	cpu_view out = cpu_output(build, 0, cpu_query(build, pd, dnnl_query_diff_src_md, 0));
	cpu_step_add(build, pd, 3,
		     (cpu_argument[]){{DNNL_ARG_DIFF_DST, cpu_convert(build, cpu_input(build, 0), y_md)},
				      {DNNL_ARG_WEIGHTS, cpu_convert(build, weight_view(build, 1, &w), w_md)},
				      {DNNL_ARG_DIFF_SRC, out}});
	cpu_store(build, 0, out);
}

static void build_weight(cpu_build *build)
{
	dtrain_op_desc *op = build->desc;
	const dtrain_shape *x = &op->inputs[0].shape, *y = &op->inputs[1].shape;
	const dtrain_shape w = weight_shape(build, &op->outputs[0].shape);
	const bool biased = op->num_outputs > 1;
	const_dnnl_memory_desc_t b_md = bias_md(build, &w, biased);
	dnnl_primitive_desc_t hint = forward_pd(build, x, &w, y, b_md, build->attr), pd = NULL;
	dnnl_status_t status = dnnl_inner_product_backward_weights_primitive_desc_create(
		&pd, build->device->engine, cpu_any_md(build, x), cpu_any_md(build, &w), b_md, cpu_any_md(build, y),
		hint, build->attr);
	pd = cpu_made(build, pd, status, "inner product");
	const_dnnl_memory_desc_t x_md = cpu_query(build, pd, dnnl_query_src_md, 0);
	const_dnnl_memory_desc_t y_md = cpu_query(build, pd, dnnl_query_diff_dst_md, 0);
	const_dnnl_memory_desc_t w_md = cpu_query(build, pd, dnnl_query_diff_weights_md, 0);
	cpu_view d_w = weight_view(build, op->num_inputs, &w), out = d_w;
	cpu_output(build, 0, cpu_plain_md(build, &op->outputs[0].shape));
	if (build->status == BETON_OK && !dnnl_memory_desc_equal(w_md, d_w.md))
		out = cpu_scratch(build, w_md);
	cpu_argument arguments[4] = {{DNNL_ARG_SRC, cpu_convert(build, cpu_input(build, 0), x_md)},
				     {DNNL_ARG_DIFF_DST, cpu_convert(build, cpu_input(build, 1), y_md)},
				     {DNNL_ARG_DIFF_WEIGHTS, out}};
	if (biased)
		arguments[3] = (cpu_argument){DNNL_ARG_DIFF_BIAS, cpu_output(build, 1, b_md)};
	cpu_step_add(build, pd, biased ? 4 : 3, arguments);
	if (out.place.operand < 0)
		cpu_reorder(build, out, d_w);
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
