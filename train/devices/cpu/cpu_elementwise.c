/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

/* The parameter of an activation: oneDNN's swish is x / (1 + exp(-alpha x)), relu's alpha the slope of its other side.
 */
static float alpha_of(dnnl_alg_kind_t algorithm)
{
	return algorithm == dnnl_eltwise_swish ? 1 : 0;
}

/* alpha: the algorithm's parameter. */
static dnnl_primitive_desc_t forward_pd(cpu_build *build, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t x,
					float alpha, const char *what)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status = dnnl_eltwise_forward_primitive_desc_create(
		&pd, build->device->engine, dnnl_forward_training, algorithm, x, x, alpha, 0, build->attr);
	return cpu_made(build, pd, status, what);
}

static dnnl_primitive_desc_t backward_pd(cpu_build *build, dnnl_alg_kind_t algorithm, const_dnnl_memory_desc_t x,
					 const char *what)
{
	dnnl_primitive_desc_t hint = forward_pd(build, algorithm, x, alpha_of(algorithm), what), pd = NULL;
	dnnl_status_t status = dnnl_eltwise_backward_primitive_desc_create(
		&pd, build->device->engine, algorithm, x, x, x, alpha_of(algorithm), 0, hint, build->attr);
	return cpu_made(build, pd, status, what);
}

static void build_unary(cpu_build *build, dnnl_alg_kind_t algorithm, float alpha, const char *what)
{
	cpu_view x = cpu_input(build, 0);
	dnnl_primitive_desc_t pd = forward_pd(build, algorithm, x.md, alpha, what);
	cpu_view y = cpu_output(build, 0, x.md);
	cpu_step_add(build, pd, 2, (cpu_argument[]){{DNNL_ARG_SRC, x}, {DNNL_ARG_DST, y}});
	cpu_store(build, 0, y);
}

static void build_activation_backward(cpu_build *build, dnnl_alg_kind_t algorithm)
{
	cpu_view x = cpu_input(build, 0), d_y = cpu_input(build, 1);
	dnnl_primitive_desc_t pd = backward_pd(build, algorithm, x.md, "activation");
	cpu_view d_x = cpu_output(build, 0, x.md);
	cpu_step_add(build, pd, 3,
		     (cpu_argument[]){{DNNL_ARG_SRC, x},
				      {DNNL_ARG_DIFF_DST, cpu_convert(build, d_y, x.md)},
				      {DNNL_ARG_DIFF_SRC, d_x}});
	cpu_store(build, 0, d_x);
}

static void build_relu_backward(cpu_build *build)
{
	cpu_view y = cpu_input(build, 0), d_y = cpu_input(build, 1);
	dnnl_primitive_desc_t pd = backward_pd(build, dnnl_eltwise_relu_use_dst_for_bwd, y.md, "relu");
	cpu_view d_x = cpu_output(build, 0, y.md);
	cpu_step_add(build, pd, 3,
		     (cpu_argument[]){{DNNL_ARG_DST, y},
				      {DNNL_ARG_DIFF_DST, cpu_convert(build, d_y, y.md)},
				      {DNNL_ARG_DIFF_SRC, d_x}});
	cpu_store(build, 0, d_x);
}

dnnl_primitive_attr_t cpu_relu_attr(cpu_build *build)
{
	dnnl_primitive_attr_t attr = NULL;
	dnnl_post_ops_t ops = NULL;
	dnnl_status_t status = dnnl_primitive_attr_clone(&attr, build->attr);
	if (status == dnnl_success)
		status = dnnl_post_ops_create(&ops);
	if (status == dnnl_success)
		status = dnnl_post_ops_append_eltwise(ops, dnnl_eltwise_relu, 0, 0);
	if (status == dnnl_success)
		status = dnnl_primitive_attr_set_post_ops(attr, ops);
	if (ops)
		dnnl_post_ops_destroy(ops);
	cpu_check(build, status, "activation");
	return attr;
}

dnnl_primitive_desc_t cpu_add_pd(cpu_build *build, const_dnnl_memory_desc_t a, const_dnnl_memory_desc_t b,
				 const_dnnl_memory_desc_t y, const_dnnl_primitive_attr_t attr)
{
	dnnl_primitive_desc_t pd = NULL;
	dnnl_status_t status =
		dnnl_binary_primitive_desc_create(&pd, build->device->engine, dnnl_binary_add, a, b, y, attr);
	return cpu_made(build, pd, status, "addition");
}

static void build_add(cpu_build *build)
{
	cpu_view a = cpu_input(build, 0), b = cpu_input(build, 1);
	/* If the layouts differ, use the blocked one. */
	const_dnnl_memory_desc_t md = build->desc->inputs[0].layout ? a.md : b.md;
	dnnl_primitive_attr_t attr = build->desc->attrs.relu ? cpu_relu_attr(build) : NULL;
	dnnl_primitive_desc_t pd = cpu_add_pd(build, md, md, md, attr ? attr : build->attr);
	cpu_view y = cpu_output(build, 0, md);
	cpu_step_add(build, pd, 3,
		     (cpu_argument[]){{DNNL_ARG_SRC_0, cpu_convert(build, a, md)},
				      {DNNL_ARG_SRC_1, cpu_convert(build, b, md)},
				      {DNNL_ARG_DST, y}});
	cpu_store(build, 0, y);
	if (attr)
		dnnl_primitive_attr_destroy(attr);
}

/* Elements whose activation one thread computes. */
enum { ELEMENTS = 16384 };

/* x -> y; x, d_y -> d_x */
static int activate(const struct dtrain_op *op, void *const *operands, void *workspace, cpu_activation activation)
{
	bool backward = op->num_inputs > 1;
	const void *x = cpu_plain(op, 0, operands, workspace);
	const void *d_y = backward ? cpu_plain(op, 1, operands, workspace) : NULL;
	void *out = operands[op->num_inputs];
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (op->count > 4 * ELEMENTS)
#endif
	for (int64_t i = 0; i < op->count; i += ELEMENTS) {
		int64_t count = op->count - i < ELEMENTS ? op->count - i : ELEMENTS;
		if (backward)
			op->rows->activate_back(cpu_to(op, out, i), cpu_from(op, x, i), cpu_from(op, d_y, i), count,
						activation);
		else
			op->rows->activate(cpu_to(op, out, i), cpu_from(op, x, i), count, activation);
	}
	return BETON_OK;
}

static int gelu(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	return activate(op, operands, workspace, op->attrs.gelu.tanh ? CPU_GELU_TANH : CPU_GELU);
}

static int silu(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	return activate(op, operands, workspace, CPU_SILU);
}

/* A plain x may come from a linear layer that computes its activation itself, and this op must give the same bits.
 * oneDNN takes x in any other layout. */
static void build_activation(cpu_build *build, dnnl_alg_kind_t algorithm, const char *what,
			     int (*finish)(const struct dtrain_op *op, void *const *operands, void *workspace,
					   beton_error *err))
{
	if (!build->desc->inputs[0].layout)
		cpu_build_function(build, 0, 0, finish);
	else if (build->desc->num_inputs > 1)
		build_activation_backward(build, algorithm);
	else
		build_unary(build, algorithm, alpha_of(algorithm), what);
}

static dnnl_alg_kind_t gelu_of(const dtrain_op_attrs *attrs)
{
	return attrs->gelu.tanh ? dnnl_eltwise_gelu_tanh : dnnl_eltwise_gelu_erf;
}

void cpu_build_elementwise(cpu_build *build)
{
	const dtrain_op_attrs *attrs = &build->desc->attrs;
	switch (build->desc->kind) {
	case DTRAIN_OP_RELU:
		build_unary(build, dnnl_eltwise_relu, 0, "relu");
		break;
	case DTRAIN_OP_GELU:
	case DTRAIN_OP_GELU_BWD:
		build_activation(build, gelu_of(attrs), "gelu", gelu);
		break;
	case DTRAIN_OP_SILU:
	case DTRAIN_OP_SILU_BWD:
		build_activation(build, dnnl_eltwise_swish, "silu", silu);
		break;
	case DTRAIN_OP_SCALE:
		build_unary(build, dnnl_eltwise_linear, (float)attrs->factor, "scaling");
		break;
	case DTRAIN_OP_RELU_BWD:
		build_relu_backward(build);
		break;
	default:
		build_add(build);
	}
}
