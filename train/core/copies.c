/* SPDX-License-Identifier: Apache-2.0 */
#include "copies.h"

#include <stdlib.h>

#include "common/error.h"
#include "params.h"

void dtrain__copies_want(dtrain_params *params, dtrain_dtype dtype)
{
	dtrain_device_caps caps;
	params->api->caps(params->device, &caps);
	if (caps.weight_copies && !params->allocated && params->copies.dtype == params->dtype)
		params->copies.dtype = dtype;
}

bool dtrain__copies_are_in(const dtrain_params *params, dtrain_dtype dtype)
{
	return params->copies.dtype == dtype && dtype != params->dtype;
}

static int compare_offsets(const void *a, const void *b)
{
	const dtrain_segment *left = a, *right = b;
	return (left->offset > right->offset) - (left->offset < right->offset);
}

/* In the order of offsets, whatever the layout of units is. */
static int make_table(dtrain_params *params, beton_error *err)
{
	dtrain_segment *segments = calloc((size_t)params->count + 1, sizeof(*segments));
	if (!segments)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the copies of %d parameters", params->count);
	for (int i = 0; i < params->count; i++)
		segments[i] = (dtrain_segment){.offset = params->params[i].offset, .shape = params->params[i].shape};
	qsort(segments, (size_t)params->count, sizeof(*segments), compare_offsets);
	params->copies.segments = segments;
	return BETON_OK;
}

static dtrain_operand flat(int64_t count, dtrain_dtype dtype)
{
	return (dtrain_operand){
		.dtype = dtype, .shape = dtrain_shape_of(1, &count), .bytes = (size_t)count * dtrain_dtype_size(dtype)};
}

void dtrain__copies_describe(const dtrain_params *params, dtrain_op_desc *out)
{
	const dtrain__copies *copies = &params->copies;
	*out = (dtrain_op_desc){.kind = DTRAIN_OP_CAST,
				.attrs.cast = {.segments = copies->segments, .num_segments = params->count},
				.num_inputs = 1,
				.num_outputs = 1,
				.inputs = {flat(params->flat_count, params->dtype)},
				.outputs = {flat(params->flat_count, copies->dtype)}};
}

void dtrain__copies_describe_range(const dtrain_params *params, int64_t count, dtrain_segment *segment,
				   dtrain_op_desc *out)
{
	*segment = (dtrain_segment){.shape = dtrain_shape_of(1, &count)};
	*out = (dtrain_op_desc){.kind = DTRAIN_OP_CAST,
				.attrs.cast = {.segments = segment, .num_segments = 1},
				.num_inputs = 1,
				.num_outputs = 1,
				.inputs = {flat(count, params->dtype)},
				.outputs = {flat(count, params->copies.dtype)},
				.plain_output = {true}};
}

/* Adds the op that the description makes. */
static int add_op(dtrain_params *params, dtrain_op_desc *desc, const void *from, void *to, beton_error *err)
{
	dtrain__copies *copies = &params->copies;
	dtrain__copies_op *add = &copies->ops[copies->count];
	*add = (dtrain__copies_op){.operands = {(void *)(uintptr_t)from, to}};
	int status = params->api->op_create(params->device, desc, &add->op, err);
	if (status != BETON_OK)
		return status;
	copies->count++;
	if (desc->workspace_bytes > copies->workspace_bytes)
		copies->workspace_bytes = desc->workspace_bytes;
	return BETON_OK;
}

static int add_whole(dtrain_params *params, beton_error *err)
{
	dtrain_op_desc desc;
	int status = make_table(params, err);
	if (status != BETON_OK)
		return status;
	dtrain__copies_describe(params, &desc);
	return add_op(params, &desc, params->values, params->copies.memory, err);
}

/* A shard may begin and end within a parameter, so its copies are plain. */
static int add_shard(dtrain_params *params, int unit, beton_error *err)
{
	const dtrain_range *range = &params->ranges[unit];
	const dtrain__unit_memory *memory = &params->memory[unit];
	dtrain_segment segment;
	dtrain_op_desc desc;
	dtrain__copies_describe_range(params, range->count, &segment, &desc);
	return add_op(params, &desc, range->values,
		      dtrain__unit_kept(params, unit, memory->copies, memory->whole_copies, params->copies.dtype), err);
}

/* The copies of all units that have memory for them, one after the other. Nothing reads copies of a shared unit. */
static int64_t lay_out(dtrain_params *params)
{
	int64_t count = 0;
	for (int i = 0; i < params->unit_count; i++) {
		dtrain__unit_memory *memory = &params->memory[i];
		if (memory->prefetched || (dtrain__params_divided(params) && params->units[i].shared))
			continue;
		memory->copies = dtrain__params_place(params->copies.memory,
						      (size_t)count * dtrain_dtype_size(params->copies.dtype));
		count += memory->whole_copies ? params->units[i].count : dtrain__unit_range(params, i).count;
	}
	return count;
}

int dtrain__copies_allocate(dtrain_params *params, beton_error *err)
{
	dtrain__copies *copies = &params->copies;
	bool divided = dtrain__params_divided(params);
	if (copies->dtype == params->dtype || params->count == 0)
		return BETON_OK;
	copies->ops = calloc((size_t)params->unit_count + 1, sizeof(*copies->ops));
	if (!copies->ops)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the copies of %d units", params->unit_count);
	copies->bytes = (size_t)lay_out(params) * dtrain_dtype_size(copies->dtype);
	int status = dtrain__params_take(params, DTRAIN__MEMORY_VALUES, NULL, copies->bytes, &copies->memory,
					 &copies->owner, err);
	if (status == BETON_OK)
		lay_out(params);
	if (status == BETON_OK && !divided)
		status = add_whole(params, err);
	/* Offloaded values are rounded where they are. */
	if (params->offload.host)
		return status;
	for (int i = 0; i < params->unit_count && status == BETON_OK && divided; i++)
		status = params->units[i].shared ? BETON_OK : add_shard(params, i, err);
	if (status == BETON_OK && copies->workspace_bytes)
		status = dtrain__params_alloc(params, copies->workspace_bytes, &copies->workspace, err);
	return status;
}

void dtrain__copies_free(dtrain_params *params)
{
	dtrain__copies *copies = &params->copies;
	for (int i = 0; i < copies->count; i++)
		params->api->op_destroy(copies->ops[i].op);
	dtrain__params_give(params->api, params->device, copies->memory, copies->owner);
	params->api->free(params->device, copies->workspace);
	free(copies->ops);
	free(copies->segments);
	*copies = (dtrain__copies){.dtype = copies->dtype};
}

const void *dtrain__copies_layout(const dtrain_params *params, int index)
{
	const dtrain_segment key = {.offset = params->params[index].offset}, *segments = params->copies.segments;
	const dtrain_segment *found =
		segments ? bsearch(&key, segments, (size_t)params->count, sizeof(key), compare_offsets) : NULL;
	return found ? found->layout : NULL;
}

size_t dtrain_params_copy_bytes(const dtrain_params *params)
{
	if (!params)
		return 0;
	return params->copies.bytes;
}

int dtrain_params_changed(dtrain_params *params, dtrain_stream *stream, beton_error *err)
{
	if (BT_MISSING(err, params, stream))
		return BETON_INVALID_ARGUMENT;
	const dtrain__copies *copies = &params->copies;
	int status = params->offload.host ? dtrain__offload_changed(params, stream, err) : BETON_OK;
	for (int i = 0; i < copies->count && status == BETON_OK; i++)
		status =
			params->api->op_run(copies->ops[i].op, stream, copies->ops[i].operands, copies->workspace, err);
	if (status != BETON_OK)
		bt_prefix(err, "compute copies of the parameters");
	return status;
}
