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

/* Rows of a tile of a weight's gradient. Such a product has few tiles, and its sums are long: an even number of equal
 * tiles keeps all threads busy to the end. */
static int32_t equal_rows(int64_t rows)
{
	enum { PAIR = 512, MULTIPLE = 16 };
	int64_t tiles = (rows + PAIR - 1) / PAIR * 2, each = (rows + tiles - 1) / tiles;
	return (int32_t)((each + MULTIPLE - 1) / MULTIPLE * MULTIPLE);
}

/* The product of an op, without addresses. */
static cpu_product product_of(const struct dtrain_op *op, dtrain_op_kind kind)
{
	const dtrain_shape *a = &op->shapes[0], *b = &op->shapes[1];
	bool in_out = op->attrs.linear.weight_in_out;
	if (kind == DTRAIN_OP_LINEAR)
		return (cpu_product){.of_a = 'N',
				     .of_b = in_out ? 'N' : 'T',
				     .m = a->dim[0],
				     .n = b->dim[in_out],
				     .k = a->dim[1],
				     .alpha = 1,
				     .a_step = a->dim[1],
				     .b_step = b->dim[1],
				     .activation = activation_of(&op->attrs)};
	if (kind == DTRAIN_OP_LINEAR_BWD_DATA)
		return (cpu_product){.of_a = 'N',
				     .of_b = in_out ? 'T' : 'N',
				     .m = a->dim[0],
				     .n = b->dim[!in_out],
				     .k = a->dim[1],
				     .alpha = 1,
				     .a_step = a->dim[1],
				     .b_step = b->dim[1]};
	const dtrain_shape *rows = in_out ? a : b, *columns = in_out ? b : a;
	return (cpu_product){.of_a = 'T',
			     .of_b = 'N',
			     .wide = true,
			     .tile = {equal_rows(rows->dim[1])},
			     .m = rows->dim[1],
			     .n = columns->dim[1],
			     .k = a->dim[0],
			     .alpha = 1,
			     .a_step = rows->dim[1],
			     .b_step = columns->dim[1]};
}

/* x, w, [b] -> y, [z] */
static int find_output(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	void *const *out = operands + op->num_inputs;
	cpu_product p = product_of(op, DTRAIN_OP_LINEAR);
	p.a = cpu_plain(op, 0, operands, workspace);
	p.b = cpu_plain(op, 1, operands, workspace);
	p.c = out[op->num_outputs > 1];
	p.bias = op->num_inputs > 2 ? cpu_plain(op, 2, operands, workspace) : NULL;
	p.activated = out[0];
	return cpu_products(op, &p, 1, 0, 0, workspace, err);
}

/* d_y, w -> d_x */
static int find_data(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	cpu_product p = product_of(op, DTRAIN_OP_LINEAR_BWD_DATA);
	p.a = cpu_plain(op, 0, operands, workspace);
	p.b = cpu_plain(op, 1, operands, workspace);
	p.c = operands[2];
	return cpu_products(op, &p, 1, 0, 0, workspace, err);
}

/* Columns whose rows one thread adds up, and the rows that it reads together. */
enum { COLUMNS = 256, ROWS = 16 };

static void find_bias(const struct dtrain_op *op, const void *d_y, int64_t rows, int64_t columns, float *d_b)
{
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads) if (rows * columns > COLUMNS * COLUMNS)
#endif
	for (int64_t first = 0; first < columns; first += COLUMNS) {
		int64_t count = columns - first < COLUMNS ? columns - first : COLUMNS;
		memset(d_b + first, 0, (size_t)count * sizeof(float));
		for (int64_t row = 0; row < rows; row += ROWS)
			op->rows->add_rows(d_b + first, cpu_from(op, d_y, row * columns + first),
					   rows - row < ROWS ? rows - row : ROWS, columns, count);
	}
}

/* x, d_y -> d_w, [d_b]: oneDNN's primitive would add up rows in an order that depends on the number of threads, and in
 * a layout of its own. */
static int find_weight(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	int rows = op->attrs.linear.weight_in_out ? 0 : 1;
	cpu_product p = product_of(op, DTRAIN_OP_LINEAR_BWD_WEIGHT);
	p.a = cpu_plain(op, rows, operands, workspace);
	p.b = cpu_plain(op, 1 - rows, operands, workspace);
	p.c = operands[2];
	int status = cpu_products(op, &p, 1, 0, 0, workspace, err);
	if (status == BETON_OK && op->num_outputs > 1)
		find_bias(op, cpu_plain(op, 1, operands, workspace), p.k, op->shapes[1].dim[1], operands[3]);
	return status;
}

/* oneDNN's inner product would reorder weights for each run, and its sums have an order that depends on the number of
 * threads. */
void cpu_build_linear(cpu_build *build)
{
	dtrain_op_kind kind = build->desc->kind;
	cpu_product p = product_of(build->op, kind);
	static const float bias;
	cpu_build_function(build, 0, 0,
			   kind == DTRAIN_OP_LINEAR            ? find_output
			   : kind == DTRAIN_OP_LINEAR_BWD_DATA ? find_data
							       : find_weight);
	if (kind != DTRAIN_OP_LINEAR_BWD_WEIGHT)
		cpu_round_weight(build, 1);
	p.bias = kind == DTRAIN_OP_LINEAR && build->desc->num_inputs > 2 ? &bias : NULL;
	cpu_plan_product(build, &p);
}
