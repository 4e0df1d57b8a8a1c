/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape.h"
#include "cpu.h"

/* Without addresses. */
static cpu_product product_of(const struct dtrain_op *op)
{
	const dtrain_matmul_attrs *at = &op->attrs.matmul;
	const dtrain_shape *a = &op->shapes[0], *b = &op->shapes[1];
	int last = a->ndim - 1;
	return (cpu_product){.of_a = at->transpose_a ? 'T' : 'N',
			     .of_b = at->transpose_b ? 'T' : 'N',
			     .m = a->dim[at->transpose_a ? last : last - 1],
			     .n = b->dim[at->transpose_b ? last - 1 : last],
			     .k = a->dim[at->transpose_a ? last - 1 : last],
			     .alpha = (float)at->alpha,
			     .a_step = a->dim[last],
			     .b_step = b->dim[last]};
}

static int run(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	cpu_product p = product_of(op);
	p.a = cpu_plain(op, 0, operands, workspace);
	p.b = cpu_plain(op, 1, operands, workspace);
	p.c = operands[op->num_inputs];
	return cpu_products(op, &p, op->count / p.m / p.k, p.m * p.k, p.k * p.n, workspace, err);
}

void cpu_build_matmul(cpu_build *build)
{
	cpu_product p = product_of(build->op);
	cpu_build_function(build, 0, 0, run);
	cpu_plan_product(build, &p);
}
