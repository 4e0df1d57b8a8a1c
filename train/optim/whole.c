/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates that need whole parameters (LARS, LAMB, Muon) where ranks have parts of them: the parts of values, gradients
 * and states are gathered, each rank updates the whole parameters, and takes its part of the result. A rank sends
 * (t - 1) / t of its values, gradients and states each step, and has room for the largest range's whole parameters.
 */
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "core/params.h"
#include "core/shape.h"
#include "optimizer.h"

/* A parameter's part is [outer][inner]; the whole is [outer][parts][inner]. */
typedef struct layout {
	int64_t outer, parts, inner;
} layout;

static layout layout_of(const dtrain_param *param)
{
	const dtrain_placement *placement = &param->placement;
	layout out = {.outer = dtrain__placement_blocks(placement), .parts = placement->parts};
	for (int i = 0; i < placement->dim; i++)
		out.outer *= param->shape.dim[i];
	out.inner = param->count / out.outer;
	return out;
}

/* Whether all ranks' parts have the same size. */
static bool are_equal(const dtrain_param *param)
{
	return param->count * param->placement.parts == dtrain_shape_count(&param->global_shape);
}

static int check_param(const dtrain_optimizer *optimizer, const dtrain_param *param, beton_error *err)
{
	const dtrain__update_range *range = optimizer->range;
	const char *kind = optimizer->kind->info.name;
	bool cut = param->offset < range->begin || param->offset + param->count > range->begin + range->count;
	if (cut || dtrain_params_host(optimizer->params))
		return bt_fail(err, BETON_UNSUPPORTED, "%s: needs all of '%s'; this rank has a part", kind,
			       param->name);
	if (!optimizer->gather)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: ranks have parts of '%s', which needs gather", kind,
			       param->name);
	return layout_of(param).outer == 1 || are_equal(param)
		       ? BETON_OK
		       : bt_fail(err, BETON_UNSUPPORTED, "%s: %d ranks have parts of '%s' that differ in size", kind,
				 param->placement.parts, param->name);
}

/* Lays out the range's whole parameters, if ranks have parts of them. */
static int open_range(dtrain_optimizer *optimizer, beton_error *err)
{
	dtrain__update_range *range = optimizer->range;
	const dtrain_params *params = optimizer->params;
	int placed = 0, inside = 0;
	for (int i = 0; i < dtrain_params_count(params); i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		if (!dtrain__range_has(range, param))
			continue;
		placed += param->placement.axis != NULL;
		inside++;
		if (!param->placement.axis)
			continue;
		int status = check_param(optimizer, param, err);
		if (status == BETON_OK && !range->wholes)
			range->wholes = calloc((size_t)dtrain_params_count(params), sizeof(*range->wholes));
		if (status != BETON_OK || !range->wholes)
			return status != BETON_OK
				       ? status
				       : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", optimizer->kind->info.name);
		range->wholes[i] = range->whole_count;
		range->whole_count +=
			(int64_t)dtrain__round_up((size_t)dtrain_shape_count(&param->global_shape), DTRAIN_PARAM_ALIGN);
		range->parts = param->placement.parts;
		range->axis = dtrain__axis_find(param->placement.axis);
	}
	/* A unit has parameters of one kind; a range of the caller's choice may have both. */
	return placed == 0 || placed == inside
		       ? BETON_OK
		       : bt_fail(err, BETON_UNSUPPORTED,
				 "%s: elements %lld to %lld have %d parameters in parts and %d whole parameters",
				 optimizer->kind->info.name, (long long)range->begin,
				 (long long)(range->begin + range->count), placed, inside - placed);
}

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

int dtrain__whole_open(dtrain_optimizer *optimizer, beton_error *err)
{
	dtrain__whole *whole = &optimizer->whole;
	int status = BETON_OK;
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK; i++) {
		dtrain__update_range *range = optimizer->range = &optimizer->ranges[i];
		status = open_range(optimizer, err);
		whole->count = larger(whole->count, range->whole_count);
		whole->gathered_count = larger(whole->gathered_count, range->parts * range->count);
	}
	return status;
}

/* The groups of all ranges' whole parameters. */
static int place_groups(dtrain_optimizer *optimizer, const uint8_t *group_of, beton_error *err)
{
	int64_t runs = 0;
	for (int i = 0; i < optimizer->num_ranges; i++)
		runs += optimizer->ranges[i].whole_count / DTRAIN_PARAM_ALIGN;
	uint8_t *host = calloc((size_t)runs + 1, 1), *at = host;
	int status = host ? optimizer->api->alloc(optimizer->device, (size_t)runs, &optimizer->whole.groups, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", optimizer->kind->info.name);
	for (int i = 0; i < optimizer->num_ranges && status == BETON_OK; i++) {
		dtrain__update_range *range = &optimizer->ranges[i];
		range->whole_groups = (char *)optimizer->whole.groups + (at - host);
		for (int k = 0; range->wholes && group_of && k < dtrain_params_count(optimizer->params); k++) {
			const dtrain_param *param = dtrain_params_at(optimizer->params, k);
			size_t count = (size_t)dtrain_shape_count(&param->global_shape);
			if (dtrain__range_has(range, param))
				memset(at + range->wholes[k] / DTRAIN_PARAM_ALIGN, group_of[k],
				       dtrain__round_up(count, DTRAIN_PARAM_ALIGN) / DTRAIN_PARAM_ALIGN);
		}
		at += range->whole_count / DTRAIN_PARAM_ALIGN;
	}
	if (status == BETON_OK)
		status = dtrain__optimizer_upload(optimizer, optimizer->whole.groups, host, (size_t)runs, err);
	free(host);
	return status;
}

size_t dtrain__whole_bytes(const dtrain_optimizer *optimizer)
{
	const dtrain__whole *whole = &optimizer->whole;
	int64_t groups = 0;
	for (int i = 0; i < optimizer->num_ranges; i++)
		groups += optimizer->ranges[i].whole_count / DTRAIN_PARAM_ALIGN;
	return (size_t)((2 + optimizer->kind->info.num_states) * whole->count + 2 * whole->gathered_count) *
		       dtrain_dtype_size(dtrain_params_dtype(optimizer->params)) +
	       (size_t)groups;
}

int dtrain__whole_allocate(dtrain_optimizer *optimizer, const uint8_t *group_of, beton_error *err)
{
	dtrain__whole *whole = &optimizer->whole;
	size_t each = dtrain_dtype_size(dtrain_params_dtype(optimizer->params));
	if (!whole->count)
		return BETON_OK;
	void **arrays[] = {&whole->arrays[0], &whole->arrays[1], &whole->arrays[2], &whole->arrays[3]};
	int status = BETON_OK;
	for (int i = 0; i < 2 + optimizer->kind->info.num_states && status == BETON_OK; i++)
		status = optimizer->api->alloc(optimizer->device, (size_t)whole->count * each, arrays[i], err);
	if (status == BETON_OK)
		status = optimizer->api->alloc(optimizer->device, (size_t)whole->gathered_count * each,
					       &whole->gathered, err);
	/* A parameter's parts have no more elements than all of its range. */
	if (status == BETON_OK)
		status = optimizer->api->alloc(optimizer->device, (size_t)whole->gathered_count * each, &whole->parts,
					       err);
	if (status != BETON_OK)
		bt_prefix(err, "%s: whole parameters", optimizer->kind->info.name);
	return status == BETON_OK ? place_groups(optimizer, group_of, err) : status;
}

void dtrain__whole_close(dtrain_optimizer *optimizer)
{
	dtrain__whole *whole = &optimizer->whole;
	void *const memory[] = {whole->arrays[0], whole->arrays[1], whole->arrays[2], whole->arrays[3],
				whole->gathered,  whole->parts,     whole->groups};
	for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
		optimizer->api->free(optimizer->device, memory[i]);
	for (int i = 0; i < optimizer->num_ranges; i++)
		free(optimizer->ranges[i].wholes);
}

/* ---- ops ---- */

static dtrain__argument tensor_of(const dtrain_optimizer *optimizer, int ndim, const int64_t *dims, void *memory)
{
	const dtrain_shape shape = dtrain_shape_of(ndim, dims);
	dtrain__argument argument =
		dtrain__argument_array(dtrain_params_dtype(optimizer->params), dtrain_shape_count(&shape), memory);
	argument.operand.shape = shape;
	return argument;
}

static int add_op(dtrain_optimizer *optimizer, dtrain_op_kind kind, const dtrain_op_attrs *attrs, dtrain__argument from,
		  dtrain__argument to, beton_error *err)
{
	const dtrain__argument none = {.memory = NULL};
	return dtrain__optimizer_add(optimizer, &optimizer->update, kind, attrs, (const dtrain__argument[]){from, none},
				     (const dtrain__argument[]){to, none}, err);
}

/* A piece of an array of so many elements, from element `from` on. */
static int add_piece(dtrain_optimizer *optimizer, void *array, int64_t all, int64_t from, void *to, int64_t count,
		     beton_error *err)
{
	const dtrain_op_attrs slice = {.slice = {.dim = 1, .begin = from}};
	return add_op(optimizer, DTRAIN_OP_SLICE, &slice, tensor_of(optimizer, 2, (int64_t[]){1, all}, array),
		      tensor_of(optimizer, 2, (int64_t[]){1, count}, to), err);
}

/* add_join for parts that follow each other in the whole parameter, and may differ in size. */
static int add_rows(dtrain_optimizer *optimizer, const dtrain_param *param, void *to, beton_error *err)
{
	const dtrain__update_range *range = optimizer->range;
	const int64_t all = dtrain_shape_count(&param->global_shape), each = all / param->global_shape.dim[0];
	int status = BETON_OK;
	for (int32_t part = 0; part < param->placement.parts && status == BETON_OK; part++) {
		dtrain_placement placement = param->placement;
		dtrain_shape shape;
		int64_t first;
		placement.part = part;
		status = dtrain__placement_part(param->name, &param->global_shape, &placement, &shape, &first, err);
		if (status == BETON_OK)
			status = add_piece(optimizer, optimizer->whole.gathered, range->parts * range->count,
					   part * range->count + param->offset - range->begin,
					   dtrain__optimizer_element(optimizer, to, first * each),
					   dtrain_shape_count(&shape), err);
	}
	return status;
}

/* From [parts][elements of the range] to the whole parameter: its part of each rank, and the parts between each other.
 */
static int add_join(dtrain_optimizer *optimizer, int index, void *whole, beton_error *err)
{
	const dtrain__update_range *range = optimizer->range;
	const dtrain_param *param = dtrain_params_at(optimizer->params, index);
	const layout l = layout_of(param);
	void *to = dtrain__optimizer_element(optimizer, whole, range->wholes[index]), *parts = optimizer->whole.parts;
	const dtrain_op_attrs slice = {.slice = {.dim = 1, .begin = param->offset - range->begin}};
	if (l.outer == 1)
		return add_rows(optimizer, param, to, err);
	const dtrain_op_attrs permute = {.permute = {.order = {1, 0, 2}}};
	int status = add_op(optimizer, DTRAIN_OP_SLICE, &slice,
			    tensor_of(optimizer, 2, (int64_t[]){l.parts, range->count}, optimizer->whole.gathered),
			    tensor_of(optimizer, 2, (int64_t[]){l.parts, param->count}, parts), err);
	if (status != BETON_OK)
		return status;
	return add_op(optimizer, DTRAIN_OP_PERMUTE, &permute,
		      tensor_of(optimizer, 3, (int64_t[]){l.parts, l.outer, l.inner}, parts),
		      tensor_of(optimizer, 3, (int64_t[]){l.outer, l.parts, l.inner}, to), err);
}

static int add_take(dtrain_optimizer *optimizer, int index, void *whole, void *part, beton_error *err)
{
	const dtrain__update_range *range = optimizer->range;
	const dtrain_param *param = dtrain_params_at(optimizer->params, index);
	const layout l = layout_of(param);
	void *from = dtrain__optimizer_element(optimizer, whole, range->wholes[index]),
	     *to = dtrain__optimizer_element(optimizer, part, param->offset - range->begin);
	if (l.outer == 1)
		return add_piece(optimizer, from, dtrain_shape_count(&param->global_shape),
				 param->first * dtrain_shape_count(&param->global_shape) / param->global_shape.dim[0],
				 to, param->count, err);
	const dtrain_op_attrs slice = {.slice = {.dim = 1, .begin = param->placement.part}};
	return add_op(optimizer, DTRAIN_OP_SLICE, &slice,
		      tensor_of(optimizer, 3, (int64_t[]){l.outer, l.parts, l.inner}, from),
		      tensor_of(optimizer, 3, (int64_t[]){l.outer, 1, l.inner}, to), err);
}

/* The range's own memory of array i: values, gradients, states. */
static void *own_of(const dtrain_optimizer *optimizer, int i)
{
	const dtrain__update_range *range = optimizer->range;
	return i == 0   ? range->values
	       : i == 1 ? range->grads
			: dtrain__optimizer_element(optimizer, optimizer->states[i - 2].memory, range->first);
}

int dtrain__whole_add_gathers(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain__update_range *range = optimizer->range;
	int status = BETON_OK;
	for (int i = 0; range->wholes && i < 2 + optimizer->kind->info.num_states && status == BETON_OK; i++) {
		status = dtrain__optimizer_add_gather(optimizer, &optimizer->update, own_of(optimizer, i),
						      optimizer->whole.gathered, err);
		for (int k = 0; k < dtrain_params_count(optimizer->params) && status == BETON_OK; k++)
			if (dtrain__range_has(range, dtrain_params_at(optimizer->params, k)))
				status = add_join(optimizer, k, optimizer->whole.arrays[i], err);
	}
	return status;
}

int dtrain__whole_add_parts(dtrain_optimizer *optimizer, beton_error *err)
{
	const dtrain__update_range *range = optimizer->range;
	int status = BETON_OK;
	for (int i = 0; range->wholes && i < 2 + optimizer->kind->info.num_states && status == BETON_OK; i++)
		for (int k = 0; i != 1 && k < dtrain_params_count(optimizer->params) && status == BETON_OK; k++)
			if (dtrain__range_has(range, dtrain_params_at(optimizer->params, k)))
				status = add_take(optimizer, k, optimizer->whole.arrays[i], own_of(optimizer, i), err);
	return status;
}
