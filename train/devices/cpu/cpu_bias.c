/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"

static void build_forward(cpu_build *build)
{
	const dtrain_operand channels = {
		.shape = dtrain_shape_of(4, (int64_t[]){1, build->desc->inputs[1].shape.dim[0], 1, 1})};
	cpu_view x = cpu_input(build, 0);
	/* Both are the same bytes. oneDNN has no fast addition of unlike layouts. */
	cpu_view b = cpu_operand_as(
		build->desc->inputs[0].layout ? cpu_blocked_md(build, &channels) : cpu_plain_md(build, &channels), 1);
	dnnl_primitive_desc_t pd = cpu_add_pd(build, x.md, b.md, x.md, build->attr);
	cpu_view y = cpu_output(build, 0, x.md);
	cpu_step_add(build, pd, 3, (cpu_argument[]){{DNNL_ARG_SRC_0, x}, {DNNL_ARG_SRC_1, b}, {DNNL_ARG_DST, y}});
	cpu_store(build, 0, y);
}

/* Sums d_y in F32. One thread sums a channel, in double: oneDNN's reduction over these axes adds up to a million values
 * in one float. The result does not depend on the number of threads. */
static int sum_channels(const struct dtrain_op *op, void *const *operands, void *workspace, beton_error *err)
{
	(void)err;
	const float *d_y = cpu_address(op->plain[0], operands, workspace);
	float *d_b = operands[op->num_inputs];
	int64_t channels = op->channels, batch = op->batch, area = op->count / batch / channels;
#ifdef _OPENMP
#pragma omp parallel for num_threads(op->device->threads)
#endif
	for (int64_t c = 0; c < channels; c++) {
		double sum = 0;
		for (int64_t n = 0; n < batch; n++) {
			const float *plane = d_y + (n * channels + c) * area;
			for (int64_t i = 0; i < area; i++)
				sum += (double)plane[i];
		}
		d_b[c] = (float)sum;
	}
	return BETON_OK;
}

static void build_backward(cpu_build *build)
{
	const dtrain_shape *shape = &build->desc->inputs[0].shape;
	dtrain_operand wide = cpu_in_type(&build->desc->inputs[0], DTRAIN_F32);
	build->op->plain[0] = cpu_convert(build, cpu_input(build, 0), cpu_plain_md(build, &wide)).place;
	cpu_output(build, 0, cpu_plain_md(build, &build->desc->outputs[0]));
	build->op->batch = shape->dim[0];
	build->op->channels = shape->dim[1];
	build->op->finish = sum_channels;
}

void cpu_build_channel_bias(cpu_build *build)
{
	if (build->desc->kind == DTRAIN_OP_CHANNEL_BIAS)
		build_forward(build);
	else
		build_backward(build);
}
