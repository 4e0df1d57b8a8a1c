/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective of a run: started when its input is complete on the stream, waited for where its output is needed.
 */
#include <stdlib.h>

#include "comm/work.h"
#include "common/error.h"
#include "common/system.h"
#include "sync.h"

static int add_to_marked(sync_operation *operation, int unit, beton_error *err)
{
	dtrain_sync *sync = operation->sync;
	int *units = realloc(sync->operation_units, (size_t)(sync->num_operations + 1) * sizeof(*units));
	if (!units)
		return bt_fail(err, BETON_NO_MEMORY, "sync: out of memory");
	sync->operation_units = units;
	operation->index = sync->num_operations;
	units[sync->num_operations++] = unit;
	return BETON_OK;
}

int dtrain__operation_open(sync_operation *operation, dtrain_sync *sync, int unit, bool has_marks, beton_error *err)
{
	operation->sync = sync;
	operation->index = -1;
	int status = has_marks ? add_to_marked(operation, unit, err) : BETON_OK;
	return status != BETON_OK ? status : sync->api->event_create(sync->device, &operation->ready, err);
}

void dtrain__operation_close(sync_operation *operation)
{
	if (operation->ready)
		operation->sync->api->event_destroy(operation->ready);
	operation->ready = NULL;
}

static int start(sync_operation *operation, const sync_transfer *t, const work_notes *notes, beton_error *err)
{
	switch (t->kind) {
	case SYNC_REDUCE_SCATTER:
		return dtrain__reduce_scatter_noted(t->group, t->output, t->input, t->count, t->dtype, t->op,
						    operation->ready, notes, &operation->work, err);
	case SYNC_ALL_GATHER:
		return dtrain__all_gather_noted(t->group, t->output, t->input, t->count, t->dtype, operation->ready,
						notes, &operation->work, err);
	case SYNC_ALL_TO_ALL:
		return dtrain__all_to_all_noted(t->group, t->output, t->input, t->count, t->dtype, operation->ready,
						notes, &operation->work, err);
	default:
		return dtrain__allreduce_noted(t->group, t->output, t->count, t->dtype, t->op, operation->ready, notes,
					       &operation->work, err);
	}
}

/* Bytes of the array that all ranks together make or read. */
static uint64_t bytes_of(const sync_transfer *transfer)
{
	uint64_t parts = transfer->kind == SYNC_ALLREDUCE ? 1 : (uint64_t)dtrain_group_size(transfer->group);
	return parts * (uint64_t)transfer->count * dtrain_dtype_size(transfer->dtype);
}

int dtrain__operation_issue(sync_operation *operation, const sync_transfer *transfer, dtrain_stream *stream,
			    bool marked, beton_error *err)
{
	dtrain_sync *sync = operation->sync;
	work_notes notes = {.label = operation->label};
	sync_mark *mark = operation->mark = marked ? dtrain__sync_mark_of(sync, operation) : NULL;
	if (mark) {
		mark->used = true;
		notes.begin = mark->begin;
		notes.end = mark->end;
		sync->marks->step.bytes += transfer->kind == SYNC_HOOK ? 0 : bytes_of(transfer);
	}
	operation->on_stream = dtrain__group_is_stream_ordered(transfer->group);
	int status = sync->api->event_record(operation->ready, stream, err);
	if (status == BETON_OK && transfer->kind == SYNC_HOOK)
		return dtrain__sync_begin_round(operation, transfer, stream, &notes, err);
	return status == BETON_OK ? start(operation, transfer, &notes, err) : status;
}

static int wait_on_stream(sync_operation *operation, sync_mark *mark, dtrain_stream *stream, beton_error *err)
{
	const dtrain_device_api *api = operation->sync->api;
	int status = mark ? api->event_mark(mark->waiting, stream, err) : BETON_OK;
	if (status == BETON_OK)
		status = dtrain_work_stream_wait(&operation->work, stream, err);
	return status == BETON_OK && mark ? api->event_mark(mark->passed, stream, err) : status;
}

static int wait_on_host(sync_operation *operation, sync_mark *mark, dtrain_stream *stream, beton_error *err)
{
	uint64_t start_ns, end_ns;
	int status = operation->sync->api->stream_synchronize(stream, err);
	uint64_t began = bt_now_ns();
	if (status == BETON_OK)
		status = dtrain__work_wait_timed(&operation->work, &start_ns, &end_ns, err);
	if (status != BETON_OK || !mark)
		return status;
	mark->exposed_ms = (double)(bt_now_ns() - began) / 1e6;
	mark->begin_ms = (double)start_ns / 1e6;
	mark->end_ms = (double)end_ns / 1e6;
	return BETON_OK;
}

int dtrain__operation_wait(sync_operation *operation, dtrain_stream *stream, beton_error *err)
{
	if (!operation->work)
		return BETON_OK;
	return operation->on_stream ? wait_on_stream(operation, operation->mark, stream, err)
				    : wait_on_host(operation, operation->mark, stream, err);
}

void dtrain__operation_abandon(sync_operation *operation)
{
	if (operation->work)
		dtrain_work_wait(&operation->work, NULL);
}

int dtrain__sync_nothing(void *context, const dtrain__run *run, beton_error *err)
{
	(void)context;
	(void)run;
	(void)err;
	return BETON_OK;
}

int dtrain__sync_create_op(const dtrain_sync *sync, dtrain_op_desc *desc, dtrain_op **out, size_t *workspace,
			   beton_error *err)
{
	for (int i = 0; i < desc->num_inputs; i++) {
		dtrain_operand *input = &desc->inputs[i];
		input->bytes = (size_t)dtrain_shape_count(&input->shape) * dtrain_dtype_size(input->dtype);
	}
	desc->plain_output[0] = true;
	int status = sync->api->op_create(sync->device, desc, out, err);
	*workspace = desc->workspace_bytes > *workspace ? desc->workspace_bytes : *workspace;
	return status;
}
