/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cpu.h"

static cpu_activation activation_of(const dtrain_op_attrs *attrs)
{
	switch (attrs->linear.activation) {
	case DTRAIN_ACTIVATION_GELU:
		return CPU_GELU;
	case DTRAIN_ACTIVATION_GELU_TANH:
		return CPU_GELU_TANH;
	case DTRAIN_ACTIVATION_SILU:
		return CPU_SILU;
	default:
		return attrs->relu ? CPU_RELU : CPU_IDENTITY;
	}
}

/* x, w, [b] -> y, [z] */
static int find_output(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const dtrain_shape *x = &op->shapes[0], *w = &op->shapes[1];
	bool in_out = op->attrs.linear.weight_in_out;
	float *const *out = (float *const *)operands + op->num_inputs;
	cpu_product p = {.of_a = 'N',
			 .of_b = in_out ? 'N' : 'T',
			 .m = x->dim[0],
			 .n = w->dim[in_out],
			 .k = x->dim[1],
			 .alpha = 1,
			 .a = cpu_plain(op, 0, operands, workspace),
			 .b = cpu_plain(op, 1, operands, workspace),
			 .a_step = x->dim[1],
			 .b_step = w->dim[1],
			 .c = out[op->num_outputs > 1],
			 .bias = op->num_inputs > 2 ? cpu_plain(op, 2, operands, workspace) : NULL,
			 .activation = activation_of(&op->attrs),
			 .activated = out[0]};
	cpu_products(op->device, &p, 1, 0, 0);
	return BETON_OK;
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

/* oneDNN's inner product would reorder weights for each run, and its sums have an order that depends on the number of
 * threads. */
void cpu_build_linear(cpu_build *build)
{
	if (build->desc->kind == DTRAIN_OP_LINEAR)
		cpu_build_function(build, 0, 0, find_output);
	else if (build->desc->kind == DTRAIN_OP_LINEAR_BWD_DATA)
		cpu_build_function(build, 0, 0, find_data);
	else
		cpu_build_function(build, 0, 0, find_weight);
}
