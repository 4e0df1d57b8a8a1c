/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective of a run: started when its input is complete on the stream, waited for where its output is needed.
 */
#include <stdlib.h>

#include "comm/group/work.h"
#include "common/error.h"
#include "common/system.h"
#include "sync.h"

static int add_to_traced(sync_operation *operation, int unit, beton_error *err)
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

int dtrain__operation_open(sync_operation *operation, dtrain_sync *sync, int unit, bool is_traced, beton_error *err)
{
	operation->sync = sync;
	operation->index = -1;
	return is_traced ? add_to_traced(operation, unit, err) : BETON_OK;
}

int dtrain__flight_open(const dtrain_sync *sync, sync_flight *flight, beton_error *err)
{
	return sync->api->event_create(sync->device, &flight->ready, err);
}

void dtrain__flight_close(const dtrain_sync *sync, sync_flight *flight)
{
	if (flight->ready)
		sync->api->event_destroy(flight->ready);
	flight->ready = NULL;
}

static int start(sync_flight *flight, const sync_transfer *t, const work_notes *notes, beton_error *err)
{
	switch (t->kind) {
	case SYNC_REDUCE_SCATTER:
		return dtrain__reduce_scatter_noted(t->group, t->output, t->input, t->count, t->dtype, t->op,
						    flight->ready, notes, &flight->work, err);
	case SYNC_ALL_GATHER:
		return dtrain__all_gather_noted(t->group, t->output, t->input, t->count, t->dtype, flight->ready, notes,
						&flight->work, err);
	case SYNC_ALL_TO_ALL:
		return dtrain__all_to_all_noted(t->group, t->output, t->input, t->count, t->dtype, flight->ready, notes,
						&flight->work, err);
	default:
		return dtrain__allreduce_noted(t->group, t->output, t->count, t->dtype, t->op, flight->ready, notes,
					       &flight->work, err);
	}
}

/* Bytes of the array that all ranks together make or read. */
static uint64_t bytes_of(const sync_transfer *transfer)
{
	uint64_t parts = transfer->kind == SYNC_ALLREDUCE ? 1 : (uint64_t)dtrain_group_size(transfer->group);
	return parts * (uint64_t)transfer->count * dtrain_dtype_size(transfer->dtype);
}

int dtrain__operation_issue(const sync_operation *operation, sync_flight *flight, const sync_transfer *transfer,
			    dtrain_stream *stream, bool traced, beton_error *err)
{
	dtrain_sync *sync = operation->sync;
	work_notes notes = {.label = operation->label};
	sync_trace_event *trace_event = flight->trace_event =
		traced ? dtrain__sync_trace_event_of(sync, operation) : NULL;
	if (trace_event) {
		trace_event->used = true;
		notes.begin = trace_event->begin;
		notes.end = trace_event->end;
		sync->trace->step.bytes += transfer->kind == SYNC_HOOK ? 0 : bytes_of(transfer);
	}
	flight->on_stream = dtrain__group_is_stream_ordered(transfer->group);
	int status = sync->api->event_record(flight->ready, stream, err);
	if (status == BETON_OK && transfer->kind == SYNC_HOOK)
		return dtrain__sync_begin_round(operation, flight, transfer, stream, &notes, err);
	return status == BETON_OK ? start(flight, transfer, &notes, err) : status;
}

static int wait_on_stream(const dtrain_device_api *api, sync_flight *flight, dtrain_stream *stream, beton_error *err)
{
	sync_trace_event *trace_event = flight->trace_event;
	int status = trace_event ? api->event_mark(trace_event->waiting, stream, err) : BETON_OK;
	if (status == BETON_OK)
		status = dtrain_work_stream_wait(&flight->work, stream, err);
	return status == BETON_OK && trace_event ? api->event_mark(trace_event->passed, stream, err) : status;
}

static int wait_on_host(const sync_operation *operation, sync_flight *flight, dtrain_stream *stream, beton_error *err)
{
	dtrain_sync *sync = operation->sync;
	sync_trace_event *trace_event = flight->trace_event;
	uint64_t start_ns, end_ns;
	int status = sync->api->stream_synchronize(stream, err);
	uint64_t began = bt_now_ns();
	if (status == BETON_OK)
		status = dtrain__work_wait_timed(&flight->work, &start_ns, &end_ns, err);
	const uint64_t waited_ns = bt_now_ns() - began;
	sync->model_waited_ns += operation->within_model ? waited_ns : 0;
	if (status != BETON_OK || !trace_event)
		return status;
	trace_event->exposed_ms = (double)waited_ns / 1e6;
	trace_event->begin_ms = (double)start_ns / 1e6;
	trace_event->end_ms = (double)end_ns / 1e6;
	return BETON_OK;
}

int dtrain__operation_wait(const sync_operation *operation, sync_flight *flight, dtrain_stream *stream,
			   beton_error *err)
{
	if (!flight->work)
		return BETON_OK;
	return flight->on_stream ? wait_on_stream(operation->sync->api, flight, stream, err)
				 : wait_on_host(operation, flight, stream, err);
}

void dtrain__flight_abandon(sync_flight *flight)
{
	if (flight->work)
		dtrain_work_wait(&flight->work, NULL);
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
