/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/error.h"
#include "core/host.h"
#include "core/op.h"
#include "core/shape.h"
#include "cpu.h"

const_dnnl_memory_desc_t cpu_own_md(cpu_build *build, onednn_md md, dnnl_status_t status)
{
	if (status == dnnl_success && build->num_mds == CPU_BUILD_MAX_MDS) {
		dnnl_memory_desc_destroy(md);
		status = dnnl_runtime_error;
	}
	cpu_check(build, status, "layout");
	if (status != dnnl_success)
		return NULL;
	build->mds[build->num_mds++] = md;
	return md;
}

/* I64 has no layout but the plain one, which no primitive sees. */
static dnnl_data_type_t type_of(dtrain_dtype dtype)
{
	static const dnnl_data_type_t types[] = {[DTRAIN_F32] = dnnl_f32,
						 [DTRAIN_F16] = dnnl_f16,
						 [DTRAIN_BF16] = dnnl_bf16,
						 [DTRAIN_U8] = dnnl_u8,
						 [DTRAIN_I32] = dnnl_s32};
	return dtype < sizeof(types) / sizeof(types[0]) ? types[dtype] : dnnl_data_type_undef;
}

dtrain_operand cpu_in_type(const dtrain_operand *operand, dtrain_dtype dtype)
{
	return (dtrain_operand){.dtype = dtype, .shape = operand->shape};
}

const_dnnl_memory_desc_t cpu_plain_md(cpu_build *build, const dtrain_operand *operand)
{
	const dtrain_shape *shape = &operand->shape;
	dnnl_dims_t strides = {1};
	int64_t stride = 1;
	for (int i = shape->ndim - 1; i >= 0; i--) {
		strides[i] = stride;
		stride *= shape->dim[i];
	}
	return cpu_strided_md(build, operand, strides);
}

const_dnnl_memory_desc_t cpu_strided_md(cpu_build *build, const dtrain_operand *operand, const dnnl_dims_t strides)
{
	const dtrain_shape *shape = &operand->shape;
	dnnl_dims_t dims = {1};
	int ndims = shape->ndim ? shape->ndim : 1;
	for (int i = 0; i < shape->ndim; i++)
		dims[i] = shape->dim[i];
	onednn_md md = NULL;
	dnnl_status_t status = dnnl_memory_desc_create_with_strides(&md, ndims, dims, type_of(operand->dtype), strides);
	return cpu_own_md(build, md, status);
}

const_dnnl_memory_desc_t cpu_tag_md(cpu_build *build, const dtrain_operand *operand, dnnl_format_tag_t tag)
{
	const dtrain_shape *shape = &operand->shape;
	dnnl_dims_t dims;
	for (int i = 0; i < shape->ndim; i++)
		dims[i] = shape->dim[i];
	onednn_md md = NULL;
	dnnl_status_t status = dnnl_memory_desc_create_with_tag(&md, shape->ndim, dims, type_of(operand->dtype), tag);
	return cpu_own_md(build, md, status);
}

const_dnnl_memory_desc_t cpu_any_md(cpu_build *build, const dtrain_operand *operand)
{
	return cpu_tag_md(build, operand, dnnl_format_tag_any);
}

const_dnnl_memory_desc_t cpu_blocked_md(cpu_build *build, const dtrain_operand *operand)
{
	bool wide = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
	int block = wide ? 16 : 8;
	dnnl_format_tag_t tag = operand->shape.dim[1] % block ? dnnl_nchw : wide ? dnnl_nChw16c : dnnl_nChw8c;
	return cpu_tag_md(build, operand, tag);
}

static const char *status_text(dnnl_status_t status)
{
	switch (status) {
	case dnnl_out_of_memory:
		return "out of memory";
	case dnnl_invalid_arguments:
		return "invalid arguments";
	case dnnl_unimplemented:
		return "not implemented";
	default:
		return "run-time error";
	}
}

void cpu_check(cpu_build *build, dnnl_status_t status, const char *what)
{
	if (status == dnnl_success || build->status != BETON_OK)
		return;
	char text[DTRAIN__SHAPE_TEXT];
	int code = status == dnnl_out_of_memory   ? BETON_NO_MEMORY
		   : status == dnnl_unimplemented ? BETON_UNSUPPORTED
						  : BETON_DEVICE;
	build->status = bt_fail(build->err, code, "op %s: oneDNN refused the %s for input %s: %s",
				dtrain__op_name(build->desc->kind), what,
				dtrain__shape_text(&build->desc->inputs[0].shape, text), status_text(status));
}

cpu_view cpu_operand_as(const_dnnl_memory_desc_t md, int operand)
{
	return (cpu_view){.md = md, .place.operand = operand};
}

cpu_view cpu_input(cpu_build *build, int index)
{
	const dtrain_operand *operand = &build->desc->inputs[index];
	const cpu_layout *layout = operand->layout;
	return cpu_operand_as(layout ? layout->md : cpu_plain_md(build, operand), index);
}

cpu_view cpu_scratch(cpu_build *build, const_dnnl_memory_desc_t md)
{
	if (build->status != BETON_OK)
		return (cpu_view){0};
	cpu_view view = {.md = md, .place = {.operand = CPU_WORKSPACE, .offset = build->workspace}};
	build->workspace += dtrain__round_up(dnnl_memory_desc_get_size(md), DTRAIN__HOST_ALIGNMENT);
	return view;
}

void cpu_reorder(cpu_build *build, cpu_view from, cpu_view to)
{
	dnnl_primitive_desc_t pd = NULL;
	if (build->status != BETON_OK)
		return;
	dnnl_status_t status = dnnl_reorder_primitive_desc_create(&pd, from.md, build->device->engine, to.md,
								  build->device->engine, build->attr);
	pd = cpu_made(build, pd, status, "reorder");
	cpu_step_add(build, pd, 2, (cpu_argument[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

cpu_view cpu_convert(cpu_build *build, cpu_view view, const_dnnl_memory_desc_t md)
{
	if (build->status != BETON_OK || dnnl_memory_desc_equal(view.md, md))
		return view;
	cpu_view copy = cpu_scratch(build, md);
	cpu_reorder(build, view, copy);
	return copy;
}

cpu_view cpu_output(cpu_build *build, int index, const_dnnl_memory_desc_t md)
{
	dtrain_operand *operand = &build->desc->outputs[index];
	const_dnnl_memory_desc_t plain = cpu_plain_md(build, operand);
	if (build->status != BETON_OK)
		return (cpu_view){0};
	operand->layout = NULL;
	operand->bytes = dnnl_memory_desc_get_size(plain);
	bool is_plain = dnnl_memory_desc_equal(md, plain);
	if (!is_plain && build->desc->plain_output[index])
		return cpu_scratch(build, md);
	if (!is_plain) {
		cpu_check(build, dnnl_memory_desc_clone(&build->op->layouts[0].md, md), "layout");
		operand->layout = &build->op->layouts[0];
		operand->bytes = dnnl_memory_desc_get_size(md);
	}
	return cpu_operand_as(md, build->desc->num_inputs + index);
}

void cpu_store(cpu_build *build, int index, cpu_view view)
{
	if (build->status != BETON_OK || view.place.operand >= 0)
		return;
	const_dnnl_memory_desc_t plain = cpu_plain_md(build, &build->desc->outputs[index]);
	cpu_reorder(build, view, cpu_operand_as(plain, build->desc->num_inputs + index));
}

cpu_view cpu_private_output(cpu_build *build, int index, const_dnnl_memory_desc_t md, const_dnnl_memory_desc_t pool_x,
			    const_dnnl_memory_desc_t pool_y)
{
	if (build->status != BETON_OK)
		return (cpu_view){0};
	cpu_layout *layout = &build->op->layouts[1];
	cpu_check(build, dnnl_memory_desc_clone(&layout->md, md), "layout");
	if (pool_x)
		cpu_check(build, dnnl_memory_desc_clone(&layout->pool_x, pool_x), "layout");
	if (pool_y)
		cpu_check(build, dnnl_memory_desc_clone(&layout->pool_y, pool_y), "layout");
	build->desc->outputs[index].layout = layout;
	build->desc->outputs[index].bytes = dnnl_memory_desc_get_size(md);
	return cpu_operand_as(md, build->desc->num_inputs + index);
}

dnnl_primitive_desc_t cpu_made(cpu_build *build, dnnl_primitive_desc_t pd, dnnl_status_t status, const char *what)
{
	cpu_check(build, status, what);
	if (status != dnnl_success)
		return NULL;
	build->made[build->num_made++] = pd;
	return pd;
}

const_dnnl_memory_desc_t cpu_query(cpu_build *build, dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
	if (build->status != BETON_OK)
		return NULL;
	const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(pd, what, index);
	if (!md)
		cpu_check(build, dnnl_runtime_error, "layout");
	return md;
}

static void add_argument(cpu_build *build, cpu_step *step, int arg, cpu_view view)
{
	dnnl_memory_t memory = NULL;
	cpu_check(build, dnnl_memory_create(&memory, view.md, build->device->engine, DNNL_MEMORY_NONE), "memory");
	if (build->status != BETON_OK)
		return;
	step->args[step->count] = (dnnl_exec_arg_t){.arg = arg, .memory = memory};
	step->places[step->count] = view.place;
	step->count++;
}

/* Steps run one after the other, so they share one scratchpad. */
void cpu_step_add(cpu_build *build, dnnl_primitive_desc_t pd, int count, const cpu_argument *arguments)
{
	if (build->status != BETON_OK)
		return;
	cpu_step *step = &build->op->steps[build->op->num_steps++];
	cpu_check(build, dnnl_primitive_create(&step->primitive, pd), "primitive");
	for (int i = 0; i < count; i++)
		add_argument(build, step, arguments[i].arg, arguments[i].view);
	const_dnnl_memory_desc_t scratchpad = cpu_query(build, pd, dnnl_query_scratchpad_md, 0);
	size_t bytes = build->status == BETON_OK ? dnnl_memory_desc_get_size(scratchpad) : 0;
	if (bytes == 0)
		return;
	if (bytes > build->scratchpad)
		build->scratchpad = bytes;
	add_argument(build, step, DNNL_ARG_SCRATCHPAD, cpu_operand_as(scratchpad, CPU_SCRATCHPAD));
}

void cpu_place_plain_inputs(cpu_build *build)
{
	dtrain_op_desc *desc = build->desc;
	for (int i = 0; i < desc->num_inputs; i++) {
		cpu_view view = {.place.operand = i};
		if (desc->inputs[i].layout)
			view = cpu_convert(build, cpu_input(build, i), cpu_plain_md(build, &desc->inputs[i]));
		build->op->plain[i] = view.place;
		desc->inputs[i].layout = NULL;
	}
}

void cpu_build_function(cpu_build *build, size_t bytes, int threads,
			int (*finish)(const struct dtrain_op *op, void *const *operands, void *workspace,
				      beton_error *err))
{
	cpu_place_plain_inputs(build);
	for (int i = 0; i < build->desc->num_outputs; i++)
		cpu_output(build, i, cpu_plain_md(build, &build->desc->outputs[i]));
	build->op->scratch_bytes = dtrain__round_up(bytes, DTRAIN__HOST_ALIGNMENT);
	build->op->scratch = (cpu_place){.operand = CPU_WORKSPACE, .offset = build->workspace};
	build->workspace += (size_t)threads * build->op->scratch_bytes;
	build->op->finish = finish;
}

void cpu_round_weight(cpu_build *build, int input)
{
	cpu_view view = cpu_operand_as(cpu_plain_md(build, &build->desc->inputs[input]), input);
	dtrain_operand rounded = cpu_in_type(&build->desc->inputs[input], build->op->dtype);
	if (build->op->plain[input].operand == input)
		build->op->plain[input] = cpu_convert(build, view, cpu_plain_md(build, &rounded)).place;
}

void *cpu_plain(const struct dtrain_op *op, int input, void *const *operands, void *workspace)
{
	return cpu_address(op->plain[input], operands, workspace);
}

void *cpu_own_scratch(const struct dtrain_op *op, int thread, void *workspace)
{
	return (char *)workspace + op->scratch.offset + (size_t)thread * op->scratch_bytes;
}
