/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/error.h"
#include "core/host.h"
#include "core/op.h"
#include "core/shape.h"
#include "cpu.h"

void cpu_plain_md(dnnl_memory_desc_t *md, const dtrain_shape *shape)
{
	dnnl_dims_t dims = {1}, strides = {1};
	int ndims = shape->ndim ? shape->ndim : 1;
	int64_t stride = 1;
	for (int i = shape->ndim - 1; i >= 0; i--) {
		dims[i] = shape->dim[i];
		strides[i] = stride;
		stride *= shape->dim[i];
	}
	/* Cannot fail: the shape has been checked. */
	dnnl_memory_desc_init_by_strides(md, ndims, dims, dnnl_f32, strides);
}

void cpu_any_md(dnnl_memory_desc_t *md, const dtrain_shape *shape)
{
	dnnl_dims_t dims;
	for (int i = 0; i < shape->ndim; i++)
		dims[i] = shape->dim[i];
	dnnl_memory_desc_init_by_tag(md, shape->ndim, dims, dnnl_f32, dnnl_format_tag_any);
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

cpu_view cpu_operand_as(const dnnl_memory_desc_t *md, int operand)
{
	return (cpu_view){.md = *md, .operand = operand};
}

cpu_view cpu_input(cpu_build *build, int index)
{
	const dtrain_operand *operand = &build->desc->inputs[index];
	cpu_view view = {.operand = index};
	if (operand->layout)
		view.md = ((const cpu_layout *)operand->layout)->md;
	else
		cpu_plain_md(&view.md, &operand->shape);
	return view;
}

cpu_view cpu_scratch(cpu_build *build, const dnnl_memory_desc_t *md)
{
	cpu_view view = {.md = *md, .operand = CPU_WORKSPACE, .offset = build->workspace};
	build->workspace += dtrain__round_up(dnnl_memory_desc_get_size(md), DTRAIN__HOST_ALIGNMENT);
	return view;
}

void cpu_reorder(cpu_build *build, cpu_view from, cpu_view to)
{
	dnnl_primitive_desc_t pd = NULL;
	if (build->status != BETON_OK)
		return;
	cpu_check(build,
		  dnnl_reorder_primitive_desc_create(&pd, &from.md, build->device->engine, &to.md,
						     build->device->engine, build->attr),
		  "reorder");
	if (build->status != BETON_OK)
		return;
	build->made[build->num_made++] = pd;
	cpu_step_add(build, pd, 2, (cpu_argument[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

cpu_view cpu_convert(cpu_build *build, cpu_view view, const dnnl_memory_desc_t *md)
{
	if (build->status != BETON_OK || dnnl_memory_desc_equal(&view.md, md))
		return view;
	cpu_view copy = cpu_scratch(build, md);
	cpu_reorder(build, view, copy);
	return copy;
}

cpu_view cpu_output(cpu_build *build, int index, const dnnl_memory_desc_t *md)
{
	dtrain_operand *operand = &build->desc->outputs[index];
	dnnl_memory_desc_t plain;
	if (build->status != BETON_OK)
		return (cpu_view){0};
	cpu_plain_md(&plain, &operand->shape);
	operand->layout = NULL;
	operand->bytes = dnnl_memory_desc_get_size(&plain);
	bool is_plain = dnnl_memory_desc_equal(md, &plain);
	if (!is_plain && build->desc->plain_output[index])
		return cpu_scratch(build, md);
	if (!is_plain) {
		build->op->layouts[0].md = *md;
		operand->layout = &build->op->layouts[0];
		operand->bytes = dnnl_memory_desc_get_size(md);
	}
	return cpu_operand_as(md, build->desc->num_inputs + index);
}

void cpu_store(cpu_build *build, int index, cpu_view view)
{
	dnnl_memory_desc_t plain;
	if (build->status != BETON_OK || view.operand >= 0)
		return;
	cpu_plain_md(&plain, &build->desc->outputs[index].shape);
	cpu_reorder(build, view, cpu_operand_as(&plain, build->desc->num_inputs + index));
}

cpu_view cpu_private_output(cpu_build *build, int index, const dnnl_memory_desc_t *md, const dnnl_memory_desc_t *pool_x,
			    const dnnl_memory_desc_t *pool_y)
{
	cpu_layout *layout = &build->op->layouts[1];
	layout->md = *md;
	if (pool_x)
		layout->pool_x = *pool_x;
	if (pool_y)
		layout->pool_y = *pool_y;
	build->desc->outputs[index].layout = layout;
	build->desc->outputs[index].bytes = dnnl_memory_desc_get_size(md);
	return cpu_operand_as(md, build->desc->num_inputs + index);
}

dnnl_primitive_desc_t cpu_primitive_desc(cpu_build *build, const void *desc, const_dnnl_primitive_attr_t attr,
					 dnnl_primitive_desc_t hint)
{
	dnnl_primitive_desc_t pd = NULL;
	if (build->status != BETON_OK)
		return NULL;
	cpu_check(build, dnnl_primitive_desc_create(&pd, desc, attr ? attr : build->attr, build->device->engine, hint),
		  "primitive");
	if (build->status == BETON_OK)
		build->made[build->num_made++] = pd;
	return pd;
}

dnnl_memory_desc_t cpu_query(cpu_build *build, dnnl_primitive_desc_t pd, dnnl_query_t what, int index)
{
	if (build->status != BETON_OK)
		return (dnnl_memory_desc_t){0};
	const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, index);
	if (!md) {
		cpu_check(build, dnnl_runtime_error, "layout");
		return (dnnl_memory_desc_t){0};
	}
	return *md;
}

static void add_argument(cpu_build *build, cpu_step *step, int arg, cpu_view view)
{
	dnnl_memory_t memory = NULL;
	cpu_check(build, dnnl_memory_create(&memory, &view.md, build->device->engine, DNNL_MEMORY_NONE), "memory");
	if (build->status != BETON_OK)
		return;
	step->args[step->count] = (dnnl_exec_arg_t){.arg = arg, .memory = memory};
	step->places[step->count].operand = view.operand;
	step->places[step->count].offset = view.offset;
	step->count++;
}

/* Steps run one after the other and share one scratchpad. */
void cpu_step_add(cpu_build *build, dnnl_primitive_desc_t pd, int count, const cpu_argument *arguments)
{
	if (build->status != BETON_OK)
		return;
	cpu_step *step = &build->op->steps[build->op->num_steps++];
	cpu_check(build, dnnl_primitive_create(&step->primitive, pd), "primitive");
	for (int i = 0; i < count; i++)
		add_argument(build, step, arguments[i].arg, arguments[i].view);
	dnnl_memory_desc_t scratchpad = cpu_query(build, pd, dnnl_query_scratchpad_md, 0);
	size_t bytes = build->status == BETON_OK ? dnnl_memory_desc_get_size(&scratchpad) : 0;
	if (bytes == 0)
		return;
	if (bytes > build->scratchpad)
		build->scratchpad = bytes;
	add_argument(build, step, DNNL_ARG_SCRATCHPAD, (cpu_view){.md = scratchpad, .operand = CPU_SCRATCHPAD});
}
