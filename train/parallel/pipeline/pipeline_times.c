/* SPDX-License-Identifier: Apache-2.0
 *
 * When the actions of a step ran.
 */
#include <stdlib.h>

#include "common/error.h"
#include "common/system.h"
#include "pipeline.h"

enum { EVENTS = PIPELINE_ENDED + 1 };

int dtrain_pipeline_record_times(dtrain_pipeline *pipeline, beton_error *err)
{
	if (BT_MISSING(err, pipeline))
		return BETON_INVALID_ARGUMENT;
	const int32_t count = pipeline->num_actions * EVENTS;
	int status = BETON_OK;
	if (pipeline->times)
		return BETON_OK;
	pipeline->times = calloc((size_t)count + 1, sizeof(dtrain_event *));
	if (!pipeline->times)
		return bt_fail(err, BETON_NO_MEMORY, "pipeline: out of memory for the times of %d actions",
			       pipeline->num_actions);
	for (int32_t i = 0; i < count && status == BETON_OK; i++)
		status = pipeline->api->event_create(pipeline->device, &pipeline->times[i], err);
	if (status != BETON_OK)
		dtrain__pipeline_forget_times(pipeline);
	return status;
}

void dtrain__pipeline_forget_times(dtrain_pipeline *pipeline)
{
	for (int32_t i = 0; pipeline->times && i < pipeline->num_actions * EVENTS; i++)
		if (pipeline->times[i])
			pipeline->api->event_destroy(pipeline->times[i]);
	free(pipeline->times);
	pipeline->times = NULL;
}

/* Events have no date: the host's clock is read when the stream has reached the first one. */
static int mark_first(dtrain_pipeline *pipeline, dtrain_stream *stream, beton_error *err)
{
	int status = pipeline->api->stream_synchronize(stream, err);
	pipeline->began_ns = bt_now_ns();
	return status;
}

int dtrain__pipeline_mark(dtrain_pipeline *pipeline, pipeline_moment moment, dtrain_stream *stream, beton_error *err)
{
	int status = BETON_OK;
	if (!pipeline->times)
		return BETON_OK;
	if (pipeline->at == 0 && moment == PIPELINE_BEGAN)
		status = mark_first(pipeline, stream, err);
	return status == BETON_OK
		       ? pipeline->api->event_mark(pipeline->times[pipeline->at * EVENTS + (int)moment], stream, err)
		       : status;
}

/* Actions that wait for nothing mark no PIPELINE_READY. */
static bool waits(dtrain_action_kind kind)
{
	return kind == DTRAIN_ACTION_FORWARD || kind == DTRAIN_ACTION_BACKWARD || kind == DTRAIN_ACTION_INPUT_GRADIENT;
}

bool dtrain_pipeline_has_times(const dtrain_pipeline *pipeline)
{
	return pipeline && pipeline->times && pipeline->trains && pipeline->at == 0 && pipeline->began_ns;
}

int dtrain_pipeline_get_times(const dtrain_pipeline *pipeline, dtrain_pipeline_time *out, uint64_t *began_ns,
			      beton_error *err)
{
	if (BT_MISSING(err, pipeline, out, began_ns))
		return BETON_INVALID_ARGUMENT;
	if (!dtrain_pipeline_has_times(pipeline))
		return bt_fail(err, BETON_STATE, "pipeline: no times of a complete step with backward");
	int status = BETON_OK;
	*began_ns = pipeline->began_ns;
	for (int32_t i = 0; i < pipeline->num_actions && status == BETON_OK; i++) {
		dtrain_event **events = &pipeline->times[i * EVENTS];
		double ms[EVENTS] = {0};
		for (int k = 0; k < EVENTS && status == BETON_OK; k++)
			if (k != PIPELINE_READY || waits(pipeline->actions[i].kind))
				status = pipeline->api->event_elapsed_ms(pipeline->times[PIPELINE_BEGAN], events[k],
									 &ms[k], err);
		out[i] = (dtrain_pipeline_time){.action = pipeline->actions[i],
						.begin_ms = ms[PIPELINE_BEGAN],
						.ready_ms = waits(pipeline->actions[i].kind) ? ms[PIPELINE_READY]
											     : ms[PIPELINE_BEGAN],
						.end_ms = ms[PIPELINE_ENDED]};
	}
	return status;
}

int32_t dtrain_pipeline_actions(const dtrain_pipeline *pipeline)
{
	return pipeline ? pipeline->num_actions : 0;
}
