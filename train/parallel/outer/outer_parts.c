/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory and ops of the outer optimizer, and its reductions.
 */
#include <stdio.h>
#include <stdlib.h>

#include "common/error.h"
#include "core/params.h"
#include "outer.h"

/* ---- ops and memory ---- */

static int add_op(dtrain_local *local, dtrain_op_desc *desc, size_t *workspace, dtrain_op **out, beton_error *err)
{
	for (int i = 0; i < desc->num_outputs; i++)
		desc->plain_output[i] = true;
	int status = local->sync->api->op_create(local->sync->device, desc, out, err);
	*workspace = desc->workspace_bytes > *workspace ? desc->workspace_bytes : *workspace;
	return status;
}

static dtrain_operand operand_of(dtrain_dtype dtype, int ndim, const int64_t *dims)
{
	const dtrain_shape shape = dtrain_shape_of(ndim, dims);
	return (dtrain_operand){
		.dtype = dtype, .shape = shape, .bytes = (size_t)dtrain_shape_count(&shape) * dtrain_dtype_size(dtype)};
}

static int64_t runs_of(int64_t count)
{
	return (count + DTRAIN_PARAM_ALIGN - 1) / DTRAIN_PARAM_ALIGN;
}

static int create_ops(dtrain_local *local, outer_unit *unit, size_t *workspace, beton_error *err)
{
	const dtrain_sync *sync = local->sync;
	const dtrain_local_options *options = &local->options;
	const int64_t runs = runs_of(unit->count), scalars[] = {1, DTRAIN_UPDATE_SCALARS};
	const dtrain_operand array = operand_of(dtrain_params_dtype(sync->params), 1, &unit->count);
	dtrain_op_desc negate = {.kind = DTRAIN_OP_SCALE,
				 .num_inputs = 1,
				 .num_outputs = 1,
				 .inputs = {array},
				 .outputs = {array},
				 .attrs.factor = -1};
	dtrain_op_desc add = {
		.kind = DTRAIN_OP_ADD, .num_inputs = 2, .num_outputs = 1, .inputs = {array, array}, .outputs = {array}};
	dtrain_op_desc update = {
		.kind = DTRAIN_OP_SGD,
		.num_inputs = 5,
		.num_outputs = 2,
		.inputs = {array, array, array, operand_of(DTRAIN_F32, 2, scalars), operand_of(DTRAIN_U8, 1, &runs)},
		.outputs = {array, array},
		.attrs.sgd = {.momentum = options->momentum,
			      .nesterov = options->momentum > 0,
			      .grad_divisor = sync->group ? dtrain_group_size(sync->group) : 1}};
	int status = add_op(local, &negate, workspace, &unit->negate, err);
	if (status == BETON_OK)
		status = add_op(local, &add, workspace, &unit->add, err);
	return status == BETON_OK ? add_op(local, &update, workspace, &unit->update, err) : status;
}

static int create_units(dtrain_local *local, size_t *workspace, beton_error *err)
{
	const dtrain_sync *sync = local->sync;
	size_t element = dtrain_dtype_size(dtrain_params_dtype(sync->params));
	local->units = calloc((size_t)sync->count, sizeof(*local->units));
	if (!local->units)
		return bt_fail(err, BETON_NO_MEMORY, "local: out of memory");
	local->count = sync->count - 1;
	int status = BETON_OK;
	for (int i = 0; i < local->count && status == BETON_OK; i++) {
		outer_unit *unit = &local->units[i];
		const sync_reduction *reduction = &sync->reductions[i + 1];
		int number = reduction->unit;
		size_t at = (size_t)dtrain_params_unit_at(sync->params, number)->offset * element;
		unit->delta = reduction->memory;
		unit->values = (char *)dtrain_params_values(sync->params) + at;
		unit->shared = (char *)local->shared + at;
		unit->momentum = (char *)local->momentum + at;
		unit->count = reduction->count;
		unit->bytes = (size_t)unit->count * element;
		snprintf(unit->sum.label, sizeof(unit->sum.label), "outer %.40s", reduction->label);
		status = create_ops(local, unit, workspace, err);
		if (status == BETON_OK)
			status = dtrain__operation_open(&unit->sum, local->sync, number, true, err);
		if (status == BETON_OK)
			status = dtrain__flight_open(sync, &unit->flight, err);
	}
	return status;
}

static int set_rates(dtrain_local *local, beton_error *err)
{
	const dtrain_sync *sync = local->sync;
	const size_t bytes = DTRAIN_UPDATE_SCALARS * sizeof(float);
	dtrain_stream *stream = NULL;
	float *host = NULL;
	int status = sync->api->host_alloc(sync->device, bytes, (void **)&host, err);
	if (status == BETON_OK) {
		host[0] = (float)local->options.lr;
		host[1] = 0;
		status = sync->api->stream_create(sync->device, &stream, err);
	}
	if (status == BETON_OK)
		status = sync->api->copy(stream, local->rates, host, bytes, DTRAIN_HOST_TO_DEVICE, err);
	if (status == BETON_OK)
		status = sync->api->stream_synchronize(stream, err);
	if (stream)
		sync->api->stream_destroy(stream);
	sync->api->host_free(sync->device, host);
	return status;
}

int dtrain__outer_create(dtrain_local *local, beton_error *err)
{
	const dtrain_sync *sync = local->sync;
	size_t workspace = 0;
	int64_t most = 1;
	int status = sync->api->alloc(sync->device, local->bytes, &local->shared, err);
	if (status == BETON_OK)
		status = sync->api->alloc(sync->device, local->bytes, &local->momentum, err);
	if (status != BETON_OK)
		bt_prefix(err, "the outer optimizer");
	if (status == BETON_OK)
		status = create_units(local, &workspace, err);
	for (int i = 0; i < local->count; i++)
		most = local->units[i].count > most ? local->units[i].count : most;
	if (status == BETON_OK)
		status = sync->api->alloc(sync->device, (size_t)runs_of(most), (void **)&local->members, err);
	if (status == BETON_OK)
		status = sync->api->alloc(sync->device, DTRAIN_UPDATE_SCALARS * sizeof(float), (void **)&local->rates,
					  err);
	if (status == BETON_OK && workspace)
		status = sync->api->alloc(sync->device, workspace, &local->workspace, err);
	return status == BETON_OK ? set_rates(local, err) : status;
}

void dtrain__outer_destroy(dtrain_local *local)
{
	const dtrain_sync *sync = local->sync;
	for (int i = 0; i < local->count; i++) {
		dtrain_op *ops[] = {local->units[i].negate, local->units[i].add, local->units[i].update};
		for (size_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++)
			if (ops[k])
				sync->api->op_destroy(ops[k]);
		dtrain__flight_close(local->sync, &local->units[i].flight);
	}
	free(local->units);
	sync->api->free(sync->device, local->workspace);
	sync->api->free(sync->device, local->rates);
	sync->api->free(sync->device, local->members);
	sync->api->free(sync->device, local->momentum);
	sync->api->free(sync->device, local->shared);
}

/* ---- reductions ---- */

int dtrain__outer_send(dtrain_local *local, int index, dtrain_stream *stream, beton_error *err)
{
	dtrain_sync *sync = local->sync;
	outer_unit *unit = &local->units[index];
	const sync_transfer transfer = {.kind = SYNC_ALLREDUCE,
					.group = sync->group,
					.output = unit->delta,
					.count = unit->count,
					.dtype = dtrain_params_dtype(sync->params)};
	return sync->started && dtrain_group_size(sync->group) > 1
		       ? dtrain__operation_issue(&unit->sum, &unit->flight, &transfer, stream, true, err)
		       : BETON_OK;
}

void dtrain__outer_abandon(dtrain_local *local)
{
	for (int i = 0; i < local->count; i++)
		dtrain__flight_abandon(&local->units[i].flight);
}

void dtrain__outer_reset(const dtrain_local *local, dtrain_sync_trace *trace)
{
	for (int i = 0; i < local->count; i++) {
		sync_trace_event *trace_event = dtrain__sync_trace_event_of(local->sync, &local->units[i].sum);
		if (!trace_event || !trace_event->used)
			continue;
		trace_event->used = false;
		trace_event->exposed_ms = 0;
		trace->step.bytes -= local->units[i].bytes;
	}
}
