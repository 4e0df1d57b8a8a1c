/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

static dnnl_primitive_desc_t forward_pd(cpu_build *build, const_dnnl_memory_desc_t x, bool training)
{
	const dtrain_op_attrs *attrs = &build->desc->attrs;
	unsigned flags = dnnl_use_scale | dnnl_use_shift;
	if (attrs->relu)
		flags |= dnnl_fuse_norm_relu;
	if (!training)
		flags |= dnnl_use_global_stats;
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status = dnnl_batch_normalization_forward_primitive_desc_create(
		&pd, build->device->engine, training ? dnnl_forward_training : dnnl_forward_inference, x, x,
		(float)attrs->norm.epsilon, flags, build->attr);
	return cpu_made(build, pd, status, "batch normalization");
}

/* operands: x, gamma, beta, running_mean, running_var -> y, mean, var, [mask] */
static int update_running(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)workspace;
	(void)err;
	float *running_mean = operands[3], *running_var = operands[4];
	const float *mean = operands[6], *var = operands[7];
	if (op->attrs.norm.momentum == 0)
		return BETON_OK;
	double n = (double)(op->count / op->channels);
	float momentum = (float)op->attrs.norm.momentum, unbiased = (float)(op->attrs.norm.momentum * n / (n - 1));
	for (int64_t c = 0; c < op->channels; c++) {
		running_mean[c] = (1 - momentum) * running_mean[c] + momentum * mean[c];
		running_var[c] = (1 - momentum) * running_var[c] + unbiased * var[c];
	}
	return BETON_OK;
}

static void build_train(cpu_build *build)
{
	cpu_view x = cpu_input(build, 0);
	dnnl_primitive_desc_t pd = forward_pd(build, x.md, true);
	const_dnnl_memory_desc_t channel = cpu_plain_md(build, &build->desc->inputs[1]);
	cpu_view y = cpu_output(build, 0, x.md);
	cpu_argument arguments[7] = {{DNNL_ARG_SRC, x},
				     {DNNL_ARG_SCALE, cpu_input(build, 1)},
				     {DNNL_ARG_SHIFT, cpu_input(build, 2)},
				     {DNNL_ARG_DST, y},
				     {DNNL_ARG_MEAN, cpu_output(build, 1, channel)},
				     {DNNL_ARG_VARIANCE, cpu_output(build, 2, channel)}};
	int count = 6;
	if (build->desc->attrs.relu) {
		const_dnnl_memory_desc_t mask = cpu_query(build, pd, dnnl_query_workspace_md, 0);
		arguments[count++] = (cpu_argument){DNNL_ARG_WORKSPACE, cpu_private_output(build, 3, mask, NULL, NULL)};
	}
	cpu_step_add(build, pd, count, arguments);
	cpu_store(build, 0, y);
	build->op->finish = update_running;
	build->op->channels = build->desc->inputs[1].shape.dim[0];
}

static void build_eval(cpu_build *build)
{
	cpu_view x = cpu_input(build, 0);
	dnnl_primitive_desc_t pd = forward_pd(build, x.md, false);
	cpu_view y = cpu_output(build, 0, x.md);
	cpu_step_add(build, pd, 6,
		     (cpu_argument[]){{DNNL_ARG_SRC, x},
				      {DNNL_ARG_SCALE, cpu_input(build, 1)},
				      {DNNL_ARG_SHIFT, cpu_input(build, 2)},
				      {DNNL_ARG_MEAN, cpu_input(build, 3)},
				      {DNNL_ARG_VARIANCE, cpu_input(build, 4)},
				      {DNNL_ARG_DST, y}});
	cpu_store(build, 0, y);
}

static void build_backward(cpu_build *build)
{
	const dtrain_op_attrs *attrs = &build->desc->attrs;
	cpu_view x = cpu_input(build, 0);
	dnnl_primitive_desc_t hint = forward_pd(build, x.md, true), pd = NULL;
	unsigned flags = dnnl_use_scale | dnnl_use_shift | (attrs->relu ? (unsigned)dnnl_fuse_norm_relu : 0u);
	dnnl_status_t status = dnnl_batch_normalization_backward_primitive_desc_create(
		&pd, build->device->engine, dnnl_backward, x.md, x.md, x.md, (float)attrs->norm.epsilon, flags, hint,
		build->attr);
	pd = cpu_made(build, pd, status, "batch normalization");
	const_dnnl_memory_desc_t channel = cpu_plain_md(build, &build->desc->inputs[2]);
	cpu_view d_x = cpu_output(build, 0, x.md);
	cpu_argument arguments[10] = {{DNNL_ARG_SRC, x},
				      {DNNL_ARG_DIFF_DST, cpu_convert(build, cpu_input(build, 1), x.md)},
				      {DNNL_ARG_SCALE, cpu_input(build, 2)},
				      {DNNL_ARG_MEAN, cpu_input(build, 3)},
				      {DNNL_ARG_VARIANCE, cpu_input(build, 4)},
				      {DNNL_ARG_DIFF_SRC, d_x},
				      {DNNL_ARG_DIFF_SCALE, cpu_output(build, 1, channel)},
				      {DNNL_ARG_DIFF_SHIFT, cpu_output(build, 2, channel)}};
	int count = 8;
	/* The op has no shift operand; gamma has its shape. */
	if (ONEDNN_NORM_BACKWARD_HAS_SHIFT)
		arguments[count++] = (cpu_argument){DNNL_ARG_SHIFT, cpu_input(build, 2)};
	if (attrs->relu)
		arguments[count++] = (cpu_argument){DNNL_ARG_WORKSPACE, cpu_input(build, 5)};
	cpu_step_add(build, pd, count, arguments);
	cpu_store(build, 0, d_x);
}

void cpu_build_batch_norm(cpu_build *build)
{
	if (build->desc->kind == DTRAIN_OP_BATCH_NORM_TRAIN)
		build_train(build);
	else if (build->desc->kind == DTRAIN_OP_BATCH_NORM_EVAL)
		build_eval(build);
	else
		build_backward(build);
}
