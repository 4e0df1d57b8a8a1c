/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape.h"
#include "cpu.h"

static int run(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const dtrain_matmul_attrs *at = &op->attrs.matmul;
	const dtrain_shape *a = &op->shapes[0], *b = &op->shapes[1];
	int last = a->ndim - 1;
	cpu_product p = {.of_a = at->transpose_a ? 'T' : 'N',
			 .of_b = at->transpose_b ? 'T' : 'N',
			 .m = a->dim[at->transpose_a ? last : last - 1],
			 .n = b->dim[at->transpose_b ? last - 1 : last],
			 .k = a->dim[at->transpose_a ? last - 1 : last],
			 .alpha = (float)at->alpha,
			 .a = cpu_plain(op, 0, operands, workspace),
			 .b = cpu_plain(op, 1, operands, workspace),
			 .a_step = a->dim[last],
			 .b_step = b->dim[last],
			 .c = operands[op->num_inputs]};
	cpu_products(op->device, &p, op->count / p.m / p.k, p.m * p.k, p.k * p.n);
	return BETON_OK;
}

void cpu_build_matmul(cpu_build *build)
{
	cpu_build_function(build, 0, 0, run);
}
