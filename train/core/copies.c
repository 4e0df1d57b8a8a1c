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

/* Offsets are in reverse order of declaration. */
static int make_table(dtrain_params *params, beton_error *err)
{
	dtrain_segment *segments = calloc((size_t)params->count + 1, sizeof(*segments));
	if (!segments)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the copies of %d parameters", params->count);
	for (int i = 0; i < params->count; i++) {
		const dtrain_param *param = &params->params[params->count - 1 - i];
		segments[i] = (dtrain_segment){.offset = param->offset, .shape = param->shape};
	}
	params->copies.segments = segments;
	return BETON_OK;
}

void dtrain__copies_describe(const dtrain_params *params, dtrain_op_desc *out)
{
	const dtrain__copies *copies = &params->copies;
	const dtrain_shape flat = dtrain_shape_of(1, &params->flat_count);
	size_t count = (size_t)params->flat_count;
	*out = (dtrain_op_desc){
		.kind = DTRAIN_OP_CAST,
		.attrs.cast = {.segments = copies->segments, .num_segments = params->count},
		.num_inputs = 1,
		.num_outputs = 1,
		.inputs = {{.dtype = params->dtype, .shape = flat, .bytes = count * dtrain_dtype_size(params->dtype)}},
		.outputs = {
			{.dtype = copies->dtype, .shape = flat, .bytes = count * dtrain_dtype_size(copies->dtype)}}};
}

int dtrain__copies_allocate(dtrain_params *params, beton_error *err)
{
	dtrain__copies *copies = &params->copies;
	if (copies->dtype == params->dtype || params->count == 0)
		return BETON_OK;
	dtrain_op_desc desc;
	int status = make_table(params, err);
	if (status != BETON_OK)
		return status;
	dtrain__copies_describe(params, &desc);
	status = params->api->op_create(params->device, &desc, &copies->op, err);
	if (status == BETON_OK)
		status = params->api->alloc(params->device, desc.outputs[0].bytes, &copies->memory, err);
	if (status == BETON_OK && desc.workspace_bytes)
		status = params->api->alloc(params->device, desc.workspace_bytes, &copies->workspace, err);
	return status;
}

void dtrain__copies_free(dtrain_params *params)
{
	dtrain__copies *copies = &params->copies;
	if (copies->op)
		params->api->op_destroy(copies->op);
	params->api->free(params->device, copies->memory);
	params->api->free(params->device, copies->workspace);
	free(copies->segments);
	*copies = (dtrain__copies){.dtype = copies->dtype};
}

const void *dtrain__copies_layout(const dtrain_params *params, int index)
{
	return params->copies.segments[params->count - 1 - index].layout;
}

size_t dtrain_params_copy_bytes(const dtrain_params *params)
{
	const dtrain__copies *copies = &params->copies;
	return copies->memory ? (size_t)params->flat_count * dtrain_dtype_size(copies->dtype) : 0;
}

int dtrain_params_changed(dtrain_params *params, dtrain_stream *stream, beton_error *err)
{
	const dtrain__copies *copies = &params->copies;
	void *const operands[] = {params->values, copies->memory};
	if (!copies->memory)
		return BETON_OK;
	int status = params->api->op_run(copies->op, stream, operands, copies->workspace, err);
	if (status != BETON_OK)
		bt_prefix(err, "compute copies of the parameters");
	return status;
}
