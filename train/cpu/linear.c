/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

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

/* d_y, w -> d_x */
static int find_data(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const dtrain_shape *y = &op->shapes[0], *w = &op->shapes[1];
	bool in_out = op->attrs.linear.weight_in_out;
	cpu_product p = {.of_a = 'N',
			 .of_b = in_out ? 'T' : 'N',
			 .m = y->dim[0],
			 .n = w->dim[!in_out],
			 .k = y->dim[1],
			 .alpha = 1,
			 .a = cpu_plain(op, 0, operands, workspace),
			 .b = cpu_plain(op, 1, operands, workspace),
			 .a_step = y->dim[1],
			 .b_step = w->dim[1],
			 .c = operands[2]};
	cpu_products(op->device, &p, 1, 0, 0);
	return BETON_OK;
}

/* Columns of which one thread adds up all rows. */
enum { COLUMNS = 256 };

static void find_bias(const struct dtrain_op *op, const float *d_y, int64_t rows, int64_t columns, float *d_b)
{
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (rows * columns > COLUMNS * COLUMNS)
#endif
	for (int64_t first = 0; first < columns; first += COLUMNS) {
		int64_t count = columns - first < COLUMNS ? columns - first : COLUMNS;
		memset(d_b + first, 0, (size_t)count * sizeof(float));
		for (int64_t row = 0; row < rows; row++)
			op->device->vector->add(d_b + first, d_y + row * columns + first, count);
	}
}

/* x, d_y -> d_w, [d_b]: oneDNN's primitive would add up rows in an order that depends on the number of threads, and in
 * a layout of its own. */
static int find_weight(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	bool in_out = op->attrs.linear.weight_in_out;
	int rows = in_out ? 0 : 1;
	cpu_product p = {.of_a = 'T',
			 .of_b = 'N',
			 .m = op->shapes[rows].dim[1],
			 .n = op->shapes[1 - rows].dim[1],
			 .k = op->shapes[0].dim[0],
			 .alpha = 1,
			 .a = cpu_plain(op, rows, operands, workspace),
			 .b = cpu_plain(op, 1 - rows, operands, workspace),
			 .a_step = op->shapes[rows].dim[1],
			 .b_step = op->shapes[1 - rows].dim[1],
			 .c = operands[2]};
	cpu_products(op->device, &p, 1, 0, 0);
	if (op->num_outputs > 1)
		find_bias(op, cpu_plain(op, 1, operands, workspace), p.k, op->shapes[1].dim[1], operands[3]);
	return BETON_OK;
}

void cpu_build_linear(cpu_build *build)
{
	if (build->desc->kind == DTRAIN_OP_LINEAR)
		build_forward(build);
	else if (build->desc->kind == DTRAIN_OP_LINEAR_BWD_DATA)
		cpu_build_function(build, 0, 0, find_data);
	else
		cpu_build_function(build, 0, 0, find_weight);
}
