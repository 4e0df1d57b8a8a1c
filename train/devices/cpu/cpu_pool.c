/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

typedef struct window {
	dnnl_dims_t kernel, stride, padding, dilation;
} window;

static window max_window(const dtrain_window_attrs *attrs)
{
	return (window){.kernel = {attrs->kernel[0], attrs->kernel[1]},
			.stride = {attrs->stride[0], attrs->stride[1]},
			.padding = {attrs->padding[0], attrs->padding[1]}};
}

static window whole_picture(const dtrain_shape *x)
{
	return (window){.kernel = {x->dim[2], x->dim[3]}, .stride = {x->dim[2], x->dim[3]}};
}

static dnnl_primitive_desc_t forward_pd(cpu_build *build, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t x,
					const_dnnl_memory_desc_t y, const window *w)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status = dnnl_pooling_forward_primitive_desc_create(
		&pd, build->device->engine, dnnl_forward_training, algorithm, x, y, w->stride, w->kernel, w->dilation,
		w->padding, w->padding, build->attr);
	return cpu_made(build, pd, status, "pooling");
}

static dnnl_primitive_desc_t backward_pd(cpu_build *build, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t x,
					 const_dnnl_memory_desc_t y, const window *w)
{
	dnnl_primitive_desc_t hint = forward_pd(build, algorithm, x, y, w), pd = NULL;
	dnnl_status_t status = dnnl_pooling_backward_primitive_desc_create(&pd, build->device->engine, algorithm, x, y,
									   w->stride, w->kernel, w->dilation,
									   w->padding, w->padding, hint, build->attr);
	return cpu_made(build, pd, status, "pooling");
}

static void build_max(cpu_build *build)
{
	cpu_view x = cpu_input(build, 0);
	window w = max_window(&build->desc->attrs.window);
	const_dnnl_memory_desc_t any = cpu_any_md(build, &build->desc->outputs[0]);
	dnnl_primitive_desc_t pd = forward_pd(build, dnnl_pooling_max, x.md, any, &w);
	const_dnnl_memory_desc_t y_md = cpu_query(build, pd, dnnl_query_dst_md, 0);
	const_dnnl_memory_desc_t index = cpu_query(build, pd, dnnl_query_workspace_md, 0);
	cpu_view y = cpu_output(build, 0, y_md);
	cpu_step_add(build, pd, 3,
		     (cpu_argument[]){{DNNL_ARG_SRC, x},
				      {DNNL_ARG_DST, y},
				      {DNNL_ARG_WORKSPACE, cpu_private_output(build, 1, index, x.md, y_md)}});
	cpu_store(build, 0, y);
}

static void build_max_backward(cpu_build *build)
{
	const cpu_layout *index = build->desc->inputs[1].layout;
	window w = max_window(&build->desc->attrs.window);
	dnnl_primitive_desc_t pd = backward_pd(build, dnnl_pooling_max, index->pool_x, index->pool_y, &w);
	cpu_view d_y = cpu_convert(build, cpu_input(build, 0), index->pool_y);
	cpu_view d_x = cpu_output(build, 0, index->pool_x);
	cpu_step_add(build, pd, 3,
		     (cpu_argument[]){{DNNL_ARG_DIFF_DST, d_y},
				      {DNNL_ARG_WORKSPACE, cpu_input(build, 1)},
				      {DNNL_ARG_DIFF_SRC, d_x}});
	cpu_store(build, 0, d_x);
}

/* For oneDNN [n, c] is [n, c, 1, 1]. */
static dtrain_operand with_side_one(const dtrain_operand *rows)
{
	const int64_t *dims = rows->shape.dim;
	return (dtrain_operand){.dtype = rows->dtype, .shape = dtrain_shape_of(4, (int64_t[]){dims[0], dims[1], 1, 1})};
}

static void build_average(cpu_build *build)
{
	cpu_view x = cpu_input(build, 0);
	window w = whole_picture(&build->desc->inputs[0].shape);
	dtrain_operand out = with_side_one(&build->desc->outputs[0]);
	const_dnnl_memory_desc_t any = cpu_any_md(build, &out);
	dnnl_primitive_desc_t pd = forward_pd(build, dnnl_pooling_avg_exclude_padding, x.md, any, &w);
	cpu_view y = cpu_scratch(build, cpu_query(build, pd, dnnl_query_dst_md, 0));
	cpu_step_add(build, pd, 2, (cpu_argument[]){{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
	cpu_output(build, 0, cpu_plain_md(build, &build->desc->outputs[0]));
	cpu_reorder(build, y, cpu_operand_as(cpu_plain_md(build, &out), build->desc->num_inputs));
}

static void build_average_backward(cpu_build *build)
{
	const dtrain_operand *x = &build->desc->outputs[0];
	dtrain_operand out = with_side_one(&build->desc->inputs[0]);
	window w = whole_picture(&x->shape);
	const_dnnl_memory_desc_t x_md = cpu_blocked_md(build, x), y_md = cpu_blocked_md(build, &out);
	dnnl_primitive_desc_t pd = backward_pd(build, dnnl_pooling_avg_exclude_padding, x_md, y_md, &w);
	cpu_view d_y = cpu_convert(build, cpu_input(build, 0), cpu_plain_md(build, &build->desc->inputs[0]));
	d_y.md = cpu_plain_md(build, &out);
	d_y = cpu_convert(build, d_y, y_md);
	cpu_view d_x = cpu_output(build, 0, x_md);
	cpu_step_add(build, pd, 2, (cpu_argument[]){{DNNL_ARG_DIFF_DST, d_y}, {DNNL_ARG_DIFF_SRC, d_x}});
	cpu_store(build, 0, d_x);
}

void cpu_build_pool(cpu_build *build)
{
	switch (build->desc->kind) {
	case DTRAIN_OP_MAX_POOL:
		build_max(build);
		break;
	case DTRAIN_OP_MAX_POOL_BWD:
		build_max_backward(build);
		break;
	case DTRAIN_OP_GLOBAL_AVG_POOL:
		build_average(build);
		break;
	default:
		build_average_backward(build);
	}
}

/* A copy between row-major tensors, in both directions; it also reorders blocked operands. */
void cpu_build_flatten(cpu_build *build)
{
	bool forward = build->desc->kind == DTRAIN_OP_FLATTEN;
	const dtrain_operand *picture = forward ? &build->desc->inputs[0] : &build->desc->outputs[0];
	const_dnnl_memory_desc_t plain = cpu_plain_md(build, picture);
	cpu_view from = cpu_input(build, 0);
	if (!forward) {
		from = cpu_convert(build, from, cpu_plain_md(build, &build->desc->inputs[0]));
		from.md = plain;
	}
	cpu_output(build, 0, cpu_plain_md(build, &build->desc->outputs[0]));
	cpu_reorder(build, from, cpu_operand_as(plain, build->desc->num_inputs));
}
