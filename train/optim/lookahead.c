/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"

#include <dtrain/optim.h>

#include "scalars.h"

/* A range of the slow weights and what it is the slow side of. */
typedef struct part {
	void *slow, *fast;
	int64_t count; /* 0: there is nothing */
	dtrain_op *op;
} part;

struct dtrain_lookahead {
	const dtrain_device_api *api;
	dtrain_params *params;
	void *slow;
	part parts[2]; /* the flat space, the buffers */
	void *workspace;
	size_t workspace_bytes;
	dtrain__scalars weight; /* one */
};

static int create_op(dtrain_lookahead *lookahead, part *p, beton_error *err)
{
	dtrain_dtype dtype = dtrain_params_dtype(lookahead->params);
	dtrain_operand flat = {.dtype = dtype,
			       .shape = dtrain_shape_of(1, &p->count),
			       .bytes = (size_t)p->count * dtrain_dtype_size(dtype)};
	dtrain_operand weight = {
		.dtype = DTRAIN_F32, .shape = dtrain_shape_of(1, (int64_t[]){1}), .bytes = sizeof(float)};
	dtrain_op_desc desc = {.kind = DTRAIN_OP_LOOKAHEAD,
			       .num_inputs = 3,
			       .num_outputs = 2,
			       .inputs = {flat, flat, weight},
			       .outputs = {flat, flat},
			       .plain_output = {true, true}};
	int status = lookahead->api->op_create(lookahead->params->device, &desc, &p->op, err);
	if (desc.workspace_bytes > lookahead->workspace_bytes)
		lookahead->workspace_bytes = desc.workspace_bytes;
	return status;
}

static int open_parts(dtrain_lookahead *lookahead, beton_error *err)
{
	dtrain_params *params = lookahead->params;
	const dtrain_device_api *api = lookahead->api;
	size_t each = dtrain_dtype_size(params->dtype);
	size_t bytes = (size_t)(params->flat_count + params->buffer_elements) * each;
	int status = api->alloc(params->device, bytes, &lookahead->slow, err);
	if (status != BETON_OK)
		return status;
	lookahead->parts[0] = (part){.slow = lookahead->slow, .fast = params->values, .count = params->flat_count};
	lookahead->parts[1] = (part){.slow = (char *)lookahead->slow + (size_t)params->flat_count * each,
				     .fast = params->buffer_memory,
				     .count = params->buffer_elements};
	for (int i = 0; i < 2 && status == BETON_OK; i++)
		if (lookahead->parts[i].count)
			status = create_op(lookahead, &lookahead->parts[i], err);
	if (status == BETON_OK && lookahead->workspace_bytes)
		status = api->alloc(params->device, lookahead->workspace_bytes, &lookahead->workspace, err);
	return status;
}

int dtrain_lookahead_create(dtrain_params *params, dtrain_lookahead **out, beton_error *err)
{
	*out = NULL;
	if (!params->allocated)
		return bt_fail(err, BETON_STATE, "lookahead: the parameters are not allocated yet");
	dtrain_lookahead *lookahead = calloc(1, sizeof(*lookahead));
	if (!lookahead)
		return bt_fail(err, BETON_NO_MEMORY, "lookahead: out of memory");
	lookahead->api = params->api;
	lookahead->params = params;
	int status = open_parts(lookahead, err);
	if (status == BETON_OK)
		status = dtrain__scalars_open(&lookahead->weight, params->device, 1, err);
	if (status != BETON_OK) {
		dtrain_lookahead_destroy(&lookahead);
		return status;
	}
	*out = lookahead;
	return BETON_OK;
}

void dtrain_lookahead_destroy(dtrain_lookahead **lookahead)
{
	dtrain_lookahead *l = *lookahead;
	if (!l)
		return;
	for (int i = 0; i < 2; i++)
		if (l->parts[i].op)
			l->api->op_destroy(l->parts[i].op);
	dtrain__scalars_close(&l->weight);
	l->api->free(l->params->device, l->workspace);
	l->api->free(l->params->device, l->slow);
	free(l);
	*lookahead = NULL;
}

int dtrain_lookahead_start(dtrain_lookahead *lookahead, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < 2 && status == BETON_OK; i++) {
		const part *p = &lookahead->parts[i];
		if (p->count)
			status = lookahead->api->copy(stream, p->slow, p->fast,
						      (size_t)p->count * dtrain_dtype_size(lookahead->params->dtype),
						      DTRAIN_DEVICE_TO_DEVICE, err);
	}
	return status;
}

int dtrain_lookahead_step(dtrain_lookahead *lookahead, double weight, dtrain_stream *stream, beton_error *err)
{
	if (!(weight >= 0 && weight <= 1))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "lookahead: weight %g is not in [0, 1]", weight);
	int status = dtrain__scalars_begin(&lookahead->weight, err);
	if (status != BETON_OK)
		return status;
	*lookahead->weight.host = (float)weight;
	status = dtrain__scalars_put(&lookahead->weight, stream, err);
	for (int i = 0; i < 2 && status == BETON_OK; i++) {
		const part *p = &lookahead->parts[i];
		void *operands[] = {p->slow, p->fast, lookahead->weight.memory, p->slow, p->fast};
		if (p->op)
			status = lookahead->api->op_run(p->op, stream, operands, lookahead->workspace, err);
	}
	return status;
}

void *dtrain_lookahead_slow(const dtrain_lookahead *lookahead, int64_t *count)
{
	*count = lookahead->parts[0].count + lookahead->parts[1].count;
	return lookahead->slow;
}

void *dtrain_lookahead_slow_buffer(const dtrain_lookahead *lookahead, int index)
{
	const dtrain_buffer *buffer = dtrain_params_buffer_at(lookahead->params, index);
	const part *buffers = &lookahead->parts[1];
	return buffer ? (char *)buffers->slow + ((char *)buffer->data - (char *)buffers->fast) : NULL;
}
