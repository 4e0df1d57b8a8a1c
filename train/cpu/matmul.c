/* SPDX-License-Identifier: Apache-2.0 */
#include "core/shape.h"
#include "cpu.h"

static int run(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const dtrain_matmul_attrs *at = &op->attrs.matmul;
	const float *a = cpu_plain(op, 0, operands, workspace), *b = cpu_plain(op, 1, operands, workspace);
	float *y = operands[op->num_inputs];
	const dtrain_shape *of_a = &op->shapes[0], *of_b = &op->shapes[1];
	int last = of_a->ndim - 1;
	int64_t m = of_a->dim[at->transpose_a ? last : last - 1], k = of_a->dim[at->transpose_a ? last - 1 : last];
	int64_t n = of_b->dim[at->transpose_b ? last - 1 : last], batch = op->count / m / k;
	/* One product of few is shared by all threads, many products are divided among them. */
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic) num_threads(op->device->threads) if (batch >= op->device->threads)
#endif
	for (int64_t i = 0; i < batch; i++)
		(void)dnnl_sgemm(at->transpose_a ? 'T' : 'N', at->transpose_b ? 'T' : 'N', m, n, k, (float)at->alpha,
				 a + i * m * k, of_a->dim[last], b + i * k * n, of_b->dim[last], 0, y + i * m * n, n);
	return BETON_OK;
}

void cpu_build_matmul(cpu_build *build)
{
	cpu_build_function(build, 0, 0, run);
}
